//! Weights as references: where the values come from, and the edits that are applied while they stream to disk.
//!
//! An edit list is part of the graph's text; values are not. So graphs print small, and two graphs with the same text
//! over the same checkpoint have the same bytes.

use super::op::{FactError, check_rank};
use crate::tensor::{DType, Fact, Shape};

/// Most numbers a [`Source::Literal`] may hold; anything larger belongs to a tensor or a [`Table`].
pub const LITERAL_MAX: usize = 16;

/// Where a weight's values start.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A tensor of the weight source. Floats of any stored dtype are read widened to f32, integers as they are.
    Tensor(String),
    /// Numbers written out in the graph.
    Literal(Vec<f64>),
    /// Numbers computed from a few parameters, in f64.
    Table(Table),
}

/// A constant that a formula gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Table {
    /// `[1, 1, tokens, keys]`: 0 where key `t - d` exists, `value` where it lies before the first token.
    CausalBand {
        /// Query tokens `t`.
        tokens: usize,
        /// Keys a query sees, its own (`d = 0`) included.
        keys: usize,
        /// What is added to the logit of an absent key.
        value: f64,
    },
    /// `[1, 1, positions, width]`: what a half-split rotary embedding multiplies by. With `i` counting the first half of
    /// a row, position `p` turns by `p * base^(-2 i / width)`; both halves of a row have the same angles. A vector `x` of
    /// halves `[a | b]` becomes `x * cos + [b | a] * sin`.
    Rotary {
        /// Which function of the angle.
        wave: Wave,
        /// Positions, from 0.
        positions: usize,
        /// Width of a head; even.
        width: usize,
        /// Base of the geometric row of angles.
        base: f64,
    },
}

/// A function of a rotary embedding's angle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wave {
    /// The cosine.
    Cos,
    /// The sine; negative in the first half of a row.
    Sin,
}

impl Table {
    fn shape(&self) -> Shape {
        match self {
            Table::CausalBand { tokens, keys, .. } => [1, 1, *tokens, *keys].into(),
            Table::Rotary { positions, width, .. } => [1, 1, *positions, *width].into(),
        }
    }

    /// Its name in text and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Table::CausalBand { .. } => "causal_band",
            Table::Rotary { wave: Wave::Cos, .. } => "rotary_cos",
            Table::Rotary { wave: Wave::Sin, .. } => "rotary_sin",
        }
    }
}

/// One change of a weight's values, shape or dtype.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Every value times a number.
    Scale(f64),
    /// The exponential of every value: a scale that was learned as its logarithm.
    Exp,
    /// Row `r` (axis 0) times `factor * softplus(v[r % len(v)])`, where `v` is the tensor of that name.
    ScaleRowsSoftplus {
        /// Name of `v` in the weight source.
        tensor: String,
        /// Its length, which divides the number of rows.
        period: usize,
        /// Number that every row is scaled by besides.
        factor: f64,
    },
    /// So many copies one after the other along axis 0; one number becomes a vector of equal ones.
    Repeat(usize),
    /// From a projection `[n, k]` to `[positions, n]`: row `p` is the projection of the sinusoid at `p + offset`,
    /// which is `[sin | cos]` over `k / 2` timescales from 1 to 10000; zero where `p + offset` is negative.
    ProjectSinusoid {
        /// How many relative positions.
        positions: usize,
        /// Position of the first row.
        offset: i64,
    },
    /// Row `r` of a matrix, as a vector.
    Row(usize),
    /// So many rows (axis 0) from one on: a part of projections that are stored as one.
    Rows {
        /// The first.
        begin: usize,
        /// How many.
        count: usize,
    },
    /// Axes in another order.
    Transpose(Vec<usize>),
    /// The same values under another shape.
    Reshape(Shape),
    /// To another float dtype; a value that has no finite counterpart there is an error.
    Cast(DType),
    /// To another float dtype; a value beyond its finite range becomes the end of the range. For clamp bounds, where
    /// that is the same clamp.
    Saturate(DType),
    /// From f32 to 8-bit levels: in each run of `block` values along the last axis, the value over the run's scale, as
    /// [`BlockScales`](Self::BlockScales) gives it, rounded to a whole number from -127 to 127.
    QuantizeBlocks {
        /// How many values share a scale; divides the last axis.
        block: usize,
    },
    /// From f32 `[.., k]` to `[.., k / block]`: for each run of `block` values along the last axis, its largest
    /// magnitude over 127; 1 for a run of zeros.
    BlockScales {
        /// How many values share a scale; divides the last axis.
        block: usize,
    },
}

