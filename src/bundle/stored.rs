//! The weights in a program file against what was handed over, by hash, while the whole program is hashed.

use super::bytecode::{Bytecode, Resource};
use super::paths::{Leaks, path_like, read_full, words_in};
use crate::digest::Digest;
use crate::files;
use blake3::Hash;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Bytes hashed at a time: few calls, and the block stays in a core's cache.
const BLOCK: usize = 1 << 18;

/// Why a program does not hold the weights it was given.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StoredError {
    #[error("the program could not be read")]
    Io(#[from] io::Error),
    #[error("weights read back that were not written: {more:?}; written and not read back: {fewer:?}")]
    Names { more: Vec<String>, fewer: Vec<String> },
    #[error("weight {name} read back has {found} bytes, written were {written}")]
    Length { name: String, found: u64, written: u64 },
    #[error("weight {name} read back, at byte {at:#x} of the program, has other values than were written")]
    Values { name: String, at: u64 },
    #[error("weight {name} has a value that is not finite")]
    NotFinite { name: String },
    #[error("the program names a path of this machine: {found}")]
    Path { found: String },
}

/// What a blob has to be.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// So many bytes of that BLAKE3.
    Hash(u64, Hash),
    /// fp32 numbers, so many bytes of them, which that file has from that byte on.
    Copy(u64, &'a Path, u64),
}

impl Expected<'_> {
    const fn bytes(self) -> u64 {
        match self {
            Expected::Hash(bytes, _) | Expected::Copy(bytes, ..) => bytes,
        }
    }
}

/// Compares every blob of `program`, which `bytecode` tells of, with `written`, by name.
/// What is no weight is searched for paths. Gives the program's digest.
///
/// Two threads, each with a block of fixed size.
///
/// # Errors
/// The file cannot be read, a blob is missing, has another name or other bytes, or there is a path.
pub fn check_stored(
    program: &Path,
    bytecode: &Bytecode,
    written: &BTreeMap<&str, Expected<'_>>,
) -> Result<Digest, StoredError> {
    let blobs: BTreeMap<&str, &Resource> = bytecode.blobs().map(|blob| (blob.name.as_str(), blob)).collect();
    if !blobs.keys().eq(written.keys()) || blobs.len() != bytecode.resources.len() {
        let more = bytecode.resources.iter().map(|r| &r.name).filter(|name| !written.contains_key(name.as_str()));
        let fewer = written.keys().filter(|name| !blobs.contains_key(*name));
        return Err(StoredError::Names {
            more: more.cloned().collect(),
            fewer: fewer.map(|name| (*name).into()).collect(),
        });
    }
    thread::scope(|scope| {
        let hash = scope.spawn(|| Digest::of_file(program));
        let file = files::open(program)?;
        let mut block = vec![0; BLOCK];
        for (blob, written) in blobs.values().zip(written.values()) {
            check_blob(&file, blob, *written, &mut block)?;
        }
        no_paths(&file, bytecode)?;
        let hashed = hash.join().unwrap_or_else(|_| Err(io::Error::other("the thread that hashes it ended")));
        Ok(hashed?.0)
    })
}

/// Length and BLAKE3 of every blob of `program`, which `bytecode` tells of, by name.
///
/// # Errors
/// The file cannot be read.
pub fn blobs(program: &Path, bytecode: &Bytecode) -> io::Result<BTreeMap<String, (u64, Hash)>> {
    let file = files::open(program)?;
    let mut block = vec![0; BLOCK];
    bytecode
        .blobs()
        .map(|blob| {
            let bytes = blob.range.end.saturating_sub(blob.range.start);
            Ok((blob.name.clone(), (bytes, hash(&file, blob, &mut block)?)))
        })
        .collect()
}

/// Searches what is no blob of `program` for path-like strings, at most `limit`, and for `names`.
///
/// # Errors
/// The file cannot be read.
pub fn leaks(program: &Path, bytecode: &Bytecode, limit: usize, names: &BTreeSet<String>) -> io::Result<Leaks> {
    let file = files::open(program)?;
    let mut found = Leaks::default();
    for left in between_blobs(bytecode) {
        let stretch = || Stretch { file: &file, left: left.clone() };
        found.add(Leaks { paths: path_like(stretch(), limit)?, names: words_in(stretch(), names)? }, limit);
    }
    Ok(found)
}

