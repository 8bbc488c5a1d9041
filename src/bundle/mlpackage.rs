//! Reads a written `.mlpackage` back and holds it against what the writer says it wrote.

use super::{Tree, TreeError};
use crate::digest::Digest;
use crate::emit::mil::read::{Constant, Content, Package, ReadError, Violation, WeightScan};
use crate::emit::mil::{ConstantName, MilReport, ValueDigest};
use crate::ir::{Graph, Op};
use crate::tensor::Fact;
use crate::validate::Checked;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What was found the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReadBack {
    /// Every file of the package.
    pub tree: Tree,
    /// Functions lifted back, whose inputs and outputs are those of the graphs.
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
    #[error("operations read back are {found:?}, written were {written:?}")]
    Census { found: BTreeMap<String, usize>, written: BTreeMap<String, usize> },
    #[error("functions read back are {found:?}, written were {written:?}")]
    Functions { found: Vec<String>, written: Vec<String> },
    #[error("function {function}: {what} read back are {found}, written were {written}")]
    Features { function: String, what: &'static str, found: String, written: String },
    #[error("function {function}: values of constant {name} read back are not those written")]
    Values { function: String, name: String },
    #[error("constants read back are {found}, written were {written}")]
    Constants { found: usize, written: usize },
    #[error("{path} read back is not what was written")]
    File { path: String },
}

/// Reads the package in `dir` back: its operations, features and the values of every constant must be what `report`
/// and `functions` say. Every byte of it is read once.
///
/// # Errors
/// The first difference found.
pub fn read_back(dir: &Path, report: &MilReport, functions: &[Checked<'_>]) -> Result<ReadBack, ReadBackError> {
    let package = Package::open(dir)?;
    if let Some(violation) = package.violations().first() {
        return Err(ReadBackError::Violation(violation.clone()));
    }
    let census = package.census();
    if census != report.ops {
        return Err(ReadBackError::Census { found: census, written: report.ops.clone() });
    }
    same_functions(&package, report, functions)?;
    let scan = package.scan()?;
    let constants = same_values(&package, report, scan.as_ref())?;
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
    for (name, checked) in report.functions.iter().zip(functions) {
        let (lifted, graph) = (package.lift(name)?, checked.graph());
        for (what, of) in [("inputs", inputs as fn(&Graph) -> Features), ("outputs", outputs)] {
            let (found, written) = (of(&lifted), of(graph));
            if found != written {
                let (found, written) = (shown(&found), shown(&written));
                return Err(ReadBackError::Features { function: name.clone(), what, found, written });
            }
        }
    }
    Ok(())
}

type Features = Vec<(String, Fact)>;

fn inputs(graph: &Graph) -> Features {
    let named = |value: &crate::ir::ValueId| match &graph.node(*value).op {
        Op::Input(name) => Some((name.clone(), graph.fact(*value).clone())),
        _ => None,
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
