//! What stages made, by what they made it of: the same inputs and options are not gone through again, and a release
//! that was killed goes on behind its last finished stage.
//!
//! An entry is a folder, renamed into place whole. Its files are hashed again whenever it is used, so that one which was
//! changed is made anew and never shipped.

use crate::bundle::{Tree, TreeError};
use crate::digest::Digest;
use crate::files::{self, FolderLock};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// Entries, and where they are made.
#[derive(Debug)]
pub struct Cache {
    entries: PathBuf,
    workroom: Workroom,
}

/// A folder for what is being made, which goes with its process; what a killed one left is removed by the next.
#[derive(Debug)]
pub struct Workroom {
    folder: tempfile::TempDir,
    /// Held while the process lives, so that others tell its workroom from one that was left behind.
    _held: FolderLock,
}

/// Why the cache could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{} could not be read or written", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is no entry of the cache that could be used or replaced; remove it", path.display())]
    Taken { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("an entry could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

/// What a stage made.
#[derive(Debug)]
pub struct Entry {
    /// Its files.
    pub folder: PathBuf,
    /// The same, hashed.
    pub tree: Tree,
    /// What it told.
    pub told: Value,
    /// Whether it was there already.
    pub reused: bool,
}

/// `entry.json`: what an entry was made of, what it is, and what was told.
#[derive(Serialize, Deserialize)]
struct Stored {
    key: Value,
    root: Digest,
    told: Value,
    /// Digest of the three, so that what was told is no more trusted than the files.
    seal: Digest,
}

impl Stored {
    fn new(key: Value, root: Digest, told: Value) -> Stored {
        let seal = Digest::of(json!([key, root, told]).to_string().as_bytes());
        Stored { key, root, told, seal }
    }
}

/// How the name of a workroom begins, and the file that is in each.
const ROOM: (&str, &str) = ("room-", ".eg2-convert-room");

impl Workroom {
    /// A workroom in `folder`, which is made where it is missing; those that were left behind there are removed.
    ///
    /// # Errors
    /// The folder cannot be written in.
    pub fn open(folder: &Path) -> Result<Workroom, CacheError> {
        std::fs::create_dir_all(folder).map_err(at(folder))?;
        // Apple's tools lose bundles whose path has a link in it.
        let rooms = folder.canonicalize().map_err(at(folder))?;
        // One at a time, so that a room is not taken for left behind between its making and its lock.
        let _one = FolderLock::of(&rooms);
        for room in std::fs::read_dir(&rooms).map_err(at(&rooms))? {
            left_behind(&room.map_err(at(&rooms))?);
        }
        let folder = tempfile::Builder::new().prefix(ROOM.0).tempdir_in(&rooms).map_err(at(&rooms))?;
        let held = FolderLock::of(folder.path());
        let mark = folder.path().join(ROOM.1);
        std::fs::write(&mark, "").map_err(at(&mark))?;
        Ok(Workroom { folder, _held: held })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// An empty folder in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn room(&self) -> Result<tempfile::TempDir, CacheError> {
        tempfile::Builder::new().prefix("").tempdir_in(self.path()).map_err(at(self.path()))
    }
}

/// Removes a workroom that nobody holds. What is none stays, whoever put it there.
fn left_behind(entry: &std::fs::DirEntry) {
    let room = entry.path();
    let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(ROOM.0));
    if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        return;
    }
    if FolderLock::wait(&room, || true, || {}).is_some() {
        // One without the mark is removed if it is empty: its process ended before it put it there.
        let marked = room.join(ROOM.1).symlink_metadata().is_ok_and(|mark| mark.is_file());
        let _ = if marked { files::remove_folder(&room) } else { std::fs::remove_dir(&room) };
    }
}

impl Cache {
    /// The cache in `folder`, which is made where it is missing.
    ///
    /// # Errors
    /// The folder cannot be written in.
    pub fn open(folder: &Path) -> Result<Cache, CacheError> {
        let entries = folder.join("entries");
        std::fs::create_dir_all(&entries).map_err(at(&entries))?;
        let entries = entries.canonicalize().map_err(at(&entries))?;
        Ok(Cache { entries, workroom: Workroom::open(&folder.join("work"))? })
    }

