//! One safetensors file, open for reading by position.

use super::CheckpointError;
use super::header::{self, Entry, LENGTH_BYTES, MAX_HEADER};
use crate::files;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a clone without Git LFS has in place of a large file starts with.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// An open file and what its header lists.
#[derive(Debug)]
pub struct Shard {
    /// Its path.
    pub path: PathBuf,
    /// Its name, for messages.
    pub name: String,
    /// Its tensors.
    pub tensors: BTreeMap<String, Entry>,
    /// Its `__metadata__`.
    pub metadata: BTreeMap<String, String>,
    file: File,
    data: u64,
}

impl Shard {
    /// Opens `path` and reads its header.
    ///
    /// # Errors
    /// The file cannot be read or is not a well-formed safetensors file.
    pub fn open(path: &Path) -> Result<Shard, CheckpointError> {
        let io = |source| CheckpointError::Io { path: path.into(), source };
        let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let file = files::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        let Some(rest) = len.checked_sub(LENGTH_BYTES) else {
            return Err(CheckpointError::NoHeader { file: name, len });
        };
        let mut length = [0u8; LENGTH_BYTES as usize];
        file.read_exact_at(&mut length, 0).map_err(io)?;
        if length == LFS_POINTER[..8] {
            return Err(CheckpointError::LfsPointer { file: name });
        }
        let header = u64::from_le_bytes(length);
        if header > MAX_HEADER {
            return Err(CheckpointError::HeaderTooLong { file: name, header, max: MAX_HEADER });
        }
        if header > rest {
            return Err(CheckpointError::HeaderBeyondFile { file: name, header, len });
        }
        let mut json = vec![0u8; header as usize];
        file.read_exact_at(&mut json, LENGTH_BYTES).map_err(io)?;
        let (tensors, metadata) = header::parse(&json, rest - header, &name)?;
        Ok(Shard { path: path.into(), name, tensors, metadata, file, data: LENGTH_BYTES + header })
    }

    /// Byte of the file that byte `offset` of the data is.
    pub fn offset(&self, offset: u64) -> u64 {
        self.data + offset
    }

    /// Fills `out` from byte `offset` of the data on.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, self.offset(offset))
    }
}
