//! Where bytes come from: a regular file, read at positions.

use super::cursor::{Cursor, Result, Stop};
use super::error::{Fault, Part};
use super::{SECTION_MAX, Section, find};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes that are read at positions.
pub(super) trait ReadAt {
    fn length(&self) -> u64;
    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A file and its length when it was opened.
pub(super) struct Opened(pub File, pub u64);

impl ReadAt for Opened {
    fn length(&self) -> u64 {
        self.1
    }

    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn fill(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let part = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A stretch of the file, at hand.
pub(super) struct Held {
    bytes: Vec<u8>,
    base: u64,
    what: &'static str,
}

impl Held {
    /// Up to `most` bytes of the stretch `range`, which is within the file.
    pub fn start(source: &(impl ReadAt + ?Sized), range: &Range<u64>, most: u64, what: &'static str) -> Result<Held> {
        let mut bytes = vec![0; (range.end - range.start).min(most) as usize];
        source.fill(&mut bytes, range.start).map_err(Stop::Io)?;
        Ok(Held { bytes, base: range.start, what })
    }

    /// All of the section that is `part`, which there must be.
    pub fn section(source: &(impl ReadAt + ?Sized), sections: &[Section], part: Part) -> Result<Held> {
        let range = find(source, sections, part)?;
        let found = range.end - range.start;
        if found > SECTION_MAX {
            return Err(Stop::At(range.start, Fault::Long { what: part, found, most: SECTION_MAX }));
        }
        Held::start(source, &range, SECTION_MAX, part.name())
    }

    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(&self.bytes, self.base, self.what)
    }
}
