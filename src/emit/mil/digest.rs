//! The digest of one constant's values: what the writer notes and the reader must find again.

use crate::tensor::DType;
use std::fmt;

/// BLAKE3 over the dtype's name, a zero byte, and the values (little endian, row-major).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueDigest([u8; 32]);

impl ValueDigest {
    /// Digest of values at hand.
    pub fn of(dtype: DType, bytes: &[u8]) -> ValueDigest {
        let mut hasher = ValueHasher::new(dtype);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 32 bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for ValueDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Makes a [`ValueDigest`] of values that stream by.
pub struct ValueHasher(blake3::Hasher);

impl ValueHasher {
    /// Nothing hashed yet.
    pub fn new(dtype: DType) -> ValueHasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(dtype.name().as_bytes()).update(&[0]);
        ValueHasher(hasher)
    }

    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn finish(self) -> ValueDigest {
        ValueDigest(*self.0.finalize().as_bytes())
    }
}
