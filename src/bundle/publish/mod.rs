//! Publishing in one step: a bundle is made beside its destination and renamed into place.
//!
//! Whatever fails, the destination is the old bundle or the new one, whole. A process that is killed keeps that promise
//! too where the file system can exchange two folders in one step: APFS and the common ones of Linux. On others, such
//! as NFS, the old bundle is moved aside first, and a kill right then leaves it in the stage and nothing at the
//! destination. Bundles that are published together are each whole after a kill, but maybe not all of them are new.
//! Data is left to the system to flush, so nothing is promised for a machine that dies.

use super::{Tree, TreeError};
use crate::files::{self, Replacement};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
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
    #[error("cannot write {path}")]
    Unwritable {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} has {available} bytes free, but {needed} are needed")]
    Space { path: String, available: u64, needed: u64 },
    #[error("{path} is there already, with other content ({found}, new {new}); --force replaces it")]
    Exists { path: String, found: String, new: String },
    #[error("{path} is {found}, expected a bundle's folder or nothing; remove it, or name another place")]
    NotFolder { path: String, found: &'static str },
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
    #[error("what belongs with {path} was not published, and it cannot be withdrawn; remove it")]
    Withdraw {
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
    /// Held back for removing the folder: listing it takes a descriptor, and a lack of them may be what ended the job.
    spare: Option<File>,
    /// Whether the folder holds the only copy of the old bundle.
    keep: bool,
    /// Whether the old bundle stands where the new one was made.
    exchanged: bool,
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.spare.take());
        if !self.keep {
            // The folder's own drop tries what is left.
            let _ = files::remove_folder(self.folder.path());
        }
    }
}

impl Stage {
    /// An empty directory in a hidden folder beside `destination`, under the name the bundle will have. Makes the
    /// destination's parent where it is missing. `needed` is an estimate of the bytes to come.
    ///
    /// # Errors
    /// The parent cannot be written in, or has less space than that.
    pub fn new(destination: &Path, needed: u64) -> Result<Stage, PublishError> {
        Self::in_folder(destination, None, needed)
    }

    /// As [`new`](Self::new), but in `room`, on the destination's file system.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn within(destination: &Path, room: &Path, needed: u64) -> Result<Stage, PublishError> {
        Self::in_folder(destination, Some(room), needed)
    }

    fn in_folder(destination: &Path, room: Option<&Path>, needed: u64) -> Result<Stage, PublishError> {
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
        let spare = Some(File::open(&parent).map_err(unwritable)?);
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        let folder =
            tempfile::Builder::new().prefix(&prefix).tempdir_in(room.unwrap_or(&parent)).map_err(unwritable)?;
        let new = folder.path().join(name);
        let stage = Stage { destination: parent.join(name), new, folder, spare, keep: false, exchanged: false };
        std::fs::create_dir(&stage.new).map_err(unwritable)?;
        Ok(stage)
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

    /// What publishing the bundle, whose files are `new`, would do. Changes nothing.
    fn step(&self, new: &Tree, replace: Replace) -> Result<Step, PublishError> {
        let path = || self.destination.display().to_string();
        let there = match self.destination.symlink_metadata() {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Step::Place),
            Err(source) => return Err(PublishError::Unwritable { path: path(), source }),
        };
        if there.is_symlink() {
            return Err(PublishError::Link { path: path() });
        }
        if !there.is_dir() {
            // Not with --force either: what is no bundle is not this tool's to delete.
            let found = if there.is_file() { "a file" } else { "a device, pipe or socket" };
            return Err(PublishError::NotFolder { path: path(), found });
        }
        match (Tree::of(&self.destination).map(|old| old.root()), replace) {
            (Ok(found), _) if found == new.root() => Ok(Step::Leave),
            (_, Replace::Force) => Ok(Step::Exchange),
            (Ok(found), Replace::Never) => {
                let (found, new) = (found.to_string(), new.root().to_string());
                Err(PublishError::Exists { path: path(), found, new })
            }
            (Err(error), Replace::Never) => Err(error.into()),
        }
    }

    /// Takes the step that was planned, or the one that is right by now, where another process published meanwhile.
    fn take(&mut self, step: &mut Step, new: &Tree, replace: Replace) -> Result<Outcome, PublishError> {
        match step {
            Step::Leave => return Ok(Outcome::Unchanged),
            Step::Exchange => self.exchange()?,
            Step::Place => match std::fs::rename(&self.new, &self.destination) {
                Ok(()) => {}
                Err(error) if is_taken(&error) => {
                    *step = self.step(new, replace)?;
                    match step {
                        Step::Leave => return Ok(Outcome::Unchanged),
                        Step::Exchange => self.exchange()?,
                        // Gone again: the one that is at it may have its way.
                        Step::Place => return Err(self.unmoved(error)),
                    }
                }
                Err(error) => return Err(self.unmoved(error)),
            },
        }
        Ok(Outcome::Published)
    }

    fn unmoved(&self, source: io::Error) -> PublishError {
        PublishError::Rename { path: self.destination.display().to_string(), source }
    }

    /// Puts the new bundle in the place of the old one, which comes into the stage and goes with it.
    fn exchange(&mut self) -> Result<(), PublishError> {
        self.exchanged = exchange(&self.new, &self.destination).map_err(|error| self.unmoved(error))?;
        if self.exchanged { Ok(()) } else { self.exchange_by_renames() }
    }

    /// The same where the system cannot do it in one step.
    fn exchange_by_renames(&mut self) -> Result<(), PublishError> {
        std::fs::rename(&self.destination, self.old()).map_err(|error| self.unmoved(error))?;
        if let Err(source) = std::fs::rename(&self.new, &self.destination) {
            self.put_back()?;
            return Err(self.unmoved(source));
        }
        Ok(())
    }

    /// Undoes a step that was taken.
    fn undo(&mut self, step: Step) -> Result<(), PublishError> {
        let back = match step {
            Step::Leave => return Ok(()),
            Step::Exchange if self.exchanged => exchange(&self.new, &self.destination).map(drop),
            Step::Place | Step::Exchange => std::fs::rename(&self.destination, &self.new),
        };
        back.map_err(|source| PublishError::Withdraw { path: self.destination.display().to_string(), source })?;
        if step == Step::Exchange && !self.exchanged { self.put_back() } else { Ok(()) }
    }

    /// Moves the old bundle back to the destination.
    fn put_back(&mut self) -> Result<(), PublishError> {
        std::fs::rename(self.old(), &self.destination).map_err(|source| {
            // Dropping the folder would delete the only copy.
            self.folder.disable_cleanup(true);
            self.keep = true;
            let (path, kept) = (self.destination.display().to_string(), self.old().display().to_string());
            PublishError::RollBack { path, kept, source }
        })
    }

    fn old(&self) -> PathBuf {
        self.folder.path().join("old")
    }
}

