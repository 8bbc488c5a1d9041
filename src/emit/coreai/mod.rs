//! Core AI: [`write`] makes dialect text and a weight file of checked graphs; Apple's serializer, driven by [`Bridge`],
//! makes an `.aimodel` of them, reads one back, and runs it.
//!
//! The parser lets wrong result shapes, missing names and missing weights pass and computes garbage, or crashes. So
//! every type in the text is ours, and what the reader finds is compared with it line by line.

mod bridge;
mod legalize;
#[cfg(test)]
mod tests;
mod text;
mod weights;

pub use bridge::{Bridge, BridgeError, Listed, Metadata, RawTensor, ReadFunction, ReadLine, ReadValue, Worker};
pub use weights::Blob;

use crate::ir::{Graph, MaterializeError, Materializer, Op, ValueId};
use crate::tensor::{Fact, SourceError, WeightSource};
use crate::validate::Checked;
use blake3::Hash;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek, Write};
use text::{Shared, Text, write_function};
use weights::WeightFile;

/// What the function of a model with one function is called.
const MAIN: &str = "main";

/// Graphs as the serializer takes them.
#[derive(Debug)]
pub struct Program {
    /// The dialect text.
    pub text: String,
    /// For each line of the text, the path of the node it belongs to; a function's own lines have its name.
    pub paths: Vec<String>,
    /// Where the values of the larger constants stand in the weight file.
    pub blobs: Vec<Blob>,
    /// Bytes of the weight file.
    pub weight_bytes: u64,
    /// Bytes of values that were there already when a constant came to need them.
    pub bytes_shared: u64,
    /// What each function consists of.
    pub functions: Vec<FunctionFacts>,
}

/// What a function consists of, in the order of its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Its name.
    pub name: String,
    /// Name and fact of each input.
    pub inputs: Vec<(String, Fact)>,
    /// The same of each output.
    pub outputs: Vec<(String, Fact)>,
    /// Its operations.
    pub lines: Vec<Line>,
}

/// One operation. Values are numbered: inputs first, then results as they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub kind: String,
    /// The values it reads.
    pub operands: Vec<usize>,
    /// The types of its results.
    pub results: Vec<String>,
    /// BLAKE3 of a constant's values, little endian and row-major.
    pub value: Option<Hash>,
}

impl Program {
    /// How many operations of each type there are, constants included.
    pub fn census(&self) -> BTreeMap<String, usize> {
        let mut census = BTreeMap::new();
        for line in self.functions.iter().flat_map(|f| &f.lines) {
            *census.entry(line.kind.clone()).or_default() += 1;
        }
        census
    }
}

