//! The container of MLIR bytecode, the program file of Core AI bundles: sections, names, resources, operations.
//!
//! Attributes and types belong to dialects and stay closed; the values of resources are located, never read. Every
//! length, count and index is held against the file before it is used, so that what is found can be read back at its
//! range, and a damaged file is a fault with its place. The format: `mlir.llvm.org/docs/BytecodeFormat`, version 6.

mod cursor;
mod error;
mod operations;
mod source;
mod tables;
#[cfg(test)]
mod tests;

pub use error::{BytecodeError, Fault, Part};
pub use operations::Function;
pub use tables::{Dialect, Resource, ResourceKind};

use crate::files;
use cursor::{Header, Stop};
use operations::Counts;
use serde::Serialize;
use source::{Held, Opened, ReadAt};
use std::ops::Range;
use std::path::Path;

/// Start of MLIR bytecode.
const MAGIC: &[u8; 4] = b"ML\xefR";
/// The version that is read, and the one Core AI writes.
const VERSION: u64 = 6;
/// Longest producer that is read.
const PRODUCER_MAX: u64 = 256;
/// Longest section that is read whole. Those of the largest model have a few hundred thousand bytes.
const SECTION_MAX: u64 = 1 << 27;

/// A bytecode file, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bytecode {
    /// Version of the format.
    pub version: u64,
    /// What wrote it, such as `MLIR22.0.0git`.
    pub producer: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Its sections, in the order they stand in.
    pub sections: Vec<Section>,
    /// Dialects, each with the operations that are used of it.
    pub dialects: Vec<Dialect>,
    /// Values that operations name, in the order they stand in.
    pub resources: Vec<Resource>,
    /// Functions and the operations in them.
    pub functions: Vec<Function>,
}

/// Where a section is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// What it is.
    #[serde(serialize_with = "shown")]
    pub part: Part,
    /// Bytes of the file it takes, without header and padding.
    pub range: Range<u64>,
    /// Its start is a multiple of this.
    pub alignment: u64,
}

fn shown<S: serde::Serializer>(part: &Part, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(part)
}

impl Bytecode {
    /// Reads the regular file at `path`.
    ///
    /// # Errors
    /// It is none, cannot be read, is damaged, or is of another version.
    pub fn open(path: &Path) -> Result<Bytecode, BytecodeError> {
        let io = |source| BytecodeError::Io { path: path.display().to_string(), source };
        let file = files::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        take_apart(&Opened(file, length)).map_err(|stop| match stop {
            Stop::Io(source) => io(source),
            Stop::At(offset, fault) => BytecodeError::Malformed { path: path.display().to_string(), offset, fault },
        })
    }

    /// Resources that are bytes: weights.
    pub fn blobs(&self) -> impl Iterator<Item = &Resource> {
        self.resources.iter().filter(|resource| resource.kind == ResourceKind::Blob)
    }
}

fn take_apart(source: &(impl ReadAt + ?Sized)) -> cursor::Result<Bytecode> {
    let (version, producer, first) = start(source)?;
    let sections = sections(source, first)?;
    let held = |part| Held::section(source, &sections, part);
    let strings = tables::strings(held(Part::Strings)?.cursor())?;
    let (dialects, names) = tables::dialects(held(Part::Dialects)?.cursor(), &strings)?;
    let values = find(source, &sections, Part::AttributesAndTypes)?;
    let offsets = held(Part::AttributeAndTypeOffsets)?;
    let (attributes, types) = tables::attributes(offsets.cursor(), dialects.len() as u64, values.end - values.start)?;
    let has = |part| sections.iter().any(|s| s.part == part);
    let properties = if has(Part::Properties) { tables::properties(held(Part::Properties)?.cursor())? } else { 0 };
    let counts = Counts { attributes, types, properties };
    let functions = operations::functions(held(Part::Operations)?.cursor(), &names, &counts)?;
    let resources = if has(Part::Resources) || has(Part::ResourceOffsets) {
        let values = find(source, &sections, Part::Resources)?;
        tables::resources(source, held(Part::ResourceOffsets)?.cursor(), values, &strings, &dialects)?
    } else {
        Vec::new()
    };
    Ok(Bytecode { version, producer, bytes: source.length(), sections, dialects, resources, functions })
}

/// Version, producer, and where the first section starts.
fn start(source: &(impl ReadAt + ?Sized)) -> cursor::Result<(u64, String, u64)> {
    let held = Held::start(source, &(0..source.length()), PRODUCER_MAX, "header")?;
    let mut cursor = held.cursor();
    let magic = cursor.bytes(cursor.left().min(MAGIC.len() as u64))?;
    if magic != MAGIC {
        return Err(Stop::At(0, Fault::Magic { found: magic.into(), expected: *MAGIC }));
    }
    let (at, version) = (cursor.at(), cursor.number()?);
    if version != VERSION {
        return Err(Stop::At(at, Fault::Version { found: version, expected: VERSION }));
    }
    let (at, what) = (cursor.at(), "producer");
    let text = cursor.bytes(cursor.left())?;
    let text = text.iter().position(|b| *b == 0).and_then(|end| text.get(..end));
    let text = text.ok_or(Stop::At(at, Fault::Unended { what }))?;
    Ok((version, tables::text_of(at, text, what)?, at + text.len() as u64 + 1))
}

/// Sections from byte `first` on: each once, the last one ending with the file.
fn sections(source: &(impl ReadAt + ?Sized), first: u64) -> cursor::Result<Vec<Section>> {
    // Kind, length and alignment: a byte and two numbers.
    const HEAD: u64 = 19;
    let (mut sections, mut at, end) = (Vec::<Section>::new(), first, source.length());
    while at < end {
        let held = Held::start(source, &(at..end), HEAD, "section header")?;
        let mut cursor = held.cursor();
        let Header { part, length, alignment } = cursor.header()?;
        if sections.iter().any(|s| s.part == part) {
            return Err(Stop::At(at, Fault::Twice { what: part }));
        }
        let padding = Held::start(source, &(cursor.at()..end), alignment, "section padding")?;
        let mut cursor = padding.cursor();
        cursor.pad(alignment)?;
        let left = end - cursor.at();
        if length > left {
            return Err(Stop::At(at, Fault::Beyond { what: part, found: length, left }));
        }
        let range = cursor.at()..cursor.at() + length;
        at = range.end;
        sections.push(Section { part, range, alignment });
    }
    Ok(sections)
}

fn find(source: &(impl ReadAt + ?Sized), sections: &[Section], part: Part) -> cursor::Result<Range<u64>> {
    let found = sections.iter().find(|s| s.part == part).map(|s| s.range.clone());
    found.ok_or(Stop::At(source.length(), Fault::Missing { what: part }))
}
