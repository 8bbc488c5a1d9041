//! Runs one function of an artefact on tensors of a file; one file for each runtime.

mod coreai;
mod open;
mod reference;

pub(super) use open::{Artefact, Callable, Functions, Outcome, Run, runtime_of};

use crate::bundle::{AiModelError, HashCheck};
use crate::checkpoint::{Checkpoint, CheckpointError, Named, write_safetensors};
use crate::emit::coreai::BridgeError;
use crate::emit::mil::read::ReadError;
use crate::eval::{EvalError, HostError, HostTensor, Options, Report};
use crate::files::{self, Replacement};
use crate::plural::counted;
use crate::tensor::{Fact, SourceError, WeightSource};
use crate::toolchain::Interrupt;
use crate::validate::Violation;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an artefact was not run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage")]
pub enum RunError {
    #[error(transparent)]
    Package(#[from] ReadError),
    #[error("{} breaks {}: {}", path.display(), counted(found.len(), "rule"), found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid { path: PathBuf, found: Vec<Violation> },
    #[error("the inputs cannot be used")]
    Inputs(#[from] CheckpointError),
    #[error("input {name} cannot be read from {}", path.display())]
    Input { name: String, path: PathBuf, source: SourceError },
    #[error("input {name} of {} cannot be used", path.display())]
    Host { name: String, path: PathBuf, source: HostError },
    #[error("tensor {name} of {}: element {index} is NaN, expected a number", path.display())]
    NotANumber { name: String, path: PathBuf, index: usize },
    #[error(transparent)]
    Eval(#[from] EvalError),
    #[error("there is no {}", path.display())]
    Absent { path: PathBuf },
    #[error("{} is no bundle that can be run, expected an .mlpackage or an .aimodel", path.display())]
    NotRunnable { path: PathBuf },
    #[error("runtime {runtime} does not run {}; expected {}", path.display(), runtime.runs())]
    Runtime { runtime: Runtime, path: PathBuf },
    #[error(transparent)]
    AiModel(#[from] AiModelError),
    #[error("main.hash of {} is wrong: {found}; the bundle was damaged or changed after it was made", path.display())]
    Hash { path: PathBuf, found: HashCheck },
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error("{} has no function {name}; it has {found:?}", path.display())]
    Function { path: PathBuf, name: String, found: Vec<String> },
    #[error("{} has several functions; choose one with --function: {found:?}", path.display())]
    WhichFunction { path: PathBuf, found: Vec<String> },
    #[error("feature {name} of {} is {found}, which cannot be exchanged with it here", path.display())]
    Feature { path: PathBuf, name: String, found: String },
    #[error("a tensor could not be handed to Apple's runtime or taken from it")]
    Exchange(#[source] io::Error),
    #[error("the outputs would replace {}, which is read", path.display())]
    Overwrites { path: PathBuf },
    #[error("the outputs could not be written to {}", path.display())]
    Outputs { path: PathBuf, source: io::Error },
}

/// What to run, and on what.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The bundle.
    pub artefact: PathBuf,
    /// A safetensors file with a tensor for each input, by name; other tensors are left alone.
    pub inputs: PathBuf,
    /// The safetensors file the outputs go to.
    pub outputs: PathBuf,
    /// The function; none for the default one.
    pub function: Option<String>,
    /// What runs it; none for the one that its format has.
    pub runtime: Option<Runtime>,
    /// How the reference evaluates it.
    pub evaluate: Options,
}

/// What runs an artefact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// This program's evaluator, which reads `.mlpackage`s.
    Reference,
    /// Apple's runtime on the CPU, which runs `.aimodel`s.
    CoreAi,
}

impl Runtime {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Reference => "reference",
            Runtime::CoreAi => "coreai",
        }
    }

    const fn runs(self) -> &'static str {
        match self {
            Runtime::Reference => "an .mlpackage",
            Runtime::CoreAi => "an .aimodel",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Ran {
    /// What ran it.
    pub runtime: Runtime,
    /// Each output, by name.
    pub outputs: BTreeMap<String, HostTensor>,
    /// What was seen on the way; Apple's runtime shows no more than casts of inputs.
    pub report: Report,
}

/// Runs the artefact and writes its outputs.
///
/// # Errors
/// The artefact or an input cannot be used, or the outputs cannot be written; then no file is left behind.
pub fn run(options: &RunOptions, interrupt: &Interrupt) -> Result<Ran, RunError> {
    if files::replaces(&options.outputs, [options.inputs.as_path(), options.artefact.as_path()]) {
        return Err(RunError::Overwrites { path: options.outputs.clone() });
    }
    let runtime = runtime_of(&options.artefact, options.runtime)?;
    let named = Functions::One(options.function.as_deref());
    let artefact = Artefact::open(&options.artefact, runtime, named, interrupt)?;
    let functions = artefact.functions(options.evaluate)?;
    let function = functions
        .first()
        .ok_or_else(|| RunError::WhichFunction { path: options.artefact.clone(), found: Vec::new() })?;
    let inputs = read_inputs(function.inputs.iter().map(|(name, _)| name.as_str()), &options.inputs)?;
    let (outputs, report) = function.run.run(&inputs)?;
    write_outputs(&outputs, &options.outputs)
        .map_err(|source| RunError::Outputs { path: options.outputs.clone(), source })?;
    Ok(Ran { runtime, outputs, report })
}

/// The tensors of `path` that are called like one of `names`. Absent ones are left to who holds them against what is
/// declared. A NaN is refused here: a clamp or a mask may swallow it, and what comes out then looks sound.
fn read_inputs<'a>(
    names: impl IntoIterator<Item = &'a str>,
    path: &Path,
) -> Result<BTreeMap<String, HostTensor>, RunError> {
    let file = Checkpoint::open_file(path)?;
    let mut inputs = BTreeMap::new();
    for name in names {
        if let Some(tensor) = read_tensor(&file, name, path)? {
            inputs.insert(name.to_string(), tensor);
        }
    }
    Ok(inputs)
}

/// The tensor of that name, if there is one.
pub(super) fn read_tensor(file: &Checkpoint, name: &str, path: &Path) -> Result<Option<HostTensor>, RunError> {
    let Some(fact) = file.fact(name) else { return Ok(None) };
    let mut bytes = vec![0u8; fact.bytes()];
    let at = |source| RunError::Input { name: name.into(), path: path.into(), source };
    file.read(name, 0, &mut bytes).map_err(at)?;
    let host = |source| RunError::Host { name: name.into(), path: path.into(), source };
    let tensor = HostTensor::from_bytes(fact.clone(), &bytes).map_err(host)?;
    if let Some(index) = tensor.floats().and_then(|values| values.iter().position(|v| v.is_nan())) {
        return Err(RunError::NotANumber { name: name.into(), path: path.into(), index });
    }
    Ok(Some(tensor))
}

fn write_outputs(outputs: &BTreeMap<String, HostTensor>, path: &Path) -> io::Result<()> {
    let stored: Vec<(&String, Fact, Vec<u8>)> = outputs
        .iter()
        .map(|(name, tensor)| {
            let (bytes, dtype) = tensor.to_bytes();
            (name, Fact { dtype, shape: tensor.fact().shape.clone() }, bytes)
        })
        .collect();
    let named = stored.iter().map(|(name, fact, bytes)| Named { name, fact, bytes }).collect();
    let mut file = Replacement::new(path)?;
    write_safetensors(named, io::BufWriter::new(&mut file))?;
    file.persist()
}
