//! Publishing in one step: a bundle is made beside its destination and renamed into place.
//!
//! Whatever fails, and wherever, the destination is the old bundle or the new one, whole. Data is left to the system
//! to flush, so this holds for a process that dies and not for a machine that does.

use super::{Tree, TreeError};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What to do with a bundle that is already there and differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Refuse to publish.
    Never,
    /// Put the new one in its place.
    Force,
}

/// What publishing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination is the new bundle.
    Published,
    /// The destination had the same files already and was left alone.
    Unchanged,
}

/// Why a bundle was not published.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PublishError {
    #[error("{path} names no file that could be written")]
    NoName { path: String },
    #[error("cannot write in {path}")]
    Unwritable {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} has {available} bytes free, but {needed} are needed")]
    Space { path: String, available: u64, needed: u64 },
    #[error("{path} is there already, with other content ({found}, new {new}); --force replaces it")]
    Exists { path: String, found: String, new: String },
    #[error("{path} is a link; remove it, or name the place it points to")]
    Link { path: String },
    #[error("cannot read what is at the destination")]
    Tree(#[from] TreeError),
    #[error("cannot move the new bundle to {path}")]
    Rename {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot move the new bundle to {path}, nor the old one back; it is at {kept}")]
    RollBack {
        path: String,
        kept: String,
        #[source]
        source: io::Error,
    },
}

/// A place to make a bundle in; removed when dropped.
#[derive(Debug)]
pub struct Stage {
    /// Holds the new bundle, and the old one while they are exchanged.
    folder: tempfile::TempDir,
    new: PathBuf,
    destination: PathBuf,
}

impl Stage {
    /// An empty directory in a hidden folder beside `destination`, under the name the bundle will have. Makes the
    /// destination's parent where it is missing. `needed` is an estimate of the bytes to come.
    ///
    /// # Errors
    /// The parent cannot be written in, or has less space than that.
    pub fn new(destination: &Path, needed: u64) -> Result<Stage, PublishError> {
        let shown = || destination.display().to_string();
        let name = destination.file_name().ok_or_else(|| PublishError::NoName { path: shown() })?;
        let parent = match destination.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let unwritable = |source| PublishError::Unwritable { path: parent.display().to_string(), source };
        std::fs::create_dir_all(parent).map_err(unwritable)?;
        // Apple's tools lose bundles whose path has a link in it.
        let parent = parent.canonicalize().map_err(unwritable)?;
        let available = fs4::available_space(&parent).map_err(unwritable)?;
        if available < needed {
            return Err(PublishError::Space { path: parent.display().to_string(), available, needed });
        }
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent).map_err(unwritable)?;
        let new = folder.path().join(name);
        std::fs::create_dir(&new).map_err(unwritable)?;
        Ok(Stage { destination: parent.join(name), new, folder })
    }

    /// Where to make the bundle.
    pub fn path(&self) -> &Path {
        &self.new
    }

    /// A new folder for a tool that names its bundle itself; what it leaves there goes with the stage.
    ///
    /// # Errors
    /// The stage cannot be written in.
    pub fn workshop(&self) -> Result<PathBuf, PublishError> {
        let workshop = self.folder.path().join("fresh");
        let unwritable = |source| PublishError::Unwritable { path: workshop.display().to_string(), source };
        std::fs::create_dir(&workshop).map_err(unwritable)?;
        Ok(workshop)
    }

    /// Takes `bundle`, made in the [`workshop`](Self::workshop), as the one to publish.
    ///
    /// # Errors
    /// It cannot be moved, or something was put at [`path`](Self::path) already.
    pub fn adopt(&self, bundle: &Path) -> Result<(), PublishError> {
        let failed = |source| PublishError::Rename { path: self.new.display().to_string(), source };
        std::fs::rename(bundle, &self.new).map_err(failed)
    }

    /// Where it will be, free of links.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// Publishes the bundle, whose files are `new`.
    ///
    /// # Errors
    /// Another bundle is there and may not be replaced, or the system fails; the destination is then what it was.
    pub fn commit(self, new: &Tree, replace: Replace) -> Result<Outcome, PublishError> {
        let path = || self.destination.display().to_string();
        let there = match self.destination.symlink_metadata() {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let moved = std::fs::rename(&self.new, &self.destination);
                return moved
                    .map(|()| Outcome::Published)
                    .map_err(|source| PublishError::Rename { path: path(), source });
            }
            Err(source) => return Err(PublishError::Unwritable { path: path(), source }),
        };
        if there.is_symlink() {
            return Err(PublishError::Link { path: path() });
        }
        let found = if there.is_dir() { Tree::of(&self.destination).map(|old| old.root()) } else { Ok(file_root()) };
        match (found, replace) {
            (Ok(found), _) if there.is_dir() && found == new.root() => Ok(Outcome::Unchanged),
            (_, Replace::Force) => self.exchange(),
            (Ok(found), Replace::Never) => {
                let (found, new) = (found.to_string(), new.root().to_string());
                Err(PublishError::Exists { path: path(), found, new })
            }
            (Err(error), Replace::Never) => Err(error.into()),
        }
    }

    fn exchange(self) -> Result<Outcome, PublishError> {
        let path = self.destination.display().to_string();
        let old = self.folder.path().join("old");
        std::fs::rename(&self.destination, &old)
            .map_err(|source| PublishError::Rename { path: path.clone(), source })?;
        let Err(source) = std::fs::rename(&self.new, &self.destination) else { return Ok(Outcome::Published) };
        match std::fs::rename(&old, &self.destination) {
            Ok(()) => Err(PublishError::Rename { path, source }),
            Err(_) => {
                // Dropping the folder would delete the only copy.
                let kept = self.folder.keep().join("old").display().to_string();
                Err(PublishError::RollBack { path, kept, source })
            }
        }
    }
}

