//! Everything that can be wrong with a checkpoint on disk.

use super::format::npy::NpyError;
use super::format::pytorch::PyTorchError;
use crate::tensor::Shape;
use std::io;
use std::path::PathBuf;

/// A checkpoint that cannot be used. `file` is the file at fault.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum CheckpointError {
    #[error("{} cannot be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} holds no model.safetensors, model.safetensors.index.json or snapshots/", path.display())]
    NoModel { path: PathBuf },
    #[error("{} holds several snapshots ({}) and no refs/main; name one of them", path.display(), found.join(", "))]
    Snapshots { path: PathBuf, found: Vec<String> },
    #[error("{file} is {len} bytes long, too short for the length of a safetensors header (8 bytes)")]
    NoHeader { file: String, len: u64 },
    #[error(
        "{file} says its header is {header} bytes long, but the file has {len}; it is cut short or not safetensors"
    )]
    HeaderBeyondFile { file: String, header: u64, len: u64 },
    #[error("{file} is a Git LFS pointer, not the file it points to; fetch it with `git lfs pull`")]
    LfsPointer { file: String },
    #[error(
        "{file} says its header is {header} bytes long; the format allows {max}: it is neither safetensors nor, by its \
         first bytes, a PyTorch archive or .npy"
    )]
    HeaderTooLong { file: String, header: u64, max: u64 },
    #[error("the header of {file} is not UTF-8 from byte {at} on")]
    NotUtf8 { file: String, at: usize },
    #[error("the header of {file} is not a safetensors header")]
    Header { file: String, source: serde_json::Error },
    #[error("{file}: tensor {tensor} of {dtype}{shape} takes {want} bytes, but its data_offsets {begin}..{end} hold {}", end.wrapping_sub(*begin))]
    Span { file: String, tensor: String, dtype: String, shape: Shape, begin: u64, end: u64, want: u64 },
    #[error("{file}: tensor {tensor} has data_offsets {begin}..{end}, which run backwards")]
    Backwards { file: String, tensor: String, begin: u64, end: u64 },
    #[error("{file}: tensor {tensor} of shape {shape} is larger than any file")]
    TooLarge { file: String, tensor: String, shape: Shape },
    #[error(
        "{file}: the data of tensor {tensor} starts at byte {begin}, expected {expected}, where the tensor before it ends"
    )]
    Gap { file: String, tensor: String, begin: u64, expected: u64 },
    #[error("{file} has {found} bytes of data, expected {expected}: it is cut short")]
    Truncated { file: String, found: u64, expected: u64 },
    #[error("{file} has {found} bytes of data, expected {expected}: bytes trail behind the last tensor")]
    Trailing { file: String, found: u64, expected: u64 },
    #[error("{file} {why}")]
    PyTorch { file: String, why: PyTorchError },
    #[error("{file} {why}")]
    Npy { file: String, why: NpyError },
    #[error("{index} is not an index of shards")]
    Index { index: String, source: serde_json::Error },
    #[error("{index} names the shard {shard:?}, expected a file name inside its own folder")]
    Outside { index: String, shard: String },
    #[error("{index} names the shard {shard}, which is missing")]
    MissingShard { index: String, shard: String, source: io::Error },
    #[error("{index} says that {shard} holds tensor {tensor}, which it lacks")]
    Absent { index: String, shard: String, tensor: String },
    #[error("tensor {tensor} is in both {first} and {second}")]
    Twice { tensor: String, first: String, second: String },
    #[error("{file} is given for both the weights and the table, expected a file of each")]
    Same { file: String },
    #[error("{file} has no tensor {tensor}; it has {}{}", .names.join(", "), and_more(*.more))]
    NotSole { file: String, tensor: String, names: Vec<String>, more: usize },
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}
