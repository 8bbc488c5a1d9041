//! Dtypes, shapes, facts, number conversion and the [`WeightSource`] every weight comes from.
//!
//! Level 0: knows neither files nor graphs.

mod convert;
mod memory;
mod source;

pub use convert::{NotRepresentable, bytes_of_f32, narrow_f16, round_f16, widen};
pub use memory::Memory;
pub use source::{SourceError, WeightSource};

use serde::{Serialize, Serializer};
use std::fmt;

/// Element type of a tensor, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the variants are the usual names of the types")]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

impl DType {
    /// Every dtype, in declaration order.
    pub const ALL: [DType; 13] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I16,
        DType::I8,
        DType::U64,
        DType::U32,
        DType::U16,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 | DType::U64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The name used in graph text, tables and records.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::I16 => "i16",
            DType::I8 => "i8",
            DType::U64 => "u64",
            DType::U32 => "u32",
            DType::U16 => "u16",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }

    /// The dtype of that [`name`](Self::name).
    pub fn parse(name: &str) -> Option<DType> {
        Self::ALL.into_iter().find(|d| d.name() == name)
    }

    /// Whether a value of this type may have a fraction.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// Most axes that are shown. No graph of ours has more than a few, but a file may name very many.
const AXES_SHOWN: usize = 16;

/// Extents of a tensor, outermost first; rank 0 is a scalar.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape of those extents.
    pub fn new(dims: impl Into<Vec<usize>>) -> Shape {
        Shape(dims.into())
    }

    /// The shape of one number.
    pub fn scalar() -> Shape {
        Shape(Vec::new())
    }

    /// The extents.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// How many axes there are.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; `usize::MAX` where the product does not fit.
    pub fn elements(&self) -> usize {
        self.0.iter().fold(1usize, |n, &d| n.saturating_mul(d))
    }

    /// Number of elements, or `None` where the product does not fit.
    pub fn checked_elements(&self) -> Option<usize> {
        self.0.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape(dims.to_vec())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().take(AXES_SHOWN).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{d}")?;
        }
        if self.rank() > AXES_SHOWN {
            write!(f, ",.. {} axes", self.rank())?;
        }
        f.write_str("]")
    }
}

/// What is known of a value before it is computed: its dtype and its static shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Fact {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
}

impl Fact {
    /// A fact of that dtype and shape.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Fact {
        Fact { dtype, shape: shape.into() }
    }

    /// Bytes of the whole value when stored densely.
    pub fn bytes(&self) -> usize {
        self.shape.elements().saturating_mul(self.dtype.size())
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