impl Edit {
    /// Its name in text and messages.
    pub const fn name(&self) -> &'static str {
        match self {
            Edit::Scale(_) => "scale",
            Edit::Exp => "exp",
            Edit::ScaleRowsSoftplus { .. } => "scale_rows_softplus",
            Edit::Repeat(_) => "repeat",
            Edit::ProjectSinusoid { .. } => "project_sinusoid",
            Edit::Row(_) => "row",
            Edit::Rows { .. } => "rows",
            Edit::Transpose(_) => "transpose",
            Edit::Reshape(_) => "reshape",
            Edit::Cast(_) => "cast",
            Edit::Saturate(_) => "saturate",
            Edit::QuantizeBlocks { .. } => "quantize_blocks",
            Edit::BlockScales { .. } => "block_scales",
        }
    }

    fn apply(&self, from: &Fact) -> Result<Fact, FactError> {
        let op = self.name();
        let dims = from.shape.dims();
        let rank = |want| FactError::Rank { op, want, got: from.shape.clone() };
        let parameter =
            |parameter, found: String| FactError::Parameter { op, parameter, found, got: from.shape.clone() };
        if !from.dtype.is_float() && !matches!(self, Edit::Reshape(_)) {
            return Err(FactError::DType { op, want: "floats", got: from.dtype });
        }
        let shaped = |shape: Shape| Fact { dtype: from.dtype, shape };
        Ok(match self {
            Edit::Scale(factor) if !factor.is_finite() => return Err(parameter("factor", factor.to_string())),
            Edit::Scale(_) | Edit::Exp => from.clone(),
            Edit::ScaleRowsSoftplus { period, factor, .. } => {
                let rows = *dims.first().ok_or_else(|| rank("1 or more"))?;
                if *period == 0 || !rows.is_multiple_of(*period) {
                    return Err(parameter("period", period.to_string()));
                }
                if !factor.is_finite() || *factor <= 0.0 {
                    return Err(parameter("factor", factor.to_string()));
                }
                from.clone()
            }
            Edit::Repeat(n) => shaped(repeated(*n, dims).ok_or_else(|| parameter("count", n.to_string()))?),
            Edit::ProjectSinusoid { positions, .. } => match dims {
                [n, k] if k.is_multiple_of(2) => shaped([*positions, *n].into()),
                _ => return Err(rank("2, the last axis even")),
            },
            Edit::Row(r) => match dims {
                [n, k] if r < n => shaped([*k].into()),
                [_, _] => return Err(parameter("index", r.to_string())),
                _ => return Err(rank("2")),
            },
            Edit::Rows { begin, count } => match dims {
                [n, rest @ ..] if *count > 0 && begin.checked_add(*count).is_some_and(|end| end <= *n) => {
                    shaped([&[*count], rest].concat().into())
                }
                [] => return Err(rank("1 or more")),
                [_, ..] => return Err(parameter("range", format!("{begin}+{count}"))),
            },
            Edit::Transpose(perm) => {
                shaped(super::op::permuted(perm, &from.shape).ok_or_else(|| parameter("perm", format!("{perm:?}")))?)
            }
            Edit::Reshape(shape) if shape.checked_elements() == from.shape.checked_elements() => shaped(shape.clone()),
            Edit::Reshape(shape) => {
                return Err(FactError::Shapes { op, first: from.shape.clone(), second: shape.clone() });
            }
            Edit::Cast(DType::F32) if from.dtype != DType::F32 => {
                return Err(FactError::DType { op, want: "a narrower dtype than the operand's", got: DType::F32 });
            }
            Edit::Cast(dtype @ (DType::F32 | DType::F16)) | Edit::Saturate(dtype @ (DType::F32 | DType::F16)) => {
                Fact { dtype: *dtype, shape: from.shape.clone() }
            }
            Edit::Cast(dtype) | Edit::Saturate(dtype) => {
                return Err(FactError::DType { op, want: "f32 or f16", got: *dtype });
            }
            Edit::QuantizeBlocks { block } => {
                blocks(op, *block, from)?;
                Fact { dtype: DType::I8, shape: from.shape.clone() }
            }
            Edit::BlockScales { block } => shaped(blocks(op, *block, from)?),
        })
    }
}

/// The shape of `n` copies along axis 0; none where their extent cannot be counted.
pub(super) fn repeated(n: usize, dims: &[usize]) -> Option<Shape> {
    match dims {
        [] => Some([n].into()),
        [rows, rest @ ..] => Some([&[rows.checked_mul(n)?], rest].concat().into()),
    }
}