fn hash(file: &File, blob: &Resource, block: &mut [u8]) -> io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut stretch = Stretch { file, left: blob.range.clone() };
    loop {
        match stretch.read(block)? {
            0 => return Ok(hasher.finalize()),
            n => hasher.update(block.get(..n).unwrap_or_default()),
        };
    }
}

fn check_blob(file: &File, blob: &Resource, written: Expected<'_>, block: &mut [u8]) -> Result<(), StoredError> {
    let name = || blob.name.clone();
    let found = blob.range.end.saturating_sub(blob.range.start);
    if found != written.bytes() {
        return Err(StoredError::Length { name: name(), found, written: written.bytes() });
    }
    // A file that became shorter meanwhile has another hash.
    let same = match written {
        Expected::Hash(_, written) => hash(file, blob, block)? == written,
        Expected::Copy(_, path, offset) => {
            let mut other = vec![0; block.len()];
            let left = offset..offset.saturating_add(found);
            let mut copies = [Stretch { file, left: blob.range.clone() }, Stretch { file: &files::open(path)?, left }];
            is_copy(&mut copies, [block, &mut other]).map_err(|error| match error {
                NotCopied::Io(error) => StoredError::Io(error),
                NotCopied::NotFinite => StoredError::NotFinite { name: name() },
            })?
        }
    };
    if same { Ok(()) } else { Err(StoredError::Values { name: name(), at: blob.range.start }) }
}

/// Why two stretches of numbers were not compared to their end.
enum NotCopied {
    Io(io::Error),
    NotFinite,
}

