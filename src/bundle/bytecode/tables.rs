//! The tables that the rest of a file names things by: strings, dialects, operations, attributes, resources.

use super::cursor::{Cursor, Result, Stop};
use super::error::{Fault, Part};
use super::source::{Held, ReadAt};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ops::Range;

/// A dialect and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dialect {
    /// Its name.
    pub name: String,
    /// Its version, where it states one number.
    pub version: Option<u64>,
    /// Its operations, as the file orders them.
    pub ops: Vec<String>,
}

/// Values that operations name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// The dialect it belongs to, or the group of one that belongs to none.
    pub owner: String,
    /// What it is.
    pub kind: ResourceKind,
    /// Bytes of the file it takes; a blob's are its values alone.
    pub range: Range<u64>,
    /// A blob's start is a multiple of this.
    pub alignment: u64,
}

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// Bytes.
    Blob,
    /// A truth value.
    Bool,
    /// A string of the string section.
    String,
}

/// Strings in their order: lengths are stored from the last to the first, and the strings after them.
pub(super) fn strings(mut cursor: Cursor<'_>) -> Result<Vec<String>> {
    const WHAT: &str = "string";
    let count = cursor.count("strings", 2)?;
    let lengths: Vec<(u64, u64)> = (0..count).map(|_| Ok((cursor.at(), cursor.number()?))).collect::<Result<_>>()?;
    let mut strings = Vec::new();
    for (_, length) in lengths.iter().rev() {
        let start = cursor.at();
        strings.push(match cursor.bytes(*length)?.split_last() {
            Some((0, text)) => text_of(start, text, WHAT)?,
            _ => return Err(Stop::At(start, Fault::Unended { what: WHAT })),
        });
    }
    cursor.done()?;
    Ok(strings)
}

pub(super) fn text_of(at: u64, bytes: &[u8], what: &'static str) -> Result<String> {
    std::str::from_utf8(bytes).map(Into::into).map_err(|_| Stop::At(at, Fault::Text { what }))
}

fn named<'s>(cursor: &mut Cursor<'_>, strings: &'s [String]) -> Result<&'s str> {
    let index = cursor.index("string", strings.len() as u64)?;
    Ok(get(strings, index))
}

fn get(strings: &[String], index: u64) -> &str {
    usize::try_from(index).ok().and_then(|n| strings.get(n)).map_or("", String::as_str)
}

/// Dialects, and the full names of operations in the order that the rest of the file counts them.
pub(super) fn dialects(mut cursor: Cursor<'_>, strings: &[String]) -> Result<(Vec<Dialect>, Vec<String>)> {
    let count = cursor.count("dialects", 1)?;
    let mut dialects = Vec::new();
    for _ in 0..count {
        let (name, versioned) = cursor.flagged_index("string", strings.len() as u64)?;
        let mut version = None;
        if versioned {
            let mut content = cursor.section(Part::DialectVersions, Part::DialectVersions.name())?;
            // What is in it is the dialect's own business.
            version = content.number().ok().filter(|_| content.left() == 0);
        }
        dialects.push(Dialect { name: get(strings, name).into(), version, ops: Vec::new() });
    }
    let total = cursor.count("operation names", 1)?;
    let mut names = Vec::new();
    while (names.len() as u64) < total {
        let dialect = cursor.index("dialect", count)?;
        let here = group(&mut cursor, "operation names", total - names.len() as u64)?;
        let Some(dialect) = usize::try_from(dialect).ok().and_then(|n| dialects.get_mut(n)) else { break };
        for _ in 0..here {
            let (name, _registered) = cursor.flagged_index("string", strings.len() as u64)?;
            let name = get(strings, name);
            names.push(format!("{}.{name}", dialect.name));
            dialect.ops.push(name.into());
        }
    }
    cursor.done()?;
    Ok((dialects, names))
}

/// How many entries the next group has: at least one, at most `most`.
fn group(cursor: &mut Cursor<'_>, what: &'static str, most: u64) -> Result<u64> {
    let (at, found) = (cursor.at(), cursor.count(what, 1)?);
    if found > most || found == 0 { Err(Stop::At(at, Fault::Count { what, found, most })) } else { Ok(found) }
}

