//! What two artefacts have and do not have in common, whatever their formats.
//!
//! Each is first reduced to sorted maps ([`Facts`]), and each map is compared the same way.

use super::inspect::{AiModelView, CompiledView, InspectError, Inspection, PackageView, inspect};
use crate::bundle::Tree;
use crate::bundle::compiled::{Announcement, Identity, shared_hash};
use crate::digest::Digest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why two artefacts were not compared.
#[derive(Debug, thiserror::Error)]
#[error("{} could not be looked into", path.display())]
pub struct DiffError {
    /// The artefact.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: InspectError,
}

/// One of the two artefacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Folder name.
    pub artefact: String,
    /// Bundle format.
    pub format: &'static str,
    /// Digest of the sorted lines `sha256  path`.
    pub digest_root: Digest,
    /// What `main.hash` says, in a Core AI bundle that has one.
    pub main_hash: Option<Digest>,
}

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FileFact {
    /// Digest.
    pub sha256: Digest,
    /// Size in bytes.
    pub size: u64,
}

/// How one map became another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changes<T> {
    /// Only in the second.
    pub added: BTreeMap<String, T>,
    /// Only in the first.
    pub removed: BTreeMap<String, T>,
    /// In both, first and second value.
    pub changed: BTreeMap<String, [T; 2]>,
}

