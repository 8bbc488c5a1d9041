//! Reads a written `.mlpackage` back and holds it against what the writer says it wrote.

use super::{Tree, TreeError};
use crate::digest::Digest;
use crate::emit::mil::read::{Constant, Content, Package, ReadError, Violation, WeightScan};
use crate::emit::mil::{ConstantName, MilReport, ValueDigest, ValueHasher};
use crate::ir::{Graph, Materializer, Op, Source, ValueId};
use crate::tensor::Fact;
use crate::validate::Checked;
use serde::Serialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// What was found the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadBack {
    /// Every file of the package.
    pub tree: Tree,
    /// Functions lifted back, which compute what the graphs compute from the same inputs.
    pub functions: usize,
    /// Operations, counted by type as the writer counted them.
    pub operations: usize,
    /// Constants whose values have the digest that the writer noted.
    pub constants: usize,
}

/// What differs between a package and what was to be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReadBackError {
    #[error("what was written cannot be read back")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("what was written breaks a rule: {0}")]
    Violation(Violation),
    #[error("{found} operations of type {kind} were read back, {written} were written")]
    Census { kind: String, found: usize, written: usize },
    #[error("functions read back are {found:?}, written were {written:?}")]
    Functions { found: Vec<String>, written: Vec<String> },
    #[error("function {function}: {what} read back are {found}, written were {written}")]
    Features { function: String, what: &'static str, found: String, written: String },
    #[error("function {function}: output {output} is not computed from what was written")]
    Wiring { function: String, output: String },
    #[error("function {function}: values of constant {name} read back are not those written")]
    Values { function: String, name: String },
    #[error("constants read back are {found}, written were {written}")]
    Constants { found: usize, written: usize },
    #[error("{path} read back is not what was written")]
    File { path: String },
}

