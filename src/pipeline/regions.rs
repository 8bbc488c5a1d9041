//! Where an artefact will run, as far as its files or this machine can tell.

use super::told::name_of;
use crate::bundle::Format;
use crate::bundle::compiled::{
    CompiledBundle, CompiledError, ComputePlan, Expectation, Fault, PlanError, Planner, Verdict,
};
use std::path::{Path, PathBuf};

/// What this machine can be asked.
#[derive(Clone, Debug)]
pub struct Host {
    /// Core ML's compute plans; none off macOS.
    pub planner: Option<Planner>,
}

impl Host {
    /// This machine.
    pub fn this() -> Host {
        Host { planner: Planner::from_process() }
    }
}

/// What was found of an artefact's placement.
#[derive(Debug)]
pub enum Regions {
    /// A compiled bundle's regions.
    Counted {
        /// The bundle.
        bundle: Box<CompiledBundle>,
        /// What is wrong with it whatever is expected.
        faults: Vec<Fault>,
        /// Whether it has what was expected, if anything was.
        verdict: Option<Verdict>,
    },
    /// Core ML's plan of a model.
    Planned {
        /// Folder name.
        artefact: String,
        /// The plan.
        plan: ComputePlan,
        /// Why it cannot have what was expected, if it cannot.
        contradiction: Option<String>,
    },
    /// Nothing can be told here.
    NotRun {
        /// Folder name.
        artefact: String,
        /// Why not.
        reason: &'static str,
    },
}

/// Why an artefact's placement could not be looked at.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RegionsError {
    #[error(transparent)]
    Compiled(#[from] CompiledError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{} is not compiled, and regions come with compiling", path.display())]
    NotCompiled { path: PathBuf },
    #[error("{} is no folder, so it is no artefact", path.display())]
    NotFolder { path: PathBuf },
}

/// Counts the regions of a `.aimodelc`, or asks `host` for the plan of a Core ML model.
///
/// # Errors
/// The artefact is no such thing, or a tool fails.
pub fn regions(path: &Path, expectation: Option<&Expectation>, host: &Host) -> Result<Regions, RegionsError> {
    match Format::of(path) {
        Some(Format::AiModel) => Err(RegionsError::NotCompiled { path: path.to_path_buf() }),
        Some(Format::MlPackage | Format::MlModelC) => planned(path, expectation, host),
        Some(Format::AiModelC) | None => {
            let bundle = CompiledBundle::open(path)?;
            let verdict = expectation.map(|expectation| bundle.check(expectation));
            Ok(Regions::Counted { faults: bundle.faults(), bundle: bundle.into(), verdict })
        }
    }
}

fn planned(path: &Path, expectation: Option<&Expectation>, host: &Host) -> Result<Regions, RegionsError> {
    let path = path.canonicalize().map_err(|source| {
        let path = path.display().to_string();
        CompiledError::Io { path, source }
    })?;
    if !path.is_dir() {
        return Err(RegionsError::NotFolder { path });
    }
    let artefact = name_of(&path);
    let Some(planner) = &host.planner else {
        return Ok(Regions::NotRun { artefact, reason: "Core ML's compute plan needs macOS" });
    };
    let plan = planner.plan(&path)?;
    let contradiction = expectation.and_then(|expectation| plan.contradicts(expectation));
    Ok(Regions::Planned { artefact, plan, contradiction })
}
