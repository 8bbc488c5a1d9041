//! Writes a safetensors file, tensor after tensor.

use super::format::safetensors::{LENGTH_BYTES, spelling};
use crate::tensor::Fact;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A tensor to write: name, fact and its bytes.
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its fact.
    pub fact: &'a Fact,
    /// Its bytes, little endian, row-major.
    pub bytes: &'a [u8],
}

/// Writes `tensors`, sorted by name, with the data aligned to 8 bytes.
///
/// # Errors
/// The writer's; and bytes that are not as many as the fact says.
pub fn write_safetensors(mut tensors: Vec<Named<'_>>, mut out: impl Write) -> io::Result<()> {
    tensors.sort_by(|a, b| a.name.cmp(b.name));
    for tensor in &tensors {
        if tensor.bytes.len() != tensor.fact.bytes() {
            let message = format!("tensor {} of {} has {} bytes", tensor.name, tensor.fact, tensor.bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    }
    write_safetensors_header(&tensors.iter().map(|t| (t.name, t.fact)).collect(), &mut out)?;
    tensors.iter().try_for_each(|t| out.write_all(t.bytes))
}

/// Writes the header of a file of those tensors, whose bytes the caller writes next, one tensor after another in the
/// order of their names: for tensors that are larger than memory should hold.
///
/// # Errors
/// The writer's.
pub fn write_safetensors_header(tensors: &BTreeMap<&str, &Fact>, mut out: impl Write) -> io::Result<()> {
    let mut header = Map::new();
    let mut at = 0;
    for (name, fact) in tensors {
        let end = at + fact.bytes();
        let entry = json!({ "dtype": spelling(fact.dtype), "shape": fact.shape, "data_offsets": [at, end] });
        header.insert((*name).into(), entry);
        at = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(LENGTH_BYTES as usize), b' ');
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(&header)
}
