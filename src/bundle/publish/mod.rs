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
mod tests {
    use super::*;

    fn made(destination: &Path, content: &str, replace: Replace) -> Result<Outcome, PublishError> {
        let stage = Stage::new(destination, 1)?;
        fs_err::write(stage.path().join("file"), content).unwrap();
        let tree = Tree::of(stage.path())?;
        Ok(commit(vec![(stage, &tree)], replace)?[0])
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
        assert_eq!(commit(vec![(stage, &tree)], Replace::Never).unwrap(), [Outcome::Published]);
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
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for replace in [Replace::Never, Replace::Force] {
            for path in [&file, &pipe] {
                assert!(matches!(made(path, "1", replace), Err(PublishError::NotFolder { .. })));
            }
        }
        let told = made(&file, "1", Replace::Force).unwrap_err().to_string();
        insta::assert_snapshot!(told.replace(dir.path().to_str().unwrap(), ""), @"/b is a file, expected a bundle's folder or nothing; remove it, or name another place");
        assert_eq!(fs_err::read_to_string(&file).unwrap(), "mine");
        assert!(pipe.exists());
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
    fn bundles_that_belong_together_are_all_published_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let pair = |names: [&str; 2], content: &str, replace, lose: &str| {
            let stages = names.map(|name| Stage::new(&at(name), 1).unwrap());
            let trees = stages.each_ref().map(|stage| {
                fs_err::write(stage.path().join("file"), content).unwrap();
                Tree::of(stage.path()).unwrap()
            });
            for stage in stages.iter().filter(|s| s.path().ends_with(lose)) {
                fs_err::remove_dir_all(stage.path()).unwrap();
            }
            commit(stages.into_iter().zip(&trees).collect(), replace)
        };
        assert!(matches!(pair(["a", "b"], "1", Replace::Never, "b"), Err(PublishError::Rename { .. })));
        assert!(listed(dir.path()).is_empty(), "the first is withdrawn");
        assert_eq!(pair(["a", "b"], "1", Replace::Never, "none").unwrap(), [Outcome::Published; 2]);
        assert!(matches!(pair(["c", "b"], "2", Replace::Never, "none"), Err(PublishError::Exists { .. })));
        assert!(matches!(pair(["a", "b"], "2", Replace::Force, "b"), Err(PublishError::Rename { .. })));
        assert_eq!(listed(dir.path()), ["a", "b"]);
        for name in ["a", "b"] {
            assert_eq!(fs_err::read_to_string(at(name).join("file")).unwrap(), "1", "{name} is the old one");
        }
        let found = pair(["a", "c"], "1", Replace::Never, "none").unwrap();
        assert_eq!(found, [Outcome::Unchanged, Outcome::Published]);
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
        assert!(matches!(commit(vec![(stage, &tree)], Replace::Force), Err(PublishError::Rename { .. })));
        assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), "1");
        assert_eq!(listed(dir.path()), ["b"]);
    }

    /// A stage for `destination` with a file in it, and the file's tree.
    fn staged(destination: &Path, content: &str) -> (Stage, Tree) {
        let stage = Stage::new(destination, 1).unwrap();
        fs_err::write(stage.path().join("file"), content).unwrap();
        let tree = Tree::of(stage.path()).unwrap();
        (stage, tree)
    }

    #[test]
    fn the_old_bundle_is_there_until_the_new_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("b");
        let content = || fs_err::read_to_string(bundle.join("file"));
        made(&bundle, "1", Replace::Never).unwrap();
        let (done, stop) = (std::sync::atomic::AtomicBool::new(false), std::sync::atomic::Ordering::SeqCst);
        std::thread::scope(|threads| {
            let watcher = threads.spawn(|| {
                let mut seen = 0;
                // A folder that is looked up by its path: a file in it may be removed between the look-up and the read.
                while !done.load(stop) {
                    assert!(bundle.symlink_metadata().is_ok(), "gone after {seen} looks");
                    seen += 1;
                }
            });
            for round in 0..200 {
                assert_eq!(made(&bundle, &round.to_string(), Replace::Force).unwrap(), Outcome::Published);
            }
            done.store(true, stop);
            watcher.join().unwrap();
        });
        assert_eq!(content().unwrap(), "199");
        assert_eq!(listed(dir.path()), ["b"]);
    }

    #[test]
    fn an_exchange_is_undone_either_way() {
        for at_once in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let bundle = dir.path().join("b");
            let content = || fs_err::read_to_string(bundle.join("file")).unwrap();
            made(&bundle, "1", Replace::Never).unwrap();
            let (mut stage, _) = staged(&bundle, "2");
            if at_once {
                stage.exchange().unwrap()
            } else {
                stage.exchange_by_renames().unwrap()
            }
            assert_eq!((content(), stage.exchanged), ("2".into(), at_once));
            stage.undo(Step::Exchange).unwrap();
            assert_eq!(content(), "1");
            drop(stage);
            assert_eq!(listed(dir.path()), ["b"]);
        }
    }

    #[test]
    fn two_renames_of_which_the_second_fails_are_rolled_back() {
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("b");
        made(&bundle, "1", Replace::Never).unwrap();
        let (mut stage, _) = staged(&bundle, "2");
        fs_err::remove_dir_all(stage.path()).unwrap();
        assert!(matches!(stage.exchange_by_renames(), Err(PublishError::Rename { .. })));
        drop(stage);
        assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), "1");
        assert_eq!(listed(dir.path()), ["b"]);
    }

    #[test]
    fn what_came_after_the_check_is_looked_at_again() {
        let cases = [("1", Replace::Never, true), ("2", Replace::Never, false), ("2", Replace::Force, true)];
        for (theirs, replace, good) in cases {
            let dir = tempfile::tempdir().unwrap();
            let bundle = dir.path().join("b");
            let (mut stage, tree) = staged(&bundle, "1");
            let mut step = stage.step(&tree, replace).unwrap();
            assert_eq!(step, Step::Place);
            made(&bundle, theirs, Replace::Never).unwrap();
            let taken = stage.take(&mut step, &tree, replace);
            match (theirs, good) {
                ("1", _) => assert_eq!((taken.unwrap(), step), (Outcome::Unchanged, Step::Leave)),
                (_, true) => assert_eq!((taken.unwrap(), step), (Outcome::Published, Step::Exchange)),
                (_, false) => assert!(matches!(taken, Err(PublishError::Exists { .. }))),
            }
            drop(stage);
            let now = if good { "1" } else { theirs };
            assert_eq!(fs_err::read_to_string(bundle.join("file")).unwrap(), now);
            assert_eq!(listed(dir.path()), ["b"]);
        }
        let dir = tempfile::tempdir().unwrap();
        let (mut stage, tree) = staged(&dir.path().join("b"), "1");
        fs_err::write(dir.path().join("b"), "mine").unwrap();
        let taken = stage.take(&mut Step::Place, &tree, Replace::Force);
        assert!(matches!(taken, Err(PublishError::NotFolder { .. })));
    }
}
