//! The weights in a program file against the weight file they were made of, byte by byte, while the program is hashed.

use super::bytecode::{Bytecode, ResourceKind};
use super::path_like;
use crate::digest::Digest;
use crate::files;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

/// Bytes compared at a time: few calls, and both blocks stay in a core's cache.
const BLOCK: usize = 1 << 18;

/// Why a program does not hold the weights it was given.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StoredError {
    #[error("{what} could not be read")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("weights read back are {found:?}, written were {written:?}")]
    Names { found: Vec<String>, written: Vec<String> },
    #[error("weight {name} read back has {found} bytes, written were {written}")]
    Length { name: String, found: u64, written: u64 },
    #[error("weight {name} read back is not what was written: they differ within {BLOCK} bytes of byte {at}")]
    Values { name: String, at: u64 },
    #[error("the program names a path of this machine: {found}")]
    Path { found: String },
}

/// Compares every blob of `program`, which `bytecode` tells of, with its stretch of the file `weights`; `written` has
/// the stretches by name. What is no weight is searched for paths. Gives the program's digest.
///
/// Two threads, each with blocks of fixed size.
///
/// # Errors
/// A file cannot be read, a blob is missing, has another name or other bytes, or there is a path.
pub(super) fn check_stored(
    program: &Path,
    bytecode: &Bytecode,
    weights: &Path,
    written: &BTreeMap<&str, Range<u64>>,
) -> Result<Digest, StoredError> {
    let stretches = stretches(bytecode, written)?;
    thread::scope(|scope| {
        let hash = scope.spawn(|| Digest::of_file(program).map_err(program_error));
        let opened = (files::open(program).map_err(program_error)?, files::open(weights).map_err(weights_error)?);
        let mut blocks = (vec![0; BLOCK], vec![0; BLOCK]);
        stretches.iter().try_for_each(|stretch| stretch.compare((&opened.0, &opened.1), &mut blocks))?;
        no_paths(&opened.0, bytecode)?;
        let hashed =
            hash.join().unwrap_or_else(|_| Err(program_error(io::Error::other("the thread that hashes it ended"))));
        hashed.map(|(digest, _)| digest)
    })
}

fn program_error(source: io::Error) -> StoredError {
    StoredError::Io { what: "the program", source }
}

fn weights_error(source: io::Error) -> StoredError {
    StoredError::Io { what: "the weight file", source }
}

/// The same values at two places.
struct Stretch<'n> {
    name: &'n str,
    program: u64,
    weights: u64,
    length: u64,
}

fn stretches<'n>(
    bytecode: &'n Bytecode,
    written: &BTreeMap<&str, Range<u64>>,
) -> Result<Vec<Stretch<'n>>, StoredError> {
    let found: BTreeMap<&str, &Range<u64>> = bytecode
        .resources
        .iter()
        .filter(|r| r.kind == ResourceKind::Blob)
        .map(|r| (r.name.as_str(), &r.range))
        .collect();
    if !found.keys().eq(written.keys()) || found.len() != bytecode.resources.len() {
        let found = bytecode.resources.iter().map(|r| r.name.clone()).collect();
        return Err(StoredError::Names { found, written: written.keys().map(|name| (*name).into()).collect() });
    }
    let pairs = found.into_iter().zip(written.values());
    let stretch = |((name, found), written): ((&'n str, &Range<u64>), &Range<u64>)| {
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
        if length(found) == length(written) {
            Ok(Stretch { name, program: found.start, weights: written.start, length: length(found) })
        } else {
            Err(StoredError::Length { name: name.into(), found: length(found), written: length(written) })
        }
    };
    pairs.map(stretch).collect()
}

