//! The files of a bundle, each with its digest: the only identity a bundle has.

use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDigest {
    /// Path within the bundle, with forward slashes.
    pub path: String,
    /// Digest of its content.
    pub sha256: Digest,
    /// Bytes of its content.
    pub size: u64,
}

/// All files of a bundle, sorted by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// The files.
    pub files: Vec<FileDigest>,
}

/// Why a bundle's files could not be listed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TreeError {
    #[error("could not read {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is neither file nor folder; a bundle with a link in it fails to load")]
    Special { path: String },
    #[error("the file name {path:?} is not UTF-8")]
    Name { path: PathBuf },
}

impl Tree {
    /// Hashes every file under the directory `dir`.
    ///
    /// # Errors
    /// A file cannot be read, or something is neither file nor folder.
    pub fn of(dir: &Path) -> Result<Tree, TreeError> {
        Self::with(dir, &BTreeMap::new())
    }

    /// As [`of`](Self::of), without reading the files that `known` has by their full path.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn with(dir: &Path, known: &BTreeMap<PathBuf, (Digest, u64)>) -> Result<Tree, TreeError> {
        let mut files = Vec::new();
        collect(dir, "", known, &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Tree { files })
    }

    /// The digest root: digest over the sorted lines `sha256  path`.
    pub fn root(&self) -> Digest {
        Digest::root(self.files.iter().map(|file| (file.path.as_str(), file.sha256)))
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

fn collect(
    dir: &Path,
    prefix: &str,
    known: &BTreeMap<PathBuf, (Digest, u64)>,
    files: &mut Vec<FileDigest>,
) -> Result<(), TreeError> {
    for entry in fs_err::read_dir(dir).map_err(io_at(dir))? {
        let entry = entry.map_err(io_at(dir))?;
        let full = entry.path();
        let name = entry.file_name().into_string().map_err(|_| TreeError::Name { path: full.clone() })?;
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(io_at(&full))?;
        if kind.is_dir() {
            collect(&full, &format!("{path}/"), known, files)?;
        } else if kind.is_file() {
            let (sha256, size) = match known.get(&full) {
                Some(digest) => *digest,
                None => Digest::of_file(&full).map_err(io_at(&full))?,
            };
            files.push(FileDigest { path, sha256, size });
        } else {
            return Err(TreeError::Special { path: full.display().to_string() });
        }
    }
    Ok(())
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    let path = path.display().to_string();
    |source| TreeError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sorted_and_links_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs_err::create_dir_all(at("a/b")).unwrap();
        for (path, content) in [("a/b/c", "1"), ("a.txt", "22"), ("z", "")] {
            fs_err::write(at(path), content).unwrap();
        }
        let tree = Tree::of(dir.path()).unwrap();
        let listed: Vec<(&str, u64)> = tree.files.iter().map(|f| (f.path.as_str(), f.size)).collect();
        assert_eq!(listed, [("a.txt", 2), ("a/b/c", 1), ("z", 0)]);
        assert_eq!(tree.size(), 3);
        let lines: String = tree.files.iter().map(|f| format!("{}  {}\n", f.sha256, f.path)).collect();
        let mut sorted: Vec<&str> = lines.lines().collect();
        sorted.sort_unstable();
        assert_eq!(tree.root(), Digest::of(format!("{}\n", sorted.join("\n")).as_bytes()));

        std::os::unix::fs::symlink(at("z"), at("link")).unwrap();
        assert!(matches!(Tree::of(dir.path()), Err(TreeError::Special { .. })));
        assert!(matches!(Tree::of(&at("absent")), Err(TreeError::Io { .. })));
    }
}
