//! Constants: their source, then their edits, each edit's spelling and its reading side by side.

use super::ParseError;
use super::lexis::{Cursor, Float, List, Quoted};
use crate::ir::{BuildError, Edit, FactError, Source, Table, Wave, Weight};
use crate::tensor::{DType, Fact, Shape};
use std::fmt::{self, Display};

const TENSOR: &str = "tensor";
const LITERAL: &str = "literal";
const TABLE: &str = "table";

/// A weight as `source | edit | edit`.
pub(super) struct Spelling<'g>(pub &'g Weight);

impl Display for Spelling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fact = self.0.source_fact();
        match self.0.source() {
            Source::Tensor(name) => write!(f, "{TENSOR} {} {fact}", Quoted(name))?,
            Source::Literal(values) => write!(f, "{LITERAL} {} {fact}", List(values.iter().map(|v| Float(*v))))?,
            Source::Table(table) => write!(f, "{TABLE} {}{}", table.name(), TableParameters(table))?,
        }
        self.0.edits().iter().try_for_each(|edit| write!(f, " | {}{}", edit.name(), Parameters(edit)))
    }
}

/// A table's parameters, each after a space, in the order in which [`table`] reads them.
struct TableParameters<'g>(&'g Table);

impl Display for TableParameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Table::CausalBand { tokens, keys, value } => {
                write!(f, " tokens={tokens} keys={keys} value={}", Float(*value))
            }
            Table::Rotary { wave: _, positions, width, base } => {
                write!(f, " positions={positions} width={width} base={}", Float(*base))
            }
        }
    }
}

fn table(kind: &Table, line: &mut Cursor<'_>) -> Result<Table, ParseError> {
    Ok(match kind {
        Table::CausalBand { .. } => Table::CausalBand {
            tokens: line.parameter("tokens", Cursor::count)?,
            keys: line.parameter("keys", Cursor::count)?,
            value: line.parameter("value", Cursor::float)?,
        },
        Table::Rotary { wave, .. } => Table::Rotary {
            wave: *wave,
            positions: line.parameter("positions", Cursor::count)?,
            width: line.parameter("width", Cursor::count)?,
            base: line.parameter("base", Cursor::float)?,
        },
    })
}

/// One of each table. A new one belongs here and in [`table`], where the compiler asks for it.
fn table_samples() -> [Table; 3] {
    let rotary = |wave| Table::Rotary { wave, positions: 1, width: 2, base: 1.0 };
    [Table::CausalBand { tokens: 1, keys: 1, value: 0.0 }, rotary(Wave::Cos), rotary(Wave::Sin)]
}

/// An edit's parameters, each after a space, in the order in which [`parameters`] reads them.
struct Parameters<'g>(&'g Edit);

impl Display for Parameters<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Edit::Exp => Ok(()),
            Edit::Scale(factor) => write!(f, " {}", Float(*factor)),
            Edit::ScaleRowsSoftplus { tensor, period, factor } => {
                write!(f, " {} period={period} factor={}", Quoted(tensor), Float(*factor))
            }
            Edit::Repeat(n) => write!(f, " {n}"),
            Edit::ProjectSinusoid { positions, offset } => write!(f, " positions={positions} offset={offset}"),
            Edit::Row(row) => write!(f, " {row}"),
            Edit::Rows { begin, count } => write!(f, " begin={begin} count={count}"),
            Edit::Transpose(perm) => write!(f, " {}", List(perm.iter())),
            Edit::Reshape(shape) => write!(f, " {shape}"),
            Edit::Cast(dtype) | Edit::Saturate(dtype) => write!(f, " {dtype}"),
            Edit::QuantizeBlocks { block } | Edit::BlockScales { block } => write!(f, " {block}"),
        }
    }
}

