//! Tensors held in memory: small sources, and tests of whatever reads one.

use super::{Fact, SourceError, WeightSource};
use std::collections::BTreeMap;

/// A [`WeightSource`] of tensors at hand: fact and bytes by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory(pub BTreeMap<String, (Fact, Vec<u8>)>);

impl Memory {
    /// Adds a tensor of f32 values.
    pub fn insert_f32(&mut self, name: &str, dims: &[usize], values: &[f32]) {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.0.insert(name.into(), (Fact::new(super::DType::F32, dims.to_vec()), bytes));
    }
}

impl WeightSource for Memory {
    fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.0.get(name).map(|(fact, _)| fact)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let (tensor, place) = (name.to_string(), self.place(name));
        let Some((_, bytes)) = self.0.get(name) else {
            return Err(SourceError::Missing { tensor, place });
        };
        let (size, end) = (bytes.len() as u64, offset.saturating_add(out.len() as u64));
        if end > size {
            return Err(SourceError::Range { tensor, place, offset, end, size });
        }
        out.copy_from_slice(&bytes[offset as usize..end as usize]);
        Ok(())
    }

    fn place(&self, _: &str) -> String {
        "memory".into()
    }
}
