//! safetensors: `u64` length, a JSON header of that length, then data without holes.

use super::{Content, Entries, Entry, Input};
use crate::checkpoint::CheckpointError;
use crate::tensor::{DType, Fact, Shape};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes of the length in front of the header.
pub const LENGTH_BYTES: u64 = 8;

/// Longest header the format allows.
const MAX_HEADER: u64 = 100_000_000;

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

/// The tensors and the metadata of a safetensors file.
///
/// # Errors
/// The file cannot be read; it is cut short; its header is none; or the tensors do not tile the data exactly.
pub fn content(input: &Input<'_>) -> Result<Content, CheckpointError> {
    let (file, len) = (|| input.name.to_string(), input.len);
    let Some(rest) = len.checked_sub(LENGTH_BYTES) else {
        return Err(CheckpointError::NoHeader { file: file(), len });
    };
    let mut length = [0u8; LENGTH_BYTES as usize];
    length.copy_from_slice(&input.bytes(0, LENGTH_BYTES as usize)?);
    let header = u64::from_le_bytes(length);
    if header > MAX_HEADER {
        return Err(CheckpointError::HeaderTooLong { file: file(), header, max: MAX_HEADER });
    }
    if header > rest {
        return Err(CheckpointError::HeaderBeyondFile { file: file(), header, len });
    }
    let mut content = parse(&input.bytes(LENGTH_BYTES, header as usize)?, rest - header, input.name)?;
    for entry in content.tensors.values_mut() {
        entry.begin += LENGTH_BYTES + header;
        entry.end += LENGTH_BYTES + header;
    }
    Ok(content)
}

/// Reads the JSON of a header and holds it against the `data` bytes that follow it in `file`. The entries count from
/// the end of the header.
fn parse(json: &[u8], data: u64, file: &str) -> Result<Content, CheckpointError> {
    let text =
        std::str::from_utf8(json).map_err(|e| CheckpointError::NotUtf8 { file: file.into(), at: e.valid_up_to() })?;
    let raw: RawHeader =
        serde_json::from_str(text).map_err(|source| CheckpointError::Header { file: file.into(), source })?;
    let tensors = raw.0.into_iter().map(|(name, raw)| Ok((name.clone(), entry(file, name, raw)?)));
    let tensors = tensors.collect::<Result<Entries, CheckpointError>>()?;
    tile(&tensors, data, file)?;
    Ok(Content { tensors, metadata: raw.1 })
}

fn entry(file: &str, tensor: String, raw: RawEntry) -> Result<Entry, CheckpointError> {
    let (begin, end) = raw.data_offsets;
    let (file, shape) = (file.to_string(), Shape::new(raw.shape));
    if begin > end {
        return Err(CheckpointError::Backwards { file, tensor, begin, end });
    }
    let Some(dtype) = dtype_of(&raw.dtype) else {
        return Ok(Entry { fact: None, begin, end });
    };
    let Some(want) = shape.checked_elements().and_then(|n| n.checked_mul(dtype.size())) else {
        return Err(CheckpointError::TooLarge { file, tensor, shape });
    };
    if end - begin != want as u64 {
        return Err(CheckpointError::Span { file, tensor, dtype: raw.dtype, shape, begin, end, want: want as u64 });
    }
    Ok(Entry { fact: Some(Fact { dtype, shape }), begin, end })
}

/// Every byte of the data belongs to exactly one tensor.
fn tile(tensors: &Entries, data: u64, file: &str) -> Result<(), CheckpointError> {
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
