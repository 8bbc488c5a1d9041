//! `.aimodel` by Apple's runtime on the CPU.

use super::{RunError, RunOptions, read_inputs};
use crate::bundle::AiModel;
use crate::emit::coreai::{Bridge, BridgeError, RawTensor, ReadFunction, fact_of};
use crate::eval::{HostTensor, Report, fit};
use crate::tensor::{DType, Fact};
use crate::toolchain::Interrupt;
use std::collections::BTreeMap;
use std::path::Path;

/// Outputs of the function, by name.
///
/// # Errors
/// The runtime is not here or dies, or the bundle or an input cannot be used.
pub(super) fn run(
    options: &RunOptions,
    interrupt: &Interrupt,
) -> Result<(BTreeMap<String, HostTensor>, Report), RunError> {
    let path = || options.artefact.clone();
    let bridge = Bridge::find(interrupt).ok_or(BridgeError::NotInstalled)?;
    // The runtime itself does not look at the hash, and computes garbage from a damaged file.
    let found = AiModel::open(&options.artefact)?.hash;
    if found.is_wrong() {
        return Err(RunError::Hash { path: path(), found });
    }
    let scratch = tempfile::tempdir().map_err(RunError::Exchange)?;
    let mut functions = bridge.read(&options.artefact, scratch.path())?;
    functions.retain(|function| !function.private);
    let function = choose(&functions, options)?;
    let declared = function
        .inputs
        .iter()
        .map(|(name, text)| {
            let feature = || RunError::Feature { path: path(), name: name.clone(), found: text.clone() };
            let fact = fact_of(text).filter(|fact| exchanged(fact.dtype));
            Ok((name.as_str(), fact.ok_or_else(feature)?))
        })
        .collect::<Result<Vec<(&str, Fact)>, RunError>>()?;
    let given = read_inputs(declared.iter().map(|(name, _)| *name), &options.inputs)?;
    let wanted: Vec<(&str, &Fact)> = declared.iter().map(|(name, fact)| (*name, fact)).collect();
    let (fitted, casts) = fit(&wanted, &given)?;
    let mut raw = BTreeMap::new();
    for (at, ((name, fact), tensor)) in declared.iter().zip(&fitted).enumerate() {
        let file = scratch.path().join(format!("input{at}"));
        fs_err::write(&file, tensor.to_bytes().0).map_err(RunError::Exchange)?;
        let (dtype, shape) = (fact.dtype.name().into(), fact.shape.dims().to_vec());
        raw.insert(name.to_string(), RawTensor { file, dtype, shape });
    }
    let ran = bridge.run(&options.artefact, &function.name, &raw, scratch.path())?;
    let outputs = ran.into_iter().map(|(name, raw)| Ok((name.clone(), output(&options.artefact, name, &raw)?)));
    Ok((outputs.collect::<Result<_, RunError>>()?, Report { casts, ..Report::default() }))
}

/// Core AI has no default function: without a name there must be one only.
fn choose<'f>(functions: &'f [ReadFunction], options: &RunOptions) -> Result<&'f ReadFunction, RunError> {
    let found = || functions.iter().map(|f| f.name.clone()).collect();
    let path = options.artefact.clone();
    match (&options.function, functions) {
        (None, [only]) => Ok(only),
        (None, _) => Err(RunError::WhichFunction { path, found: found() }),
        (Some(name), _) => {
            let function = functions.iter().find(|f| f.name == *name);
            function.ok_or_else(|| RunError::Function { path, name: name.clone(), found: found() })
        }
    }
}

/// Whether tensors of that dtype are handed over.
fn exchanged(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::I32)
}

fn output(artefact: &Path, name: String, raw: &RawTensor) -> Result<HostTensor, RunError> {
    let feature = || RunError::Feature { path: artefact.into(), name: name.clone(), found: raw.dtype.clone() };
    let dtype = DType::ALL.into_iter().find(|d| d.name() == raw.dtype && exchanged(*d)).ok_or_else(feature)?;
    let bytes = fs_err::read(&raw.file).map_err(RunError::Exchange)?;
    let host = |source| RunError::Host { name: name.clone(), path: artefact.into(), source };
    HostTensor::from_bytes(Fact::new(dtype, raw.shape.clone()), &bytes).map_err(host)
}
