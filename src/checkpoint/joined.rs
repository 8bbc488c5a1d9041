//! Two checkpoints as one weight source: the weights of a model and its table, which comes in a file of its own.

use super::{Checkpoint, CheckpointError};
use crate::tensor::{Fact, SourceError, WeightSource};
use std::path::{Path, PathBuf};

/// The name a table has in a file of several tensors.
const TABLE: &str = "table";

/// Most names that a message lists.
const LISTED: usize = 8;

/// All tensors of one checkpoint, and one tensor of another under a name of the caller's.
#[derive(Debug)]
pub struct Joined {
    weights: Checkpoint,
    table: Checkpoint,
    stored: String,
    name: String,
}

impl Joined {
    /// Joins `weights` and the tensor `stored` of `table`, which is called `name` from here on.
    ///
    /// # Errors
    /// `table` lacks that tensor, or `weights` has one called `name`.
    pub fn new(weights: Checkpoint, table: Checkpoint, stored: &str, name: &str) -> Result<Joined, CheckpointError> {
        if weights.names().binary_search(&name).is_ok() {
            if weights.files() == table.files() {
                return Err(CheckpointError::Same { file: table.place(stored) });
            }
            let (first, second) = (weights.place(name), table.place(stored));
            return Err(CheckpointError::Twice { tensor: name.into(), first, second });
        }
        let stored = sole_tensor(&table, Some(stored))?.to_string();
        Ok(Joined { weights, table, stored, name: name.into() })
    }

    /// Every file that was opened.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.weights.files().iter().chain(self.table.files()).map(PathBuf::as_path)
    }

    /// Who has `name`, and under which name.
    fn of<'n>(&'n self, name: &'n str) -> (&'n Checkpoint, &'n str) {
        if name == self.name { (&self.table, &self.stored) } else { (&self.weights, name) }
    }
}

impl WeightSource for Joined {
    fn names(&self) -> Vec<&str> {
        let mut names = self.weights.names();
        let at = names.partition_point(|n| *n < self.name.as_str());
        names.insert(at, &self.name);
        names
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        if name == self.name { self.table.fact(&self.stored) } else { self.weights.fact(name) }
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let (source, name) = self.of(name);
        source.read(name, offset, out)
    }

    fn stretch(&self, name: &str) -> Option<(PathBuf, u64)> {
        let (source, name) = self.of(name);
        source.stretch(name)
    }

    fn place(&self, name: &str) -> String {
        let (source, name) = self.of(name);
        source.place(name)
    }
}

/// The tensor of a table's file: the one called `wanted` where that is given, else the only one, else the one called
/// `table`.
///
/// # Errors
/// There is no such tensor; the message lists those there are.
pub fn sole_tensor<'a>(table: &'a Checkpoint, wanted: Option<&str>) -> Result<&'a str, CheckpointError> {
    let names = table.names();
    let called = |name: &str| names.iter().copied().find(|n| *n == name);
    let found = match (wanted, &names[..]) {
        (Some(wanted), _) => called(wanted),
        (None, [only]) => Some(*only),
        (None, _) => called(TABLE),
    };
    found.ok_or_else(|| {
        let (file, tensor) = (table.place(""), wanted.unwrap_or(TABLE).into());
        let names: Vec<String> = names.iter().take(LISTED).map(|n| n.to_string()).collect();
        let more = table.names().len() - names.len();
        CheckpointError::NotSole { file, tensor, names, more }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn open(name: &str) -> Checkpoint {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reader_inputs");
        Checkpoint::open(&folder.join(name)).unwrap()
    }

    #[test]
    fn weights_and_a_table_are_one_source() {
        let joined = Joined::new(open("nested.pt"), open("float16.npy"), "tensor", "model.table").unwrap();
        assert!(joined.names().is_sorted() && joined.names().contains(&"model.table"));
        assert_eq!(joined.names().len(), open("nested.pt").names().len() + 1);
        assert_eq!(joined.fact("model.table").unwrap().to_string(), "f16[2,3]");
        assert_eq!((joined.fact("tensor"), joined.fact("model.0.bias").is_some()), (None, true));
        let mut values = [0f32; 2];
        joined.read_f32("model.table", 1, &mut values).unwrap();
        assert_eq!(values, [-0.5, 0.0]);
        joined.read_f32("extra.gain", 0, &mut values).unwrap();
        assert_eq!(values, [-1.0, -0.5]);
        let (file, begin) = joined.stretch("model.table").unwrap();
        assert_eq!((file.file_name().unwrap().to_str(), begin), (Some("float16.npy"), 128));
        assert_eq!(joined.place("model.table"), "float16.npy");
        let files: Vec<_> = joined.files().map(|f| f.file_name().unwrap().to_string_lossy()).collect();
        assert_eq!(files, ["nested.pt", "float16.npy"]);
        insta::assert_snapshot!(joined.read("tensor", 0, &mut [0]).unwrap_err(), @"tensor tensor is not in nested.pt");
    }

    #[test]
    fn a_name_in_both_is_refused() {
        insta::assert_snapshot!(Joined::new(open("nested.pt"), open("float16.npy"), "tensor", "model.0.bias").unwrap_err(), @"tensor model.0.bias is in both nested.pt and float16.npy");
        insta::assert_snapshot!(Joined::new(open("float16.npy"), open("float16.npy"), "tensor", "tensor").unwrap_err(), @"float16.npy is given for both the weights and the table, expected a file of each");
        // Also where it holds a dtype that is not read.
        insta::assert_snapshot!(Joined::new(open("float8.pt"), open("float16.npy"), "tensor", "weight").unwrap_err(), @"tensor weight is in both float8.pt and float16.npy");
        insta::assert_snapshot!(Joined::new(open("nested.pt"), open("float16.npy"), "rows", "table").unwrap_err(), @"float16.npy has no tensor rows; it has tensor");
    }

    #[test]
    fn the_table_of_a_file() {
        assert_eq!(sole_tensor(&open("float16.npy"), None).unwrap(), "tensor");
        assert_eq!(sole_tensor(&open("parameter.pt"), None).unwrap(), "weight");
        assert_eq!(sole_tensor(&open("state.pt"), Some("rows.rest")).unwrap(), "rows.rest");
        assert_eq!(sole_tensor(&open("table.pt"), None).unwrap(), "table");
        insta::assert_snapshot!(sole_tensor(&open("state.pt"), None).unwrap_err(), @"state.pt has no tensor table; it has bfloat16, bool, column, float16, float32, float64, int16, int32 and 8 more");
        insta::assert_snapshot!(sole_tensor(&open("float8.pt"), None).unwrap_err(), @"float8.pt has no tensor table; it has bias, weight");
        insta::assert_snapshot!(sole_tensor(&open("float16.npy"), Some("table")).unwrap_err(), @"float16.npy has no tensor table; it has tensor");
    }
}
