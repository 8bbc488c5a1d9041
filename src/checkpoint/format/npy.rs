//! `.npy`: magic, version, the length of a header, the header, then one array.
//!
//! The header is a Python dict of three keys. It is read by a parser of exactly that dict, not of Python.
//! Source: the format's description in numpy's `numpy.lib.format`, versions 1.0 to 3.0.

use super::{Entries, Entry, Input, UNNAMED};
use crate::checkpoint::CheckpointError;
use crate::tensor::{DType, Fact, Shape};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Magic and the two bytes of the version.
const VERSION_END: usize = MAGIC.len() + 2;

/// Longest header that is read. numpy writes 118 bytes or little more for plain arrays.
const MAX_HEADER: u64 = 1 << 16;

/// A `.npy` file that is not read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum NpyError {
    #[error("is {len} bytes long and cut short inside its header")]
    Short { len: u64 },
    #[error("has version {major}.{minor} of the .npy format, expected 1.0, 2.0 or 3.0")]
    Version { major: u8, minor: u8 },
    #[error("says its header is {header} bytes long; at most {MAX_HEADER} are read")]
    HeaderTooLong { header: u64 },
    #[error("has {found} at byte {at} of its header, expected {expected}")]
    Header { at: usize, found: String, expected: &'static str },
    #[error("lacks {key} in its header")]
    Lacks { key: &'static str },
    #[error("has {key} twice in its header")]
    Twice { key: &'static str },
    #[error("has big-endian numbers ({descr}); save them with .astype({little:?})")]
    BigEndian { descr: String, little: String },
    #[error("has raw pairs of bytes ({descr}), as bfloat16 is saved; save float32, or bfloat16 as safetensors")]
    Raw { descr: String },
    #[error("has values of type {descr}, expected floats of 2, 4 or 8 bytes, integers or booleans")]
    Values { descr: String },
    #[error("is in column-major order (fortran_order); save numpy.ascontiguousarray of it")]
    Fortran,
    #[error("has an array of shape {shape}, which is larger than any file")]
    TooLarge { shape: Shape },
    #[error("has {found} bytes of data, expected {expected} for {fact}")]
    Size { found: u64, expected: u64, fact: Fact },
}

/// Whether a file starts like a `.npy`.
pub fn is(magic: &[u8]) -> bool {
    magic.starts_with(MAGIC)
}

/// The one tensor of the file, under the name [`UNNAMED`].
///
/// # Errors
/// The file cannot be read, is malformed, or holds an array that is not read as it lies.
pub fn entries(input: &Input<'_>) -> Result<Entries, CheckpointError> {
    let refuse = |why| CheckpointError::Npy { file: input.name.into(), why };
    let short = || refuse(NpyError::Short { len: input.len });
    let start = input.bytes(0, input.len.min(VERSION_END as u64 + 4) as usize)?;
    let &[major, minor] = start.get(MAGIC.len()..VERSION_END).and_then(|v| v.first_chunk()).ok_or_else(short)?;
    let length = &start[VERSION_END..];
    let (header, begin) = match (major, minor) {
        (1, 0) => (u64::from(u16::from_le_bytes(*length.first_chunk().ok_or_else(short)?)), VERSION_END as u64 + 2),
        (2 | 3, 0) => (u64::from(u32::from_le_bytes(*length.first_chunk().ok_or_else(short)?)), VERSION_END as u64 + 4),
        _ => return Err(refuse(NpyError::Version { major, minor })),
    };
    if header > MAX_HEADER {
        return Err(refuse(NpyError::HeaderTooLong { header }));
    }
    let Some(found) = input.len.checked_sub(begin + header) else { return Err(short()) };
    let fact = parse(&input.bytes(begin, header as usize)?).map_err(refuse)?;
    let Some(size) = fact.shape.checked_elements().and_then(|n| n.checked_mul(fact.dtype.size())) else {
        return Err(refuse(NpyError::TooLarge { shape: fact.shape }));
    };
    if found != size as u64 {
        return Err(refuse(NpyError::Size { found, expected: size as u64, fact }));
    }
    let begin = begin + header;
    Ok(Entries::from([(UNNAMED.into(), Entry { fact: Some(fact), begin, end: begin + found })]))
}

fn parse(header: &[u8]) -> Result<Fact, NpyError> {
    let mut text = Text { bytes: header, at: 0 };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    text.expect(b'{', "{")?;
    while !text.accept(b'}') {
        let key = text.string("a key")?;
        text.expect(b':', ":")?;
        match key.as_str() {
            "descr" => once(&mut descr, "descr", text.string("a dtype such as '<f4'")?)?,
            "fortran_order" => once(&mut fortran, "fortran_order", text.boolean()?)?,
            "shape" => once(&mut shape, "shape", text.tuple()?)?,
            _ => return Err(text.fail(key, "descr, fortran_order or shape")),
        }
        if !text.accept(b',') {
            text.expect(b'}', ", or }")?;
            break;
        }
    }
    text.end()?;
    let dtype = dtype(descr.ok_or(NpyError::Lacks { key: "descr" })?)?;
    let fortran = fortran.ok_or(NpyError::Lacks { key: "fortran_order" })?;
    let shape = Shape::new(shape.ok_or(NpyError::Lacks { key: "shape" })?);
    if fortran {
        return Err(NpyError::Fortran);
    }
    Ok(Fact { dtype, shape })
}

fn once<T>(slot: &mut Option<T>, key: &'static str, value: T) -> Result<(), NpyError> {
    if slot.replace(value).is_some() { Err(NpyError::Twice { key }) } else { Ok(()) }
}

fn dtype(descr: String) -> Result<DType, NpyError> {
    Ok(match descr.as_str() {
        "<f8" => DType::F64,
        "<f4" => DType::F32,
        "<f2" => DType::F16,
        "<i8" => DType::I64,
        "<i4" => DType::I32,
        "<i2" => DType::I16,
        "|i1" => DType::I8,
        "<u8" => DType::U64,
        "<u4" => DType::U32,
        "<u2" => DType::U16,
        "|u1" => DType::U8,
        "|b1" => DType::Bool,
        "|V2" | "<V2" => return Err(NpyError::Raw { descr }),
        other => {
            return Err(match other.strip_prefix('>') {
                Some(rest) => NpyError::BigEndian { little: format!("<{rest}"), descr },
                None => NpyError::Values { descr },
            });
        }
    })
}

/// The header's text, read from the left.
struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Text<'_> {
    fn blanks(&mut self) {
        let blank = |b: &&u8| matches!(b, b' ' | b'\n');
        self.at += self.bytes[self.at..].iter().take_while(blank).count();
    }

    /// The next byte behind blanks.
    fn peek(&mut self) -> Option<u8> {
        self.blanks();
        self.bytes.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), NpyError> {
        if self.accept(byte) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn fail(&self, found: impl Into<String>, expected: &'static str) -> NpyError {
        NpyError::Header { at: self.at, found: found.into(), expected }
    }

    fn unexpected(&mut self, expected: &'static str) -> NpyError {
        let found = self.peek().map_or("its end".into(), |b| format!("{:?}", char::from(b)));
        self.fail(found, expected)
    }

    fn end(&mut self) -> Result<(), NpyError> {
        if self.peek().is_some() { Err(self.unexpected("its end")) } else { Ok(()) }
    }

    /// A string between quotes of one kind, without escapes.
    fn string(&mut self, expected: &'static str) -> Result<String, NpyError> {
        let quote = self.peek().filter(|b| matches!(b, b'\'' | b'"'));
        let Some(quote) = quote else { return Err(self.unexpected(expected)) };
        let rest = &self.bytes[self.at + 1..];
        let plain = |b: &&u8| **b != quote && **b != b'\\' && b.is_ascii_graphic();
        let inner: String = rest.iter().take_while(plain).map(|b| char::from(*b)).collect();
        self.at += 1 + inner.len();
        if self.bytes.get(self.at) != Some(&quote) {
            return Err(self.unexpected("the end of a string"));
        }
        self.at += 1;
        Ok(inner)
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.blanks();
        for (word, value) in [("True", true), ("False", false)] {
            if self.bytes[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    /// `()`, `(3,)`, `(2, 3)`.
    fn tuple(&mut self) -> Result<Vec<usize>, NpyError> {
        self.expect(b'(', "(")?;
        let mut dims = Vec::new();
        while !self.accept(b')') {
            dims.push(self.number()?);
            if !self.accept(b',') {
                self.expect(b')', ", or )")?;
                break;
            }
        }
        Ok(dims)
    }

    fn number(&mut self) -> Result<usize, NpyError> {
        self.blanks();
        let digits = self.bytes[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.bytes[self.at..self.at + digits]).unwrap_or_default();
        let Ok(number) = text.parse() else { return Err(self.unexpected("an extent")) };
        self.at += digits;
        Ok(number)
    }
}
