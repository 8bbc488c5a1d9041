//! The header of a safetensors file: `u64` length, JSON, then data without holes.

use super::CheckpointError;
use crate::tensor::{DType, Fact, Shape};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes of the length in front of the header.
pub const LENGTH_BYTES: u64 = 8;

/// Longest header the format allows.
pub const MAX_HEADER: u64 = 100_000_000;

/// Where a tensor lies and what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its fact; none for a dtype that is not read here, such as an 8-bit float.
    pub fact: Option<Fact>,
    /// The dtype as the header spells it.
    pub dtype: String,
    /// The shape as the header gives it.
    pub shape: Shape,
    /// First byte, counted from the end of the header.
    pub begin: u64,
    /// One past the last byte.
    pub end: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// All tensors of one file, as its header lists them, and what else it says.
struct RawHeader(BTreeMap<String, RawEntry>, BTreeMap<String, String>);

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tensors;
        impl<'de> Visitor<'de> for Tensors {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let (mut tensors, mut metadata) = (BTreeMap::new(), BTreeMap::new());
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        metadata = map.next_value()?;
                        continue;
                    }
                    let entry = map.next_value()?;
                    if tensors.contains_key(&name) {
                        return Err(A::Error::custom(format!("tensor {name} is given twice")));
                    }
                    tensors.insert(name, entry);
                }
                Ok(RawHeader(tensors, metadata))
            }
        }
        deserializer.deserialize_map(Tensors)
    }
}

fn dtype_of(name: &str) -> Option<DType> {
    Some(match name {
        "F64" => DType::F64,
        "F32" => DType::F32,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "I64" => DType::I64,
        "I32" => DType::I32,
        "I16" => DType::I16,
        "I8" => DType::I8,
        "U64" => DType::U64,
        "U32" => DType::U32,
        "U16" => DType::U16,
        "U8" => DType::U8,
        "BOOL" => DType::Bool,
        _ => return None,
    })
}

/// The header's spelling of a dtype.
pub fn spelling(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I64 => "I64",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::U64 => "U64",
        DType::U32 => "U32",
        DType::U16 => "U16",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
    }
}

type Parsed = (BTreeMap<String, Entry>, BTreeMap<String, String>);

/// Reads the JSON of a header and holds it against the `data` bytes that follow it in `file`: its tensors, and its
/// `__metadata__`.
///
/// # Errors
/// Not UTF-8, not such a header, a tensor given twice, or offsets that do not tile the data exactly.
pub fn parse(json: &[u8], data: u64, file: &str) -> Result<Parsed, CheckpointError> {
    let text =
        std::str::from_utf8(json).map_err(|e| CheckpointError::NotUtf8 { file: file.into(), at: e.valid_up_to() })?;
    let raw: RawHeader =
        serde_json::from_str(text).map_err(|source| CheckpointError::Header { file: file.into(), source })?;
    let tensors = raw.0.into_iter().map(|(name, raw)| Ok((name.clone(), entry(file, name, raw)?)));
    let tensors = tensors.collect::<Result<BTreeMap<_, _>, CheckpointError>>()?;
    tile(&tensors, data, file)?;
    Ok((tensors, raw.1))
}

fn entry(file: &str, tensor: String, raw: RawEntry) -> Result<Entry, CheckpointError> {
    let (begin, end) = raw.data_offsets;
    let (file, shape) = (file.to_string(), Shape::new(raw.shape));
    if begin > end {
        return Err(CheckpointError::Backwards { file, tensor, begin, end });
    }
    let Some(dtype) = dtype_of(&raw.dtype) else {
        return Ok(Entry { fact: None, dtype: raw.dtype, shape, begin, end });
    };
    let Some(want) = shape.checked_elements().and_then(|n| n.checked_mul(dtype.size())) else {
        return Err(CheckpointError::TooLarge { file, tensor, shape });
    };
    if end - begin != want as u64 {
        return Err(CheckpointError::Span { file, tensor, dtype: raw.dtype, shape, begin, end, want: want as u64 });
    }
    Ok(Entry { fact: Some(Fact { dtype, shape: shape.clone() }), dtype: raw.dtype, shape, begin, end })
}

/// Every byte of the data belongs to exactly one tensor.
fn tile(tensors: &BTreeMap<String, Entry>, data: u64, file: &str) -> Result<(), CheckpointError> {
    let mut by_place: Vec<(&String, &Entry)> = tensors.iter().collect();
    by_place.sort_by_key(|(_, e)| (e.begin, e.end));
    let mut expected = 0;
    for (tensor, entry) in by_place {
        if entry.begin != expected {
            let (file, tensor) = (file.into(), tensor.clone());
            return Err(CheckpointError::Gap { file, tensor, begin: entry.begin, expected });
        }
        expected = entry.end;
    }
    let file = file.to_string();
    match data.cmp(&expected) {
        std::cmp::Ordering::Less => Err(CheckpointError::Truncated { file, found: data, expected }),
        std::cmp::Ordering::Greater => Err(CheckpointError::Trailing { file, found: data, expected }),
        std::cmp::Ordering::Equal => Ok(()),
    }
}
