//! An artefact that is open to be run, by the runtime that its format has.

use super::{RunError, Runtime, coreai, reference};
use crate::bundle::Format;
use crate::eval::{HostTensor, Options, Report};
use crate::ir::Graph;
use crate::tensor::{Fact, WeightSource};
use crate::toolchain::Interrupt;
use std::collections::BTreeMap;
use std::path::Path;

/// Outputs by name, and what was seen on the way.
pub type Outcome = (BTreeMap<String, HostTensor>, Report);

/// What runs a function.
pub trait Run {
    /// Runs it on `inputs`, cast where they have to be.
    ///
    /// # Errors
    /// The inputs do not fit, or the runtime failed.
    fn run(&self, inputs: &BTreeMap<String, HostTensor>) -> Result<Outcome, RunError>;
}

/// A function that can be run, any number of times.
pub struct Callable<'a> {
    /// Its name.
    pub name: String,
    /// Name and fact of each input, as declared.
    pub inputs: Vec<(String, Fact)>,
    /// The same of each output.
    pub outputs: Vec<(String, Fact)>,
    /// What runs it; another thread may be the one that asks.
    pub run: Box<dyn Run + Send + Sync + 'a>,
}

/// An open artefact, or graphs that would be one.
pub enum Artefact {
    /// By this program's evaluator.
    Reference(Box<reference::Opened>),
    /// By Apple's runtime.
    CoreAi(Box<coreai::Opened>),
}

/// Which functions are opened.
#[derive(Clone, Copy, Debug)]
pub enum Functions<'a> {
    /// The one of that name, or the one that runs when none is named.
    One(Option<&'a str>),
    /// Each.
    All,
}

impl Artefact {
    /// Opens the bundle at `path` with `runtime`.
    ///
    /// # Errors
    /// The bundle cannot be used, or the runtime is not here.
    pub fn open(
        path: &Path,
        runtime: Runtime,
        functions: Functions<'_>,
        interrupt: &Interrupt,
    ) -> Result<Artefact, RunError> {
        Ok(match (runtime, functions) {
            (Runtime::Reference, Functions::One(named)) => {
                Artefact::Reference(reference::Opened::one(path, named)?.into())
            }
            (Runtime::Reference, Functions::All) => Artefact::Reference(reference::Opened::all(path)?.into()),
            (Runtime::CoreAi, Functions::One(named)) => {
                Artefact::CoreAi(coreai::Opened::one(path, named, interrupt)?.into())
            }
            (Runtime::CoreAi, Functions::All) => Artefact::CoreAi(coreai::Opened::all(path, interrupt)?.into()),
        })
    }

    /// Graphs authored from the weights at `path`, to be evaluated as they are.
    pub fn authored(path: &Path, source: Box<dyn WeightSource + Send>, graphs: Vec<Graph>) -> Artefact {
        Artefact::Reference(reference::Opened::authored(path, source, graphs).into())
    }

    /// What whoever made the bundle says of it under `key`.
    pub fn metadata(&self, key: &str) -> Option<String> {
        match self {
            Artefact::Reference(opened) => opened.metadata.get(key).cloned(),
            Artefact::CoreAi(opened) => opened.model.custom(key),
        }
    }

    /// Its functions; `options` are for the evaluator.
    ///
    /// # Errors
    /// A function breaks a rule, or takes what cannot be handed over.
    pub fn functions(&self, options: Options) -> Result<Vec<Callable<'_>>, RunError> {
        match self {
            Artefact::Reference(opened) => opened.functions(options),
            Artefact::CoreAi(opened) => opened.functions(),
        }
    }
}

/// The runtime of the bundle at `path`: what its format has, which is the one `asked` for, if any.
///
/// # Errors
/// There is nothing, no bundle or a compiled one, or the runtime asked for is another.
pub fn runtime_of(path: &Path, asked: Option<Runtime>) -> Result<Runtime, RunError> {
    if path.try_exists().is_ok_and(|there| !there) {
        return Err(RunError::Absent { path: path.into() });
    }
    let own = match Format::of(path).filter(|_| path.is_dir()) {
        Some(Format::MlPackage) => Runtime::Reference,
        Some(Format::AiModel) => Runtime::CoreAi,
        Some(Format::MlModelC | Format::AiModelC) | None => return Err(RunError::NotRunnable { path: path.into() }),
    };
    match asked {
        Some(runtime) if runtime != own => Err(RunError::Runtime { runtime, path: path.into() }),
        Some(_) | None => Ok(own),
    }
}
