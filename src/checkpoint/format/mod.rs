//! The formats of weight files. Each parser gives the same entries: what a tensor is and where its bytes lie.
//!
//! A file's first bytes say what it is, its ending does not matter. Every parser holds what a file claims against the
//! file's size before anything is allocated, and none follows a file's instructions.

pub mod npy;
pub mod pytorch;
pub mod safetensors;

use super::CheckpointError;
use crate::tensor::Fact;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The name that a tensor gets in a file that gives it none: an array saved by numpy, or a tensor saved alone.
pub const UNNAMED: &str = "tensor";

/// What a clone without Git LFS has in place of a large file starts with.
const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// Most bytes that tell the formats apart.
const MAGIC_BYTES: usize = 14;

/// Where a tensor lies and what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its fact; none for a dtype that is not read here, such as an 8-bit float.
    pub fact: Option<Fact>,
    /// Its first byte in the file.
    pub begin: u64,
    /// One past its last byte.
    pub end: u64,
}

/// Entries by tensor name.
pub type Entries = BTreeMap<String, Entry>;

/// What a weight file holds.
pub struct Content {
    /// Its tensors.
    pub tensors: Entries,
    /// Texts it says besides, which only safetensors has a place for: `__metadata__`.
    pub metadata: BTreeMap<String, String>,
}

impl From<Entries> for Content {
    fn from(tensors: Entries) -> Content {
        Content { tensors, metadata: BTreeMap::new() }
    }
}

/// An open file to be parsed.
pub struct Input<'a> {
    /// The file.
    pub file: &'a File,
    /// Its length in bytes.
    pub len: u64,
    /// Its path.
    pub path: &'a Path,
    /// Its name, for messages.
    pub name: &'a str,
}

impl Input<'_> {
    /// The `len` bytes from `begin` on; the caller has bounded `len`.
    ///
    /// # Errors
    /// The file cannot be read, or has become shorter.
    pub fn bytes(&self, begin: u64, len: usize) -> Result<Vec<u8>, CheckpointError> {
        let mut out = vec![0; len];
        self.file.read_exact_at(&mut out, begin).map_err(|source| self.io(source))?;
        Ok(out)
    }

    /// That the system could not read the file.
    pub fn io(&self, source: std::io::Error) -> CheckpointError {
        CheckpointError::Io { path: self.path.into(), source }
    }

    /// What the file holds, whichever format it has.
    ///
    /// # Errors
    /// The file cannot be read or is malformed.
    pub fn content(&self) -> Result<Content, CheckpointError> {
        let magic = self.bytes(0, self.len.min(MAGIC_BYTES as u64) as usize)?;
        if magic.starts_with(&LFS_POINTER[..8]) {
            Err(CheckpointError::LfsPointer { file: self.name.into() })
        } else if npy::is(&magic) {
            npy::entries(self).map(Content::from)
        } else if pytorch::is(&magic) {
            pytorch::entries(self).map(Content::from)
        } else {
            safetensors::content(self)
        }
    }
}

#[cfg(test)]
mod tests;
