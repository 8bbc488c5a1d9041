//! The weight file that is handed to Apple's serializer, which maps it: values of equal content stand in it once, each
//! at a multiple of 64. It is a temporary file and no format of anybody's. Values that a checkpoint has as they are stay
//! where they are: writing them twice would cost as much as all else.

use crate::files;
use blake3::{Hash, Hasher};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Values start at multiples of this, a cache line.
const ALIGN: u64 = 64;

/// Values of this many bytes and more that a checkpoint has as they are get no hash: they are compared with the
/// checkpoint when they are read back. Smaller ones are often equal, and cost nothing.
const LARGE: u64 = 1 << 20;

/// Bytes at either end by which large values are told apart before they are hashed.
const SAMPLE: usize = 1 << 12;

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
    /// BLAKE3 of them; of their place where they are [`unread`](Self::unread). No two blobs have the same values.
    #[serde(skip)]
    pub hash: Hash,
    /// Whether they were left unread, so that they have to be held against the file that has them.
    #[serde(skip)]
    pub unread: bool,
}

/// Appends blobs.
pub(super) struct WeightFile<W> {
    out: W,
    /// End of what is kept.
    end: u64,
    known: BTreeMap<[u8; 32], usize>,
    /// Large blobs by what stands at their ends.
    samples: BTreeMap<Sample, Vec<usize>>,
    pub blobs: Vec<Blob>,
    /// Bytes that were there already when a constant came to need them.
    pub shared: u64,
}

/// Length, first and last bytes of a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    bytes: u64,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Sample {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let first = bytes.len().min(SAMPLE - self.first.len());
        self.first.extend_from_slice(&bytes[..first]);
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(SAMPLE)..]);
        self.last.drain(..self.last.len().saturating_sub(SAMPLE));
    }

    /// Of `bytes` bytes of a file, which are no fewer than a sample has.
    fn of(path: &Path, offset: u64, bytes: u64) -> io::Result<Sample> {
        let file = files::open(path)?;
        let mut ends = [vec![0; SAMPLE], vec![0; SAMPLE]];
        for (end, at) in ends.iter_mut().zip([offset, offset + bytes.saturating_sub(SAMPLE as u64)]) {
            file.read_exact_at(end, at)?;
        }
        let [first, last] = ends;
        Ok(Sample { bytes, first, last })
    }
}

/// BLAKE3 of `bytes` bytes of a file.
fn hash_of(path: &Path, offset: u64, bytes: u64) -> io::Result<Hash> {
    let file = files::open(path)?;
    let (mut hasher, mut block, mut done) = (Hasher::new(), vec![0; 1 << 18], 0);
    while done < bytes {
        let n = block.len().min(usize::try_from(bytes - done).unwrap_or(usize::MAX));
        file.read_exact_at(&mut block[..n], offset + done)?;
        hasher.update(&block[..n]);
        done += n as u64;
    }
    Ok(hasher.finalize())
}

/// A blob while its values come in.
pub(super) struct Pending<'f, W> {
    file: &'f mut WeightFile<W>,
    /// Where the values stand already.
    elsewhere: Option<(PathBuf, u64)>,
    hash: Hasher,
    sample: Sample,
}

impl<W: Write + Seek> WeightFile<W> {
    pub fn new(out: W) -> Self {
        WeightFile { out, end: 0, known: BTreeMap::new(), samples: BTreeMap::new(), blobs: Vec::new(), shared: 0 }
    }

