//! A release, read again: every byte hashed, every bundle opened, every figure of the record that follows from another
//! made again. What does not fit is a fault, by name.
//!
//! That a release is whole says nothing of who made it: whoever can write all of its files can make another that is
//! whole as well.

mod bundles;
mod claims;
mod fault;
mod files;
mod gate;
mod merge;
mod shape;

pub use fault::Fault;
pub use merge::{MergeFailure, Merged, merge_into};

use crate::bundle::TreeError;
use crate::bundle::compiled::{Announcement, Identity, shared_hash};
use crate::files as regular;
use crate::pipeline::kit::KIT_FILE;
use crate::pipeline::told;
use crate::provenance::release::{Left, RELEASE_FILE, RELEASE_VERSION, ReleaseRecord, SUMS_FILE};
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// What was found of a release.
#[derive(Debug, Serialize)]
pub struct Verified {
    /// Its folder.
    #[serde(rename = "release", serialize_with = "told::shown")]
    pub path: PathBuf,
    /// Its name by the record; none where that cannot be read.
    pub name: Option<String>,
    /// Files that were hashed, the list of digests apart.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// All that does not fit.
    pub faults: Vec<Fault>,
    /// All that was never run, by the record, and what was not looked at here.
    pub not_run: Vec<Left>,
    /// The bundles, for telling apart those that share `main.hash`.
    #[serde(skip)]
    pub identities: Vec<Identity>,
}

impl Verified {
    fn unreadable(folder: &Path, error: &VerifyError) -> Verified {
        Verified {
            path: folder.into(),
            name: None,
            files: 0,
            bytes: 0,
            faults: vec![Fault::Unreadable { why: told::chain(error) }],
            not_run: Vec::new(),
            identities: Vec::new(),
        }
    }
}

/// What was found of several releases.
#[derive(Debug, Serialize)]
pub struct Verification {
    /// Each of them.
    pub releases: Vec<Verified>,
    /// Bundles, of any of them, that share `main.hash` and are not the same.
    pub announcements: Vec<Announcement>,
}

impl Verification {
    /// Whether no release has a fault.
    pub fn passed(&self) -> bool {
        self.releases.iter().all(|release| release.faults.is_empty())
    }
}

/// Why a release could not be looked at.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum VerifyError {
    #[error("{} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is a kit, which `kit run` verifies before it tries the release in it", path.display())]
    Kit { path: PathBuf },
    #[error("{} is no release: it has neither {RELEASE_FILE} nor {SUMS_FILE}", path.display())]
    NotRelease { path: PathBuf },
    #[error("{} could not be hashed, which says nothing of what it holds", path.display())]
    Exhausted { path: PathBuf, source: TreeError },
}

/// Verifies the releases in those folders.
///
/// # Errors
/// The only folder cannot be read or holds no release; beside others that is a fault, so that theirs are told. A release
/// that is not whole is no error: it has faults. That no more files can be opened is an error always.
pub fn verify(folders: &[PathBuf]) -> Result<Verification, VerifyError> {
    // A kit stands beside its release, so `dist/*` names both.
    let (kits, folders): (Vec<&PathBuf>, Vec<&PathBuf>) = folders.iter().partition(|path| is_kit(path));
    if let (Some(kit), true) = (kits.first(), folders.is_empty()) {
        return Err(VerifyError::Kit { path: kit.to_path_buf() });
    }
    for kit in kits {
        tracing::warn!("{} is a kit, which is left to `kit run`", kit.display());
    }
    let among = |folder: &&PathBuf| match one(folder) {
        Err(error @ (VerifyError::Io { .. } | VerifyError::NotRelease { .. })) if folders.len() > 1 => {
            Ok(Verified::unreadable(folder, &error))
        }
        verified => verified,
    };
    let releases = folders.iter().map(among).collect::<Result<Vec<_>, _>>()?;
    // The same release named twice shares all with itself, which is nothing to announce.
    let identities: Vec<Identity> = releases.iter().flat_map(|release| release.identities.clone()).collect();
    Ok(Verification { announcements: shared_hash(&identities), releases })
}

/// Whether the folder is what `release --kit` packs: by its name, its plan, and that it is no release itself.
fn is_kit(folder: &Path) -> bool {
    let named = folder.extension().is_some_and(|ending| ending == "kit");
    named && folder.join(KIT_FILE).is_file() && !folder.join(RELEASE_FILE).exists()
}

fn one(folder: &Path) -> Result<Verified, VerifyError> {
    let io = |source| VerifyError::Io { path: folder.into(), source };
    if !std::fs::metadata(folder).map_err(io)?.is_dir() {
        return Err(io(io::ErrorKind::NotADirectory.into()));
    }
    if [RELEASE_FILE, SUMS_FILE].iter().all(|name| !folder.join(name).exists()) {
        return Err(VerifyError::NotRelease { path: folder.into() });
    }
    let mut faults = Vec::new();
    let exhausted = |source| VerifyError::Exhausted { path: folder.into(), source };
    let listing = files::listed(folder, &mut faults).map_err(exhausted)?;
    let record = match read(folder) {
        Ok((record, bytes)) => {
            if record.to_bytes().is_ok_and(|own| own != bytes) {
                faults.push(Fault::Form { file: RELEASE_FILE });
            }
            Some(record)
        }
        Err(why) => {
            faults.push(Fault::Record { why });
            None
        }
    };
    files::check(folder, &listing, record.as_ref(), &mut faults);
    let mut verified = Verified {
        path: folder.into(),
        name: record.as_ref().map(|record| record.name.clone()),
        files: listing.tree.files.len(),
        bytes: listing.tree.files.iter().map(|file| file.size).sum(),
        faults,
        not_run: Vec::new(),
        identities: Vec::new(),
    };
    if let Some(record) = record {
        let faults = &mut verified.faults;
        verified.not_run = record.not_run.clone();
        claims::check(folder, &record, faults, &mut verified.not_run);
        verified.identities = bundles::check(folder, &record, faults);
    }
    Ok(verified)
}

/// The record, and the bytes it was read from.
fn read(folder: &Path) -> Result<(ReleaseRecord, Vec<u8>), String> {
    let bytes = regular::read(&folder.join(RELEASE_FILE), regular::TEXT_MAX).map_err(|e| e.to_string())?;
    // First, so that another version's fields are not told of as unknown.
    let value: Value = crate::json::read(&bytes).map_err(|e| e.to_string())?;
    match value["release_version"].as_u64() {
        Some(version) if version == u64::from(RELEASE_VERSION) => {}
        Some(version) => return Err(format!("release_version is {version}, expected {RELEASE_VERSION}")),
        None => return Err(format!("it has no release_version, expected {RELEASE_VERSION}")),
    }
    let record = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    Ok((record, bytes))
}
