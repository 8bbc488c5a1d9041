//! What `torch.save` writes: a zip archive of one pickle, which says what the tensors are, and one member per storage.
//!
//! [`archive`] finds the members, [`pickle`] reads the pickle into values ([`value`]) without executing anything, [`state_dict`]
//! turns the values into entries. Sources: PyTorch's `torch/serialization.py` and `torch/_utils.py`; Python's
//! `pickletools`.

mod archive;
mod pickle;
mod state_dict;
mod types;
mod value;

use super::{Entries, Input};
use crate::checkpoint::CheckpointError;
use archive::{Archive, ArchiveError};
use pickle::PickleError;
use state_dict::StateDictError;

/// Starts a local header of a zip archive. As the first half of a safetensors length it is possible too; then a `{`
/// stands where a zip archive has its compression method.
const ZIP: &[u8] = b"PK\x03\x04";

/// Where the header of a safetensors file starts.
const BRACE: usize = 8;

/// What `torch.save` wrote before version 1.6 starts with, after the two bytes of the pickle's protocol: a pickled
/// integer of 10 bytes, 0x1950a86a20f9469cfc6c.
const LEGACY: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// A PyTorch file that is not read.
#[derive(Debug, thiserror::Error)]
pub enum PyTorchError {
    /// It is older than the archives.
    #[error(
        "is in the format torch.save had before PyTorch 1.6; load it with torch.load(.., weights_only=True) and save it \
         again, or as safetensors"
    )]
    Legacy,
    /// The zip archive.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The pickle in it.
    #[error("has a data.pkl that {0}")]
    Pickle(#[from] PickleError),
    /// What the pickle describes.
    #[error(transparent)]
    StateDict(#[from] StateDictError),
}

/// Whether a file starts like one of PyTorch's.
pub fn is(magic: &[u8]) -> bool {
    (magic.starts_with(ZIP) && magic.get(BRACE) != Some(&b'{')) || legacy(magic)
}

fn legacy(magic: &[u8]) -> bool {
    magic.first() == Some(&pickle::PROTO) && magic.get(2..).is_some_and(|rest| rest.starts_with(LEGACY))
}

/// The tensors of the state dict, nested dicts joined by dots; a tensor saved alone is called
/// [`UNNAMED`](super::UNNAMED).
///
/// # Errors
/// The file cannot be read; it is no archive of `torch.save`; its pickle names anything but tensors; or a tensor does
/// not lie in the file in row-major order.
pub fn entries(input: &Input<'_>) -> Result<Entries, CheckpointError> {
    let refuse = |why| CheckpointError::PyTorch { file: input.name.into(), why };
    if legacy(&input.bytes(0, input.len.min(super::MAGIC_BYTES as u64) as usize)?) {
        return Err(refuse(PyTorchError::Legacy));
    }
    let archive = Archive::open(input)?;
    let bytes = archive.pickle(input)?;
    let pickle = pickle::read(&bytes).map_err(|e| refuse(e.into()))?;
    state_dict::entries(&pickle, &archive).map_err(|e| refuse(e.into()))
}

#[cfg(test)]
mod tests;
