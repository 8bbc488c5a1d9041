//! Types, constants and operations as messages.

use super::codes::{Codes, STRING};
use super::schema::{
    Argument, Binding, BlobFileValue, Bools, Bytes, ConstantDimension, Dimension, Floats, ImmediateValue, Ints,
    NamedValueType, Operation, Strings, TensorType, TensorValue, Value, ValueType,
};
use crate::target::WEIGHT_FILE_FROM;
use crate::tensor::{DType, Fact};
use std::collections::BTreeMap;

/// How an op names the weight file; a loader looks at the last part only.
const WEIGHT_FILE: &str = "@model_path/weights/weight.bin";

/// Where the values of a constant go.
pub(super) enum Storage {
    /// To `weight.bin`, under that dtype code.
    Blob(u32),
    /// Into the constant itself.
    Immediate,
}

/// Decides where the values of a constant go.
pub(super) fn storage(codes: &Codes, fact: &Fact) -> Storage {
    match codes.blob {
        Some(code) if fact.shape.elements() >= WEIGHT_FILE_FROM => Storage::Blob(code),
        _ => Storage::Immediate,
    }
}

/// The type of a tensor.
pub(super) fn tensor_type(codes: &Codes, dims: &[usize]) -> ValueType {
    let dimension = |d: &usize| Dimension { constant: Some(ConstantDimension { size: *d as u64 }) };
    ValueType {
        tensor_type: Some(TensorType {
            data_type: codes.data_type,
            rank: dims.len() as i64,
            dimensions: dims.iter().map(dimension).collect(),
        }),
    }
}

/// A string.
pub(super) fn string(text: &str) -> Value {
    let tensor_type = TensorType { data_type: STRING, rank: 0, dimensions: Vec::new() };
    let strings = Strings { values: vec![text.into()] };
    immediate_value(
        ValueType { tensor_type: Some(tensor_type) },
        TensorValue { strings: Some(strings), ..TensorValue::default() },
    )
}

/// A constant whose values, little-endian `bytes`, stand in the message. The field depends on the dtype: 16-bit
/// integers go where 32-bit ones go, but 16-bit floats go to raw bytes.
pub(super) fn immediate(dtype: DType, r#type: ValueType, bytes: &[u8]) -> Value {
    let mut tensor = TensorValue::default();
    match dtype {
        DType::F32 => {
            let values = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
            tensor.floats = Some(Floats { values });
        }
        DType::I32 => {
            let values = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
            tensor.ints = Some(Ints { values });
        }
        DType::I16 => {
            let values = bytes.as_chunks::<2>().0.iter().map(|b| i16::from_le_bytes(*b).into()).collect();
            tensor.ints = Some(Ints { values });
        }
        DType::U16 => {
            let values = bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b).into()).collect();
            tensor.ints = Some(Ints { values });
        }
        DType::Bool => tensor.bools = Some(Bools { values: bytes.iter().map(|b| *b != 0).collect() }),
        DType::F16 | DType::I8 | DType::U8 | DType::U32 | DType::F64 | DType::BF16 | DType::I64 | DType::U64 => {
            tensor.bytes = Some(Bytes { values: bytes.to_vec() })
        }
    }
    immediate_value(r#type, tensor)
}

/// A constant whose values stand in `weight.bin`.
pub(super) fn in_file(r#type: ValueType, offset: u64) -> Value {
    let blob = BlobFileValue { file_name: WEIGHT_FILE.into(), offset };
    Value { r#type: Some(r#type), blob_file_value: Some(blob), immediate_value: None }
}

fn immediate_value(r#type: ValueType, tensor: TensorValue) -> Value {
    let immediate_value = Some(ImmediateValue { tensor: Some(tensor) });
    Value { r#type: Some(r#type), immediate_value, blob_file_value: None }
}

/// The type of a constant.
pub(super) const CONST: &str = "const";

/// A `const` operation.
pub(super) fn constant(name: &str, value: Value) -> Operation {
    let output = NamedValueType { name: name.into(), r#type: value.r#type.clone() };
    let mut op = operation(CONST, BTreeMap::new(), output);
    op.attributes.insert("val".into(), value);
    op
}

/// Any operation of one result; it is called what its result is called.
pub(super) fn operation(r#type: &str, inputs: BTreeMap<String, Argument>, output: NamedValueType) -> Operation {
    let attributes = BTreeMap::from([("name".into(), string(&output.name))]);
    Operation { r#type: r#type.into(), inputs, outputs: vec![output], attributes }
}

/// Values bound by name.
pub(super) fn argument<'n>(names: impl IntoIterator<Item = &'n str>) -> Argument {
    Argument { arguments: names.into_iter().map(|name| Binding { name: Some(name.into()), value: None }).collect() }
}

/// A value that stands at the input itself.
pub(super) fn at_hand(value: Value) -> Argument {
    Argument { arguments: vec![Binding { name: None, value: Some(value) }] }
}