/// Whether both are the same fp32 numbers.
fn is_copy(stretches: &mut [Stretch<'_>; 2], blocks: [&mut [u8]; 2]) -> Result<bool, NotCopied> {
    let [first, second] = stretches;
    let [block, other] = blocks;
    loop {
        let n = read_full(first, block).map_err(NotCopied::Io)?;
        let m = read_full(second, other).map_err(NotCopied::Io)?;
        let (block, other) = (block.get(..n).unwrap_or_default(), other.get(..m).unwrap_or_default());
        if block != other {
            return Ok(false);
        }
        let exponent = |number: &[u8; 4]| u32::from_le_bytes(*number) & 0x7f80_0000;
        if block.as_chunks::<4>().0.iter().fold(false, |found, number| found | (exponent(number) == 0x7f80_0000)) {
            return Err(NotCopied::NotFinite);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

/// Searches what is no weight: values look like paths by chance once in a few terabytes, debug locations always.
fn no_paths(program: &File, bytecode: &Bytecode) -> Result<(), StoredError> {
    for left in between_blobs(bytecode) {
        if let Some(found) = path_like(Stretch { file: program, left }, 1)?.into_iter().next() {
            return Err(StoredError::Path { found });
        }
    }
    Ok(())
}

fn between_blobs(bytecode: &Bytecode) -> Vec<Range<u64>> {
    let mut start = 0;
    let end = bytecode.bytes..bytecode.bytes;
    let between = bytecode.blobs().map(|blob| &blob.range).chain([&end]).map(|blob| {
        let between = start..blob.start;
        start = blob.end;
        between
    });
    between.collect()
}

/// A stretch of a file as a reader.
struct Stretch<'f> {
    file: &'f File,
    left: Range<u64>,
}

impl Read for Stretch<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer.len().min(usize::try_from(self.left.end.saturating_sub(self.left.start)).unwrap_or(usize::MAX));
        let n = self.file.read_at(buffer.get_mut(..n).unwrap_or_default(), self.left.start)?;
        self.left.start += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "tests/fixtures/two_functions.aimodel/main.mlirb";

    fn values(count: u8) -> Vec<u8> {
        (1..=count).flat_map(|n| (f32::from(n) / 8.0).to_le_bytes()).collect()
    }

    /// What is found of the fixture, changed; the weights that were written are `written`.
    fn checked(change: impl FnOnce(&mut Vec<u8>), written: &[(&'static str, u8)]) -> Result<Digest, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let mut program = fs_err::read(PROGRAM).unwrap();
        change(&mut program);
        fs_err::write(&path, &program).unwrap();
        let of = |count| Expected::Hash(u64::from(count) * 4, blake3::hash(&values(count)));
        let written = written.iter().map(|(name, count)| (*name, of(*count))).collect();
        let found = check_stored(&path, &Bytecode::open(&path).unwrap(), &written);
        found.inspect(|found| assert_eq!(*found, Digest::of(&program))).map_err(|e| e.to_string())
    }

    const WRITTEN: [(&str, u8); 2] = [("bias", 3), ("weight", 12)];

    #[test]
    fn what_was_handed_over_is_found() {
        checked(|_| {}, &WRITTEN).unwrap();
    }

    /// The blob `weight` against a file that has it from byte 3 on.
    fn copied(change: impl FnOnce(&mut Vec<u8>)) -> Result<Digest, String> {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        let mut stored = [vec![9; 3], values(12)].concat();
        change(&mut stored);
        fs_err::write(&source, stored).unwrap();
        let written = BTreeMap::from([
            ("bias", Expected::Hash(12, blake3::hash(&values(3)))),
            ("weight", Expected::Copy(48, &source, 3)),
        ]);
        let program = Path::new(PROGRAM);
        check_stored(program, &Bytecode::open(program).unwrap(), &written).map_err(|e| e.to_string())
    }

    #[test]
    fn a_copy_is_held_against_its_source() {
        copied(|_| {}).unwrap();
        for at in [3, 20, 50] {
            assert!(copied(|stored| stored[at] ^= 1).unwrap_err().contains("has other values"), "{at}");
        }
        assert!(copied(|stored| stored.truncate(50)).unwrap_err().contains("has other values"));
        let finite = |bytes: &[u8]| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x");
            fs_err::write(&path, bytes).unwrap();
            let file = File::open(&path).unwrap();
            let end = bytes.len() as u64;
            let mut both = [Stretch { file: &file, left: 0..end }, Stretch { file: &file, left: 0..end }];
            is_copy(&mut both, [&mut [0; 8], &mut [0; 8]])
        };
        assert!(matches!(finite(&values(5)), Ok(true)));
        for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(matches!(finite(&[values(5), odd.to_le_bytes().to_vec()].concat()), Err(NotCopied::NotFinite)));
        }
    }

    #[test]
    fn each_difference_is_found() {
        let differs = |change: fn(&mut Vec<u8>)| checked(change, &WRITTEN).unwrap_err();
        // First and last byte of a blob, last byte of the file's blobs.
        insta::assert_snapshot!(differs(|p| p[0x580] ^= 1), @"weight weight read back, at byte 0x580 of the program, has other values than were written");
        insta::assert_snapshot!(differs(|p| p[0x5af] ^= 1), @"weight weight read back, at byte 0x580 of the program, has other values than were written");
        insta::assert_snapshot!(differs(|p| p[0x5bf] ^= 1), @"weight bias read back, at byte 0x5b4 of the program, has other values than were written");
        // The name `serialization.asset` becomes a path.
        let path = |p: &mut Vec<u8>| {
            let at = p.windows(13).position(|w| w == b"serialization").unwrap();
            p[at..at + 8].copy_from_slice(b"/Users/a");
        };
        insta::assert_snapshot!(differs(path), @"the program names a path of this machine: /Users/aation.asset");
        let other = |written: &[(&'static str, u8)]| checked(|_| {}, written).unwrap_err();
        insta::assert_snapshot!(other(&WRITTEN[..1]), @r#"weights read back that were not written: ["weight"]; written and not read back: []"#);
        insta::assert_snapshot!(other(&[("bias", 4), ("weight", 12)]), @"weight bias read back has 12 bytes, written were 16");
        insta::assert_snapshot!(other(&[("bios", 3), ("weight", 12)]), @r#"weights read back that were not written: ["bias"]; written and not read back: ["bios"]"#);
    }
}