/// How many attributes and types there are, which together take `bytes` bytes.
pub(super) fn attributes(mut cursor: Cursor<'_>, dialects: u64, bytes: u64) -> Result<(u64, u64)> {
    let (attributes, types) = (cursor.count("attributes", 1)?, cursor.count("types", 1)?);
    let mut sum = 0u64;
    for (what, count) in [("attributes", attributes), ("types", types)] {
        let mut seen = 0;
        while seen < count {
            cursor.index("dialect", dialects)?;
            let here = group(&mut cursor, what, count - seen)?;
            for _ in 0..here {
                sum = sum.saturating_add(cursor.flagged()?.0);
            }
            seen += here;
        }
    }
    if sum != bytes {
        return cursor.fail(Fault::Sum { what: "attributes and types", found: sum, expected: bytes });
    }
    cursor.done()?;
    Ok((attributes, types))
}

/// How many sets of properties there are.
pub(super) fn properties(mut cursor: Cursor<'_>) -> Result<u64> {
    let count = cursor.count("properties", 1)?;
    for _ in 0..count {
        let length = cursor.number()?;
        cursor.bytes(length)?;
    }
    cursor.done()?;
    Ok(count)
}

/// Resources as `offsets` lists them; they fill the stretch `values` one after the other.
pub(super) fn resources(
    source: &(impl ReadAt + ?Sized),
    mut offsets: Cursor<'_>,
    values: Range<u64>,
    strings: &[String],
    dialects: &[Dialect],
) -> Result<Vec<Resource>> {
    let mut found = Resources { source, left: values, found: Vec::new(), seen: BTreeSet::new() };
    let groups = offsets.count("resource groups", 2)?;
    for _ in 0..groups {
        let owner = named(&mut offsets, strings)?;
        found.group(&mut offsets, owner, strings)?;
    }
    while offsets.left() > 0 {
        let dialect = offsets.index("dialect", dialects.len() as u64)?;
        let owner = usize::try_from(dialect).ok().and_then(|n| dialects.get(n)).map_or("", |d| d.name.as_str());
        found.group(&mut offsets, owner, strings)?;
    }
    if found.left.is_empty() {
        Ok(found.found)
    } else {
        let bytes = found.left.end - found.left.start;
        Err(Stop::At(found.left.start, Fault::Left { what: "the last resource", bytes }))
    }
}

struct Resources<'s, S: ?Sized> {
    source: &'s S,
    left: Range<u64>,
    found: Vec<Resource>,
    seen: BTreeSet<(String, String)>,
}

impl<S: ReadAt + ?Sized> Resources<'_, S> {
    fn group(&mut self, offsets: &mut Cursor<'_>, owner: &str, strings: &[String]) -> Result<()> {
        let count = offsets.count("resources", 3)?;
        for _ in 0..count {
            let at = offsets.at();
            let name = named(offsets, strings)?;
            if !self.seen.insert((owner.into(), name.into())) {
                return Err(Stop::At(at, Fault::SameResource { name: name.into() }));
            }
            let (length_at, length) = (offsets.at(), offsets.number()?);
            let left = self.left.end - self.left.start;
            if length > left {
                return Err(Stop::At(length_at, Fault::Beyond { what: Part::Resources, found: length, left }));
            }
            let kind_at = offsets.at();
            let kind = match offsets.byte()? {
                0 => ResourceKind::Blob,
                1 => ResourceKind::Bool,
                2 => ResourceKind::String,
                found => return Err(Stop::At(kind_at, Fault::ResourceKind { name: name.into(), found })),
            };
            let whole = self.left.start..self.left.start + length;
            self.left.start = whole.end;
            let (range, alignment) = match kind {
                ResourceKind::Blob => self.blob(whole)?,
                ResourceKind::Bool | ResourceKind::String => (whole, 1),
            };
            self.found.push(Resource { name: name.into(), owner: owner.into(), kind, range, alignment });
        }
        Ok(())
    }

    /// Where the values of a blob are: alignment and length stand before them, then padding.
    fn blob(&self, whole: Range<u64>) -> Result<(Range<u64>, u64)> {
        // An alignment has up to 9 bytes, so has a length.
        const HEAD: u64 = 18;
        let (head, end) = (Held::start(self.source, &whole, HEAD, "blob")?, whole.end);
        let mut cursor = head.cursor();
        let alignment = cursor.alignment()?;
        let (at, length) = (cursor.at(), cursor.number()?);
        let padded = cursor.at()..cursor.at().next_multiple_of(alignment).min(end);
        Held::start(self.source, &padded, alignment, "padding")?.cursor().pad(alignment)?;
        if length != end - padded.end {
            return Err(Stop::At(at, Fault::Sum { what: "blob", found: length, expected: end - padded.end }));
        }
        Ok((padded.end..end, alignment))
    }
}