    pub fn begin(&mut self) -> io::Result<Pending<'_, W>> {
        self.out.seek(SeekFrom::Start(self.end))?;
        Ok(Pending { file: self, elsewhere: None, hash: Hasher::new(), sample: Sample::default() })
    }

    /// As [`begin`](Self::begin), for values that the file `path` has from byte `offset` on: they are hashed only.
    pub fn begin_elsewhere(&mut self, path: PathBuf, offset: u64) -> Pending<'_, W> {
        Pending { file: self, elsewhere: Some((path, offset)), hash: Hasher::new(), sample: Sample::default() }
    }

    /// Whether [`leave`](Self::leave) is for so many bytes.
    pub const fn leaves(bytes: u64) -> bool {
        bytes >= LARGE
    }

    /// Takes values that the file `path` has from byte `offset` on without reading more of them than tells them from all
    /// others. Gives their placeholder, and a hash that stands for them.
    pub fn leave(&mut self, path: PathBuf, offset: u64, bytes: u64) -> io::Result<(String, Hash)> {
        let sample = Sample::of(&path, offset, bytes)?;
        if let Some(twin) = self.twin(&sample, || hash_of(&path, offset, bytes))? {
            self.shared += bytes;
            return Ok(twin);
        }
        let place = format!("{}\0{offset}", path.display());
        let blob = Blob {
            placeholder: String::new(),
            name: String::new(),
            file: Some(path),
            offset,
            bytes,
            hash: blake3::hash(place.as_bytes()),
            unread: true,
        };
        Ok(self.push(blob, sample))
    }

    /// The blob that has the same values, where one of them or the values themselves were left unread. The serializer
    /// would store the two as one.
    fn twin(&self, sample: &Sample, hash: impl FnOnce() -> io::Result<Hash>) -> io::Result<Option<(String, Hash)>> {
        let Some(rivals) = self.samples.get(sample) else { return Ok(None) };
        let hash = hash()?;
        for rival in rivals.iter().filter_map(|at| self.blobs.get(*at)) {
            let of_rival = match &rival.file {
                Some(path) if rival.unread => hash_of(path, rival.offset, rival.bytes)?,
                Some(_) | None => rival.hash,
            };
            if of_rival == hash {
                return Ok(Some((rival.placeholder.clone(), rival.hash)));
            }
        }
        Ok(None)
    }

    fn push(&mut self, blob: Blob, sample: Sample) -> (String, Hash) {
        let index = self.blobs.len();
        let (placeholder, hash) = (format!("p{index}"), blob.hash);
        if blob.bytes >= LARGE {
            self.samples.entry(sample).or_default().push(index);
        }
        self.known.insert(*hash.as_bytes(), index);
        self.blobs.push(Blob { placeholder: placeholder.clone(), name: format!("w{index}"), ..blob });
        (placeholder, hash)
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
        self.sample.add(bytes);
        if self.elsewhere.is_none() { self.file.out.write_all(bytes) } else { Ok(()) }
    }

    /// The placeholder of the values, and their hash. Values that are in the file already are dropped.
    pub fn finish(self) -> io::Result<(String, Hash)> {
        let Pending { file, elsewhere, hash, sample } = self;
        let (hash, bytes) = (hash.finalize(), sample.bytes);
        let known = file.known.get(hash.as_bytes()).and_then(|at| file.blobs.get(*at));
        let known = match known.map(|known| (known.placeholder.clone(), hash)) {
            None if bytes >= LARGE => file.twin(&sample, || Ok(hash))?,
            known => known,
        };
        if let Some(known) = known {
            file.shared += bytes;
            return Ok(known);
        }
        let (path, offset) = match elsewhere {
            Some((path, offset)) => (Some(path), offset),
            None => {
                let (start, end) = (file.end, (file.end + bytes).next_multiple_of(ALIGN));
                file.out.write_all(&[0; ALIGN as usize][..(end - start - bytes) as usize])?;
                file.end = end;
                (None, start)
            }
        };
        let (placeholder, name) = (String::new(), String::new());
        let blob = Blob { placeholder, name, file: path, offset, bytes, hash, unread: false };
        Ok(file.push(blob, sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Large values that are left where they are, among others: equal ones stand once, whoever comes first.
    #[test]
    fn what_is_left_unread_stands_once_too() {
        let large = LARGE as usize;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        // Two equal stretches, and one that differs in the middle only.
        let mut stored = vec![7; 3 * large];
        stored[large + large / 2] = 8;
        fs_err::write(&path, &stored).unwrap();
        let leave = |file: &mut WeightFile<Cursor<Vec<u8>>>, n: usize| {
            file.leave(path.clone(), (n * large) as u64, LARGE).unwrap().0
        };
        let put = |file: &mut WeightFile<Cursor<Vec<u8>>>, n: usize| {
            let mut pending = file.begin().unwrap();
            stored[n * large..][..large].chunks(999).for_each(|part| pending.write(part).unwrap());
            pending.finish().unwrap().0
        };
        let mut file = WeightFile::new(Cursor::new(Vec::new()));
        assert_eq!([0, 1, 2, 0].map(|n| leave(&mut file, n)), ["p0", "p1", "p0", "p0"]);
        assert_eq!([2, 1].map(|n| put(&mut file, n)), ["p0", "p1"]);
        assert!(file.blobs.iter().all(|blob| blob.unread) && file.shared == 4 * LARGE);
        let mut file = WeightFile::new(Cursor::new(Vec::new()));
        assert_eq!([0, 1].map(|n| put(&mut file, n)), ["p0", "p1"]);
        assert_eq!([0, 1, 2].map(|n| leave(&mut file, n)), ["p0", "p1", "p0"]);
        assert!(!file.blobs.iter().any(|blob| blob.unread));
        assert!(file.leave(path.clone(), 3 * LARGE - 9, LARGE).is_err(), "the file ends before");
    }

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