/// Reads the package in `dir` back: its operations, features, wiring and the values of every constant must be what
/// `report` and `functions` say. Every byte of it is read once.
///
/// # Errors
/// The first difference found.
pub fn read_back(dir: &Path, report: &MilReport, functions: &[Checked<'_>]) -> Result<ReadBack, ReadBackError> {
    let package = Package::open(dir)?;
    if let Some(violation) = package.violations().first() {
        return Err(ReadBackError::Violation(violation.clone()));
    }
    let census = package.census();
    for kind in census.keys().chain(report.ops.keys()) {
        let of = |census: &BTreeMap<String, usize>| census.get(kind).copied().unwrap_or(0);
        let (found, written) = (of(&census), of(&report.ops));
        if found != written {
            return Err(ReadBackError::Census { kind: kind.clone(), found, written });
        }
    }
    same_functions(&package, report, functions)?;
    let scan = package.scan()?;
    let constants = same_values(&package, report, scan.as_ref())?;
    same_graphs(&package, report, functions, scan.as_ref())?;
    let known: BTreeMap<PathBuf, (Digest, u64)> = package
        .weights_path()
        .zip(scan)
        .map(|(path, scan)| (path.to_owned(), (scan.sha256, scan.size)))
        .into_iter()
        .collect();
    let tree = Tree::with(dir, &known)?;
    same_file(dir, &tree, package.model_path(), report.model)?;
    same_file(dir, &tree, package.manifest_path(), report.manifest)?;
    Ok(ReadBack { tree, functions: functions.len(), operations: census.values().sum(), constants })
}

fn same_functions(package: &Package, report: &MilReport, functions: &[Checked<'_>]) -> Result<(), ReadBackError> {
    let found: Vec<String> = package.functions().iter().map(|f| f.name.clone()).collect();
    let mut written = report.functions.clone();
    written.sort();
    if found != written || functions.len() != report.functions.len() {
        return Err(ReadBackError::Functions { found, written });
    }
    Ok(())
}

/// Lifts each function and compares it with its graph: features by name, dtype and shape, and what each output is
/// computed from, down to the values of constants.
fn same_graphs(
    package: &Package,
    report: &MilReport,
    functions: &[Checked<'_>],
    scan: Option<&WeightScan>,
) -> Result<(), ReadBackError> {
    for ((name, checked), written) in report.functions.iter().zip(functions).zip(&report.nodes) {
        let (lifted, graph) = (package.lift(name)?, checked.graph());
        for (what, of) in [("inputs", inputs as fn(&Graph) -> Features), ("outputs", outputs)] {
            let (found, written) = (of(&lifted), of(graph));
            if found != written {
                let (found, written) = (shown(&found), shown(&written));
                return Err(ReadBackError::Features { function: name.clone(), what, found, written });
            }
        }
        let found = signatures(&lifted, |value| lifted_digest(package, &lifted, value, scan));
        let written = signatures(graph, |value| written.get(&value.index()).copied());
        // The outputs were just found to be the same by name and order.
        let mut outputs = graph.outputs().iter().zip(lifted.outputs());
        if let Some((output, _)) = outputs.find(|(w, f)| written[w.value.index()] != found[f.value.index()]) {
            return Err(ReadBackError::Wiring { function: name.clone(), output: output.name.clone() });
        }
    }
    Ok(())
}

/// For each node, a digest of all it is computed from. Paths do not count, nor does the order of independent nodes.
fn signatures(graph: &Graph, mut values: impl FnMut(ValueId) -> Option<ValueDigest>) -> Vec<Digest> {
    let mut known: Vec<(Digest, Option<ValueDigest>)> = Vec::new();
    for (value, node) in graph.nodes() {
        let constant = if let Op::Const(_) = node.op { values(value) } else { None };
        let mut text = match constant {
            Some(digest) => format!("{} {digest:?}", node.fact),
            None => format!("{} {:?}", node.fact, node.op),
        };
        for (position, arg) in node.args.iter().enumerate() {
            let (digest, values) = &known[arg.index()];
            let bias = position == 2 && node.op == Op::Linear;
            // A layer without bias is written with one of zeros.
            if !(bias && *values == Some(zeros(graph.fact(*arg)))) {
                text.push_str(&format!(" {digest}"));
            }
        }
        known.push((Digest::of(text.as_bytes()), constant));
    }
    known.into_iter().map(|(digest, _)| digest).collect()
}

fn zeros(fact: &Fact) -> ValueDigest {
    ValueDigest::of(fact.dtype, &vec![0; fact.bytes()])
}

/// Digest of a lifted constant: a tensor's is that of its bytes in the package, a literal's is made of its numbers.
fn lifted_digest(package: &Package, graph: &Graph, value: ValueId, scan: Option<&WeightScan>) -> Option<ValueDigest> {
    let weight = graph.constant(value)?;
    match weight.source() {
        Source::Tensor(name) => digest_of(package.constants().get(name)?, scan),
        Source::Literal(_) | Source::Table(_) => {
            let mut hasher = ValueHasher::new(weight.fact().dtype);
            let made = Materializer::new(package).stream(weight, |bytes| {
                hasher.update(bytes);
                Ok::<_, Infallible>(())
            });
            made.ok().map(|()| hasher.finish())
        }
    }
}

type Features = Vec<(String, Fact)>;

fn inputs(graph: &Graph) -> Features {
    let named = |value: &ValueId| {
        let node = graph.node(*value);
        if let Op::Input(name) = &node.op { Some((name.clone(), node.fact.clone())) } else { None }
    };
    graph.inputs().iter().filter_map(named).collect()
}

fn outputs(graph: &Graph) -> Features {
    graph.outputs().iter().map(|output| (output.name.clone(), graph.fact(output.value).clone())).collect()
}

fn shown(features: &Features) -> String {
    let each: Vec<String> = features.iter().map(|(name, fact)| format!("{name} {fact}")).collect();
    each.join(", ")
}

/// Compares the digest of each constant's values; returns how many there are.
fn same_values(package: &Package, report: &MilReport, scan: Option<&WeightScan>) -> Result<usize, ReadBackError> {
    let mut found = 0;
    for constant in package.constants().values() {
        let Some(digest) = digest_of(constant, scan) else { continue };
        found += 1;
        let (function, name) = (constant.function.clone(), constant.name.clone());
        let written = report.values.get(&ConstantName { function: function.clone(), name: name.clone() });
        if written != Some(&digest) {
            return Err(ReadBackError::Values { function, name });
        }
        if let (Content::Blob(offset), Some(scan)) = (&constant.content, scan)
            && scan.not_finite.contains(offset)
        {
            return Err(ReadBackError::Violation(Violation::NotFinite { function, name }));
        }
    }
    if found == report.values.len() {
        Ok(found)
    } else {
        Err(ReadBackError::Constants { found, written: report.values.len() })
    }
}

fn digest_of(constant: &Constant, scan: Option<&WeightScan>) -> Option<ValueDigest> {
    match &constant.content {
        Content::Immediate(bytes) => Some(ValueDigest::of(constant.kind.element.dtype()?, bytes)),
        Content::Blob(offset) => scan?.values.get(offset).copied(),
        Content::Strings(_) | Content::Misfit(_) => None,
    }
}

fn same_file(dir: &Path, tree: &Tree, path: &Path, written: Digest) -> Result<(), ReadBackError> {
    let file = tree.files.iter().find(|file| dir.join(&file.path) == path);
    if file.is_some_and(|file| file.sha256 == written) {
        Ok(())
    } else {
        Err(ReadBackError::File { path: path.display().to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::mil::sample::{compressed, every_op, weights};
    use crate::emit::mil::{Description, write};
    use crate::tensor::DType;
    use crate::validate::check;

    const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
    const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";

    /// What reading back finds after `change` of a file.
    fn changed(names: &[&str], file: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<ReadBack, ReadBackError> {
        let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
        let graphs: Vec<Graph> = names.iter().map(|name| every_op(name, &memory, DType::F16)).collect();
        let checked: Vec<_> = graphs.iter().map(|graph| check(graph).unwrap()).collect();
        let report = write(&checked, &memory, &Description::default(), dir.path()).unwrap();
        let path = dir.path().join(file);
        let mut bytes = fs_err::read(&path).unwrap();
        change(&mut bytes);
        fs_err::write(path, bytes).unwrap();
        let read = read_back(dir.path(), &report, &checked);
        if let Ok(read) = &read {
            assert_eq!(read.tree, Tree::of(dir.path()).unwrap());
        }
        read
    }

    fn replaced(bytes: &mut [u8], from: &[u8], to: &[u8]) {
        assert_eq!(from.len(), to.len());
        let places: Vec<usize> =
            bytes.windows(from.len()).enumerate().filter(|(_, w)| *w == from).map(|(i, _)| i).collect();
        assert!(!places.is_empty());
        for at in places {
            bytes[at..at + to.len()].copy_from_slice(to);
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        for names in [&["main"][..], &["short", "long"]] {
            let read = changed(names, MODEL, |_| {}).unwrap();
            assert_eq!((read.functions, read.tree.files.len()), (names.len(), 3));
        }
    }

    #[test]
    fn compressed_constants_are_read_back() {
        let (dir, memory) = (tempfile::tempdir().unwrap(), weights());
        let graph = compressed("main", &memory);
        let checked = [check(&graph).unwrap()];
        let report = write(&checked, &memory, &Description::default(), dir.path()).unwrap();
        read_back(dir.path(), &report, &checked).unwrap();
        let path = dir.path().join(WEIGHTS);
        let mut bytes = fs_err::read(&path).unwrap();
        // The first level of the first blob.
        bytes[128] ^= 1;
        fs_err::write(path, bytes).unwrap();
        let found = read_back(dir.path(), &report, &checked).unwrap_err();
        insta::assert_snapshot!(found, @"function main: values of constant flat_weight.data read back are not those written");
    }

    #[test]
    fn each_change_is_found() {
        let found = |file, change: fn(&mut Vec<u8>)| changed(&["main"], file, change).unwrap_err().to_string();
        insta::assert_snapshot!(found(WEIGHTS, |b| b[130] ^= 1), @"function main: values of constant conv2d_weight read back are not those written");
        insta::assert_snapshot!(found(WEIGHTS, |b| b[128..130].copy_from_slice(&[0, 0x7c])), @"function main: values of constant conv2d_weight read back are not those written");
        insta::assert_snapshot!(found(WEIGHTS, |b| b.push(0)), @"what was written breaks a rule: weight file: length is 857, expected 856");
        insta::assert_snapshot!(found(MODEL, |b| replaced(b, b"sigmoid", b"sigmoyd")), @"1 operations of type sigmoyd were read back, 0 were written");
        // The division reads the difference in place of the product.
        insta::assert_snapshot!(found(MODEL, |b| replaced(b, b"\x0a\x05\x0a\x03mul", b"\x0a\x05\x0a\x03sub")), @"function main: output soft_tokens is not computed from what was written");
        insta::assert_snapshot!(found(MODEL, |b| replaced(b, b"linear_same", b"linear_sams")), @"function main: values of constant linear_sams read back are not those written");
        let manifest = changed(&["main"], "Manifest.json", |b| b.push(b' '));
        assert!(matches!(manifest, Err(ReadBackError::File { .. })), "{manifest:?}");
    }
}
