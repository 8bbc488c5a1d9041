//! Runs one function of an artefact on tensors of a file.

use crate::checkpoint::{Checkpoint, CheckpointError, Named, write_safetensors};
use crate::emit::mil::read::{Package, ReadError};
use crate::eval::{EvalError, Evaluator, HostError, HostTensor, Options, Report};
use crate::files::Replacement;
use crate::ir::{Graph, Op};
use crate::tensor::{Fact, SourceError, WeightSource};
use crate::validate::{self, Violation};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Why an artefact was not run.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage")]
pub enum RunError {
    #[error(transparent)]
    Package(#[from] ReadError),
    #[error("{} breaks {} rules: {}", path.display(), found.len(), found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid { path: PathBuf, found: Vec<Violation> },
    #[error("the inputs cannot be used")]
    Inputs(#[from] CheckpointError),
    #[error("input {name} cannot be read from {}", path.display())]
    Input { name: String, path: PathBuf, source: SourceError },
    #[error("input {name} of {} cannot be used", path.display())]
    Host { name: String, path: PathBuf, source: HostError },
    #[error(transparent)]
    Eval(#[from] EvalError),
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
    /// How it is evaluated.
    pub evaluate: Options,
}

/// What a run gave.
#[derive(Debug)]
pub struct Ran {
    /// Each output, by name.
    pub outputs: BTreeMap<String, HostTensor>,
    /// What the evaluator saw.
    pub report: Report,
}

/// Evaluates the artefact and writes its outputs.
///
/// # Errors
/// The artefact or an input cannot be used, or the outputs cannot be written; then no file is left behind.
pub fn run(options: &RunOptions) -> Result<Ran, RunError> {
    keep_what_is_read(options)?;
    let package = Package::open(&options.artefact)?;
    let graph = package.lift(options.function.as_deref().unwrap_or(package.default_function()))?;
    let checked =
        validate::check(&graph).map_err(|found| RunError::Invalid { path: options.artefact.clone(), found })?;
    let inputs = read_inputs(&graph, &options.inputs)?;
    let (outputs, report) = Evaluator::new(checked, &package, options.evaluate).run(&inputs)?;
    write_outputs(&outputs, &options.outputs)
        .map_err(|source| RunError::Outputs { path: options.outputs.clone(), source })?;
    Ok(Ran { outputs, report })
}

/// Refuses outputs that would take the place of an input or of a part of the artefact.
fn keep_what_is_read(options: &RunOptions) -> Result<(), RunError> {
    let real = |path: &Path| path.canonicalize().ok();
    let Some(outputs) = real(&options.outputs) else { return Ok(()) };
    let read = real(&options.inputs).is_some_and(|inputs| inputs == outputs)
        || real(&options.artefact).is_some_and(|artefact| outputs.starts_with(artefact));
    if read { Err(RunError::Overwrites { path: options.outputs.clone() }) } else { Ok(()) }
}

/// The tensors of `path` that the graph has an input for.
fn read_inputs(graph: &Graph, path: &Path) -> Result<BTreeMap<String, HostTensor>, RunError> {
    let file = Checkpoint::open_file(path)?;
    let mut inputs = BTreeMap::new();
    for value in graph.inputs() {
        let Op::Input(name) = &graph.node(*value).op else { continue };
        // Absent ones are left to the evaluator, which lists what the graph takes.
        let Some(fact) = file.fact(name) else { continue };
        let mut bytes = vec![0u8; fact.bytes()];
        let at = |source| RunError::Input { name: name.clone(), path: path.into(), source };
        file.read(name, 0, &mut bytes).map_err(at)?;
        let tensor = HostTensor::from_bytes(fact.clone(), &bytes).map_err(|source| RunError::Host {
            name: name.clone(),
            path: path.into(),
            source,
        })?;
        inputs.insert(name.clone(), tensor);
    }
    Ok(inputs)
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