/// Writes a file in one step: under another name beside it, then renamed.
///
/// # Errors
/// The folder cannot be written in; what was there is then still there.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable = |source| PublishError::Unwritable { path: folder.display().to_string(), source };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(unwritable)?;
    file.write_all(bytes).map_err(unwritable)?;
    file.persist(path).map_err(|e| unwritable(e.error))?;
    Ok(())
}

/// What stands for the content of a plain file, which is no bundle.
fn file_root() -> crate::digest::Digest {
    crate::digest::Digest::root([])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(destination: &Path, content: &str, replace: Replace) -> Result<Outcome, PublishError> {
        let stage = Stage::new(destination, 1)?;
        fs_err::write(stage.path().join("file"), content).unwrap();
        let tree = Tree::of(stage.path())?;
        stage.commit(&tree, replace)
    }

    /// What is in a directory, hidden folders too.
    fn listed(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs_err::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn published_unchanged_refused_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("deep/er/b.mlpackage");
        let content = || fs_err::read_to_string(bundle.join("file")).unwrap();
        assert_eq!(made(&bundle, "1", Replace::Never).unwrap(), Outcome::Published);
        assert_eq!(made(&bundle, "1", Replace::Never).unwrap(), Outcome::Unchanged);
        assert_eq!(made(&bundle, "1", Replace::Force).unwrap(), Outcome::Unchanged);
        assert!(matches!(made(&bundle, "2", Replace::Never), Err(PublishError::Exists { .. })));
        assert_eq!(content(), "1");
        assert_eq!(made(&bundle, "2", Replace::Force).unwrap(), Outcome::Published);
        assert_eq!(content(), "2");
        assert_eq!(listed(bundle.parent().unwrap()), ["b.mlpackage"], "nothing stays behind");
    }

    #[test]
    fn a_bundle_made_under_another_name_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let stage = Stage::new(&dir.path().join("b"), 1).unwrap();
        let made = stage.workshop().unwrap().join("other");
        assert!(matches!(stage.adopt(&made), Err(PublishError::Rename { .. })), "there is none yet");
        fs_err::create_dir(&made).unwrap();
        fs_err::write(made.join("file"), "1").unwrap();
        stage.adopt(&made).unwrap();
        let tree = Tree::of(stage.path()).unwrap();
        assert_eq!(stage.commit(&tree, Replace::Never).unwrap(), Outcome::Published);
        assert_eq!(fs_err::read_to_string(dir.path().join("b/file")).unwrap(), "1");
        assert_eq!(listed(dir.path()), ["b"]);
    }

    #[test]
    fn a_bundle_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let stage = Stage::new(&dir.path().join("b"), 1).unwrap();
        assert!(listed(dir.path())[0].starts_with(".b."));
        drop(stage);
        assert!(listed(dir.path()).is_empty());
    }

    #[test]
    fn what_is_no_bundle_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("b");
        fs_err::write(&file, "mine").unwrap();
        assert!(matches!(made(&file, "1", Replace::Never), Err(PublishError::Exists { .. })));
        assert_eq!(fs_err::read_to_string(&file).unwrap(), "mine");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(matches!(made(&link, "1", Replace::Force), Err(PublishError::Link { .. })));
    }

    #[test]
    fn places_that_cannot_take_it() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::write(dir.path().join("file"), "").unwrap();
        let err = Stage::new(&dir.path().join("file/b"), 1).unwrap_err();
        assert!(matches!(err, PublishError::Unwritable { .. }), "{err}");
        let err = Stage::new(&dir.path().join("b"), u64::MAX).unwrap_err();
        assert!(matches!(err, PublishError::Space { needed: u64::MAX, .. }), "{err}");
        assert!(matches!(Stage::new(Path::new("/"), 1), Err(PublishError::NoName { .. })));
        assert_eq!(listed(dir.path()), ["file"]);
    }

    #[test]
    fn a_failed_exchange_is_rolled_back() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("b");
        made(&bundle, "1", Replace::Never).unwrap();
        let stage = Stage::new(&bundle, 1).unwrap();
        fs_err::write(stage.path().join("file"), "2").unwrap();
        let tree = Tree::of(stage.path()).unwrap();
        fs_err::remove_dir_all(stage.path()).unwrap();
        assert!(matches!(stage.commit(&tree, Replace::Force), Err(PublishError::Rename { .. })));
        assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), "1");
        assert_eq!(listed(dir.path()), ["b"]);
    }
}
