//! The weight file that is handed to Apple's serializer, which maps it: values of equal content stand in it once, each
//! at a multiple of 64. It is a temporary file and no format of anybody's. Values that a checkpoint has as they are stay
//! where they are: writing them twice would cost as much as all else.

use blake3::{Hash, Hasher};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// Values start at multiples of this, a cache line.
const ALIGN: u64 = 64;

/// Where the values of a constant stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blob {
    /// Key of the constant in the text: `dense_resource<p7>`.
    pub placeholder: String,
    /// What the bundle calls them. It is stored, so it depends on the order of the constants alone.
    pub name: String,
    /// The file that has them; None is the weight file.
    pub file: Option<PathBuf>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// BLAKE3 of them.
    #[serde(skip)]
    pub hash: Hash,
}

/// Appends blobs.
pub(super) struct WeightFile<W> {
    out: W,
    /// End of what is kept.
    end: u64,
    known: BTreeMap<[u8; 32], usize>,
    pub blobs: Vec<Blob>,
    /// Bytes that were there already when a constant came to need them.
    pub shared: u64,
}

/// A blob while its values come in.
pub(super) struct Pending<'f, W> {
    file: &'f mut WeightFile<W>,
    /// Where the values stand already.
    elsewhere: Option<(PathBuf, u64)>,
    hash: Hasher,
    bytes: u64,
}

impl<W: Write + Seek> WeightFile<W> {
    pub fn new(out: W) -> Self {
        WeightFile { out, end: 0, known: BTreeMap::new(), blobs: Vec::new(), shared: 0 }
    }

    pub fn begin(&mut self) -> io::Result<Pending<'_, W>> {
        self.out.seek(SeekFrom::Start(self.end))?;
        Ok(Pending { file: self, elsewhere: None, hash: Hasher::new(), bytes: 0 })
    }

    /// As [`begin`](Self::begin), for values that the file `path` has from byte `offset` on: they are hashed only.
    pub fn begin_elsewhere(&mut self, path: PathBuf, offset: u64) -> Pending<'_, W> {
        Pending { file: self, elsewhere: Some((path, offset)), hash: Hasher::new(), bytes: 0 }
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
        if self.elsewhere.is_none() { self.file.out.write_all(bytes) } else { Ok(()) }
    }

    /// The placeholder of the values, and their hash. Values that are in the file already are dropped.
    pub fn finish(self) -> io::Result<(String, Hash)> {
        let Pending { file, elsewhere, hash, bytes } = self;
        let hash = hash.finalize();
        if let Some(known) = file.known.get(hash.as_bytes()).and_then(|at| file.blobs.get(*at)) {
            file.shared += bytes;
            return Ok((known.placeholder.clone(), hash));
        }
        let index = file.blobs.len();
        let (placeholder, name) = (format!("p{index}"), format!("w{index}"));
        let inside = elsewhere.is_none();
        let (path, offset) = elsewhere.map_or((None, file.end), |(path, offset)| (Some(path), offset));
        file.blobs.push(Blob { placeholder: placeholder.clone(), name, file: path, offset, bytes, hash });
        file.known.insert(*hash.as_bytes(), index);
        if !inside {
            return Ok((placeholder, hash));
        }
        let padding = (file.end + bytes).next_multiple_of(ALIGN) - file.end - bytes;
        file.out.write_all(&[0; ALIGN as usize][..padding as usize])?;
        file.end += bytes + padding;
        Ok((placeholder, hash))
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
        assert_eq!(put(&[1; 70]), ("p0".into(), blake3::hash(&[1; 70])));
        assert_eq!(put(&[2; 64]).0, "p1");
        assert_eq!(put(&[1; 70]).0, "p0");
        assert_eq!(put(&[3; 5]).0, "p2");
        assert_eq!(file.shared, 70);
        let mut there = file.begin_elsewhere("checkpoint".into(), 8);
        there.write(&[4; 9]).unwrap();
        assert_eq!(there.finish().unwrap(), ("p3".into(), blake3::hash(&[4; 9])));
        assert_eq!(file.blobs[3].file, Some("checkpoint".into()));
        let (out, length, blobs) = file.finish().unwrap();
        let at: Vec<(u64, u64)> = blobs.iter().map(|b| (b.offset, b.bytes)).collect();
        assert_eq!((at, length), (vec![(0, 70), (128, 64), (192, 5), (8, 9)], 256));
        let bytes = out.into_inner();
        assert_eq!(
            (&bytes[..70], &bytes[70..128], &bytes[192..198]),
            (&[1; 70][..], &[0; 58][..], &[3, 3, 3, 3, 3, 0][..])
        );
    }
}
