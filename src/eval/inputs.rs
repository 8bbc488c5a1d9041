//! Holds given tensors against what a function declares.

use super::{EvalError, HostTensor, InputCast, Values};
use crate::tensor::{DType, Fact, bytes_of_f32, narrow_f16};
use std::collections::BTreeMap;

/// `given` as `declared` wants them, in that order, and what was cast: floats of another dtype are, integers never.
///
/// # Errors
/// A tensor is missing, unknown, of another shape or kind, or has a value that the declared dtype cannot hold.
pub fn fit(
    declared: &[(&str, &Fact)],
    given: &BTreeMap<String, HostTensor>,
) -> Result<(Vec<HostTensor>, Vec<InputCast>), EvalError> {
    let expected = || declared.iter().map(|(name, fact)| format!("{name} {fact}")).collect::<Vec<_>>().join(", ");
    if let Some(input) = given.keys().find(|k| declared.iter().all(|(name, _)| name != k)) {
        return Err(EvalError::Unknown { input: input.clone(), expected: expected() });
    }
    let (mut fitted, mut casts) = (Vec::new(), Vec::new());
    for (name, fact) in declared {
        let Some(tensor) = given.get(*name) else {
            return Err(EvalError::Missing { input: (*name).into(), expected: expected() });
        };
        fitted.push(one(name, fact, tensor, &mut casts)?);
    }
    Ok((fitted, casts))
}

fn one(name: &str, fact: &Fact, given: &HostTensor, casts: &mut Vec<InputCast>) -> Result<HostTensor, EvalError> {
    let (from, to) = (given.fact().dtype, fact.dtype);
    let refused = || EvalError::Input { input: name.into(), found: given.fact().clone(), expected: fact.clone() };
    let kind = from == to || (from.is_float() && to.is_float());
    if !kind || given.fact().shape != fact.shape {
        return Err(refused());
    }
    if let Values::F32(values) = given.values()
        && from != to
    {
        let mut sink = Vec::new();
        let fits = if to == DType::F16 { narrow_f16(values, &mut sink) } else { bytes_of_f32(values, &mut sink) };
        fits.map_err(|source| EvalError::Cast { input: name.into(), from, source })?;
        casts.push(InputCast { input: name.into(), from, to });
    }
    HostTensor::new(fact.clone(), given.values().clone()).map_err(|_| refused())
}
