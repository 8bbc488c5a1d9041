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

/// All that a folder holds, whatever it is.
#[derive(Debug)]
pub struct Listing {
    /// The regular files.
    pub tree: Tree,
    /// What is neither file nor folder, cannot be read or has no name in UTF-8, by its path.
    pub odd: BTreeMap<String, TreeError>,
    /// Folders with nothing in them, each ended by a slash.
    pub empty: Vec<String>,
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
        let mut walk = Walk { known, files: Vec::new(), empty: Vec::new(), odd: &mut |_, error| Err(error) };
        walk.folder(dir, "")?;
        Ok(Tree::sorted(walk.files))
    }

    fn sorted(mut files: Vec<FileDigest>) -> Tree {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files }
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

impl Listing {
    /// Lists everything under the directory `dir`, and goes on behind what cannot be read.
    ///
    /// # Errors
    /// The system has no more files to open, which says nothing of what is there.
    pub fn of(dir: &Path) -> Result<Listing, TreeError> {
        let mut odd = BTreeMap::new();
        let mut keep = |path: String, error: TreeError| {
            if error.is_exhaustion() {
                return Err(error);
            }
            odd.insert(path, error);
            Ok(())
        };
        let mut walk = Walk { known: &BTreeMap::new(), files: Vec::new(), empty: Vec::new(), odd: &mut keep };
        walk.folder(dir, "")?;
        let Walk { files, mut empty, .. } = walk;
        empty.sort();
        Ok(Listing { tree: Tree::sorted(files), odd, empty })
    }
}

impl TreeError {
    /// Whether the system, or this process, has as many files open as it may.
    fn is_exhaustion(&self) -> bool {
        // ENFILE and EMFILE, alike on Linux and macOS; both are of no kind that std names.
        const NO_MORE: [i32; 2] = [23, 24];
        let TreeError::Io { source, .. } = self else { return false };
        source.raw_os_error().is_some_and(|code| NO_MORE.contains(&code))
    }
}

/// A walk through a folder.
struct Walk<'a> {
    known: &'a BTreeMap<PathBuf, (Digest, u64)>,
    files: Vec<FileDigest>,
    empty: Vec<String>,
    /// What is done about what cannot be listed: an error ends the walk.
    odd: &'a mut dyn FnMut(String, TreeError) -> Result<(), TreeError>,
}

impl Walk<'_> {
    fn folder(&mut self, dir: &Path, prefix: &str) -> Result<(), TreeError> {
        // Of std, whose errors keep the system's code; the path is told here.
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => return (self.odd)(prefix.trim_end_matches('/').into(), io_at(dir)(error)),
        };
        let mut any = false;
        for entry in entries {
            any = true;
            match entry {
                Ok(entry) => self.entry(&entry, prefix)?,
                Err(error) => (self.odd)(prefix.trim_end_matches('/').into(), io_at(dir)(error))?,
            }
        }
        if !any && !prefix.is_empty() {
            self.empty.push(prefix.into());
        }
        Ok(())
    }

    fn entry(&mut self, entry: &std::fs::DirEntry, prefix: &str) -> Result<(), TreeError> {
        let full = entry.path();
        let name = match entry.file_name().into_string() {
            Ok(name) => name,
            Err(name) => {
                let path = format!("{prefix}{}", name.to_string_lossy());
                return (self.odd)(path, TreeError::Name { path: full });
            }
        };
        let path = format!("{prefix}{name}");
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => return (self.odd)(path, io_at(&full)(error)),
        };
        if kind.is_dir() {
            return self.folder(&full, &format!("{path}/"));
        }
        if !kind.is_file() {
            return (self.odd)(path, TreeError::Special { path: full.display().to_string() });
        }
        let hash = || Digest::of_reader(std::fs::File::open(&full)?);
        let read = self.known.get(&full).map_or_else(hash, |digest| Ok(*digest));
        match read {
            Ok((sha256, size)) => self.files.push(FileDigest { path, sha256, size }),
            Err(error) => (self.odd)(path, io_at(&full)(error))?,
        }
        Ok(())
    }
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

        fs_err::create_dir_all(at("b/empty")).unwrap();
        let listing = Listing::of(dir.path()).unwrap();
        assert_eq!((listing.tree, listing.empty), (tree, vec!["b/empty/".to_string()]));
        assert_eq!(listing.odd.keys().collect::<Vec<_>>(), ["link"]);
    }

    #[test]
    fn no_more_files_to_open_is_told_from_what_cannot_be_read() {
        for (code, exhausted) in [(24, true), (23, true), (13, false), (2, false)] {
            let bare = io::Error::from_raw_os_error(code);
            assert_eq!(io_at(Path::new("x"))(bare).is_exhaustion(), exhausted, "{code}");
        }
    }
}
