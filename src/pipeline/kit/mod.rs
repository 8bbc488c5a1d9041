//! The Mac kit: a release with all it takes to try it on the hardware, and the job that does so.
//!
//! Each bundle is compiled for the unit its recipe asks for and for the GPU, and both are run in turns, A B B A, a
//! process each time, so that a machine that grows warm slows both alike. The verdicts are those of
//! [`judge`](crate::provenance::device::judge).
//!
//! Tried against stand-ins only. By reading alone: that Apple's Python runtime, which hands over to the system's framework on
//! macOS 27, takes compiled bundles and a preferred unit as the framework's `AIModel` does; and all that
//! `runner.py` asks the system for (thermal state, model, version).
//!
//! The runtime caches what it loaded by `main.hash`, and this program cannot clear that cache: a first load is a cold
//! one only where the machine had not loaded the bundle before.

mod arm;
mod error;
pub(super) mod plan;
mod runner;

pub use error::KitError;
pub use plan::{Differences, PlanFault};
use plan::{KitPlan, Subject};
pub use runner::RunnerError;

use super::told::name_of;
use super::{Progress, Unit};
use crate::bundle::{Tree, write_file};
use crate::digest::Digest;
use crate::files;
use crate::provenance::Tool as Writer;
use crate::provenance::device::{DEVICE_VERSION, DeviceRecord, DeviceResult, Machine, Protocol, Verdicts, judge};
use crate::provenance::release::{Program, RELEASE_FILE, SUMS_FILE, Status};
use crate::toolchain::{COREAI_CORE, Interrupt, Platform, Prefer, Search, Tool, version};
use arm::{Compiler, Trial};
pub(super) use plan::KIT_FILE;
use plan::{INPUTS_FOLDER, RELEASE_FOLDER};
use runner::{Ask, Runner};
use std::io;
use std::path::{Path, PathBuf};

/// What to run, and where the record goes.
#[derive(Clone, Debug)]
pub struct KitOptions {
    /// The kit's folder.
    pub kit: PathBuf,
    /// The folder that takes the record; the kit's own where it is not said.
    pub out: Option<PathBuf>,
    /// Processes of each arm, in the place of the plan's.
    pub rounds: Option<u32>,
    /// Replace the record of an earlier run.
    pub force: bool,
}

/// A kit that was run.
#[derive(Debug)]
pub struct KitRan {
    /// The record's file.
    pub path: PathBuf,
    /// The record.
    pub record: DeviceRecord,
}

/// Runs a kit and writes the device record.
///
/// # Errors
/// The kit is not as it was made, or a tool is not here. A bundle that fails is recorded.
pub fn run_kit(
    options: &KitOptions,
    search: &Search,
    interrupt: &Interrupt,
    progress: &dyn Progress,
) -> Result<KitRan, KitError> {
    // Apple's tools lose bundles whose path has a link in it.
    let folder = options.kit.canonicalize().map_err(at(&options.kit))?;
    progress.stage("hashing", 0, Unit::Bytes);
    let plan = checked(&folder)?;
    let beside = || folder.parent().map(Path::to_path_buf).unwrap_or_default();
    let out = options.out.clone().unwrap_or_else(beside);
    std::fs::create_dir_all(&out).map_err(at(&out))?;
    let path = out.join(DeviceRecord::file_name(&plan.release));
    if path.exists() && !options.force {
        return Err(KitError::Exists { path });
    }
    let build = search.find(Tool::CoreAiBuild).map_err(KitError::NotInstalled)?;
    let runner = Runner::find(interrupt)?;
    let work = tempfile::Builder::new().prefix(".kit-").tempdir_in(&out).map_err(at(&out))?;
    let facts = runner.facts(work.path())?;
    if !facts.supported {
        return Err(KitError::NoUnits);
    }
    let protocol = Protocol { rounds: options.rounds.unwrap_or(plan.protocol.rounds), ..plan.protocol };
    let compiler = Compiler { search, interrupt, progress };
    let session = Session { folder: &folder, work: work.path(), runner, compiler, protocol };
    let results = plan.subjects.iter().map(|subject| session.result(subject)).collect::<Result<Vec<_>, _>>()?;
    let named = |name: &str, version: String| Program { name: name.into(), version };
    let compiler_version = version(&build, interrupt).unwrap_or_else(|| "unknown".into());
    let this = Writer::this();
    let record = DeviceRecord {
        device_version: DEVICE_VERSION,
        release: plan.release,
        release_sha256: plan.release_sha256,
        tool: named(this.name, this.version.into()),
        machine: Machine { model: facts.model, system: facts.system },
        programs: vec![named(build.tool.name(), compiler_version), named(COREAI_CORE.0, facts.runtime)],
        protocol,
        results,
    };
    write_file(&path, &record.to_bytes()?)?;
    Ok(KitRan { path, record })
}

