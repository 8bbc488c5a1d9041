//! What each dtype is called by the four parts of a package that this writer fills.

use crate::tensor::DType;

/// The spellings of one dtype.
pub(super) struct Codes {
    /// `MILSpec.DataType`.
    pub data_type: i32,
    /// Code in a `weight.bin` record; bool has none.
    pub blob: Option<u32>,
    /// `ArrayFeatureType.ArrayDataType`, for the dtypes a feature may have at this specification version.
    pub feature: Option<i32>,
    /// Value of the `dtype` parameter of `cast`.
    pub cast: &'static str,
}

/// The type of strings among `MILSpec.DataType`.
pub(super) const STRING: i32 = 2;

/// The spellings of `dtype`, or `None` where an ML program of ours may not hold it.
pub(super) fn codes(dtype: DType) -> Option<Codes> {
    let (data_type, blob, feature, cast) = match dtype {
        DType::F16 => (10, Some(1), Some(65552), "fp16"),
        DType::F32 => (11, Some(2), Some(65568), "fp32"),
        DType::I32 => (23, Some(14), Some(131_104), "int32"),
        DType::I16 => (22, Some(6), None, "int16"),
        DType::I8 => (21, Some(4), None, "int8"),
        DType::U16 => (32, Some(7), None, "uint16"),
        DType::U8 => (31, Some(3), None, "uint8"),
        DType::Bool => (1, None, None, "bool"),
        // The format has codes for some of these, but no op of the opset takes them.
        DType::F64 | DType::BF16 | DType::I64 | DType::U64 | DType::U32 => return None,
    };
    Some(Codes { data_type, blob, feature, cast })
}
