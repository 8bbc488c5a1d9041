//! What can be wrong with a bytecode file.

use std::fmt;
use std::io;

/// Why a file was not read as MLIR bytecode.
#[derive(Debug, thiserror::Error)]
pub enum BytecodeError {
    /// It could not be read.
    #[error("could not read {path}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It was read, and is damaged or of another format.
    #[error("{path} at {offset:#x}: {fault}")]
    Malformed {
        /// The file.
        path: String,
        /// Byte of the file where what is wrong starts.
        offset: u64,
        /// What is wrong.
        fault: Fault,
    },
}

/// What is wrong at one place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Fault {
    #[error("found {found:02x?}, expected the start of MLIR bytecode, {expected:02x?}")]
    Magic { found: Vec<u8>, expected: [u8; 4] },
    #[error("bytecode version is {found}, expected {expected}")]
    Version { found: u64, expected: u64 },
    #[error("{what} ends here, expected {expected} more bytes; the file is cut short or damaged")]
    Short { what: &'static str, expected: u64 },
    #[error("{what} has {found} bytes, {left} are left of the file; it is cut short or damaged")]
    Beyond { what: Part, found: u64, left: u64 },
    #[error("{what} has {found} bytes, expected at most {most}")]
    Long { what: Part, found: u64, most: u64 },
    #[error("{found} {what} are announced, there is room for {most}")]
    Count { what: &'static str, found: u64, most: u64 },
    #[error("{what} {found} is named, there are {count}")]
    Index { what: &'static str, found: u64, count: u64 },
    #[error("{bytes} bytes are left over after {what}")]
    Left { what: &'static str, bytes: u64 },
    #[error("{what} take {found} bytes, expected {expected}")]
    Sum { what: &'static str, found: u64, expected: u64 },
    #[error("section is of kind {found}, expected 0 to 8")]
    SectionKind { found: u8 },
    #[error("section is {found}, expected {expected}")]
    OtherSection { found: Part, expected: Part },
    #[error("a second {what}")]
    Twice { what: Part },
    #[error("there is no {what}")]
    Missing { what: Part },
    #[error("alignment is {found}, expected a power of two of at most {most}")]
    Alignment { found: u64, most: u64 },
    #[error("padding byte is {found:#04x}, expected 0xcb")]
    Padding { found: u8 },
    #[error("{what} is not ended by a zero byte")]
    Unended { what: &'static str },
    #[error("{what} is no UTF-8")]
    Text { what: &'static str },
    #[error("resource {name} is of kind {found}, expected 0 to 2")]
    ResourceKind { name: String, found: u8 },
    #[error("a second resource {name}")]
    SameResource { name: String },
    #[error("operations are nested deeper than {most}")]
    Nesting { most: usize },
    #[error("operation has the marks {found:#04x}, expected bits of 0x7f")]
    Marks { found: u8 },
}

/// Part of a bytecode file; a number in it is the section's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the format's own names")]
pub enum Part {
    Strings,
    Dialects,
    AttributesAndTypes,
    AttributeAndTypeOffsets,
    Operations,
    Resources,
    ResourceOffsets,
    DialectVersions,
    Properties,
}

impl Part {
    const ALL: [Part; 9] = [
        Part::Strings,
        Part::Dialects,
        Part::AttributesAndTypes,
        Part::AttributeAndTypeOffsets,
        Part::Operations,
        Part::Resources,
        Part::ResourceOffsets,
        Part::DialectVersions,
        Part::Properties,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Strings => "string section",
            Part::Dialects => "dialect section",
            Part::AttributesAndTypes => "attribute section",
            Part::AttributeAndTypeOffsets => "attribute offset section",
            Part::Operations => "operation section",
            Part::Resources => "resource section",
            Part::ResourceOffsets => "resource offset section",
            Part::DialectVersions => "dialect version section",
            Part::Properties => "property section",
        }
    }

    /// The section of that kind.
    pub(super) fn of(kind: u8) -> Option<Part> {
        Part::ALL.get(usize::from(kind)).copied()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
