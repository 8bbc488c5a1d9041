//! What is in a `.mlpackage`, ours or not.

use super::{InspectError, hashed_and_scanned};
use crate::analysis;
use crate::bundle::Tree;
use crate::digest::Digest;
use crate::emit::mil::read::{Constant, Content, Element, Feature, Function, Package, ValueKind};
use crate::pipeline::told::name_of;
use crate::provenance::{NotRun, needs_a_load};
use crate::target::{NEURAL_ENGINE_RANK, Rule};
use crate::tensor::DType;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Everything found in a `.mlpackage`.
#[derive(Debug, Serialize)]
pub struct PackageView {
    /// Folder name.
    pub artefact: String,
    /// Bundle format.
    pub format: &'static str,
    /// Specification version of the model.
    pub specification: u64,
    /// Text for people, and custom entries, by key.
    pub metadata: BTreeMap<String, String>,
    /// Digest of the sorted lines `sha256  path`.
    pub digest_root: Digest,
    /// Every file.
    pub tree: Tree,
    /// Each function.
    pub functions: Vec<FunctionView>,
    /// Constants of all functions, each stored blob counted once.
    pub weights: WeightView,
    /// Rules of the Neural Engine that an fp16 graph must keep, and where they are broken.
    pub placement_blockers: Vec<BlockerView>,
    /// Faults that Core ML's tools let pass.
    pub violations: Vec<String>,
    /// Why the reader cannot lift every function back into a graph, so that it cannot be run here; none where it can.
    pub not_liftable: Option<String>,
    /// Path-like strings in any file.
    pub path_like: Vec<String>,
    /// What this look cannot tell.
    pub not_run: Vec<NotRun>,
}

/// One function of a package.
#[derive(Debug, Serialize)]
pub struct FunctionView {
    /// Its name.
    pub name: String,
    /// Its opset.
    pub opset: String,
    /// `name dtype[shape]` of each input.
    pub inputs: Vec<String>,
    /// The same of each output.
    pub outputs: Vec<String>,
    /// The same of each state.
    pub states: Vec<String>,
    /// Operations by type, constants apart.
    pub ops: BTreeMap<String, usize>,
    /// Constants.
    pub constants: usize,
    /// Highest rank of a value.
    pub max_rank: usize,
}

/// What constants cost.
#[derive(Debug, Default, Serialize)]
pub struct WeightView {
    /// Stored bytes by element type.
    pub bytes: BTreeMap<String, u64>,
    /// All of them.
    pub total_bytes: u64,
    /// Elements behind them.
    pub elements: u64,
    /// Bits that an element takes on average.
    pub bits_per_weight: f64,
}

/// A broken rule and where.
#[derive(Debug, Serialize)]
pub struct BlockerView {
    /// The rule.
    pub rule: Rule,
    /// What it costs.
    pub effect: &'static str,
    /// How that is known.
    pub source: &'static str,
    /// How often it is broken.
    pub count: usize,
    /// The first place.
    pub first: String,
}

/// Looks into the package at `path`.
///
/// # Errors
/// It is no package, or a file of it cannot be read.
pub(super) fn view(path: &Path) -> Result<PackageView, InspectError> {
    let package = Package::open(path)?;
    let (tree, paths) = hashed_and_scanned(path)?;
    let lifted: Vec<_> = package.functions().iter().map(|f| package.lift(&f.name)).collect();
    let mut blockers = raw_blockers(&package);
    for graph in lifted.iter().flatten() {
        let found = analysis::placement_blockers(graph).into_iter().filter(|f| f.rule == Rule::MeanAsProduct);
        blockers.extend(found.map(|f| (f.rule, f.path)));
    }
    let not_liftable = lifted.into_iter().find_map(Result::err).map(|error| error.to_string());
    Ok(PackageView {
        artefact: name_of(path),
        format: "mlpackage",
        specification: package.version(),
        metadata: metadata(&package),
        digest_root: tree.root(),
        tree,
        functions: package.functions().iter().map(|f| function(&package, f)).collect(),
        weights: weights(&package),
        placement_blockers: grouped(blockers),
        violations: package.violations().iter().map(ToString::to_string).collect(),
        not_liftable,
        path_like: paths,
        not_run: needs_a_load(),
    })
}

fn metadata(package: &Package) -> BTreeMap<String, String> {
    let metadata = &package.description().metadata;
    let texts = [
        ("description", &metadata.short),
        ("version", &metadata.version),
        ("author", &metadata.author),
        ("license", &metadata.license),
    ];
    let texts =
        texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key.to_string(), text.clone()));
    texts.chain(metadata.user_defined.clone()).collect()
}

