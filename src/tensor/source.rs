//! Where weight values come from: a checkpoint, a package that was read back, or a seeded stream.

use super::{Fact, widen};
use std::io;
use std::path::PathBuf;

/// A set of named tensors that can be read piece by piece, so that no stage holds a whole model in memory.
pub trait WeightSource: Sync {
    /// The names of all tensors, sorted.
    fn names(&self) -> Vec<&str>;

    /// Stored dtype and shape of `name`, or `None` where there is no such tensor.
    fn fact(&self, name: &str) -> Option<&Fact>;

    /// Fills `out` with the stored bytes of `name` from byte `offset` on (little endian, row-major).
    ///
    /// # Errors
    /// The tensor is absent, the range leaves it, or its file cannot be read.
    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError>;

    /// The file that has the stored bytes of `name` in one piece, and the first of them; None where there is no such
    /// file.
    fn stretch(&self, _name: &str) -> Option<(PathBuf, u64)> {
        None
    }

    /// Where `name` is kept, for messages: a file name, or what makes the values.
    fn place(&self, name: &str) -> String;

    /// Fills `out` with the elements of `name` from element `start` on, widened to f32.
    ///
    /// # Errors
    /// As [`read`](Self::read), and where the tensor is not one of floats.
    fn read_f32(&self, name: &str, start: usize, out: &mut [f32]) -> Result<(), SourceError> {
        let Some(fact) = self.fact(name) else {
            return Err(SourceError::Missing { tensor: name.into(), place: self.place(name) });
        };
        let dtype = fact.dtype;
        if !dtype.is_float() {
            return Err(SourceError::NotFloat { tensor: name.into(), place: self.place(name), found: fact.clone() });
        }
        let mut bytes = vec![0u8; out.len() * dtype.size()];
        self.read(name, (start * dtype.size()) as u64, &mut bytes)?;
        widen(dtype, &bytes, out);
        Ok(())
    }
}

/// Why a tensor could not be read from a [`WeightSource`].
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no tensor of that name.
    #[error("tensor {tensor} is not in {place}")]
    Missing {
        /// The name asked for.
        tensor: String,
        /// The file or stream that was asked.
        place: String,
    },
    /// Numbers were wanted of a tensor that does not hold floats.
    #[error("tensor {tensor} in {place} is {found}, expected f64, f32, f16 or bf16")]
    NotFloat {
        /// The tensor's name.
        tensor: String,
        /// Its file.
        place: String,
        /// What it is.
        found: Fact,
    },
    /// The bytes asked for are not all inside the tensor.
    #[error("bytes {offset}..{end} of tensor {tensor} in {place} are outside its {size} bytes")]
    Range {
        /// The tensor's name.
        tensor: String,
        /// Its file.
        place: String,
        /// First byte asked for.
        offset: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Bytes the tensor has.
        size: u64,
    },
    /// The file could not be read.
    #[error("tensor {tensor} could not be read from {place}")]
    Io {
        /// The tensor's name.
        tensor: String,
        /// Its file.
        place: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
