//! Element types as a package numbers them.

use crate::tensor::DType;
use std::fmt;

/// An element type of the MIL format, ours or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Element {
    /// A dtype that the rest of this crate knows.
    Known(DType),
    /// Text.
    String,
    /// Packed integers of 1, 2, 3, 4 or 6 bits.
    Packed {
        /// Bits of one element.
        bits: u8,
        /// Whether they are signed.
        signed: bool,
    },
    /// Any other number of `MILSpec.DataType`.
    Other(u64),
}

impl Element {
    /// From the number in a tensor type.
    pub(super) fn of_data_type(number: u64) -> Element {
        let packed = |bits, signed| Element::Packed { bits, signed };
        Element::Known(match number {
            1 => DType::Bool,
            2 => return Element::String,
            10 => DType::F16,
            11 => DType::F32,
            12 => DType::F64,
            13 => DType::BF16,
            21 => DType::I8,
            22 => DType::I16,
            23 => DType::I32,
            24 => DType::I64,
            25 => return packed(4, true),
            31 => DType::U8,
            32 => DType::U16,
            33 => DType::U32,
            34 => DType::U64,
            35 => return packed(4, false),
            36 => return packed(2, false),
            37 => return packed(1, false),
            38 => return packed(6, false),
            39 => return packed(3, false),
            other => return Element::Other(other),
        })
    }

    /// From the code in a record of the weight file.
    pub(super) fn of_blob_code(code: u32) -> Element {
        let packed = |bits, signed| Element::Packed { bits, signed };
        Element::Known(match code {
            1 => DType::F16,
            2 => DType::F32,
            3 => DType::U8,
            4 => DType::I8,
            5 => DType::BF16,
            6 => DType::I16,
            7 => DType::U16,
            8 => return packed(4, true),
            9 => return packed(1, false),
            10 => return packed(2, false),
            11 => return packed(4, false),
            12 => return packed(3, false),
            13 => return packed(6, false),
            14 => DType::I32,
            15 => DType::U32,
            other => return Element::Other(other.into()),
        })
    }

    /// From the number in a feature's array type.
    pub(super) fn of_feature(number: u64) -> Element {
        match number {
            65552 => Element::Known(DType::F16),
            65568 => Element::Known(DType::F32),
            65600 => Element::Known(DType::F64),
            131_104 => Element::Known(DType::I32),
            131_080 => Element::Known(DType::I8),
            other => Element::Other(other),
        }
    }

    /// The dtype, where the rest of this crate knows it.
    pub fn dtype(self) -> Option<DType> {
        if let Element::Known(dtype) = self { Some(dtype) } else { None }
    }

    /// Bits of one element; none for text and unknown types.
    pub fn bits(self) -> Option<u64> {
        match self {
            Element::Known(dtype) => Some(dtype.size() as u64 * 8),
            Element::Packed { bits, .. } => Some(bits.into()),
            Element::String | Element::Other(_) => None,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Known(dtype) => dtype.fmt(f),
            Element::String => f.write_str("string"),
            Element::Packed { bits, signed } => write!(f, "{}{bits}", if *signed { 'i' } else { 'u' }),
            Element::Other(number) => write!(f, "type{number}"),
        }
    }
}
