//! Tensors as a caller holds them: what goes into a graph and what comes out.

use crate::tensor::{DType, Fact, narrow_f16, round_f16, widen};

/// The elements of a [`HostTensor`], row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Floats of any stored dtype, widened.
    F32(Vec<f32>),
    /// 32-bit integers.
    I32(Vec<i32>),
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Values::F32(v) => v.len(),
            Values::I32(v) => v.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A tensor of the host: a fact, and as many values as its shape has elements.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    fact: Fact,
    values: Values,
}

/// Why values do not make a [`HostTensor`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HostError {
    /// Not as many values, or bytes, as the shape asks for.
    #[error("{found} {unit} for {fact}, expected {expected}")]
    Count {
        /// What was said of the tensor.
        fact: Fact,
        /// `values` or `bytes`.
        unit: &'static str,
        /// How many were given.
        found: usize,
        /// How many it takes.
        expected: usize,
    },
    /// A dtype the host side does not carry, or values of another kind than the fact says.
    #[error("values of {fact} are not among those taken here: f64, f32, f16, bf16 and i32")]
    DType {
        /// What was said of the tensor.
        fact: Fact,
    },
}

impl HostTensor {
    /// A tensor of those values. Values of an f16 fact are rounded to f16.
    ///
    /// # Errors
    /// The count or the kind of the values is not the fact's.
    pub fn new(fact: Fact, mut values: Values) -> Result<HostTensor, HostError> {
        match (&mut values, fact.dtype) {
            (Values::F32(v), DType::F16) => round_f16(v),
            (Values::F32(_), dtype) if dtype.is_float() => {}
            (Values::I32(_), DType::I32) => {}
            (Values::F32(_) | Values::I32(_), _) => return Err(HostError::DType { fact }),
        }
        let expected = fact.shape.elements();
        if values.len() != expected {
            return Err(HostError::Count { unit: "values", found: values.len(), expected, fact });
        }
        Ok(HostTensor { fact, values })
    }

    /// A tensor of stored bytes, little endian.
    ///
    /// # Errors
    /// The count of the bytes is not the fact's, or the dtype is one that is not taken.
    pub fn from_bytes(fact: Fact, bytes: &[u8]) -> Result<HostTensor, HostError> {
        if bytes.len() != fact.bytes() {
            return Err(HostError::Count { unit: "bytes", found: bytes.len(), expected: fact.bytes(), fact });
        }
        let values = if fact.dtype.is_float() {
            let mut values = vec![0f32; fact.shape.elements()];
            widen(fact.dtype, bytes, &mut values);
            Values::F32(values)
        } else {
            Values::I32(bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect())
        };
        Self::new(fact, values)
    }

    /// The stored bytes, little endian: f16 where the fact says so, else 32 bits an element.
    ///
    /// The dtype they are in is the second of the pair; it differs from the fact's for f64 and bf16 only.
    pub fn to_bytes(&self) -> (Vec<u8>, DType) {
        match &self.values {
            Values::I32(v) => (v.iter().flat_map(|x| x.to_le_bytes()).collect(), DType::I32),
            Values::F32(v) if self.fact.dtype == DType::F16 => {
                let mut bytes = Vec::new();
                if narrow_f16(v, &mut bytes).is_err() {
                    // An infinity or NaN is a result like any other here.
                    bytes = v.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
                }
                (bytes, DType::F16)
            }
            Values::F32(v) => (v.iter().flat_map(|x| x.to_le_bytes()).collect(), DType::F32),
        }
    }

    /// Dtype and shape.
    pub fn fact(&self) -> &Fact {
        &self.fact
    }

    /// The values.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The values as floats, where they are.
    pub fn floats(&self) -> Option<&[f32]> {
        match &self.values {
            Values::F32(v) => Some(v),
            Values::I32(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let fact = Fact::new(DType::F16, [3]);
        let tensor = HostTensor::new(fact.clone(), Values::F32(vec![0.1, 1e6, -2.0])).unwrap();
        assert_eq!(tensor.floats().unwrap(), [0.099975586, f32::INFINITY, -2.0]);
        let (bytes, dtype) = tensor.to_bytes();
        assert_eq!((bytes.len(), dtype), (6, DType::F16));
        assert_eq!(HostTensor::from_bytes(fact, &bytes).unwrap(), tensor);
        let ids = HostTensor::new(Fact::new(DType::I32, [2]), Values::I32(vec![-1, 200_000])).unwrap();
        assert_eq!(HostTensor::from_bytes(ids.fact().clone(), &ids.to_bytes().0).unwrap(), ids);
    }

    #[test]
    fn values_that_do_not_fit_the_fact() {
        let err = HostTensor::new(Fact::new(DType::F32, [3]), Values::F32(vec![0.0; 2])).unwrap_err();
        insta::assert_snapshot!(err, @"2 values for f32[3], expected 3");
        let err = HostTensor::from_bytes(Fact::new(DType::I64, [1]), &[0; 8]).unwrap_err();
        insta::assert_snapshot!(err, @"values of i64[1] are not among those taken here: f64, f32, f16, bf16 and i32");
        assert!(HostTensor::new(Fact::new(DType::I32, [1]), Values::F32(vec![0.0])).is_err());
    }
}
