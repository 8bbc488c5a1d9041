//! Files as this tool takes and makes them: regular ones only, read within bounds, written in one step. Level 0.
//!
//! A name can lead to a pipe that never ends a read, or to a device that a rename would replace by a file; neither is
//! an artefact, a checkpoint or a result.

use std::fs::{File, Metadata, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest text file that is read whole: a config, an index, a manifest.
pub const TEXT_MAX: u64 = 1 << 26;

fn regular(meta: &Metadata) -> io::Result<()> {
    let found = if meta.is_dir() { "a folder" } else { "a device, pipe or socket" };
    if meta.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("is {found}, expected a regular file")))
    }
}

/// Opens a regular file, through links.
///
/// # Errors
/// It is none, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    // Asked before opening: opening a pipe waits for its writer.
    regular(&std::fs::metadata(path)?)?;
    File::open(path)
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
/// It is none, is longer, or cannot be read.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("is longer than {max} bytes")));
    }
    Ok(bytes)
}

/// What changes with a file's content, whether it is written over, put back as it was, or another is put in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: (u64, u64),
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The file's, as it is now.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn of(path: &Path) -> io::Result<Stamp> {
        let meta = std::fs::metadata(path)?;
        Ok(Stamp {
            file: (meta.dev(), meta.ino()),
            bytes: meta.len(),
            written: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

/// Whether a file written at `path` would take the place of one of `read`, or of a part of a folder among them. Names are
/// followed to what they lead to; what is not there is neither.
pub fn replaces<'p>(path: &Path, read: impl IntoIterator<Item = &'p Path>) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(path).is_some_and(|path| read.into_iter().filter_map(real).any(|read| path.starts_with(read)))
}

/// A file being written under another name beside its own; [`persist`](Self::persist) puts it in place, dropping it
/// leaves what was there.
#[derive(Debug)]
pub struct Replacement {
    file: tempfile::NamedTempFile,
    path: PathBuf,
}

impl Replacement {
    /// Starts a file that will stand at `path`, with the permissions any new file gets.
    ///
    /// # Errors
    /// Its folder cannot be written in, or something that is no regular file is there.
    pub fn new(path: &Path) -> io::Result<Replacement> {
        match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "is a link, expected a regular file or none"));
            }
            Ok(meta) => regular(&meta)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().permissions(Permissions::from_mode(0o666)).tempfile_in(folder)?;
        Ok(Replacement { file, path: path.into() })
    }

    /// Where it will stand.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in place.
    ///
    /// # Errors
    /// It cannot be renamed; what was there is then still there.
    pub fn persist(mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.persist(&self.path).map(drop).map_err(|e| e.error)
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Removes a folder and all in it, links as links, with one open descriptor at a time: the standard library's way holds
/// one for each level, which a process that ran out of them does not have.
///
/// # Errors
/// Something in it cannot be removed.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    if folder.symlink_metadata()?.is_symlink() {
        return std::fs::remove_file(folder);
    }
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        entries.push((entry.path(), entry.file_type()?.is_dir()));
    }
    for (path, is_folder) in entries {
        if is_folder { remove_folder(&path)? } else { std::fs::remove_file(path)? }
    }
    std::fs::remove_dir(folder)
}

/// Holds a folder against other processes of this tool until dropped; none that cannot be locked is refused for it.
#[derive(Debug)]
pub struct FolderLock(#[expect(dead_code, reason = "closing the file is what ends the lock")] Option<File>);

impl FolderLock {
    /// Waits until no other process holds `folder`.
    pub fn of(folder: &Path) -> FolderLock {
        FolderLock(File::open(folder).ok().filter(|file| file.lock().is_ok()))
    }

    /// The same, but gives up with `None` once `stop` says so, and calls `waiting` where there is something to wait for.
    pub fn wait(folder: &Path, stop: impl Fn() -> bool, waiting: impl FnOnce()) -> Option<FolderLock> {
        let Ok(file) = File::open(folder) else { return Some(FolderLock(None)) };
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Some(FolderLock(Some(file))),
                Err(TryLockError::Error(_)) => return Some(FolderLock(None)),
                Err(TryLockError::WouldBlock) if stop() => return None,
                Err(TryLockError::WouldBlock) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_known_by_any_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        for file in ["a", "b", "folder/part"] {
            std::fs::write(at(file), "x").unwrap();
        }
        std::os::unix::fs::symlink(at("folder"), at("link")).unwrap();
        let read = [at("a"), at("link"), at("gone")];
        let told = ["a", "folder/../a", "folder/part", "link/part", "folder", "b", "gone", "folder/new"];
        let replaced = told.map(|name| replaces(&at(name), read.iter().map(PathBuf::as_path)));
        assert_eq!(replaced, [true, true, true, true, true, false, false, false]);
    }

    #[test]
    fn a_folder_is_removed_but_not_what_its_links_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, gone) = (dir.path().join("kept"), dir.path().join("gone"));
        std::fs::create_dir_all(gone.join("a/b")).unwrap();
        std::fs::create_dir(&kept).unwrap();
        for file in [kept.join("f"), gone.join("f"), gone.join("a/b/f")] {
            std::fs::write(file, "x").unwrap();
        }
        std::os::unix::fs::symlink(&kept, gone.join("a/link")).unwrap();
        remove_folder(&gone).unwrap();
        assert!(!gone.exists() && kept.join("f").exists());
        std::os::unix::fs::symlink(&kept, &gone).unwrap();
        remove_folder(&gone).unwrap();
        assert!(!gone.exists() && kept.join("f").exists(), "nor where it is a link itself");
        assert!(remove_folder(&gone).is_err());
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        insta::assert_snapshot!(read(&file, 4).unwrap_err(), @"is longer than 4 bytes");
        insta::assert_snapshot!(read(dir.path(), 9).unwrap_err(), @"is a folder, expected a regular file");
        // Would never end, or never start.
        insta::assert_snapshot!(read(Path::new("/dev/zero"), 9).unwrap_err(), @"is a device, pipe or socket, expected a regular file");
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(open(&pipe).is_err());
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        assert!(open(&dir.path().join("link")).is_ok(), "a snapshot consists of links");
    }

    #[test]
    fn a_folder_that_is_held_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let held = FolderLock::of(dir.path());
        let waits = std::cell::Cell::new(0);
        let wait = |stop: bool| FolderLock::wait(dir.path(), || stop, || waits.set(waits.get() + 1)).is_some();
        assert!(!wait(true));
        drop(held);
        assert!(wait(false) && wait(true));
        assert_eq!(waits.get(), 0);
        let held = FolderLock::of(dir.path());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                drop(held);
            });
            assert!(wait(false));
        });
        assert_eq!(waits.get(), 1, "told once");
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let write = |path: &Path| {
            let mut new = Replacement::new(path)?;
            new.write_all(b"new")?;
            new.persist()
        };
        write(&at("fresh")).unwrap();
        write(&at("fresh")).unwrap();
        assert_eq!(std::fs::metadata(at("fresh")).unwrap().permissions().mode() & 0o444, 0o444);
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        std::os::unix::fs::symlink(at("fresh"), at("link")).unwrap();
        for bad in ["pipe", "link", "."] {
            assert!(write(&at(bad)).is_err(), "{bad}");
        }
        drop(Replacement::new(&at("given up")).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing stays behind");
    }
}
