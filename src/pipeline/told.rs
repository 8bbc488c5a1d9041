//! Paths and errors as results tell them, the same for every job.

use serde::Serializer;
use std::path::{Path, PathBuf};

/// A path as people read it: one that is not UTF-8 has no form in JSON.
pub fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// The same of one that need not be there.
pub fn shown_if<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => shown(path, serializer),
        None => serializer.serialize_none(),
    }
}

/// The name of a file without its folder, which is a machine's own; empty where it has none.
pub fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// An error with what caused it, in a line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (**error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
