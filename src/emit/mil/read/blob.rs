//! The weight file: records, positioned reads, and one pass over all of it.

use super::Element;
use super::error::Violation;
use crate::digest::Digest;
use crate::emit::mil::{ValueDigest, ValueHasher};
use crate::tensor::DType;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes looked at at a time: a multiple of 64 that stays in a core's cache.
const CHUNK: u64 = 1 << 18;

/// What is wrong with a record of the weight file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BlobFault {
    #[error("it is not within the {length} bytes of the file")]
    Outside { length: u64 },
    #[error("it starts with {found:#010x}, expected 0xdeadbeef")]
    Sentinel { found: u32 },
    #[error("it is not aligned to 64 bytes")]
    Unaligned,
    #[error("its data is at {found}, which is not aligned to 64 bytes")]
    DataUnaligned { found: u64 },
    #[error("its data, {size} bytes at {offset}, leaves the {length} bytes of the file")]
    Data { offset: u64, size: u64, length: u64 },
    #[error("it leaves {found} bits of its last byte unused, of 0 to 7")]
    Unused { found: u64 },
    #[error("it has no data")]
    Empty,
    #[error("its reserved bytes are not zero")]
    Reserved,
    #[error("the bytes behind its data are not zero")]
    Padding,
}

/// A record: what the blob behind it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Element type.
    pub element: Element,
    /// First byte of the data.
    pub data: u64,
    /// Bytes of data.
    pub size: u64,
    /// Bits of the last byte that hold nothing.
    pub unused: u64,
}

/// A weight file.
#[derive(Debug)]
pub(super) struct BlobFile {
    path: PathBuf,
    file: std::fs::File,
    length: u64,
}

/// What one pass over the weight file finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightScan {
    /// Digest of the file.
    pub sha256: Digest,
    /// Bytes of the file.
    pub size: u64,
    /// Digest of each blob's values, by the offset of its record; packed ones have none.
    pub values: BTreeMap<u64, ValueDigest>,
    /// Records of blobs with a float that is not finite.
    pub not_finite: Vec<u64>,
}