fn parameters(kind: &Edit, line: &mut Cursor<'_>) -> Result<Edit, ParseError> {
    Ok(match kind {
        Edit::Scale(_) => Edit::Scale(line.float()?),
        Edit::Exp => Edit::Exp,
        Edit::ScaleRowsSoftplus { .. } => Edit::ScaleRowsSoftplus {
            tensor: line.quoted("the name of a tensor in quotes")?,
            period: line.parameter("period", Cursor::count)?,
            factor: line.parameter("factor", Cursor::float)?,
        },
        Edit::Repeat(_) => Edit::Repeat(line.count()?),
        Edit::ProjectSinusoid { .. } => Edit::ProjectSinusoid {
            positions: line.parameter("positions", Cursor::count)?,
            offset: line.parameter("offset", Cursor::integer)?,
        },
        Edit::Row(_) => Edit::Row(line.count()?),
        Edit::Rows { .. } => Edit::Rows {
            begin: line.parameter("begin", Cursor::count)?,
            count: line.parameter("count", Cursor::count)?,
        },
        Edit::Transpose(_) => Edit::Transpose(line.counts()?),
        Edit::Reshape(_) => Edit::Reshape(line.shape()?),
        Edit::Cast(_) => Edit::Cast(line.dtype()?),
        Edit::Saturate(_) => Edit::Saturate(line.dtype()?),
        Edit::QuantizeBlocks { .. } => Edit::QuantizeBlocks { block: line.count()? },
        Edit::BlockScales { .. } => Edit::BlockScales { block: line.count()? },
    })
}

/// One of each edit. A new edit belongs here and in [`parameters`], where the compiler asks for it.
fn samples() -> [Edit; 13] {
    [
        Edit::Scale(1.0),
        Edit::Exp,
        Edit::ScaleRowsSoftplus { tensor: String::new(), period: 1, factor: 1.0 },
        Edit::Repeat(1),
        Edit::ProjectSinusoid { positions: 1, offset: 0 },
        Edit::Row(0),
        Edit::Rows { begin: 0, count: 1 },
        Edit::Transpose(Vec::new()),
        Edit::Reshape(Shape::scalar()),
        Edit::Cast(DType::F32),
        Edit::Saturate(DType::F32),
        Edit::QuantizeBlocks { block: 1 },
        Edit::BlockScales { block: 1 },
    ]
}

/// Reads a weight; `path` is its node's, for messages.
pub(super) fn weight(line: &mut Cursor<'_>, path: &str) -> Result<Weight, ParseError> {
    let number = line.line();
    let misfit =
        |source: FactError| ParseError::Build { line: number, source: BuildError { path: path.into(), source } };
    let mut weight = source(line, path, &misfit)?;
    while line.eat("|") {
        const EXPECTED: &str = "the name of an edit";
        let here = line.unexpected(EXPECTED);
        let name = line.word(EXPECTED)?;
        let kind = samples().into_iter().find(|edit| edit.name() == name).ok_or(here)?;
        weight = weight.edit(parameters(&kind, line)?).map_err(&misfit)?;
    }
    Ok(weight)
}

fn source(line: &mut Cursor<'_>, path: &str, misfit: &impl Fn(FactError) -> ParseError) -> Result<Weight, ParseError> {
    const EXPECTED: &str = "tensor, literal or table";
    let here = line.unexpected(EXPECTED);
    match line.word(EXPECTED)? {
        TENSOR => {
            let name = line.quoted("the name of a tensor in quotes")?;
            let declared = line.fact()?;
            let weight = Weight::tensor(name, &declared).map_err(misfit)?;
            agree(line, path, declared, weight.source_fact())?;
            Ok(weight)
        }
        LITERAL => {
            let values = line.list(Cursor::float)?;
            Weight::literal(values, line.fact()?).map_err(misfit)
        }
        TABLE => {
            const EXPECTED: &str = "the name of a table";
            let here = line.unexpected(EXPECTED);
            let name = line.word(EXPECTED)?;
            let kind = table_samples().into_iter().find(|table| table.name() == name).ok_or(here)?;
            Weight::table(self::table(&kind, line)?).map_err(misfit)
        }
        _ => Err(here),
    }
}

/// Refuses a declared fact that is not the inferred one.
pub(super) fn agree(line: &Cursor<'_>, path: &str, declared: Fact, inferred: &Fact) -> Result<(), ParseError> {
    if declared == *inferred {
        return Ok(());
    }
    Err(ParseError::Fact { line: line.line(), path: path.into(), declared, inferred: inferred.clone() })
}