/// Exchanges what is at two paths, at once. Gives `false`, and changes nothing, where the system or the file system has
/// no such step.
fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        // The last two are one number on Linux and two on macOS.
        Err(error) if [Errno::NOSYS, Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP].contains(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether a folder was not renamed because something stands there.
fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    [AlreadyExists, DirectoryNotEmpty, NotADirectory].contains(&error.kind())
}

/// How a bundle gets to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing is there.
    Place,
    /// The same bundle is there.
    Leave,
    /// Another is there, and is to be replaced.
    Exchange,
}

/// Publishes bundles that belong together, each with its files: all of them, or none.
///
/// # Errors
/// At one destination is another bundle that may not be replaced, or the system fails; every destination is then what
/// it was.
pub fn commit(bundles: Vec<(Stage, &Tree)>, replace: Replace) -> Result<Vec<Outcome>, PublishError> {
    let mut planned = Vec::new();
    for (stage, tree) in bundles {
        let step = stage.step(tree, replace)?;
        planned.push((stage, tree, step));
    }
    let mut outcomes = Vec::new();
    let mut failed = None;
    for (stage, tree, step) in &mut planned {
        match stage.take(step, tree, replace) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let Some(mut error) = failed else { return Ok(outcomes) };
    for (stage, _, step) in planned.iter_mut().take(outcomes.len()).rev() {
        // What could not be undone is what the user has to know of.
        if let Err(worse) = stage.undo(*step) {
            error = worse;
        }
    }
    Err(error)
}

/// Writes a file in one step: under another name beside it, then renamed.
///
/// # Errors
/// The folder cannot be written in; what was there is then still there.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    persist_file(prepare_file(path, bytes)?)
}

/// Puts a prepared file in its place.
///
/// # Errors
/// It cannot be renamed; what was there is then still there.
pub fn persist_file(file: Replacement) -> Result<(), PublishError> {
    let path = file.path().display().to_string();
    file.persist().map_err(|source| PublishError::Unwritable { path, source })
}

/// Writes a file that stands at `path` once it is persisted.
///
/// # Errors
/// The folder cannot be written in, or what is at `path` is no regular file.
pub fn prepare_file(path: &Path, bytes: &[u8]) -> Result<Replacement, PublishError> {
    let unwritable = |source| PublishError::Unwritable { path: path.display().to_string(), source };
    let mut file = Replacement::new(path).map_err(unwritable)?;
    file.write_all(bytes).map_err(unwritable)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
