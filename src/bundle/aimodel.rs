//! Writes an `.aimodel` through Apple's serializer, and holds what is read back against what was to be written.

use super::{Tree, TreeError, path_like};
use crate::digest::Digest;
use crate::emit::coreai::{
    self, Bridge, BridgeError, CoreAiError, FunctionFacts, Line, Metadata, Program, ReadFunction,
};
use crate::tensor::WeightSource;
use crate::validate::Checked;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The program of a bundle, and the file with its digest.
const PROGRAM: &str = "main.mlirb";
const HASH: &str = "main.hash";

/// What was written, and found to be so.
#[derive(Clone, Debug, Serialize)]
pub struct AiModel {
    /// Every file of the bundle.
    pub tree: Tree,
    /// Functions whose outputs are computed from what was written.
    pub functions: Vec<String>,
    /// Operations of each type as written, constants included.
    pub ops: BTreeMap<String, usize>,
    /// Operations and constants read back.
    pub read_back: BTreeMap<String, usize>,
    /// Distinct blobs of weights.
    pub blobs_stored: usize,
    /// Bytes of values that were there already when a constant came to need them.
    pub bytes_shared: u64,
}

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AiModelError {
    #[error(transparent)]
    Write(#[from] CoreAiError),
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{what} could not be used")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("functions read back are {found:?}, written were {written:?}")]
    Functions { found: Vec<String>, written: Vec<String> },
    #[error("function {function}: {what} read back are {found:?}, written were {written:?}")]
    Features { function: String, what: &'static str, found: Vec<String>, written: Vec<String> },
    #[error("function {function}: output {output} read back is not computed from what was written")]
    Wiring { function: String, output: String },
    #[error("{HASH} is not the digest of {PROGRAM}")]
    Hash,
    #[error("{file} names a path of this machine: {found}")]
    Path { file: String, found: String },
}

/// Writes `functions` to the empty folder `out`. `scratch` is another empty folder on a disk with room for the weights.
///
/// # Errors
/// A graph cannot be said, the serializer fails, or what it wrote is not what it was given.
pub fn write_aimodel(
    functions: &[Checked<'_>],
    source: &dyn WeightSource,
    metadata: &Metadata,
    bridge: &Bridge,
    out: &Path,
    scratch: &Path,
) -> Result<AiModel, AiModelError> {
    let io = |what| move |source| AiModelError::Io { what, source };
    let weights = scratch.join("weights");
    let file = fs_err::File::create(&weights).map_err(io("the weight file"))?;
    let program = coreai::write(functions, source, file)?;
    bridge.save(&program, &weights, metadata, out, scratch)?;
    fs_err::remove_file(&weights).map_err(io("the weight file"))?;
    let read = bridge.read(out, scratch)?;
    same(&program, &read)?;
    let tree = Tree::of(out)?;
    same_hash(out, &tree)?;
    for file in &tree.files {
        let scan = fs_err::File::open(out.join(&file.path)).and_then(|f| path_like(f, 1)).map_err(io("the bundle"))?;
        if let Some(found) = scan.into_iter().next() {
            return Err(AiModelError::Path { file: file.path.clone(), found });
        }
    }
    let mut read_back = BTreeMap::new();
    for line in read.iter().flat_map(|f| &f.lines) {
        *read_back.entry(line.kind.clone()).or_default() += 1;
    }
    Ok(AiModel {
        tree,
        functions: read.into_iter().map(|f| f.name).collect(),
        ops: program.census(),
        read_back,
        blobs_stored: program.blobs.len(),
        bytes_shared: program.bytes_shared,
    })
}

fn same_hash(out: &Path, tree: &Tree) -> Result<(), AiModelError> {
    let stored = fs_err::read(out.join(HASH)).map_err(|source| AiModelError::Io { what: HASH, source })?;
    let program = tree.files.iter().find(|f| f.path == PROGRAM).ok_or(AiModelError::Hash)?;
    if stored == program.sha256.bytes() { Ok(()) } else { Err(AiModelError::Hash) }
}

/// Functions, features, and for each output a digest of all it is computed from: operations, their types, wiring and
/// the values of constants. The serializer may drop what nothing reads and merge what is equal.
fn same(program: &Program, read: &[ReadFunction]) -> Result<(), AiModelError> {
    let (found, written): (Vec<String>, Vec<String>) =
        (read.iter().map(|f| f.name.clone()).collect(), program.functions.iter().map(|f| f.name.clone()).collect());
    if found != written {
        return Err(AiModelError::Functions { found, written });
    }
    for (written, found) in program.functions.iter().zip(read) {
        same_function(written, found)?;
    }
    Ok(())
}

fn same_function(written: &FunctionFacts, found: &ReadFunction) -> Result<(), AiModelError> {
    let shown = |list: &[(String, String)]| list.iter().map(|(n, t)| format!("{n} {t}")).collect::<Vec<_>>();
    let sides = [("inputs", &written.inputs, &found.inputs), ("outputs", &written.outputs, &found.outputs)];
    for (what, written_side, found_side) in sides {
        let (found, written_side) = (shown(found_side), shown(&coreai::types(written_side)));
        if found != written_side {
            return Err(AiModelError::Features { function: written.name.clone(), what, found, written: written_side });
        }
    }
    let inputs = shown(&found.inputs);
    let (found, ours) = (signatures(&inputs, &found.lines), signatures(&inputs, &written.lines));
    let mut outputs = written.outputs.iter().zip(ours).enumerate();
    match outputs.find(|(at, (_, ours))| found.get(*at) != Some(ours)) {
        Some((_, ((output, _), _))) => {
            Err(AiModelError::Wiring { function: written.name.clone(), output: output.clone() })
        }
        None => Ok(()),
    }
}

/// For each output, a digest of all it is computed from. The serializer writes a reshaped constant as a constant of
/// the new shape, so the two count as the same.
fn signatures(inputs: &[String], lines: &[Line]) -> Vec<Digest> {
    let mut known: Vec<(Digest, Option<Digest>)> =
        inputs.iter().map(|input| (Digest::of(input.as_bytes()), None)).collect();
    for line in lines {
        let operands: Vec<_> = line.operands.iter().filter_map(|at| known.get(*at).copied()).collect();
        if line.results.is_empty() {
            return operands.into_iter().map(|(digest, _)| digest).collect();
        }
        let reshaped = operands.first().and_then(|(_, value)| *value).filter(|_| line.kind == "coreai.reshape");
        let value = line.value.or(reshaped);
        let text = match value {
            Some(value) => format!("{:?} {value}", line.results),
            None => format!("{} {:?} {:?}", line.kind, line.results, operands.iter().map(|o| o.0).collect::<Vec<_>>()),
        };
        known.extend((0..line.results.len()).map(|n| (Digest::of(format!("{n} {text}").as_bytes()), value)));
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, operands: &[usize], value: Option<&[u8]>) -> Line {
        let results = if kind == "output" { Vec::new() } else { vec!["tensor<2xf32>".into()] };
        Line { kind: kind.into(), operands: operands.into(), results, value: value.map(Digest::of) }
    }

    #[test]
    fn signatures_see_values_and_wiring_and_not_order() {
        let inputs = ["x tensor<2xf32>".to_string()];
        let of = |lines: &[Line]| signatures(&inputs, lines);
        let (a, b) = (line("constant", &[], Some(b"a")), line("constant", &[], Some(b"b")));
        let base = of(&[a.clone(), b.clone(), line("sub", &[1, 2], None), line("output", &[3], None)]);
        assert_eq!(base, of(&[b.clone(), a.clone(), line("sub", &[2, 1], None), line("output", &[3], None)]));
        assert_ne!(base, of(&[a.clone(), b.clone(), line("sub", &[2, 1], None), line("output", &[3], None)]));
        assert_ne!(base, of(&[a.clone(), a.clone(), line("sub", &[1, 2], None), line("output", &[3], None)]));
        assert_ne!(base, of(&[a.clone(), b.clone(), line("add", &[1, 2], None), line("output", &[3], None)]));
        assert_ne!(base, of(&[a, b, line("sub", &[1, 2], None), line("output", &[3, 3], None)]));
    }
}