/// The shape of one number for each run of `block` values along the last axis.
fn blocks(op: &'static str, block: usize, from: &Fact) -> Result<Shape, FactError> {
    if from.dtype != DType::F32 {
        return Err(FactError::DType { op, want: "f32", got: from.dtype });
    }
    let mut dims = from.shape.dims().to_vec();
    match dims.last_mut() {
        Some(last) if block > 0 && last.is_multiple_of(block) => *last /= block,
        Some(_) => {
            let (parameter, found) = ("block", block.to_string());
            return Err(FactError::Parameter { op, parameter, found, got: from.shape.clone() });
        }
        None => return Err(FactError::Rank { op, want: "1 or more", got: from.shape.clone() }),
    }
    Ok(Shape::new(dims))
}

/// A constant: a source, the edits on it, and the fact of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    source: Source,
    start: Fact,
    edits: Vec<Edit>,
    fact: Fact,
}

impl Weight {
    /// A tensor of the weight source; `stored` is its fact there.
    ///
    /// # Errors
    /// It has more axes than a value may have, or no element.
    pub fn tensor(name: impl Into<String>, stored: &Fact) -> Result<Weight, FactError> {
        let dtype = if stored.dtype.is_float() { DType::F32 } else { stored.dtype };
        Self::start(Source::Tensor(name.into()), Fact { dtype, shape: stored.shape.clone() })
    }

    /// One f32 number.
    pub fn scalar(value: f64) -> Weight {
        let fact = Fact::new(DType::F32, Shape::scalar());
        Weight { source: Source::Literal(vec![value]), start: fact.clone(), edits: Vec::new(), fact }
    }

    /// Numbers written out; `fact` says their dtype and shape.
    ///
    /// # Errors
    /// More than [`LITERAL_MAX`] numbers, or not as many as the shape has elements.
    pub fn literal(values: Vec<f64>, fact: Fact) -> Result<Weight, FactError> {
        if values.len() > LITERAL_MAX || values.len() != fact.shape.elements() {
            let found = format!("of {} numbers", values.len());
            return Err(FactError::Parameter { op: "const", parameter: "literal", found, got: fact.shape });
        }
        Self::start(Source::Literal(values), fact)
    }

    /// A computed constant, in f32.
    ///
    /// # Errors
    /// It would have no element, or a parameter makes no sense.
    pub fn table(table: Table) -> Result<Weight, FactError> {
        if let Table::Rotary { width, base, .. } = &table {
            let bad = |parameter, found: String| FactError::Parameter {
                op: table.name(),
                parameter,
                found,
                got: table.shape(),
            };
            if !width.is_multiple_of(2) {
                return Err(bad("width", width.to_string()));
            }
            if !(base.is_finite() && *base > 0.0) {
                return Err(bad("base", base.to_string()));
            }
        }
        let fact = Fact { dtype: DType::F32, shape: table.shape() };
        Self::start(Source::Table(table), fact)
    }

    fn start(source: Source, fact: Fact) -> Result<Weight, FactError> {
        check_rank("const", &fact.shape)?;
        Ok(Weight { source, start: fact.clone(), edits: Vec::new(), fact })
    }

    /// The same weight with one more edit.
    ///
    /// # Errors
    /// The edit does not fit what the weight is by then.
    pub fn edit(mut self, edit: Edit) -> Result<Weight, FactError> {
        self.fact = edit.apply(&self.fact)?;
        check_rank(edit.name(), &self.fact.shape)?;
        self.edits.push(edit);
        Ok(self)
    }

    /// Where the values start.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Dtype and shape before any edit.
    pub fn source_fact(&self) -> &Fact {
        &self.start
    }

    /// The edits, first to last.
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// Dtype and shape of the result.
    pub fn fact(&self) -> &Fact {
        &self.fact
    }

    /// Whether the values belong to those of another weight, as scales do to levels, and are no parameters by themselves.
    pub fn is_companion(&self) -> bool {
        self.edits.iter().any(|edit| matches!(edit, Edit::BlockScales { .. }))
    }

    /// The tensor whose values are the weight's own, where no edit changes any. Its stored bytes are too if it is stored
    /// in the weight's dtype.
    pub fn verbatim(&self) -> Option<&str> {
        let changes = |edit: &Edit| match edit {
            Edit::Reshape(_) => false,
            Edit::Cast(_)
            | Edit::Scale(_)
            | Edit::Exp
            | Edit::Rows { .. }
            | Edit::ScaleRowsSoftplus { .. }
            | Edit::Repeat(_)
            | Edit::ProjectSinusoid { .. }
            | Edit::Row(_)
            | Edit::Transpose(_)
            | Edit::QuantizeBlocks { .. }
            | Edit::BlockScales { .. }
            | Edit::Saturate(_) => true,
        };
        match &self.source {
            Source::Tensor(name) => Some(name.as_str()).filter(|_| !self.edits.iter().any(changes)),
            Source::Literal(_) | Source::Table(_) => None,
        }
    }