/// Why graphs could not be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "function, node and op say where, found what was there")]
pub enum CoreAiError {
    #[error("there is no function to write")]
    NoFunction,
    #[error("two functions are called {name}")]
    SameFunction { name: String },
    #[error("{what} {name:?} is no legal name: expected a letter, then letters, digits and underscores")]
    IllegalName { what: &'static str, name: String },
    #[error("function {function}: two features are called {name}")]
    SameFeature { function: String, name: String },
    #[error("function {function}: feature {name} is {found}, a dtype that no Core AI tensor of ours has")]
    Feature { function: String, name: String, found: Fact },
    #[error("function {function}: node {node}: {op} of {found} cannot be written for Core AI: {reason}")]
    Unsupported { function: String, node: String, op: &'static str, found: Fact, reason: &'static str },
    #[error("function {function}: node {node}: weight could not be written")]
    Weight {
        function: String,
        node: String,
        #[source]
        source: Box<MaterializeError<io::Error>>,
    },
    #[error("the weight file could not be written")]
    WeightFile(#[source] io::Error),
}

/// Writes `functions` as dialect text, and their larger constants to `weight_file`. A single function is called `main`,
/// several keep their graphs' names and share their weights. Weights stream from `source`.
///
/// Text and file depend on the arguments alone.
///
/// # Errors
/// A graph asks for what the dialect cannot say, a weight cannot be made, or the file cannot be written.
pub fn write(
    functions: &[Checked<'_>],
    source: &dyn WeightSource,
    weight_file: impl Write + Seek,
) -> Result<Program, CoreAiError> {
    let names = function_names(functions)?;
    let mut shared = Shared {
        text: Text::default(),
        weights: Materializer::new(source),
        file: WeightFile::new(io::BufWriter::with_capacity(1 << 16, weight_file)),
    };
    shared.text.line("", "module {");
    let written: Result<Vec<FunctionFacts>, CoreAiError> =
        names.iter().zip(functions).map(|(name, f)| write_function(name, f.graph(), &mut shared)).collect();
    let functions = written?;
    shared.text.line("", "} loc(unknown)");
    let bytes_shared = shared.file.shared;
    let (_, weight_bytes, blobs) = shared.file.finish().map_err(CoreAiError::WeightFile)?;
    let Text { text, paths } = shared.text;
    Ok(Program { text, paths, blobs, weight_bytes, bytes_shared, functions })
}

/// The dialect text of `functions` alone, for reading. Weights are read, since equal ones share a name, and not kept.
///
/// # Errors
/// As [`write`].
pub fn text(functions: &[Checked<'_>], source: &dyn WeightSource) -> Result<String, CoreAiError> {
    write(functions, &Streamed(source), Discard).map(|program| program.text)
}

/// The operations that a node becomes, in their order; none for an input, and where the dialect cannot say it.
pub fn spelling(graph: &Graph, value: ValueId) -> Vec<String> {
    let node = graph.node(value);
    if let Op::Const(_) = node.op {
        return vec![text::named(text::CONSTANT)];
    }
    let args: Vec<(ValueId, &Fact)> = node.args.iter().map(|x| (*x, graph.fact(*x))).collect();
    let steps = legalize::legalize(&node.op, &args, &node.fact).unwrap_or_default();
    steps.iter().map(|step| text::named(step.kind)).collect()
}

/// A source all of whose values are read, and so found to be numbers or not.
struct Streamed<'a>(&'a dyn WeightSource);

impl WeightSource for Streamed<'_> {
    fn names(&self) -> Vec<&str> {
        self.0.names()
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.0.fact(name)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.0.read(name, offset, out)
    }

    fn place(&self, name: &str) -> String {
        self.0.place(name)
    }
}

/// A file that nobody reads.
struct Discard;

impl Write for Discard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Discard {
    /// Only ends of what was written are sought.
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        match to {
            io::SeekFrom::Start(at) => Ok(at),
            io::SeekFrom::End(_) | io::SeekFrom::Current(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn function_names(functions: &[Checked<'_>]) -> Result<Vec<String>, CoreAiError> {
    match functions {
        [] => Err(CoreAiError::NoFunction),
        [_] => Ok(vec![MAIN.into()]),
        several => {
            let mut seen = BTreeSet::new();
            for name in several.iter().map(|f| f.graph().name()) {
                if !is_legal(name) {
                    return Err(CoreAiError::IllegalName { what: "function", name: name.into() });
                }
                if !seen.insert(name) {
                    return Err(CoreAiError::SameFunction { name: name.into() });
                }
            }
            Ok(several.iter().map(|f| f.graph().name().to_owned()).collect())
        }
    }
}

/// Name and type of each feature, as the serializer tells them.
pub fn types(features: &[(String, Fact)]) -> Vec<(String, String)> {
    features.iter().map(|(name, fact)| (name.clone(), text::type_of(fact).unwrap_or_default())).collect()
}

/// The fact of a value, from its type as the serializer tells it; none of a type that no graph of ours has.
pub fn fact_of(text: &str) -> Option<Fact> {
    text::fact_of(text)
}

/// Whether a name needs no quotes anywhere.
fn is_legal(name: &str) -> bool {
    let start = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(start) && name.chars().all(|c| start(c) || c.is_ascii_digit())
}
