//! Reading the format's own numbers and sections from bytes at hand. Nothing here trusts a length.

use super::error::{Fault, Part};
use std::io;

/// What stands between a section's header and aligned data.
const PADDING: u8 = 0xcb;
/// Largest alignment that is taken: a page of any machine, and more than any writer asks for.
const ALIGNMENT_MAX: u64 = 1 << 16;

/// Why reading stops.
#[derive(Debug)]
pub(super) enum Stop {
    /// At that byte of the file.
    At(u64, Fault),
    Io(io::Error),
}

pub(super) type Result<T> = std::result::Result<T, Stop>;

/// Bytes of the file from `base` on, and how far they are read.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'b> {
    rest: &'b [u8],
    at: u64,
    what: &'static str,
}

/// What a section says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub part: Part,
    pub length: u64,
    pub alignment: u64,
}

impl<'b> Cursor<'b> {
    /// `bytes` are those of the file from `base` on; `what` they belong to is for messages.
    pub fn new(bytes: &'b [u8], base: u64, what: &'static str) -> Self {
        Cursor { rest: bytes, at: base, what }
    }

    /// Byte of the file that is read next.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Bytes that are left.
    pub fn left(&self) -> u64 {
        self.rest.len() as u64
    }

    pub fn fail<T>(&self, fault: Fault) -> Result<T> {
        Err(Stop::At(self.at, fault))
    }

    pub fn bytes(&mut self, n: u64) -> Result<&'b [u8]> {
        let split = usize::try_from(n).ok().and_then(|n| self.rest.split_at_checked(n));
        let Some((taken, rest)) = split else {
            return self.fail(Fault::Short { what: self.what, expected: n - self.left().min(n) });
        };
        (self.rest, self.at) = (rest, self.at + n);
        Ok(taken)
    }

    pub fn byte(&mut self) -> Result<u8> {
        self.bytes(1).map(|b| b.first().copied().unwrap_or_default())
    }

    /// A number: the zeros at the low end of the first byte say how many bytes follow it; of eight zeros, eight plain
    /// bytes are the number.
    pub fn number(&mut self) -> Result<u64> {
        let first = self.byte()?;
        let more = first.trailing_zeros().min(8);
        let mut word = [0u8; 8];
        for (to, from) in word.iter_mut().zip(self.bytes(u64::from(more))?) {
            *to = *from;
        }
        let high = u64::from_le_bytes(word);
        Ok(if more == 8 { high } else { (high << (7 - more)) | (u64::from(first) >> (more + 1)) })
    }

    /// A number whose lowest bit is a flag.
    pub fn flagged(&mut self) -> Result<(u64, bool)> {
        self.number().map(|n| (n >> 1, n & 1 == 1))
    }

    /// How many of something follow that take at least `each` bytes apiece.
    pub fn count(&mut self, what: &'static str, each: u64) -> Result<u64> {
        let (at, found) = (self.at, self.number()?);
        self.fits(at, what, found, each)?;
        Ok(found)
    }

    pub fn fits(&self, at: u64, what: &'static str, found: u64, each: u64) -> Result<()> {
        let most = self.left() / each.max(1);
        if found > most { Err(Stop::At(at, Fault::Count { what, found, most })) } else { Ok(()) }
    }

    /// A number below `count`.
    pub fn index(&mut self, what: &'static str, count: u64) -> Result<u64> {
        let (at, found) = (self.at, self.number()?);
        in_range(at, what, found, count)?;
        Ok(found)
    }

    /// As [`index`](Self::index), with a flag.
    pub fn flagged_index(&mut self, what: &'static str, count: u64) -> Result<(u64, bool)> {
        let (at, (found, flag)) = (self.at, self.flagged()?);
        in_range(at, what, found, count)?;
        Ok((found, flag))
    }

    /// The start of a section, up to its padding.
    pub fn header(&mut self) -> Result<Header> {
        let (at, kind) = (self.at, self.byte()?);
        let Some(part) = Part::of(kind & 0x7f) else {
            return Err(Stop::At(at, Fault::SectionKind { found: kind & 0x7f }));
        };
        let length = self.number()?;
        let alignment = if kind & 0x80 == 0 { 1 } else { self.alignment()? };
        Ok(Header { part, length, alignment })
    }

    pub fn alignment(&mut self) -> Result<u64> {
        let (at, found) = (self.at, self.number()?);
        if found.is_power_of_two() && found <= ALIGNMENT_MAX {
            Ok(found)
        } else {
            Err(Stop::At(at, Fault::Alignment { found, most: ALIGNMENT_MAX }))
        }
    }

    /// Steps over padding to a multiple of `alignment` in the file.
    pub fn pad(&mut self, alignment: u64) -> Result<()> {
        let at = self.at;
        let padding = self.bytes(at.next_multiple_of(alignment) - at)?;
        match padding.iter().zip(at..).find(|(byte, _)| **byte != PADDING) {
            Some((byte, at)) => Err(Stop::At(at, Fault::Padding { found: *byte })),
            None => Ok(()),
        }
    }

    /// A section within a section, which must be `expected`.
    pub fn section(&mut self, expected: Part, what: &'static str) -> Result<Cursor<'b>> {
        let (at, header) = (self.at, self.header()?);
        if header.part != expected {
            return Err(Stop::At(at, Fault::OtherSection { found: header.part, expected }));
        }
        self.pad(header.alignment)?;
        let base = self.at;
        self.bytes(header.length).map(|bytes| Cursor::new(bytes, base, what))
    }

    /// Ends the reading: all must be read.
    pub fn done(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { self.fail(Fault::Left { what: self.what, bytes: self.left() }) }
    }
}

fn in_range(at: u64, what: &'static str, found: u64, count: u64) -> Result<()> {
    if found < count { Ok(()) } else { Err(Stop::At(at, Fault::Index { what, found, count })) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers() {
        let of = |bytes: &[u8]| Cursor::new(bytes, 0, "number").number().map_err(|e| format!("{e:?}"));
        assert_eq!(of(&[0x01]).unwrap(), 0);
        assert_eq!(of(&[0xff]).unwrap(), 127);
        assert_eq!(of(&[0x02, 0x02]).unwrap(), 128);
        assert_eq!(of(&[0x80, 1, 0, 0, 0, 0, 0, 0]).unwrap(), 1);
        assert_eq!(of(&[0, 255, 255, 255, 255, 255, 255, 255, 255]).unwrap(), u64::MAX);
        insta::assert_snapshot!(of(&[]).unwrap_err(), @r#"At(0, Short { what: "number", expected: 1 })"#);
        insta::assert_snapshot!(of(&[0x04, 1]).unwrap_err(), @r#"At(1, Short { what: "number", expected: 1 })"#);
    }

    proptest! {
        #[test]
        fn each_number_comes_back(value: u64, length in 0usize..8) {
            let value = value >> (57 - 7 * length.min(7)).min(63);
            let extra = (1..9).find(|n| *n == 8 || value >> (7 * (n + 1)) == 0).filter(|_| value >> 7 != 0).unwrap_or(0);
            let mut bytes = if extra == 8 { vec![0] } else { vec![] };
            let word = if extra == 8 { value } else { (value << (extra + 1)) | (1 << extra) };
            bytes.extend_from_slice(&word.to_le_bytes()[..if extra == 8 { 8 } else { extra + 1 }]);
            prop_assert_eq!(Cursor::new(&bytes, 0, "number").number().unwrap(), value);
        }
    }
}