impl<T: Clone + PartialEq> Changes<T> {
    fn between(a: &BTreeMap<String, T>, b: &BTreeMap<String, T>) -> Changes<T> {
        let only = |a: &BTreeMap<String, T>, b: &BTreeMap<String, T>| {
            a.iter().filter(|(key, _)| !b.contains_key(*key)).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let pairs = a.iter().filter_map(|(key, value)| Some((key, value, b.get(key)?)));
        let changed = pairs.filter(|(_, a, b)| a != b).map(|(key, a, b)| (key.clone(), [a.clone(), b.clone()]));
        Changes { added: only(b, a), removed: only(a, b), changed: changed.collect() }
    }

    /// Whether the maps are the same.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// What differs between two artefacts.
#[derive(Debug, Serialize)]
pub struct Difference {
    /// The first.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// Whether every file is the same.
    pub same: bool,
    /// Set where the runtime would take one for the other.
    pub shared_hash: Option<Announcement>,
    /// Files by path.
    pub files: Changes<FileFact>,
    /// Texts by key.
    pub metadata: Changes<String>,
    /// Inputs, outputs and states, with type and shape.
    pub features: Changes<String>,
    /// Operations by type; of a package, those of each function.
    pub operations: Changes<u64>,
    /// Stored bytes of a package, stored elements of a compiled bundle, by type.
    pub weights: Changes<u64>,
    /// Number of Neural Engine regions by architecture.
    pub region_counts: Changes<u64>,
    /// Bytes of each region's code, by architecture and name.
    pub regions: Changes<u64>,
}

/// An artefact as sorted maps; one that a format does not tell is empty.
#[derive(Default)]
struct Facts {
    files: BTreeMap<String, FileFact>,
    metadata: BTreeMap<String, String>,
    features: BTreeMap<String, String>,
    operations: BTreeMap<String, u64>,
    weights: BTreeMap<String, u64>,
    region_counts: BTreeMap<String, u64>,
    regions: BTreeMap<String, u64>,
}

/// Compares the artefacts at `a` and `b`.
///
/// # Errors
/// One of them cannot be looked into.
pub fn diff(a: &Path, b: &Path) -> Result<Difference, DiffError> {
    let look = |path: &Path| inspect(path).map_err(|source| DiffError { path: path.to_path_buf(), source });
    let ((a, of_a), (b, of_b)) = (reduced(&look(a)?), reduced(&look(b)?));
    Ok(Difference {
        same: a.digest_root == b.digest_root,
        shared_hash: shared_hash(&[identity(&a), identity(&b)]).pop(),
        a,
        b,
        files: Changes::between(&of_a.files, &of_b.files),
        metadata: Changes::between(&of_a.metadata, &of_b.metadata),
        features: Changes::between(&of_a.features, &of_b.features),
        operations: Changes::between(&of_a.operations, &of_b.operations),
        weights: Changes::between(&of_a.weights, &of_b.weights),
        region_counts: Changes::between(&of_a.region_counts, &of_b.region_counts),
        regions: Changes::between(&of_a.regions, &of_b.regions),
    })
}

fn identity(side: &Side) -> Identity {
    Identity { name: side.artefact.clone(), main_hash: side.main_hash, digest_root: side.digest_root }
}

fn reduced(found: &Inspection) -> (Side, Facts) {
    match found {
        Inspection::Package(view) => package(view),
        Inspection::AiModel(view) => aimodel(view),
        Inspection::Compiled(view) => compiled(view),
    }
}

fn files(tree: &Tree) -> BTreeMap<String, FileFact> {
    tree.files.iter().map(|f| (f.path.clone(), FileFact { sha256: f.sha256, size: f.size })).collect()
}

fn package(view: &PackageView) -> (Side, Facts) {
    let side =
        Side { artefact: view.artefact.clone(), format: view.format, digest_root: view.digest_root, main_hash: None };
    let mut facts = Facts { files: files(&view.tree), metadata: view.metadata.clone(), ..Facts::default() };
    facts.weights = view.weights.bytes.clone();
    for function in &view.functions {
        let name = &function.name;
        for (role, features) in [("in", &function.inputs), ("out", &function.outputs), ("state", &function.states)] {
            for feature in features {
                let (feature, kind) = feature.split_once(' ').unwrap_or((feature, ""));
                facts.features.insert(format!("{name} {role} {feature}"), kind.to_string());
            }
        }
        let ops = function.ops.iter().map(|(kind, count)| (format!("{name} {kind}"), *count as u64));
        facts.operations.extend(ops);
    }
    (side, facts)
}

fn aimodel(view: &AiModelView) -> (Side, Facts) {
    let side = Side {
        artefact: view.artefact.clone(),
        format: view.format,
        digest_root: view.digest_root,
        main_hash: view.model.hash.declared(),
    };
    let mut facts = Facts { files: files(&view.tree), metadata: view.model.metadata.clone(), ..Facts::default() };
    for (number, function) in view.model.functions.iter().enumerate() {
        let ops = function.ops.iter().map(|(kind, count)| (format!("function {number} {kind}"), *count as u64));
        facts.operations.extend(ops);
    }
    (side, facts)
}

fn compiled(view: &CompiledView) -> (Side, Facts) {
    let bundle = &view.bundle;
    let side = Side {
        artefact: view.artefact.clone(),
        format: view.format,
        digest_root: view.digest_root,
        main_hash: bundle.hash.declared(),
    };
    let stats = bundle.stats.clone().unwrap_or_default();
    let mut facts = Facts { files: files(&view.tree), metadata: bundle.metadata.clone(), ..Facts::default() };
    (facts.operations, facts.weights) = (stats.operations, stats.storage);
    for (name, architecture) in &bundle.architectures {
        facts.region_counts.insert(name.clone(), architecture.region_count() as u64);
        let regions = architecture.functions.values().flatten();
        facts.regions.extend(regions.map(|region| (format!("{name} {}", region.stem), region.ir_bytes)));
    }
    (side, facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes() {
        let map =
            |text: &str| text.split(' ').filter_map(|item| item.split_once('=')).map(own).collect::<BTreeMap<_, _>>();
        fn own((key, value): (&str, &str)) -> (String, String) {
            (key.to_string(), value.to_string())
        }
        let found = Changes::between(&map("a=1 b=2 c=3"), &map("b=2 c=4 d=5"));
        assert_eq!((found.added, found.removed), (map("d=5"), map("a=1")));
        assert_eq!(found.changed, [("c".to_string(), ["3".to_string(), "4".to_string()])].into());
        assert!(Changes::between(&map("a=1"), &map("a=1")).is_empty());
    }
}