    /// The tensor's name, or what else the values are, for messages.
    pub fn origin(&self) -> &str {
        match &self.source {
            Source::Tensor(name) => name,
            Source::Literal(_) => "(literal)",
            Source::Table(table) => table.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Weight {
        Weight::tensor("w", &Fact::new(DType::BF16, [6, 4])).unwrap()
    }

    #[test]
    fn edits_carry_the_fact_along() {
        let w = matrix()
            .edit(Edit::ScaleRowsSoftplus { tensor: "s".into(), period: 3, factor: 2.0 })
            .and_then(|w| w.edit(Edit::Transpose(vec![1, 0])))
            .and_then(|w| w.edit(Edit::Cast(DType::F16)))
            .unwrap();
        assert_eq!(w.fact(), &Fact::new(DType::F16, [4, 6]));
        let k = matrix().edit(Edit::ProjectSinusoid { positions: 12, offset: 0 }).unwrap();
        assert_eq!(k.fact(), &Fact::new(DType::F32, [12, 6]));
        let levels = matrix().edit(Edit::QuantizeBlocks { block: 2 }).unwrap();
        assert_eq!(levels.fact(), &Fact::new(DType::I8, [6, 4]));
        let scales = matrix().edit(Edit::BlockScales { block: 2 }).unwrap();
        assert_eq!(scales.fact(), &Fact::new(DType::F32, [6, 2]));
        assert_eq!(k.edit(Edit::Row(11)).unwrap().fact(), &Fact::new(DType::F32, [6]));
    }

    #[test]
    fn verbatim_is_what_no_edit_changes() {
        let stored = Fact::new(DType::F32, [2, 3]);
        let edited = |edits: &[Edit]| {
            let weight = Weight::tensor("t", &stored).unwrap();
            let weight = edits.iter().fold(weight, |weight, edit| weight.edit(edit.clone()).unwrap());
            weight.verbatim().map(str::to_owned)
        };
        let same = Some("t".to_owned());
        assert_eq!(edited(&[]), same);
        assert_eq!(edited(&[Edit::Reshape([6].into())]), same);
        for edit in [Edit::Scale(2.0), Edit::Cast(DType::F16), Edit::Row(0), Edit::Transpose(vec![1, 0])] {
            assert_eq!(edited(&[edit]), None);
        }
        assert_eq!(Weight::scalar(1.0).verbatim(), None);
    }

    #[test]
    fn edits_that_do_not_fit() {
        for edit in [
            Edit::ScaleRowsSoftplus { tensor: "s".into(), period: 4, factor: 1.0 },
            Edit::ScaleRowsSoftplus { tensor: "s".into(), period: 3, factor: -1.0 },
            Edit::Scale(f64::NAN),
            Edit::Repeat(0),
            Edit::Repeat(usize::MAX),
            Edit::Row(6),
            Edit::Rows { begin: 5, count: 2 },
            Edit::Rows { begin: 0, count: 0 },
            Edit::Rows { begin: usize::MAX, count: 2 },
            Edit::Transpose(vec![0, 0]),
            Edit::Reshape([5, 5].into()),
            Edit::Cast(DType::BF16),
            Edit::QuantizeBlocks { block: 3 },
            Edit::QuantizeBlocks { block: 0 },
            Edit::BlockScales { block: 8 },
        ] {
            assert!(matrix().edit(edit.clone()).is_err(), "{edit:?}");
        }
        let levels = matrix().edit(Edit::QuantizeBlocks { block: 4 }).unwrap();
        assert!(levels.clone().edit(Edit::Scale(2.0)).is_err() && levels.edit(Edit::Reshape([24].into())).is_ok());
        let half = matrix().edit(Edit::Cast(DType::F16)).unwrap();
        assert!(half.edit(Edit::QuantizeBlocks { block: 4 }).is_err());
        assert!(Weight::scalar(1.0).edit(Edit::BlockScales { block: 1 }).is_err());
        assert!(Weight::literal(vec![0.0; 17], Fact::new(DType::F32, [17])).is_err());
        assert!(Weight::tensor("r6", &Fact::new(DType::F32, [1, 1, 1, 1, 1, 1])).is_err());
    }
}
