//! What keeps a package from being read, and what is wrong with one that can be.

use super::BlobFault;
use crate::ir::BuildError;
use crate::tensor::Fact;
use std::io;

/// Bytes that are no protobuf message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {fault}")]
pub struct WireError {
    /// Offset in the file.
    pub offset: usize,
    /// What is wrong there.
    pub fault: WireFault,
}

/// What can be wrong with the bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum WireFault {
    #[error("the message ends within a field")]
    Truncated,
    #[error("a number of more than 64 bits")]
    LongVarint,
    #[error("field number 0")]
    FieldZero,
    #[error("wire type {found}, expected 0, 1, 2 or 5")]
    Type { found: u64 },
    #[error("field {field} is not {want}")]
    Unexpected { field: u64, want: &'static str },
    #[error("text that is not UTF-8")]
    NotText,
    #[error("messages nested more than {max} deep")]
    Depth { max: u32 },
    #[error("{what} {key:?} stands there twice")]
    Twice { what: &'static str, key: String },
}

/// Why a package could not be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ReadError {
    #[error("could not read {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is no manifest of a package: {reason}")]
    Manifest { path: String, reason: String },
    #[error("{path} is no Core ML model")]
    Wire {
        path: String,
        #[source]
        source: WireError,
    },
    #[error("{path} holds no ML program (specification version {version})")]
    NotProgram { path: String, version: u64 },
    #[error("{path}: record at {offset}")]
    Blob {
        path: String,
        offset: u64,
        #[source]
        source: BlobFault,
    },
    #[error("{path} lacks weights: {fault}")]
    Weights { path: String, fault: Violation },
    #[error("there is no function {name}; the package has {have:?}")]
    NoFunction { name: String, have: Vec<String> },
    #[error("function {function}: value {value}: {kind} is not an operation of ours, or not in this form: {reason}")]
    Unsupported { function: String, value: String, kind: String, reason: String },
    #[error("function {function}: value {value} reads {missing}, which is not there")]
    Unbound { function: String, value: String, missing: String },
    #[error("function {function}: value {value} is declared {declared}, but its operands make it {inferred}")]
    Disagrees { function: String, value: String, declared: Fact, inferred: Fact },
    #[error("function {function}")]
    Build {
        function: String,
        #[source]
        source: Box<BuildError>,
    },
}

/// What a loader lets pass in silence, and no package should have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("specification version {version} goes with opset {want}, but function {function} has {found}")]
    Opset { function: String, version: u64, want: &'static str, found: String },
    #[error("{what} {name:?} is no identifier")]
    IllegalName { what: &'static str, name: String },
    #[error("function {function}: two values are called {name}")]
    SameName { function: String, name: String },
    #[error("function {function}: value {name} has rank {rank}, above 5")]
    Rank { function: String, name: String, rank: usize },
    #[error("function {function}: value {name} has an extent that is not fixed")]
    Dynamic { function: String, name: String },
    #[error("function {function}: {what} {name} is {found}, but the description says {want}")]
    Feature { function: String, what: &'static str, name: String, found: String, want: String },
    #[error("function {function} stands only in the {place}")]
    OneSided { function: String, place: &'static str },
    #[error("the default function {name:?} is not there")]
    Default { name: String },
    #[error("function {function}: constant {name} is declared {declared}, but holds {found}")]
    Declared { function: String, name: String, declared: String, found: String },
    #[error("function {function}: constant {name} holds a value that is not finite")]
    NotFinite { function: String, name: String },
    #[error("function {function}: constant {name} refers to {offset}, where no record of the weight file is")]
    NoRecord { function: String, name: String, offset: u64 },
    #[error("weight file: record at {offset}: {fault}")]
    Record { offset: u64, fault: BlobFault },
    #[error("weight file: {what} is {found}, expected {want}")]
    File { what: &'static str, found: u64, want: u64 },
}
