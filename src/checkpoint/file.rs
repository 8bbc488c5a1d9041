//! One weight file, open for reading by position.

use super::CheckpointError;
use super::format::{Content, Entries, Input};
use crate::files;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open file and the tensors in it.
#[derive(Debug)]
pub struct Shard {
    /// Its path.
    pub path: PathBuf,
    /// Its name, for messages.
    pub name: String,
    /// Its tensors.
    pub tensors: Entries,
    /// What it says besides.
    pub metadata: BTreeMap<String, String>,
    file: File,
}

impl Shard {
    /// Opens `path` and reads where its tensors lie.
    ///
    /// # Errors
    /// The file cannot be read or is not a well-formed weight file.
    pub fn open(path: &Path) -> Result<Shard, CheckpointError> {
        let io = |source| CheckpointError::Io { path: path.into(), source };
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let file = files::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let Content { tensors, metadata } = Input { file: &file, len, path, name: &name }.content()?;
        Ok(Shard { path: path.into(), name, tensors, metadata, file })
    }

    /// Fills `out` from byte `begin` of the file on.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn read(&self, begin: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, begin)
    }
}