impl Stretch<'_> {
    fn compare(&self, files: (&File, &File), blocks: &mut (Vec<u8>, Vec<u8>)) -> Result<(), StoredError> {
        let mut at = 0;
        while at < self.length {
            let n = (self.length - at).min(BLOCK as u64) as usize;
            let (Some(ours), Some(theirs)) = (blocks.0.get_mut(..n), blocks.1.get_mut(..n)) else { break };
            files.0.read_exact_at(ours, self.program + at).map_err(program_error)?;
            files.1.read_exact_at(theirs, self.weights + at).map_err(weights_error)?;
            if ours != theirs {
                return Err(StoredError::Values { name: self.name.into(), at });
            }
            at += n as u64;
        }
        Ok(())
    }
}

/// Searches what is no weight: values look like paths by chance once in a few terabytes, debug locations always.
fn no_paths(program: &File, bytecode: &Bytecode) -> Result<(), StoredError> {
    let mut start = 0;
    let ends = bytecode.resources.iter().filter(|r| r.kind == ResourceKind::Blob).map(|r| &r.range);
    let end_of_file = bytecode.bytes..bytecode.bytes;
    for blob in ends.chain([&end_of_file]) {
        let between = Between { file: program, left: start..blob.start };
        start = blob.end;
        if let Some(found) = path_like(between, 1).map_err(program_error)?.into_iter().next() {
            return Err(StoredError::Path { found });
        }
    }
    Ok(())
}

/// A stretch of a file as a reader.
struct Between<'f> {
    file: &'f File,
    left: Range<u64>,
}

impl Read for Between<'_> {
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

    /// What is found of the fixture and a weight file, each changed, whose stretches are `written`.
    fn checked(
        change: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
        written: &[(&'static str, Range<u64>)],
    ) -> Result<Digest, String> {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut program = fs_err::read(PROGRAM).unwrap();
        let mut weights: Vec<u8> = (1..13).flat_map(|n| (n as f32 / 8.0).to_le_bytes()).collect();
        weights.resize(64, 0);
        weights.extend((1..4).flat_map(|n| (n as f32 / 8.0).to_le_bytes()));
        change(&mut program, &mut weights);
        fs_err::write(at("program"), &program).unwrap();
        fs_err::write(at("weights"), weights).unwrap();
        let bytecode = Bytecode::open(&at("program")).unwrap();
        let found = check_stored(&at("program"), &bytecode, &at("weights"), &written.iter().cloned().collect());
        found.inspect(|found| assert_eq!(*found, Digest::of(&program))).map_err(|e| e.to_string())
    }

    const WRITTEN: [(&str, Range<u64>); 2] = [("bias", 64..76), ("weight", 0..48)];

    #[test]
    fn what_was_handed_over_is_found() {
        checked(|_, _| {}, &WRITTEN).unwrap();
    }

    #[test]
    fn each_difference_is_found() {
        let differs = |change: fn(&mut Vec<u8>, &mut Vec<u8>)| checked(change, &WRITTEN).unwrap_err();
        // The last byte of each blob in the program, and the first in the weight file.
        insta::assert_snapshot!(differs(|p, _| p[0x5af] ^= 1), @"");
        insta::assert_snapshot!(differs(|p, _| p[0x5bf] ^= 1), @"");
        insta::assert_snapshot!(differs(|_, w| w[0] ^= 1), @"");
        insta::assert_snapshot!(differs(|_, w| w.truncate(70)), @"");
        // The name `serialization.asset` becomes a path.
        insta::assert_snapshot!(differs(|p, _| {
            let at = p.windows(13).position(|w| w == b"serialization").unwrap();
            p[at..at + 8].copy_from_slice(b"/Users/a");
        }), @"");
        let named = |written: &[(&'static str, Range<u64>)]| checked(|_, _| {}, written).unwrap_err();
        insta::assert_snapshot!(named(&WRITTEN[..1]), @"");
        insta::assert_snapshot!(named(&[("bias", 64..75), ("weight", 0..48)]), @"");
        insta::assert_snapshot!(named(&[("bios", 64..76), ("weight", 0..48)]), @"");
    }
}