    /// The entry of `stage` for `key`, or what `make` puts into a folder and tells.
    ///
    /// # Errors
    /// Those of `make`, or the cache cannot be read or written.
    pub fn entry<E: From<CacheError>>(
        &self,
        stage: &'static str,
        key: &Value,
        make: impl FnOnce(&Path) -> Result<Value, E>,
    ) -> Result<Entry, E> {
        let path = self.entries.join(format!("{stage}-{}", Digest::of(key.to_string().as_bytes())));
        if let Some(entry) = stored(&path, key) {
            return Ok(entry);
        }
        let room = self.workroom.room()?;
        let content = room.path().join("content");
        std::fs::create_dir(&content).map_err(at(&content))?;
        let told = make(&content)?;
        let tree = Tree::of(&content).map_err(CacheError::from)?;
        let entry = Stored::new(key.clone(), tree.root(), told);
        let text = serde_json::to_vec(&entry).map_err(CacheError::from)?;
        let file = room.path().join("entry.json");
        std::fs::write(&file, text).map_err(at(&file))?;
        match place(room.path(), &path, key)? {
            Some(others) => Ok(others),
            None => {
                // What it held is elsewhere now.
                let mut room = room;
                room.disable_cleanup(true);
                Ok(Entry { folder: path.join("content"), tree, told: entry.told, reused: false })
            }
        }
    }
}

/// How often an entry that others make or remove at the same time is looked at again.
const TRIES: usize = 20;

/// Renames what was made to its place. If another process put the same there meanwhile, that is the entry; what is spoilt
/// there, or no entry at all, makes room.
fn place(made: &Path, path: &Path, key: &Value) -> Result<Option<Entry>, CacheError> {
    let mut last = None;
    for _ in 0..TRIES {
        match path.symlink_metadata() {
            Err(_) => match std::fs::rename(made, path) {
                Ok(()) => return Ok(None),
                Err(error) => last = Some(error),
            },
            Ok(there) => {
                if let Some(entry) = stored(path, key) {
                    return Ok(Some(entry));
                }
                let removed = if there.is_dir() { files::remove_folder(path) } else { std::fs::remove_file(path) };
                last = removed.err();
            }
        }
    }
    let source = last.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into());
    Err(CacheError::Taken { path: path.into(), source })
}

/// The entry at `path`, if it is there, of that key, and as it was made.
fn stored(path: &Path, key: &Value) -> Option<Entry> {
    let text = files::read(&path.join("entry.json"), files::TEXT_MAX).ok()?;
    let stored: Stored = serde_json::from_slice(&text).ok()?;
    let folder = path.join("content");
    let tree = Tree::of(&folder).ok()?;
    let seal = Stored::new(stored.key.clone(), stored.root, stored.told.clone()).seal;
    let same = stored.key == *key && tree.root() == stored.root && seal == stored.seal;
    if !same {
        tracing::warn!("{} was changed since it was made, and is made anew", path.display());
    }
    same.then_some(Entry { folder, tree, told: stored.told, reused: true })
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.to_path_buf();
    |source| CacheError::Io { path, source }
}

