//! The weight file that is handed to Apple's serializer, which maps it: values of equal content stand in it once, each
//! at a multiple of 64. It is a temporary file and no format of anybody's.

use crate::digest::Digest;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};

/// Values start at multiples of this, a cache line.
const ALIGN: u64 = 64;

/// Where the values of a constant stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blob {
    /// Key of the constant in the text: `dense_resource<p7>`.
    pub placeholder: String,
    /// What the bundle calls them. It is stored, so it depends on the order of the constants alone.
    pub name: String,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Appends blobs.
pub(super) struct WeightFile<W> {
    out: W,
    /// End of what is kept.
    end: u64,
    known: BTreeMap<Digest, usize>,
    pub blobs: Vec<Blob>,
    /// Bytes that were there already when a constant came to need them.
    pub shared: u64,
}

/// A blob while its values come in.
pub(super) struct Pending<'f, W> {
    file: &'f mut WeightFile<W>,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write + Seek> WeightFile<W> {
    pub fn new(out: W) -> Self {
        WeightFile { out, end: 0, known: BTreeMap::new(), blobs: Vec::new(), shared: 0 }
    }

    pub fn begin(&mut self) -> io::Result<Pending<'_, W>> {
        self.out.seek(SeekFrom::Start(self.end))?;
        Ok(Pending { file: self, hash: Sha256::new(), bytes: 0 })
    }

    /// Closes the file and gives it back with its length; a copy that was dropped may still stand behind that.
    pub fn finish(mut self) -> io::Result<(W, u64, Vec<Blob>)> {
        self.out.flush()?;
        Ok((self.out, self.end, self.blobs))
    }
}

impl<W: Write + Seek> Pending<'_, W> {
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.out.write_all(bytes)
    }

    /// The placeholder of the values, and their digest. Values that are in the file already are dropped.
    pub fn finish(self) -> io::Result<(String, Digest)> {
        let Pending { file, hash, bytes } = self;
        let digest = Digest::from_bytes(hash.finalize().into());
        if let Some(known) = file.known.get(&digest).and_then(|at| file.blobs.get(*at)) {
            file.shared += bytes;
            return Ok((known.placeholder.clone(), digest));
        }
        let index = file.blobs.len();
        let (placeholder, name) = (format!("p{index}"), format!("w{index}"));
        file.blobs.push(Blob { placeholder: placeholder.clone(), name, offset: file.end, bytes });
        file.known.insert(digest, index);
        let padding = (file.end + bytes).next_multiple_of(ALIGN) - file.end - bytes;
        file.out.write_all(&[0; ALIGN as usize][..padding as usize])?;
        file.end += bytes + padding;
        Ok((placeholder, digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn equal_values_stand_once() {
        let mut file = WeightFile::new(Cursor::new(Vec::new()));
        let mut put = |bytes: &[u8]| {
            let mut pending = file.begin().unwrap();
            bytes.chunks(3).for_each(|part| pending.write(part).unwrap());
            pending.finish().unwrap()
        };
        assert_eq!(put(&[1; 70]), ("p0".into(), Digest::of(&[1; 70])));
        assert_eq!(put(&[2; 64]).0, "p1");
        assert_eq!(put(&[1; 70]).0, "p0");
        assert_eq!(put(&[3; 5]).0, "p2");
        assert_eq!(file.shared, 70);
        let (out, length, blobs) = file.finish().unwrap();
        let at: Vec<(u64, u64)> = blobs.iter().map(|b| (b.offset, b.bytes)).collect();
        assert_eq!((at, length), (vec![(0, 70), (128, 64), (192, 5)], 256));
        let bytes = out.into_inner();
        assert_eq!(
            (&bytes[..70], &bytes[70..128], &bytes[192..198]),
            (&[1; 70][..], &[0; 58][..], &[3, 3, 3, 3, 3, 0][..])
        );
    }
}