impl BlobFile {
    pub fn open(path: &Path) -> io::Result<BlobFile> {
        let file = crate::files::open(path)?;
        let length = file.metadata()?.len();
        Ok(BlobFile { path: path.into(), file, length })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    /// The record at `offset`.
    pub fn record(&self, offset: u64) -> Result<Record, BlobFault> {
        let outside = || BlobFault::Outside { length: self.length };
        if !offset.is_multiple_of(64) {
            return Err(BlobFault::Unaligned);
        }
        if offset < 64 || offset.checked_add(64).is_none_or(|end| end > self.length) {
            return Err(outside());
        }
        let mut raw = [0; 64];
        self.read_at(offset, &mut raw).map_err(|_| outside())?;
        let sentinel = word(&raw, 0);
        if sentinel != 0xdead_beef {
            return Err(BlobFault::Sentinel { found: sentinel });
        }
        let (size, data, unused) = (long(&raw, 8), long(&raw, 16), long(&raw, 24));
        if !data.is_multiple_of(64) {
            return Err(BlobFault::DataUnaligned { found: data });
        }
        if size == 0 {
            return Err(BlobFault::Empty);
        }
        if data < 64 || data.checked_add(size).is_none_or(|end| end > self.length) {
            return Err(BlobFault::Data { offset: data, size, length: self.length });
        }
        if unused > 7 {
            return Err(BlobFault::Unused { found: unused });
        }
        if raw[32..].iter().any(|b| *b != 0) {
            return Err(BlobFault::Reserved);
        }
        Ok(Record { element: Element::of_blob_code(word(&raw, 4)), data, size, unused })
    }

    /// All records in file order, and what is wrong with the file as a whole.
    pub fn records(&self) -> (BTreeMap<u64, Record>, Vec<Violation>) {
        let (mut records, mut wrong) = (BTreeMap::new(), Vec::new());
        let mut header = [0; 64];
        if self.read_at(0, &mut header).is_err() {
            wrong.push(Violation::File { what: "length", found: self.length, want: 64 });
            return (records, wrong);
        }
        let (count, version) = (u64::from(word(&header, 0)), word(&header, 4));
        if version != 2 {
            wrong.push(Violation::File { what: "version", found: version.into(), want: 2 });
            return (records, wrong);
        }
        let (mut offset, mut end) = (64u64, 64u64);
        while offset < self.length {
            match self.record(offset) {
                Ok(record) => {
                    end = record.data + record.size;
                    // Data that lies before its record belongs to another one too.
                    let next = end.max(offset + 64).next_multiple_of(64);
                    if self.gap(end, next.min(self.length)) {
                        wrong.push(Violation::Record { offset, fault: BlobFault::Padding });
                    }
                    records.insert(offset, record);
                    offset = next;
                }
                Err(fault) => {
                    wrong.push(Violation::Record { offset, fault });
                    break;
                }
            }
        }
        let found = records.len() as u64;
        if found != count {
            wrong.push(Violation::File { what: "count", found: count, want: found });
        }
        if wrong.is_empty() && end < self.length {
            wrong.push(Violation::File { what: "length", found: self.length, want: end });
        }
        (records, wrong)
    }

    /// Whether a byte of `begin..end`, which is less than 64 bytes, is not zero.
    fn gap(&self, begin: u64, end: u64) -> bool {
        let mut bytes = [0; 64];
        let n = end.saturating_sub(begin).min(64) as usize;
        n > 0 && (self.read_at(begin, &mut bytes[..n]).is_err() || bytes[..n].iter().any(|b| *b != 0))
    }

    /// Reads the file once from begin to end.
    pub fn scan(&self, records: &BTreeMap<u64, Record>) -> io::Result<WeightScan> {
        let mut file = fs_err::File::open(&self.path)?;
        let mut pass = Pass::new(records);
        let mut sha = Sha256::new();
        let mut buffer = Vec::with_capacity(CHUNK as usize);
        // A read may stop short; whole chunks keep every element in one piece.
        while file.by_ref().take(CHUNK).read_to_end(&mut buffer)? > 0 {
            sha.update(&buffer);
            pass.take(&buffer);
            buffer.clear();
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(&sha.finalize());
        Ok(pass.finish(Digest::from_bytes(bytes)))
    }
}

/// Cuts a stream of bytes into the blobs of a file.
struct Pass<'r> {
    at: u64,
    /// Blobs by the offset of their data, the next one last.
    waiting: Vec<(u64, &'r Record)>,
    open: Option<(u64, &'r Record, DType, ValueHasher, bool)>,
    scan: WeightScan,
}

impl<'r> Pass<'r> {
    fn new(records: &'r BTreeMap<u64, Record>) -> Self {
        let mut waiting: Vec<(u64, &Record)> = records.iter().map(|(offset, record)| (*offset, record)).collect();
        waiting.sort_by_key(|(_, record)| std::cmp::Reverse(record.data));
        let scan = WeightScan { sha256: Digest::of(b""), size: 0, values: BTreeMap::new(), not_finite: Vec::new() };
        Pass { at: 0, waiting, open: None, scan }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let n = match &mut self.open {
                Some((_, record, dtype, hasher, finite)) => {
                    let left = record.data + record.size - self.at;
                    let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    hasher.update(&bytes[..n]);
                    *finite &= all_finite(*dtype, &bytes[..n]);
                    n
                }
                None => {
                    let next = self.waiting.last().map_or(u64::MAX, |(_, record)| record.data);
                    usize::try_from(next.saturating_sub(self.at)).unwrap_or(usize::MAX).min(bytes.len())
                }
            };
            self.at += n as u64;
            bytes = &bytes[n..];
            self.turn();
        }
    }

    /// Closes the blob that ends here and opens the one that begins here.
    fn turn(&mut self) {
        if let Some((offset, record, dtype, hasher, finite)) = self.open.take() {
            if record.data + record.size > self.at {
                self.open = Some((offset, record, dtype, hasher, finite));
                return;
            }
            self.scan.values.insert(offset, hasher.finish());
            if !finite {
                self.scan.not_finite.push(offset);
            }
        }
        while let Some((offset, record)) = self.waiting.pop_if(|(_, record)| record.data <= self.at) {
            // A blob that begins within another one gets no digest: none of ours does.
            if let (Some(dtype), true) = (record.element.dtype(), record.data == self.at) {
                self.open = Some((offset, record, dtype, ValueHasher::new(dtype), true));
                return;
            }
        }
    }

    fn finish(mut self, sha256: Digest) -> WeightScan {
        self.scan.sha256 = sha256;
        self.scan.size = self.at;
        self.scan
    }
}

/// Whether little-endian floats are all finite; integers are. Blobs and reads are cut at multiples of 64 bytes, so no
/// element is cut.
pub(super) fn all_finite(dtype: DType, bytes: &[u8]) -> bool {
    match dtype {
        DType::F16 => {
            !bytes.as_chunks::<2>().0.iter().fold(false, |bad, b| bad | (u16::from_le_bytes(*b) & 0x7c00 == 0x7c00))
        }
        DType::BF16 => {
            !bytes.as_chunks::<2>().0.iter().fold(false, |bad, b| bad | (u16::from_le_bytes(*b) & 0x7f80 == 0x7f80))
        }
        DType::F32 => !bytes
            .as_chunks::<4>()
            .0
            .iter()
            .fold(false, |bad, b| bad | (u32::from_le_bytes(*b) & 0x7f80_0000 == 0x7f80_0000)),
        DType::F64 => bytes.as_chunks::<8>().0.iter().all(|b| f64::from_le_bytes(*b).is_finite()),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => true,
    }
}

fn word(raw: &[u8; 64], at: usize) -> u32 {
    raw[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

fn long(raw: &[u8; 64], at: usize) -> u64 {
    raw[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}