/// Puts the files of `from`, which `tree` lists, under `to`: the same files by another name where the system can, else
/// copies.
///
/// # Errors
/// A file cannot be put there.
pub fn link(from: &Path, tree: &Tree, to: &Path) -> Result<(), CacheError> {
    for file in &tree.files {
        let (source, target) = (from.join(&file.path), to.join(&file.path));
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(at(folder))?;
        }
        if std::fs::hard_link(&source, &target).is_err() {
            std::fs::copy(&source, &target).map_err(at(&target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::Cell;

    /// An entry whose file is `text`, and whether it was made for it.
    fn entry(cache: &Cache, key: u32, text: &str) -> (String, bool) {
        let made = Cell::new(false);
        let found = cache.entry::<CacheError>("stage", &json!({ "key": key }), |folder| {
            made.set(true);
            std::fs::write(folder.join("file"), text).unwrap();
            Ok(json!(text))
        });
        let found = found.unwrap();
        assert_eq!(found.reused, !made.get());
        let read = fs_err::read_to_string(found.folder.join("file")).unwrap();
        assert_eq!(found.told, json!(read));
        (read, made.get())
    }

    #[test]
    fn made_once_for_each_key() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        assert_eq!(entry(&cache, 1, "one"), ("one".into(), true));
        assert_eq!(entry(&cache, 2, "two"), ("two".into(), true));
        assert_eq!(entry(&cache, 1, "other"), ("one".into(), false));
        assert_eq!(entry(&Cache::open(dir.path()).unwrap(), 2, "other"), ("two".into(), false));
    }

    #[test]
    fn what_was_changed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        entry(&cache, 1, "one");
        let folder = fs_err::read_dir(dir.path().join("entries")).unwrap().next().unwrap().unwrap().path();
        for (file, text) in [("content/file", "spoilt"), ("content/more", ""), ("entry.json", "{}")] {
            fs_err::write(folder.join(file), text).unwrap();
            assert_eq!(entry(&cache, 1, "again"), ("again".into(), true), "{file}");
        }
        fs_err::remove_file(folder.join("content/file")).unwrap();
        assert_eq!(entry(&cache, 1, "again"), ("again".into(), true));
        let text = fs_err::read_to_string(folder.join("entry.json")).unwrap();
        fs_err::write(folder.join("entry.json"), text.replace("\"again\"", "\"other\"")).unwrap();
        assert_eq!(entry(&cache, 1, "anew"), ("anew".into(), true), "what was told is no entry's own word");
    }

    #[test]
    fn what_is_no_entry_makes_room_and_what_a_link_leads_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        entry(&cache, 1, "one");
        let folder = fs_err::read_dir(dir.path().join("entries")).unwrap().next().unwrap().unwrap().path();
        let kept = dir.path().join("kept");
        fs_err::create_dir(&kept).unwrap();
        fs_err::write(kept.join("mine"), "").unwrap();
        let link = |to: &Path| std::os::unix::fs::symlink(to, &folder).unwrap();
        let clear = || drop(files::remove_folder(&folder).or_else(|_| std::fs::remove_file(&folder)));
        let puts: [&dyn Fn(); 3] =
            [&|| link(&kept), &|| link(Path::new("/no/such")), &|| fs_err::write(&folder, "").unwrap()];
        for put in puts {
            clear();
            put();
            assert_eq!(entry(&cache, 1, "again"), ("again".into(), true));
            assert!(kept.join("mine").exists());
        }
    }

    #[test]
    fn a_failed_stage_and_a_killed_one_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let failed = |_: &Path| Err(CacheError::Io { path: PathBuf::new(), source: io::ErrorKind::Other.into() });
        assert!(cache.entry("stage", &json!(1), failed).is_err());
        let rooms = || fs_err::read_dir(dir.path().join("work")).unwrap().count();
        let at = |name: &str| dir.path().join("work").join(name);
        for (name, file) in [("room-left", ROOM.1), ("room-mine", "x"), ("src", ROOM.1)] {
            fs_err::create_dir_all(at(name)).unwrap();
            fs_err::write(at(name).join(file), "").unwrap();
        }
        fs_err::create_dir(at("room-empty")).unwrap();
        std::os::unix::fs::symlink(at("src"), at("room-link")).unwrap();
        assert_eq!(rooms(), 6);
        let second = Cache::open(dir.path()).unwrap();
        assert!(!at("room-left").exists() && !at("room-empty").exists());
        assert!(at("room-mine/x").exists() && at("src").join(ROOM.1).exists(), "what is not ours stays");
        assert_eq!(rooms(), 5, "one that lives keeps its room");
        drop((cache, second));
        assert_eq!(rooms(), 3);
        assert_eq!(fs_err::read_dir(dir.path().join("entries")).unwrap().count(), 0);
    }

    #[test]
    fn files_are_shared() {
        use std::os::unix::fs::MetadataExt;
        let [from, to] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs_err::create_dir(from.path().join("a")).unwrap();
        fs_err::write(from.path().join("a/b"), "1").unwrap();
        let tree = Tree::of(from.path()).unwrap();
        link(from.path(), &tree, to.path()).unwrap();
        assert_eq!(Tree::of(to.path()).unwrap(), tree);
        assert_eq!(fs_err::metadata(to.path().join("a/b")).unwrap().nlink(), 2);
    }
}
