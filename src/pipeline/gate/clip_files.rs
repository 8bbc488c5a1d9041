//! Files of one clip each, given one by one or by folder, and called by their names without their endings.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Why files of clips cannot be told apart or found.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ClipFilesError {
    #[error("folder {} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("folder {} has no .{ending} file", path.display())]
    Empty { path: PathBuf, ending: &'static str },
    #[error("{} and {} are both called {name}", first.display(), second.display())]
    Twice { name: String, first: PathBuf, second: PathBuf },
}

/// Every file of `given`, and every one with that ending of the folders among them, by name.
///
/// # Errors
/// A folder cannot be read or has none, or two files are called alike.
pub fn by_name(given: &[PathBuf], ending: &'static str) -> Result<BTreeMap<String, PathBuf>, ClipFilesError> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    for path in given {
        for file in files_of(path, ending)? {
            let name = file.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            if let Some(first) = found.insert(name.clone(), file.clone()) {
                return Err(ClipFilesError::Twice { name, first, second: file });
            }
        }
    }
    Ok(found)
}

fn files_of(path: &Path, ending: &'static str) -> Result<Vec<PathBuf>, ClipFilesError> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let io = |source| ClipFilesError::Io { path: path.into(), source };
    let entries = std::fs::read_dir(path).map_err(io)?.collect::<io::Result<Vec<_>>>().map_err(io)?;
    let has = |p: &PathBuf| p.extension().is_some_and(|found| found.eq_ignore_ascii_case(ending));
    let files: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).filter(has).collect();
    if files.is_empty() { Err(ClipFilesError::Empty { path: path.into(), ending }) } else { Ok(files) }
}
