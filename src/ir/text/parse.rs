//! Text to graph. Every node is wired again through the [`Builder`], so its fact is inferred, never believed.

use super::lexis::{Cursor, Name};
use super::{op, weight};
use crate::ir::{BuildError, Builder, Graph, ValueId};
use crate::tensor::Fact;
use std::collections::HashMap;

/// Why a text is not a graph. Lines count from 1.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// Something stands where something else belongs.
    #[error("line {line}: found {found}, expected {expected}")]
    Syntax {
        /// Where.
        line: usize,
        /// What stands there.
        found: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// There is no such op.
    #[error("line {line}: found op {found}, expected one of {known}")]
    UnknownOp {
        /// Where.
        line: usize,
        /// The name that stands there.
        found: String,
        /// All names there are.
        known: String,
    },
    /// A value is read that no line above makes.
    #[error("line {line}: found %{}, expected a value defined above", Name(path))]
    Undefined {
        /// Where it is read.
        line: usize,
        /// Its path.
        path: String,
    },
    /// Two nodes have one path.
    #[error("line {line}: found %{} again, expected a path other than that of line {first}", Name(path))]
    Redefined {
        /// Where it stands again.
        line: usize,
        /// The path.
        path: String,
        /// Where it stood first.
        first: usize,
    },
    /// What a line says of its result is not what follows from its operands.
    #[error("line {line}: found %{} declared {declared}, expected {inferred}", Name(path))]
    Fact {
        /// Where.
        line: usize,
        /// The node.
        path: String,
        /// What the line says.
        declared: Fact,
        /// What the op or the weight gives.
        inferred: Fact,
    },
    /// The operands do not fit the op, or an edit not the weight.
    #[error("line {line}: {source}")]
    Build {
        /// Where.
        line: usize,
        /// What does not fit.
        source: BuildError,
    },
}

/// The graph that `text` spells.
///
/// # Errors
/// The first line that is not one of a well-shaped graph.
pub fn parse(text: &str) -> Result<Graph, ParseError> {
    let mut lines = text.lines().enumerate().map(|(i, line)| Cursor::new(i + 1, line)).filter(|l| l.end().is_err());
    let mut head = lines.next().unwrap_or(Cursor::new(1, ""));
    head.keyword("graph")?;
    let mut reader = Reader { builder: Builder::new(head.name("the name of the graph")?), defined: HashMap::new() };
    head.end()?;
    let mut nodes = true;
    for mut line in lines {
        nodes = nodes && line.eat("%");
        if nodes {
            reader.node(&mut line)?
        } else {
            reader.output(&mut line)?
        }
        line.end()?;
    }
    Ok(reader.builder.finish())
}

struct Reader {
    builder: Builder,
    /// Each path with its value and line. Since a path is refused here when it comes again, and the builder has no
    /// scope, the builder never gives a node another path than the one asked for.
    defined: HashMap<String, (ValueId, usize)>,
}

impl Reader {
    /// A line of a node, past its `%`.
    fn node(&mut self, line: &mut Cursor<'_>) -> Result<(), ParseError> {
        let path = line.name("the path of a value")?;
        if let Some((_, first)) = self.defined.get(&path) {
            return Err(ParseError::Redefined { line: line.line(), path, first: *first });
        }
        line.expect("=")?;
        let value = match line.word("input, const or the name of an op")? {
            "input" => self.input(&path, line)?,
            "const" => self.constant(&path, line)?,
            name => self.operation(name, &path, line)?,
        };
        self.defined.insert(path, (value, line.line()));
        Ok(())
    }

    /// An input's fact is the one fact that is taken from the text.
    fn input(&mut self, path: &str, line: &mut Cursor<'_>) -> Result<ValueId, ParseError> {
        let name = line.quoted("the name of an input in quotes")?;
        line.expect(":")?;
        let fact = line.fact()?;
        self.builder
            .input_at(path.into(), &name, fact)
            .map_err(|source| ParseError::Build { line: line.line(), source })
    }

    fn constant(&mut self, path: &str, line: &mut Cursor<'_>) -> Result<ValueId, ParseError> {
        let weight = weight::weight(line, path)?;
        let value = self.builder.constant(path, weight);
        self.agree(path, value, line)
    }

    fn operation(&mut self, name: &str, path: &str, line: &mut Cursor<'_>) -> Result<ValueId, ParseError> {
        let kind = op::find(name).ok_or_else(|| ParseError::UnknownOp {
            line: line.line(),
            found: name.into(),
            known: op::names(),
        })?;
        let args = line.tuple(|line| self.value(line))?;
        let op = op::parameters(kind, line)?;
        let value =
            self.builder.push(path, op, &args).map_err(|source| ParseError::Build { line: line.line(), source })?;
        self.agree(path, value, line)
    }

    /// The end of a line, ` : fact`, whose fact has to be the inferred one.
    fn agree(&self, path: &str, value: ValueId, line: &mut Cursor<'_>) -> Result<ValueId, ParseError> {
        line.expect(":")?;
        let declared = line.fact()?;
        weight::agree(line, path, declared, self.builder.fact(value))?;
        Ok(value)
    }

    fn value(&self, line: &mut Cursor<'_>) -> Result<ValueId, ParseError> {
        let path = line.value()?;
        let found = self.defined.get(&path).map(|(value, _)| *value);
        found.ok_or_else(|| ParseError::Undefined { line: line.line(), path })
    }

    fn output(&mut self, line: &mut Cursor<'_>) -> Result<(), ParseError> {
        line.keyword("output")?;
        let name = line.quoted("the name of an output in quotes")?;
        line.expect("=")?;
        let value = self.value(line)?;
        self.builder.output(name, value);
        Ok(())
    }
}
