//! What is in an artefact, from its files alone: one file per format.
//!
//! A look tells, and judges nothing: faults are listed, and only what cannot be read as its format at all is an error.

mod aimodel;
mod aimodelc;
mod mlpackage;

pub use aimodel::AiModelView;
pub use aimodelc::CompiledView;
pub use mlpackage::{BlockerView, FunctionView, PackageView, WeightView};

use crate::bundle::compiled::CompiledError;
use crate::bundle::{AiModelError, Format, Tree, TreeError, path_like};
use crate::emit::mil::read::ReadError;
use serde::{Serialize, Serializer};
use std::io;
use std::path::{Path, PathBuf};

/// Most path-like strings that are listed.
const PATHS: usize = 20;

/// Why an artefact could not be looked into.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one reader")]
pub enum InspectError {
    #[error(transparent)]
    Package(#[from] ReadError),
    #[error(transparent)]
    Compiled(#[from] CompiledError),
    #[error(transparent)]
    AiModel(#[from] AiModelError),
    #[error("{} is an .mlmodelc, which no reader here takes apart; inspect the package it was made of", path.display())]
    MlModelC { path: PathBuf },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{} could not be scanned for path-like strings", path.display())]
    Scan { path: PathBuf, source: io::Error },
    #[error("the thread that hashes the files did not finish")]
    Hashing,
}

/// Everything [`inspect`] finds. As JSON it is the object of its format, which has a `format` key.
#[derive(Debug)]
pub enum Inspection {
    /// Of a `.mlpackage`.
    Package(Box<PackageView>),
    /// Of a `.aimodel`.
    AiModel(Box<AiModelView>),
    /// Of a `.aimodelc`.
    Compiled(Box<CompiledView>),
}

impl Serialize for Inspection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Inspection::Package(view) => view.serialize(serializer),
            Inspection::AiModel(view) => view.serialize(serializer),
            Inspection::Compiled(view) => view.serialize(serializer),
        }
    }
}

/// Looks into the artefact at `path`. A folder of no known format is read as a package, whose error is then told.
///
/// # Errors
/// It is not of its format, or a file of it cannot be read.
pub fn inspect(path: &Path) -> Result<Inspection, InspectError> {
    match Format::of(path) {
        Some(Format::MlPackage) | None => mlpackage::view(path).map(|view| Inspection::Package(view.into())),
        Some(Format::AiModel) => aimodel::view(path).map(|view| Inspection::AiModel(view.into())),
        Some(Format::AiModelC) => aimodelc::view(path).map(|view| Inspection::Compiled(view.into())),
        Some(Format::MlModelC) => Err(InspectError::MlModelC { path: path.to_path_buf() }),
    }
}

/// The digests of all files under `folder`, and path-like strings in them.
fn hashed_and_scanned(folder: &Path) -> Result<(Tree, Vec<String>), InspectError> {
    std::thread::scope(|threads| {
        let tree = threads.spawn(|| Tree::of(folder));
        let paths = paths_in(folder);
        Ok((tree.join().map_err(|_| InspectError::Hashing)??, paths?))
    })
}

/// Path-like strings of every file under `folder`, each once; what cannot be opened is the tree's to report.
fn paths_in(folder: &Path) -> Result<Vec<String>, InspectError> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let at = |source| InspectError::Scan { path: folder.clone(), source };
        let mut entries = std::fs::read_dir(&folder).map_err(at)?.collect::<Result<Vec<_>, _>>().map_err(at)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let kind = entry.file_type().map_err(at)?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && found.len() < PATHS {
                let scan = std::fs::File::open(&path).and_then(|f| path_like(f, PATHS - found.len()));
                for text in scan.map_err(|source| InspectError::Scan { path, source })? {
                    if !found.contains(&text) {
                        found.push(text);
                    }
                }
            }
        }
    }
    Ok(found)
}
