//! `.aimodel` by Apple's runtime on the CPU.

use super::{Callable, RunError};
use crate::bundle::AiModel;
use crate::emit::coreai::{Bridge, BridgeError, RawTensor, ReadFunction, fact_of};
use crate::eval::{HostTensor, Report, fit};
use crate::tensor::{DType, Fact};
use crate::toolchain::Interrupt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A bundle and the functions that Apple's serializer reads of it.
#[derive(Debug)]
pub struct Opened {
    path: PathBuf,
    bridge: Bridge,
    functions: Vec<ReadFunction>,
    /// Its header and metadata.
    pub model: AiModel,
}

impl Opened {
    /// The function `named`, or the only one: Core AI has no default function.
    ///
    /// # Errors
    /// The runtime is not here, or the bundle cannot be used or has no such function.
    pub fn one(path: &Path, named: Option<&str>, interrupt: &Interrupt) -> Result<Opened, RunError> {
        let mut opened = Self::all(path, interrupt)?;
        let found = || opened.functions.iter().map(|f| f.name.clone()).collect();
        match named {
            None if opened.functions.len() == 1 => {}
            None => return Err(RunError::WhichFunction { path: path.into(), found: found() }),
            Some(name) if opened.functions.iter().any(|f| f.name == name) => {
                opened.functions.retain(|f| f.name == name);
            }
            Some(name) => return Err(RunError::Function { path: path.into(), name: name.into(), found: found() }),
        }
        Ok(opened)
    }

    /// All functions that are not another's alone.
    ///
    /// # Errors
    /// The runtime is not here, or the bundle cannot be used.
    pub fn all(path: &Path, interrupt: &Interrupt) -> Result<Opened, RunError> {
        let bridge = Bridge::find(interrupt).ok_or(BridgeError::NotInstalled)?;
        // The runtime itself does not look at the hash, and computes garbage from a damaged file.
        let model = AiModel::open(path)?;
        if model.hash.is_wrong() {
            return Err(RunError::Hash { path: path.into(), found: model.hash });
        }
        let scratch = tempfile::tempdir().map_err(RunError::Exchange)?;
        let mut functions = bridge.read(path, scratch.path())?;
        functions.retain(|function| !function.private);
        Ok(Opened { path: path.into(), bridge, functions, model })
    }

    /// The functions, ready to be run.
    ///
    /// # Errors
    /// One takes what cannot be handed over.
    pub fn functions(&self) -> Result<Vec<Callable<'_>>, RunError> {
        self.functions.iter().map(|function| self.function(function)).collect()
    }

    fn function<'o>(&'o self, read: &'o ReadFunction) -> Result<Callable<'o>, RunError> {
        let declared = |(name, text): &(String, String)| {
            let feature = || RunError::Feature { path: self.path.clone(), name: name.clone(), found: text.clone() };
            let fact = fact_of(text).filter(|fact| exchanged(fact.dtype));
            Ok((name.clone(), fact.ok_or_else(feature)?))
        };
        let all = |features: &[(String, String)]| features.iter().map(declared).collect::<Result<Vec<_>, RunError>>();
        let (inputs, outputs) = (all(&read.inputs)?, all(&read.outputs)?);
        let run = Function { opened: self, name: &read.name, inputs: inputs.clone() };
        Ok(Callable { name: read.name.clone(), inputs, outputs, run: Box::new(run) })
    }
}

struct Function<'a> {
    opened: &'a Opened,
    name: &'a str,
    inputs: Vec<(String, Fact)>,
}

impl super::Run for Function<'_> {
    fn run(&self, given: &BTreeMap<String, HostTensor>) -> Result<(BTreeMap<String, HostTensor>, Report), RunError> {
        let wanted: Vec<(&str, &Fact)> = self.inputs.iter().map(|(name, fact)| (name.as_str(), fact)).collect();
        let (fitted, casts) = fit(&wanted, given)?;
        let scratch = tempfile::tempdir().map_err(RunError::Exchange)?;
        let mut raw = BTreeMap::new();
        for (at, ((name, fact), tensor)) in self.inputs.iter().zip(&fitted).enumerate() {
            let file = scratch.path().join(format!("input{at}"));
            fs_err::write(&file, tensor.to_bytes().0).map_err(RunError::Exchange)?;
            let (dtype, shape) = (fact.dtype.name().into(), fact.shape.dims().to_vec());
            raw.insert(name.clone(), RawTensor { file, dtype, shape });
        }
        let Opened { path, bridge, .. } = self.opened;
        let ran = bridge.run(path, self.name, &raw, scratch.path())?;
        let outputs = ran.into_iter().map(|(name, raw)| Ok((name.clone(), output(path, name, &raw)?)));
        Ok((outputs.collect::<Result<_, RunError>>()?, Report { casts, ..Report::default() }))
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