fn function(package: &Package, function: &Function) -> FunctionView {
    let described = package.description();
    let features =
        described.functions.iter().find(|(name, _)| *name == function.name).map_or(&described.top, |(_, f)| f);
    let show = |list: &[Feature]| list.iter().map(shown).collect();
    let mut ops = BTreeMap::new();
    for op in function.operations.iter().filter(|op| op.kind != "const") {
        *ops.entry(op.kind.clone()).or_default() += 1;
    }
    let constants = function.operations.len() - ops.values().sum::<usize>();
    let kinds = function.operations.iter().flat_map(|op| &op.outputs).chain(&function.inputs);
    let max_rank = kinds.filter_map(|v| v.kind.tensor()).map(|t| t.dims.len()).max().unwrap_or(0);
    FunctionView {
        name: function.name.clone(),
        opset: function.opset.clone(),
        inputs: show(&features.inputs),
        outputs: show(&features.outputs),
        states: show(&features.states),
        ops,
        constants,
        max_rank,
    }
}

fn shown(feature: &Feature) -> String {
    let kind = feature.kind.tensor().map_or_else(|| "(other)".to_string(), ToString::to_string);
    format!("{} {kind}", feature.name)
}

fn weights(package: &Package) -> WeightView {
    let mut view = WeightView::default();
    let mut seen = BTreeSet::new();
    for constant in package.constants().values() {
        let Constant { kind, content, .. } = constant;
        let counts = match content {
            Content::Blob(offset) => seen.insert(*offset),
            // Small integers and switches are parameters of ops; small floats are weights all the same.
            Content::Immediate(_) => kind.element.dtype().is_some_and(DType::is_float),
            Content::Strings(_) | Content::Misfit(_) => false,
        };
        if !counts {
            continue;
        }
        let (Some(bytes), Some(elements)) = (constant.bytes(), kind.elements()) else { continue };
        *view.bytes.entry(kind.element.to_string()).or_default() += bytes;
        view.total_bytes += bytes;
        view.elements += elements;
    }
    view.bits_per_weight = if view.elements == 0 { 0.0 } else { view.total_bytes as f64 * 8.0 / view.elements as f64 };
    view
}

/// Every rule that shows in declared types and op types, of any package.
fn raw_blockers(package: &Package) -> Vec<(Rule, String)> {
    let mut found = Vec::new();
    for function in package.functions() {
        let outputs: BTreeSet<&str> = function.outputs.iter().map(String::as_str).collect();
        for input in &function.inputs {
            found.extend(by_type(&input.kind, Rule::Fp32Feature).map(|rule| (rule, input.name.clone())));
        }
        for op in &function.operations {
            for output in &op.outputs {
                let place = |rule| (rule, output.name.clone());
                found.extend(by_type(&output.kind, Rule::Fp32Value).map(place));
                if outputs.contains(output.name.as_str()) && is(&output.kind, DType::F32) {
                    found.push(place(Rule::Fp32Feature));
                }
                if let Some(rule) = by_op(&op.kind, &output.kind) {
                    found.push(place(rule));
                }
            }
        }
    }
    found
}

fn is(kind: &ValueKind, dtype: DType) -> bool {
    kind.tensor().is_some_and(|t| t.element == Element::Known(dtype))
}

fn by_type(kind: &ValueKind, single: Rule) -> impl Iterator<Item = Rule> {
    let rank = kind.tensor().is_some_and(|t| t.dims.len() > NEURAL_ENGINE_RANK);
    let dynamic = kind.tensor().is_some_and(|t| t.dims.contains(&None));
    let rules = [(is(kind, DType::F32), single), (rank, Rule::Rank), (dynamic, Rule::DynamicShape)];
    rules.into_iter().filter_map(|(broken, rule)| broken.then_some(rule))
}

fn by_op(op: &str, output: &ValueKind) -> Option<Rule> {
    match op {
        "cast" => Some(Rule::Cast),
        "layer_norm" if is(output, DType::F16) => Some(Rule::LibraryNorm),
        "reverse" | "reverse_sequence" => Some(Rule::Gather),
        _ if op.starts_with("gather") => Some(Rule::Gather),
        _ => None,
    }
}

fn grouped(found: Vec<(Rule, String)>) -> Vec<BlockerView> {
    let mut by_rule: BTreeMap<Rule, (usize, String)> = BTreeMap::new();
    for (rule, place) in found {
        by_rule.entry(rule).or_insert((0, place)).0 += 1;
    }
    let view = |(rule, (count, first)): (Rule, (usize, String))| {
        let blocker = rule.blocker();
        BlockerView { rule, effect: blocker.effect, source: blocker.source, count, first }
    };
    by_rule.into_iter().map(view).collect()
}
