//! What a device found, taken into the release it was found of: a new folder in the place of the old one, with the bundles'
//! files by their names and the record, its statement, its texts and the digests made anew.

use super::{Verified, VerifyError, one};
use crate::bundle::{Outcome, PublishError, Replace, Stage, Tree, TreeError, commit};
use crate::files;
use crate::pipeline::release::{CacheError, HIDDEN, Known, ROOMS, StageError, Workroom, link, seal};
use crate::pipeline::told::name_of;
use crate::provenance::device::{DeviceError, DeviceRecord, MergeError, merge};
use crate::provenance::release::{RELEASE_FILE, ReleaseRecord, STATEMENT_FILE, SUMS_FILE};
use crate::provenance::texts::README_FILE;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// A device record that was taken in.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    /// The file's name.
    pub file: String,
    /// The kind of machine.
    pub machine: String,
}

/// Why nothing was taken into a release.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum MergeFailure {
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error("{} is not whole, so nothing is merged into it: {first}{}", path.display(), more(*faults))]
    NotWhole { path: PathBuf, first: String, faults: usize },
    #[error("device record {} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("device record {} cannot be used", path.display())]
    Device { path: PathBuf, source: DeviceError },
    #[error("device record {} does not belong in {}", path.display(), release.display())]
    Merge { path: PathBuf, release: PathBuf, source: MergeError },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Link(#[from] CacheError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Seal(#[from] StageError),
    #[error("the record could not be written as JSON")]
    Json(#[from] serde_json::Error),
}

fn more(faults: usize) -> String {
    if faults > 1 { format!(", and {} faults more", faults - 1) } else { String::new() }
}

/// Takes the device records of `given` into the release at `release`: all of them, or none.
///
/// # Errors
/// The release is not whole, a record does not belong in it, or it cannot be written; it is then as it was.
pub fn merge_into(release: &Path, given: &[PathBuf]) -> Result<Vec<Merged>, MergeFailure> {
    let Verified { faults, .. } = one(release)?;
    if let Some(first) = faults.first() {
        return Err(MergeFailure::NotWhole { path: release.into(), first: first.to_string(), faults: faults.len() });
    }
    let text = files::read(&release.join(RELEASE_FILE), files::TEXT_MAX);
    let text = text.map_err(|source| MergeFailure::Io { path: release.join(RELEASE_FILE), source })?;
    let mut record: ReleaseRecord = serde_json::from_slice(&text)?;
    let mut merged = Vec::new();
    for path in given {
        let bytes = files::read(path, files::TEXT_MAX);
        let bytes = bytes.map_err(|source| MergeFailure::Io { path: path.clone(), source })?;
        let device = DeviceRecord::parse(&bytes);
        let device = device.map_err(|source| MergeFailure::Device { path: path.clone(), source })?;
        let file = name_of(path);
        merged.push(Merged { file, machine: device.machine.model.clone() });
        let foreign = |source| MergeFailure::Merge { path: path.clone(), release: release.into(), source };
        merge(&mut record, device).map_err(foreign)?;
    }
    replace(release, &record)?;
    Ok(merged)
}

/// Removes the hidden folder beside a release when dropped, if it has nothing but room to work in: a release may have
/// been unpacked anywhere.
struct Tidy<'p>(&'p Path);

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        let Ok(mut entries) = std::fs::read_dir(self.0) else { return };
        if entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == ROOMS)) {
            // Rooms that others work in are in the way of both, and stay.
            let _ = std::fs::remove_dir(self.0.join(ROOMS)).and_then(|()| std::fs::remove_dir(self.0));
        }
    }
}

fn replace(release: &Path, record: &ReleaseRecord) -> Result<(), MergeFailure> {
    // Its own name, where it was given as `.` or behind a link.
    let release = release.canonicalize().map_err(|source| MergeFailure::Io { path: release.into(), source })?;
    let made = [RELEASE_FILE, STATEMENT_FILE, README_FILE, SUMS_FILE];
    let mut kept = Tree::of(&release)?;
    kept.files.retain(|file| !made.contains(&file.path.as_str()));
    // Where releases are made too, so that whoever makes or merges one next removes what a killed process left.
    let hidden = release.with_file_name(HIDDEN);
    let _tidy = Tidy(&hidden);
    let room = Workroom::open(&hidden.join(ROOMS))?;
    let stage = Stage::within(&release, room.path(), 0)?;
    let folder = stage.path();
    link(&release, &kept, folder)?;
    let tree = seal(folder, record, &Known::new())?;
    match commit(vec![(stage, &tree)], Replace::Force)?.first() {
        Some(Outcome::Published | Outcome::Unchanged) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the folder `dist` beside the release after room was made and left, where `before` was there.
    fn left(before: &[&str], meanwhile: impl FnOnce(&Path)) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join(HIDDEN);
        for folder in before {
            fs_err::create_dir_all(hidden.join(folder)).unwrap();
        }
        let tidy = Tidy(&hidden);
        let room = Workroom::open(&hidden.join(ROOMS)).unwrap();
        let stage = Stage::within(&dir.path().join("r"), room.path(), 0).unwrap();
        let outside = fs_err::read_dir(dir.path()).unwrap().count();
        assert_eq!(outside, 1, "only the hidden folder is there while it is made");
        meanwhile(&hidden);
        drop(stage);
        drop(room);
        drop(tidy);
        let names = |folder: &Path| fs_err::read_dir(folder).map(|e| e.map(|e| e.unwrap().path()).collect::<Vec<_>>());
        let mut found = Vec::new();
        let mut folders = vec![dir.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            folders.extend(names(&folder).unwrap());
            found.push(folder.strip_prefix(dir.path()).unwrap().display().to_string());
        }
        found.sort();
        found.split_off(1)
    }

    #[test]
    fn no_litter_stays_and_nothing_of_others_goes() {
        let none: Vec<String> = Vec::new();
        assert_eq!(left(&[], |_| {}), none);
        assert_eq!(left(&["cache", "work"], |_| {}), [".release", ".release/cache", ".release/work"]);
        let other = |hidden: &Path| fs_err::create_dir(hidden.join("work/other")).unwrap();
        assert_eq!(left(&[], other), [".release", ".release/work", ".release/work/other"]);
    }

    #[test]
    fn what_a_killed_one_left_goes_with_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join(HIDDEN);
        let room = Workroom::open(&hidden.join(ROOMS)).unwrap();
        let path = room.path().to_path_buf();
        let files: Vec<PathBuf> = fs_err::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        drop(room);
        // As it was, and a stage in it, but nobody holds it.
        fs_err::create_dir_all(path.join(".r.abc/r")).unwrap();
        for file in files {
            fs_err::write(file, "").unwrap();
        }
        {
            let _tidy = Tidy(&hidden);
            let _room = Workroom::open(&hidden.join(ROOMS)).unwrap();
        }
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 0);
    }
}
