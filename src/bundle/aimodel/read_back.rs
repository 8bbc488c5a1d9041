//! Holds an `.aimodel` that Apple's serializer wrote against what it was given.

use super::{HASH, PROGRAM};
use crate::bundle::bytecode::{Bytecode, BytecodeError};
use crate::bundle::stored::{Expected, StoredError, check_stored};
use crate::bundle::{Tree, TreeError, path_like};
use crate::digest::Digest;
use crate::emit::coreai::{
    self, Blob, BridgeError, FunctionFacts, Line, Program, ReadFunction, ReadLine, ReadValue, Worker,
};
use crate::files;
use blake3::Hash;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// What was found the same.
#[derive(Clone, Debug, Serialize)]
pub struct AiModelReadBack {
    /// Every file of the bundle.
    pub tree: Tree,
    /// Functions whose outputs are computed from what was written.
    pub functions: usize,
    /// Operations and constants of each type, as they stand in the bundle.
    pub ops: BTreeMap<String, usize>,
}

/// What differs between a bundle and what was to be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AiModelReadBackError {
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{what} could not be read back")]
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
    #[error("functions read back have {ours:?} operations in the file, {apples:?} by Apple's reader")]
    Counts { ours: Vec<usize>, apples: Vec<usize> },
    #[error(transparent)]
    Bytecode(#[from] BytecodeError),
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error("the thread that compares weights ended")]
    Thread,
    #[error("{file} names a path of this machine: {found}")]
    Path { file: String, found: String },
}

/// Reads the bundle in `dir` back, and gives it its `main.hash`. Apple's reader tells functions, features and all that
/// each output is computed from; meanwhile the weights in the file are hashed. All must be what `program` says.
///
/// # Errors
/// The first difference found.
pub fn read_back_aimodel(
    dir: &Path,
    program: &Program,
    reader: Worker,
) -> Result<AiModelReadBack, AiModelReadBackError> {
    let file = dir.join(PROGRAM);
    let bytecode = Bytecode::open(&file)?;
    let blobs = program.blobs.iter().map(|blob| (blob.name.as_str(), expected(blob))).collect();
    let (stored, read) = std::thread::scope(|scope| {
        let stored = scope.spawn(|| check_stored(&file, &bytecode, &blobs));
        let read = reader.read(dir);
        (stored.join(), read)
    });
    let read = read?;
    let sha256 = stored.map_err(|_| AiModelReadBackError::Thread)??;
    same(program, &read)?;
    same_counts(&bytecode, &read)?;
    fs_err::write(dir.join(HASH), sha256.bytes()).map_err(io)?;
    let tree = Tree::with(dir, &BTreeMap::from([(file, (sha256, bytecode.bytes))]))?;
    no_paths(dir, &tree)?;
    let mut ops = BTreeMap::new();
    for line in read.iter().flat_map(|f| &f.lines) {
        *ops.entry(line.kind.clone()).or_default() += 1;
    }
    Ok(AiModelReadBack { tree, functions: read.len(), ops })
}

fn io(source: io::Error) -> AiModelReadBackError {
    AiModelReadBackError::Io { what: "the bundle", source }
}

/// Apple's reader and ours must agree on how many operations each function has.
fn same_counts(bytecode: &Bytecode, read: &[ReadFunction]) -> Result<(), AiModelReadBackError> {
    let ours = bytecode.functions.iter().map(|f| f.ops.values().sum()).collect::<Vec<usize>>();
    let apples: Vec<usize> = read.iter().map(|f| f.lines.len()).collect();
    if ours == apples { Ok(()) } else { Err(AiModelReadBackError::Counts { ours, apples }) }
}

fn expected(blob: &Blob) -> Expected<'_> {
    match &blob.file {
        Some(file) if blob.unread => Expected::Copy(blob.bytes, file, blob.offset),
        Some(_) | None => Expected::Hash(blob.bytes, blob.hash),
    }
}

/// The program itself is searched while its weights are compared.
fn no_paths(dir: &Path, tree: &Tree) -> Result<(), AiModelReadBackError> {
    for file in tree.files.iter().filter(|file| file.path != PROGRAM) {
        let scan = files::open(&dir.join(&file.path)).and_then(|f| path_like(f, 1)).map_err(io)?;
        if let Some(found) = scan.into_iter().next() {
            return Err(AiModelReadBackError::Path { file: file.path.clone(), found });
        }
    }
    Ok(())
}

/// Functions, features, and for each output a digest of all it is computed from: operations, their types, wiring and
/// the values of constants. The serializer may drop what nothing reads and merge what is equal.
fn same(program: &Program, read: &[ReadFunction]) -> Result<(), AiModelReadBackError> {
    let (found, written): (Vec<String>, Vec<String>) =
        (read.iter().map(|f| f.name.clone()).collect(), program.functions.iter().map(|f| f.name.clone()).collect());
    if found != written {
        return Err(AiModelReadBackError::Functions { found, written });
    }
    let stored = program.blobs.iter().map(|blob| (blob.name.as_str(), blob.hash)).collect();
    for (written, found) in program.functions.iter().zip(read) {
        same_function(written, found, &stored)?;
    }
    Ok(())
}

fn same_function(
    written: &FunctionFacts,
    found: &ReadFunction,
    stored: &BTreeMap<&str, Hash>,
) -> Result<(), AiModelReadBackError> {
    let shown = |list: &[(String, String)]| list.iter().map(|(n, t)| format!("{n} {t}")).collect::<Vec<_>>();
    let sides = [("inputs", &written.inputs, &found.inputs), ("outputs", &written.outputs, &found.outputs)];
    for (what, written_side, found_side) in sides {
        let (found, written_side) = (shown(found_side), shown(&coreai::types(written_side)));
        if found != written_side {
            return Err(AiModelReadBackError::Features {
                function: written.name.clone(),
                what,
                found,
                written: written_side,
            });
        }
    }
    let inputs = shown(&found.inputs);
    let lines: Vec<Line> = found.lines.iter().map(|line| with_hash(line, stored)).collect();
    let (found, ours) = (signatures(&inputs, &lines), signatures(&inputs, &written.lines));
    let mut outputs = written.outputs.iter().zip(ours).enumerate();
    match outputs.find(|(at, (_, ours))| found.get(*at) != Some(ours)) {
        Some((_, ((output, _), _))) => {
            Err(AiModelReadBackError::Wiring { function: written.name.clone(), output: output.clone() })
        }
        None => Ok(()),
    }
}

/// The operation with the hash of its values; stored ones are compared under their name.
fn with_hash(line: &ReadLine, stored: &BTreeMap<&str, Hash>) -> Line {
    let value = line.value.as_ref().and_then(|value| match value {
        ReadValue::Inline(digits) => bytes_of(digits).map(|bytes| blake3::hash(&bytes)),
        ReadValue::Stored(name) => stored.get(name.as_str()).copied(),
    });
    Line { kind: line.kind.clone(), operands: line.operands.clone(), results: line.results.clone(), value }
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    pairs.iter().map(byte).collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// For each output, a digest of all it is computed from. The serializer writes a reshaped constant as a constant of
/// the new shape, so the two count as the same.
fn signatures(inputs: &[String], lines: &[Line]) -> Vec<Digest> {
    let mut known: Vec<(Digest, Option<Hash>)> =
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
        Line { kind: kind.into(), operands: operands.into(), results, value: value.map(blake3::hash) }
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