/// The plan of a kit that is as it was made.
fn checked(folder: &Path) -> Result<KitPlan, KitError> {
    let read = |file: &'static str| {
        files::read(&folder.join(file), files::TEXT_MAX).map_err(|source| {
            let absent = source.kind() == io::ErrorKind::NotFound;
            let path = folder.into();
            if absent { KitError::NoKit { path, file } } else { KitError::Io { path: folder.join(file), source } }
        })
    };
    let (list, plan) = (read(SUMS_FILE)?, read(KIT_FILE)?);
    let tree = Tree::of(folder)?;
    let found = Differences::of(&String::from_utf8_lossy(&list), SUMS_FILE, &tree.files);
    if !found.none() {
        return Err(KitError::Changed { found });
    }
    let plan = KitPlan::parse(&plan)?;
    let inside = |prefix: &str| {
        let files = tree.files.iter().filter_map(move |file| Some((file.path.strip_prefix(prefix)?, file.sha256)));
        files.map(|(path, sha256)| (path.to_string(), sha256)).collect::<Vec<_>>()
    };
    let record = inside(&format!("{RELEASE_FOLDER}/{RELEASE_FILE}"));
    let found = record.first().map(|(_, sha256)| *sha256).unwrap_or(Digest::of(b""));
    if found != plan.release_sha256 {
        return Err(KitError::OtherRelease { found, expected: plan.release_sha256 });
    }
    for subject in &plan.subjects {
        let shipped = subject.shipped.iter().map(|shipped| (&shipped.name, shipped.digest_root));
        for (name, expected) in shipped.chain([(&subject.model, subject.model_root)]) {
            let files = inside(&format!("{RELEASE_FOLDER}/{name}/"));
            let found = Digest::root(files.iter().map(|(path, sha256)| (path.as_str(), *sha256)));
            if found != expected {
                return Err(KitError::OtherBytes { name: name.clone(), found, expected });
            }
        }
    }
    Ok(plan)
}

/// What trying every subject needs.
struct Session<'a> {
    /// The kit.
    folder: &'a Path,
    /// For what is made meanwhile.
    work: &'a Path,
    runner: Runner,
    compiler: Compiler<'a>,
    protocol: Protocol,
}

impl Session<'_> {
    fn result(&self, subject: &Subject) -> Result<DeviceResult, KitError> {
        let target = subject.target()?;
        let room = tempfile::tempdir_in(self.work).map_err(at(self.work))?;
        let release = self.folder.join(RELEASE_FOLDER);
        let model = release.join(&subject.model);
        let compiled = |prefer: Prefer| {
            let folder = room.path().join(prefer.name());
            Trial::compiled(&model, subject, &target, prefer, &folder, self.compiler)
        };
        let first = match &subject.shipped {
            Some(shipped) => Trial::shipped(release.join(&shipped.name), subject, target.prefer)?,
            None => compiled(target.prefer)?,
        };
        let mut trials = vec![first];
        // A phone's bundle is compiled and counted; loaded on a Mac it can wedge the GPU.
        let loads = target.platform == Platform::macOS;
        if loads && target.prefer == Prefer::NeuralEngine {
            trials.push(compiled(Prefer::Gpu)?);
        }
        if loads {
            self.rounds(subject, &mut trials)?;
        }
        let comparisons = match trials.as_slice() {
            [first, gpu] => first.compared(gpu, subject),
            _ => Vec::new(),
        };
        let (artefact, digest_root) = subject.artefact();
        let mut result = DeviceResult {
            artefact: artefact.into(),
            digest_root,
            platform: subject.platform.clone(),
            architecture: subject.architecture.clone(),
            expected_regions: subject.regions,
            cosine_limit: subject.cosine_limit,
            arms: trials.into_iter().map(|trial| trial.into_arm(subject)).collect(),
            comparisons,
            loads_on_device: Status::not_run(""),
            placed_on_ane: Status::not_run(""),
        };
        let Verdicts { loads, placed } = judge(&result);
        (result.loads_on_device, result.placed_on_ane) = (loads, placed);
        Ok(result)
    }

    /// A process for each arm and round. An arm that failed is not tried again.
    fn rounds(&self, subject: &Subject, trials: &mut [Trial]) -> Result<(), KitError> {
        let inputs = self.folder.join(INPUTS_FOLDER);
        let files = |names: &[String]| names.iter().map(|name| inputs.join(name)).collect();
        let functions: Vec<(String, Vec<PathBuf>)> =
            subject.functions.iter().map(|plan| (plan.name.clone(), files(&plan.inputs))).collect();
        self.compiler.progress.stage("running", 0, Unit::Bytes);
        for (place, arm) in (1..).zip(turns(trials.len(), self.protocol.rounds)) {
            let Some(trial) = trials.get_mut(arm) else { continue };
            let (None, Some(bundle)) = (&trial.failure, &trial.path) else { continue };
            let folder = tempfile::tempdir_in(self.work).map_err(at(self.work))?;
            let Protocol { warmups, runs, .. } = self.protocol;
            let ask = Ask { bundle, prefer: trial.prefer.name(), functions: &functions, warmups, runs };
            match self.runner.round(folder.path(), &ask) {
                Ok(answer) => {
                    let bundle = name_of(bundle);
                    trial.ran(place, answer).map_err(|source| KitError::Output { bundle, source })?;
                }
                Err(RunnerError::Interrupted) => return Err(KitError::Interrupted),
                Err(error) if error.is_the_bundles() => trial.broke(&error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Which arm each process is of: 0 1 1 0 0 1 1 0, so that what drifts slows both alike.
fn turns(arms: usize, rounds: u32) -> impl Iterator<Item = usize> {
    (0..rounds).flat_map(move |round| {
        let forth = (0..arms).collect::<Vec<_>>();
        if round % 2 == 0 { forth } else { forth.into_iter().rev().collect() }
    })
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> KitError {
    let path = path.to_path_buf();
    |source| KitError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_take_turns() {
        assert_eq!(turns(2, 4).collect::<Vec<_>>(), [0, 1, 1, 0, 0, 1, 1, 0]);
        assert_eq!(turns(1, 3).collect::<Vec<_>>(), [0, 0, 0]);
    }
}
