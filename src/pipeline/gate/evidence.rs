//! What an artefact was judged by: each file with the digest of its content as it was read.

use super::name_of;
use crate::digest::Digest;
use crate::files::{self, Stamp};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// What a file says of a clip, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceKind {
    /// Inputs and the reference's outputs.
    Golden,
    /// The reader's words.
    Words,
    /// The reference's transcripts.
    Transcripts,
    /// What was truly said.
    Truth,
    /// Sound.
    Recording,
    /// Questions with their texts, and the reference's outputs.
    Questions,
    /// What the host of a decision model was made of.
    Host,
}

/// A file that an artefact was judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// What it is.
    pub kind: EvidenceKind,
    /// Its name, without its folder.
    pub name: String,
    /// Digest of its content.
    pub sha256: Digest,
}

/// Why it is not known what an artefact was judged by.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum EvidenceError {
    #[error("{} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} changed while it was read", path.display())]
    Changed { path: PathBuf },
}

impl Evidence {
    /// What `read` makes of the file at `path`, and the file as evidence. It is hashed in pieces, so that its size is no
    /// matter.
    ///
    /// # Errors
    /// Those of `read`; or the file cannot be hashed, or is not the one it was before `read`.
    pub fn of<T, E: From<EvidenceError>>(
        kind: EvidenceKind,
        path: &Path,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, Evidence), E> {
        let before = Stamp::of(path).ok();
        let found = read()?;
        let hashed = || {
            let (sha256, _) = Digest::of_reader(files::open(path)?)?;
            Ok((sha256, Stamp::of(path)?))
        };
        let (sha256, after) = hashed().map_err(|source| EvidenceError::Io { path: path.into(), source })?;
        if before != Some(after) {
            return Err(EvidenceError::Changed { path: path.into() }.into());
        }
        Ok((found, Evidence { kind, name: name_of(path), sha256 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clip.wav");
        let of = |read: &dyn Fn() -> Result<u8, EvidenceError>| {
            let found = Evidence::of(EvidenceKind::Recording, &path, read);
            found.map_err(|e| e.to_string().replace(dir.path().to_str().unwrap(), ""))
        };
        insta::assert_snapshot!(of(&|| Ok(1)).unwrap_err(), @"/clip.wav could not be read");
        fs_err::write(&path, "sound").unwrap();
        let expected =
            Evidence { kind: EvidenceKind::Recording, name: "clip.wav".into(), sha256: Digest::of(b"sound") };
        assert_eq!(of(&|| Ok(1)).unwrap(), (1, expected));
        let longer = || {
            fs_err::write(&path, "other sound").unwrap();
            Ok(1)
        };
        insta::assert_snapshot!(of(&longer).unwrap_err(), @"/clip.wav changed while it was read");
        let another = || {
            fs_err::write(dir.path().join("new"), "other noise").unwrap();
            fs_err::rename(dir.path().join("new"), &path).unwrap();
            Ok(1)
        };
        insta::assert_snapshot!(of(&another).unwrap_err(), @"/clip.wav changed while it was read");
        let unread = || Err(EvidenceError::Changed { path: "what read says".into() });
        insta::assert_snapshot!(of(&unread).unwrap_err(), @"what read says changed while it was read");
    }
}
