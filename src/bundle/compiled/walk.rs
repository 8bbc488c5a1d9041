//! One walk of a bundle's tree, which follows no link and so ends.

use super::CompiledError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What is where, by path within the bundle with forward slashes.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Size of each file.
    pub files: BTreeMap<String, u64>,
    /// Folders.
    pub folders: BTreeSet<String>,
    /// Links.
    pub links: Vec<String>,
    /// What is neither file, folder nor link.
    pub specials: Vec<String>,
}

impl Walk {
    /// Lists all that is under `root`.
    ///
    /// # Errors
    /// A folder cannot be read, or a name is not UTF-8.
    pub fn of(root: &Path) -> Result<Walk, CompiledError> {
        let mut walk = Walk::default();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let full = root.join(&folder);
            let at = |source| CompiledError::Io { path: full.display().to_string(), source };
            for entry in std::fs::read_dir(&full).map_err(at)? {
                let entry = entry.map_err(at)?;
                let name = entry.file_name().into_string().map_err(|_| CompiledError::Name { path: entry.path() })?;
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let kind = entry.file_type().map_err(at)?;
                if kind.is_dir() {
                    walk.folders.insert(path.clone());
                    folders.push(path);
                } else if kind.is_file() {
                    walk.files.insert(path, entry.metadata().map_err(at)?.len());
                } else if kind.is_symlink() {
                    walk.links.push(path);
                } else {
                    walk.specials.push(path);
                }
            }
        }
        walk.links.sort();
        walk.specials.sort();
        Ok(walk)
    }
}
