//! `weight.bin`, format 2: a header, then for each blob a record, its data, and zeros up to the next record.
//!
//! Blobs stream in, so a blob is known to be a copy of an earlier one only once all of it was written. Then the file
//! position goes back to where its record began and the earlier record is used: identical blobs are stored once, at
//! the cost of writing a copy in vain and of no memory.

use super::digest::{ValueDigest, ValueHasher};
use crate::tensor::DType;
use std::collections::HashMap;
use std::io::{self, Seek, SeekFrom, Write};

/// Records, and the data behind them, start at multiples of this.
const ALIGN: u64 = 64;
/// Bytes of the file header: count and version, then zeros.
const HEADER: usize = 64;
/// Bytes of a record.
const RECORD: usize = 64;
/// Format of the file, as `MILBlob` of coremltools numbers it.
const VERSION: u32 = 2;
/// First word of each record.
const SENTINEL: u32 = 0xDEAD_BEEF;

// The data follows its record without a gap only because of this.
const _: () = assert!(HEADER as u64 == ALIGN && RECORD as u64 == ALIGN);

/// Writes blobs one after the other.
pub(super) struct BlobWriter<W> {
    out: W,
    count: u32,
    /// Where the last blob's data ends.
    end: u64,
    known: HashMap<ValueDigest, u64>,
    /// Bytes of data in the file.
    pub stored: u64,
    /// Bytes of data that were already there.
    pub shared: u64,
}

/// Where a blob went.
#[derive(Debug, PartialEq)]
pub(super) struct Stored {
    /// Offset of its record, which is what an op refers to.
    pub offset: u64,
    /// Digest of its values.
    pub digest: ValueDigest,
}

/// A blob that is being written.
pub(super) struct Record<'a, W> {
    file: &'a mut BlobWriter<W>,
    hasher: ValueHasher,
    offset: u64,
    size: u64,
    left: u64,
}

impl<W: Write + Seek> BlobWriter<W> {
    /// An empty file; the header is completed by [`finish`](Self::finish).
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[0; HEADER])?;
        Ok(BlobWriter { out, count: 0, end: ALIGN, known: HashMap::new(), stored: 0, shared: 0 })
    }

    /// Starts a blob of exactly `size` bytes; `code` is what the format calls `dtype`.
    pub fn begin(&mut self, dtype: DType, code: u32, size: u64) -> io::Result<Record<'_, W>> {
        let offset = self.end.next_multiple_of(ALIGN);
        let gap = (offset - self.end) as usize;
        self.out.write_all(&[0; ALIGN as usize][..gap])?;
        let mut record = [0; RECORD];
        record[0..4].copy_from_slice(&SENTINEL.to_le_bytes());
        record[4..8].copy_from_slice(&code.to_le_bytes());
        record[8..16].copy_from_slice(&size.to_le_bytes());
        record[16..24].copy_from_slice(&(offset + RECORD as u64).to_le_bytes());
        self.out.write_all(&record)?;
        Ok(Record { hasher: ValueHasher::new(dtype), file: self, offset, size, left: size })
    }

    /// Completes the header. Returns what was written to and how long the file is; anything behind that is left over
    /// from a copy and must be cut off.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&self.count.to_le_bytes())?;
        self.out.write_all(&VERSION.to_le_bytes())?;
        self.out.flush()?;
        Ok((self.out, self.end))
    }

    /// How many blobs the file holds.
    pub fn count(&self) -> u32 {
        self.count
    }
}

impl<W: Write + Seek> Record<'_, W> {
    /// The next bytes of the blob.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| wrong_size(self.size))?;
        self.hasher.update(bytes);
        self.file.out.write_all(bytes)
    }

    /// Ends the blob, or takes it back where the file has it already.
    pub fn finish(self) -> io::Result<Stored> {
        if self.left != 0 || self.size == 0 {
            return Err(wrong_size(self.size));
        }
        let (file, digest) = (self.file, self.hasher.finish());
        if let Some(&offset) = file.known.get(&digest) {
            file.out.seek(SeekFrom::Start(file.end))?;
            file.shared += self.size;
            return Ok(Stored { offset, digest });
        }
        file.known.insert(digest, self.offset);
        file.end = self.offset + RECORD as u64 + self.size;
        file.count += 1;
        file.stored += self.size;
        Ok(Stored { offset: self.offset, digest })
    }
}

fn wrong_size(size: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a weight did not come in the {size} bytes it was to have"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn put(blobs: &mut BlobWriter<Cursor<Vec<u8>>>, dtype: DType, code: u32, bytes: &[u8]) -> u64 {
        let mut record = blobs.begin(dtype, code, bytes.len() as u64).unwrap();
        for part in bytes.chunks(7) {
            record.write(part).unwrap();
        }
        record.finish().unwrap().offset
    }

    #[test]
    fn layout_and_sharing() {
        let mut blobs = BlobWriter::new(Cursor::new(Vec::new())).unwrap();
        let data: Vec<u8> = (1..=24).collect();
        assert_eq!(put(&mut blobs, DType::F16, 1, &data), 64);
        assert_eq!(put(&mut blobs, DType::F16, 1, &[9; 70]), 192);
        assert_eq!(put(&mut blobs, DType::F16, 1, &data), 64, "the same blob again");
        assert_eq!(put(&mut blobs, DType::I8, 4, &data), 384, "the same bytes of another dtype");
        assert_eq!(put(&mut blobs, DType::F16, 1, &[9; 70]), 192, "a copy at the very end");
        assert_eq!((blobs.stored, blobs.shared), (24 + 70 + 24, 24 + 70));
        let (out, len) = blobs.finish().unwrap();
        let mut file = out.into_inner();
        file.truncate(len as usize);
        assert_eq!(file.len(), 384 + 64 + 24);
        assert_eq!(file[..8], [3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(file[64..76], [0xEF, 0xBE, 0xAD, 0xDE, 1, 0, 0, 0, 24, 0, 0, 0]);
        assert_eq!(file[80..82], [128, 0]);
        assert_eq!(file[128..152], data);
        assert!(file[152..192].iter().all(|b| *b == 0) && file[326..384].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_blob_must_have_its_size() {
        let mut blobs = BlobWriter::new(Cursor::new(Vec::new())).unwrap();
        let mut record = blobs.begin(DType::F32, 2, 4).unwrap();
        assert!(record.write(&[0; 5]).is_err());
        let mut record = blobs.begin(DType::F32, 2, 4).unwrap();
        record.write(&[0; 3]).unwrap();
        assert!(record.finish().is_err());
    }
}
