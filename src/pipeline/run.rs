//! Runs one function of an artefact on tensors of a file.

use crate::checkpoint::{Checkpoint, CheckpointError, Named, write_safetensors};
use crate::emit::coreai::{Bridge, BridgeError, RawTensor};
use crate::emit::mil::read::{Package, ReadError};
use crate::eval::{EvalError, Evaluator, HostError, HostTensor, InputCast, Options, Report};
use crate::ir::{Graph, Op};
use crate::tensor::{DType, Fact, SourceError, WeightSource};
use crate::toolchain::Interrupt;
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
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error("{} has no function {name}; it has {found:?}", path.display())]
    Function { path: PathBuf, name: String, found: Vec<String> },
    #[error("input {name} is {found}, {} takes {wanted}", path.display())]
    Shape { name: String, path: PathBuf, found: String, wanted: String },
    #[error("a tensor could not be handed to Apple's runtime or taken from it")]
    Exchange(#[source] io::Error),
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
    /// The function, where there are several.
    pub function: String,
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
    let package = Package::open(&options.artefact)?;
    let graph = package.lift(&options.function)?;
    let checked =
        validate::check(&graph).map_err(|found| RunError::Invalid { path: options.artefact.clone(), found })?;
    let inputs = read_inputs(&graph, &options.inputs)?;
    let (outputs, report) = Evaluator::new(checked, &package, options.evaluate).run(&inputs)?;
    write_outputs(&outputs, &options.outputs)
        .map_err(|source| RunError::Outputs { path: options.outputs.clone(), source })?;
    Ok(Ran { outputs, report })
}

/// Runs an `.aimodel` on Apple's CPU runtime and writes its outputs.
///
/// # Errors
/// The serializer is not here or dies, an input does not fit, or the outputs cannot be written.
pub fn run_aimodel(options: &RunOptions, interrupt: &Interrupt) -> Result<Ran, RunError> {
    let bridge = Bridge::find(interrupt).ok_or(BridgeError::NotInstalled)?;
    let scratch = tempfile::tempdir().map_err(RunError::Exchange)?;
    let path = || options.artefact.clone();
    let functions = bridge.read(&options.artefact, scratch.path())?;
    let function = functions.iter().find(|f| f.name == options.function).ok_or_else(|| RunError::Function {
        path: path(),
        name: options.function.clone(),
        found: functions.iter().map(|f| f.name.clone()).collect(),
    })?;
    let file = Checkpoint::open_file(&options.inputs)?;
    let (mut raw, mut report) = (BTreeMap::new(), Report::default());
    for (at, (name, wanted)) in function.inputs.iter().enumerate() {
        let stored =
            file.fact(name).ok_or_else(|| SourceError::Missing { tensor: name.clone(), place: file.place(name) });
        let at_input = |source| RunError::Input { name: name.clone(), path: options.inputs.clone(), source };
        let stored = stored.map_err(at_input)?;
        let mut bytes = vec![0u8; stored.bytes()];
        file.read(name, 0, &mut bytes).map_err(at_input)?;
        let host = |source| RunError::Host { name: name.clone(), path: options.inputs.clone(), source };
        let tensor = HostTensor::from_bytes(stored.clone(), &bytes).map_err(host)?;
        let declared = [(DType::F32, "f32"), (DType::F16, "f16"), (DType::I32, "si32")]
            .map(|(dtype, element)| (Fact { dtype, shape: stored.shape.clone() }, element))
            .into_iter()
            .find(|(fact, element)| *wanted == type_text(fact, element));
        let Some((fact, _)) = declared else {
            let (found, wanted) = (stored.to_string(), wanted.clone());
            return Err(RunError::Shape { name: name.clone(), path: path(), found, wanted });
        };
        if stored.dtype != fact.dtype {
            report.casts.push(InputCast { input: name.clone(), from: stored.dtype, to: fact.dtype });
        }
        let (bytes, dtype) = HostTensor::new(fact, tensor.values().clone()).map_err(host)?.to_bytes();
        let file = scratch.path().join(format!("input{at}"));
        fs_err::write(&file, bytes).map_err(RunError::Exchange)?;
        let shape = stored.shape.dims().to_vec();
        raw.insert(name.clone(), RawTensor { file, dtype: dtype.name().into(), shape });
    }
    let mut outputs = BTreeMap::new();
    for (name, raw) in bridge.run(&options.artefact, &options.function, &raw, scratch.path())? {
        let bytes = fs_err::read(&raw.file).map_err(RunError::Exchange)?;
        let dtype = DType::ALL.into_iter().find(|d| d.name() == raw.dtype).unwrap_or(DType::F32);
        let host = |source| RunError::Host { name: name.clone(), path: path(), source };
        let tensor = HostTensor::from_bytes(Fact::new(dtype, raw.shape), &bytes).map_err(host)?;
        outputs.insert(name, tensor);
    }
    write_outputs(&outputs, &options.outputs)
        .map_err(|source| RunError::Outputs { path: options.outputs.clone(), source })?;
    Ok(Ran { outputs, report })
}

fn type_text(fact: &Fact, element: &str) -> String {
    let dims: String = fact.shape.dims().iter().map(|d| format!("{d}x")).collect();
    format!("tensor<{dims}{element}>")
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
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    write_safetensors(named, io::BufWriter::new(&mut file))?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}
