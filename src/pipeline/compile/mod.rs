//! The compile job: a bundle through Apple's compiler, and proof that what came out is what was asked for.
//!
//! The compiler's exit code says little: it is 0 too where the Neural Engine's half failed. So success is exit code 0,
//! exactly one bundle in a folder that was empty, and the expected regions in it. All architectures are compiled and
//! judged before any is published.
//!
//! A record has no seconds: it tells what was made and by what. Digests of the tool's output and its last lines are in
//! it, and differ from run to run where the tool prints times.

mod error;

pub use error::CompileError;

use super::{Progress, Unit};
use crate::bundle::compiled::{CompiledBundle, Expectation, Verdict};
use crate::bundle::{Outcome, Replace, Stage, Tree, commit, write_file};
use crate::provenance::{
    Artefact, Check, NotRun, RECORD_VERSION, Record, SourceFile, SourceRecord, Tool as Writer, needs_a_load,
};
use crate::toolchain::{
    Architecture, Class, Command, CoreAiBuild, CoreMlCompiler, Finding, Finished, Found, Interrupt, Limits, Platform,
    Prefer, Search, Tool, ToolRun, classify, run, version,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long each run of the tool may take where nobody waits for it.
pub(super) const COMPILE_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// What a `.aimodel` is compiled for.
#[derive(Clone, Debug)]
pub struct CoreAiTarget {
    /// Target system.
    pub platform: Platform,
    /// Architectures, each of which gives a bundle of its own.
    pub architectures: Vec<Architecture>,
    /// Preferred unit.
    pub prefer: Prefer,
    /// Regions it should have.
    pub expect: Option<Expectation>,
}

/// What to compile, and how.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// The bundle: an `.aimodel`, or an `.mlpackage`.
    pub model: PathBuf,
    /// The folder the result goes to; the model's own where there is none.
    pub out: Option<PathBuf>,
    /// For an `.aimodel`, and for nothing else.
    pub target: Option<CoreAiTarget>,
    /// How long each run of the tool may take.
    pub timeout: Duration,
    /// Replace another bundle of that name.
    pub force: bool,
}

/// One published bundle.
#[derive(Debug)]
pub struct Compiled {
    /// Where it is.
    pub path: PathBuf,
    /// `published` or `unchanged`.
    pub outcome: &'static str,
    /// The run that made it.
    pub run: Finished,
    /// Its regions; none for Core ML, whose placement shows on a device alone.
    pub regions: Option<Verdict>,
    /// Messages of the Neural Engine's compiler that the regions prove harmless.
    pub notes: Vec<Finding>,
    /// The tool's version, as it told it.
    pub version: Option<String>,
    /// Its record, as written.
    pub record: Record,
}

/// Compiles the bundle.
///
/// # Errors
/// See [`CompileError`]; nothing is published unless every architecture came out as expected.
pub fn compile(
    options: &CompileOptions,
    search: &Search,
    interrupt: &Interrupt,
    progress: &dyn Progress,
) -> Result<Vec<Compiled>, CompileError> {
    let model = Model::open(&options.model)?;
    let targets = Target::of(options, &model)?;
    let tool = search.find(model.tool()).map_err(CompileError::NotInstalled)?;
    progress.stage("hashing", 0, Unit::Bytes);
    let source = Tree::of(&model.path).map_err(CompileError::Source)?;
    let job = Job { options, version: version(&tool, interrupt), model, tool, source, interrupt };
    progress.stage("compiling", 0, Unit::Bytes);
    let made = targets.into_iter().map(|target| job.make(target)).collect::<Result<Vec<_>, _>>()?;
    if interrupt.raised() {
        return Err(CompileError::Interrupted);
    }
    job.publish(made)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    CoreAi,
    CoreMl,
}

/// A model that was found, by its real path: the tools lose bundles whose path has a link in it.
struct Model {
    path: PathBuf,
    /// The name the caller knows it by, without ending.
    stem: String,
    format: Format,
}

impl Model {
    fn open(given: &Path) -> Result<Model, CompileError> {
        let shown = || given.display().to_string();
        let path = given.canonicalize().map_err(|source| CompileError::Model { path: shown(), source })?;
        // Behind a link the real name need not have the ending.
        let named = if ending(given).is_some() { given } else { &path };
        let format = match ending(named) {
            Some("aimodel") => Format::CoreAi,
            Some("mlpackage") => Format::CoreMl,
            Some(_) | None => return Err(CompileError::Format { path: shown() }),
        };
        match (path.is_dir(), named.file_stem().and_then(|s| s.to_str())) {
            (true, Some(stem)) => Ok(Model { stem: stem.to_string(), path, format }),
            _ => Err(CompileError::Format { path: shown() }),
        }
    }

    const fn tool(&self) -> Tool {
        match self.format {
            Format::CoreAi => Tool::CoreAiBuild,
            Format::CoreMl => Tool::CoreMlCompiler,
        }
    }
}

fn ending(path: &Path) -> Option<&str> {
    path.extension().and_then(|e| e.to_str())
}

/// One bundle to make.
enum Target<'a> {
    CoreAi { platform: Platform, prefer: Prefer, architecture: &'a Architecture, expect: Option<Expectation> },
    CoreMl,
}

impl<'a> Target<'a> {
    fn of(options: &'a CompileOptions, model: &Model) -> Result<Vec<Target<'a>>, CompileError> {
        let target = match (model.format, &options.target) {
            (Format::CoreMl, None) => return Ok(vec![Target::CoreMl]),
            (Format::CoreMl, Some(_)) => return Err(CompileError::NeedlessTarget),
            (Format::CoreAi, None) => return Err(CompileError::NoTarget),
            (Format::CoreAi, Some(target)) => target,
        };
        let named = target.expect.iter().flat_map(|e| e.named.keys());
        for name in named {
            if target.architectures.iter().all(|a| a.as_str() != name) {
                return Err(CompileError::NotAsked { architecture: name.clone() });
            }
        }
        let one = |architecture: &'a Architecture| Target::CoreAi {
            platform: target.platform,
            prefer: target.prefer,
            architecture,
            expect: target.expect.as_ref().map(|e| only(e, architecture)),
        };
        Ok(target.architectures.iter().map(one).collect())
    }

    const fn ending(&self) -> &'static str {
        match self {
            Target::CoreAi { .. } => "aimodelc",
            Target::CoreMl => "mlmodelc",
        }
    }

    fn options(&self) -> Value {
        match self {
            Target::CoreAi { platform, prefer, architecture, expect } => json!({
                "platform": platform,
                "preferred_compute": prefer,
                "architecture": architecture,
                "expected_regions": expect,
            }),
            Target::CoreMl => json!({}),
        }
    }
}

/// The part of an expectation that concerns the bundle of one architecture.
fn only(expect: &Expectation, architecture: &Architecture) -> Expectation {
    let named = expect.named.iter().filter(|(name, _)| *name == architecture.as_str());
    Expectation { each: expect.each, named: named.map(|(name, count)| (name.clone(), *count)).collect() }
}

/// What every architecture shares.
struct Job<'a> {
    options: &'a CompileOptions,
    model: Model,
    tool: Found,
    version: Option<String>,
    source: Tree,
    interrupt: &'a Interrupt,
}

/// A bundle that passed and waits for the others.
struct Made<'a> {
    target: Target<'a>,
    path: PathBuf,
    /// Name without ending.
    name: String,
    tree: Tree,
    run: Finished,
    regions: Option<Verdict>,
}

impl Job<'_> {
    fn make<'t>(&self, target: Target<'t>) -> Result<(Stage, Made<'t>), CompileError> {
        let name = match &target {
            Target::CoreAi { architecture, .. } => format!("{}.{architecture}", self.model.stem),
            Target::CoreMl => self.model.stem.clone(),
        };
        let beside = || self.model.path.parent().map(Path::to_path_buf).unwrap_or_default();
        let folder = self.options.out.clone().unwrap_or_else(beside);
        // The weights are copied, and little is added to them.
        let stage = Stage::new(&folder.join(format!("{name}.{}", target.ending())), self.source.size())?;
        let workshop = stage.workshop()?;
        let run = self.run(&self.command(&target, &workshop))?;
        let made = the_bundle(&workshop, target.ending(), &run)?;
        let regions = match &target {
            Target::CoreAi { prefer, architecture, expect, .. } => {
                Some(judge(&made, *prefer, architecture, expect.as_ref(), &run)?)
            }
            Target::CoreMl => None,
        };
        let tree = Tree::of(&made).map_err(|source| CompileError::Made { source, run: Box::new(run.clone()) })?;
        stage.adopt(&made)?;
        let path = stage.destination().to_path_buf();
        Ok((stage, Made { target, path, name, tree, run, regions }))
    }

    fn command(&self, target: &Target<'_>, output: &Path) -> Command {
        let model = &self.model.path;
        match target {
            Target::CoreAi { platform, prefer, architecture, .. } => {
                CoreAiBuild { model, output, platform: *platform, prefer: *prefer, architecture }.command(&self.tool)
            }
            Target::CoreMl => CoreMlCompiler { model, output }.command(&self.tool),
        }
    }

    fn run(&self, command: &Command) -> Result<Finished, CompileError> {
        match run(self.tool.tool, command, Limits { timeout: self.options.timeout }, self.interrupt)? {
            ToolRun::Finished(run) => match classify(&run) {
                None => Ok(run),
                Some(class) => Err(CompileError::Ended { class, run: Box::new(run) }),
            },
            ToolRun::NotInstalled(missing) => Err(CompileError::NotInstalled(missing)),
            ToolRun::TimedOut { run, after } => Err(CompileError::TimedOut { after, run: Box::new(run) }),
            ToolRun::Interrupted => Err(CompileError::Interrupted),
        }
    }

    /// Publishes all bundles or none, then their records.
    fn publish(&self, made: Vec<(Stage, Made<'_>)>) -> Result<Vec<Compiled>, CompileError> {
        let (stages, made): (Vec<Stage>, Vec<Made<'_>>) = made.into_iter().unzip();
        let records = made.iter().map(|made| self.record(made)).collect::<Result<Vec<_>, _>>()?;
        let replace = if self.options.force { Replace::Force } else { Replace::Never };
        let outcomes = commit(stages.into_iter().zip(made.iter().map(|made| &made.tree)).collect(), replace)?;
        made.into_iter()
            .zip(records)
            .zip(outcomes)
            .map(|((made, record), outcome)| self.told(made, record, outcome))
            .collect()
    }

    fn told(&self, made: Made<'_>, record: Record, outcome: Outcome) -> Result<Compiled, CompileError> {
        write_file(&made.path.with_file_name(record.file_name()), &record.to_bytes()?)?;
        let outcome = match outcome {
            Outcome::Published => "published",
            Outcome::Unchanged => "unchanged",
        };
        let notes = made.run.finding(Class::NeuralEngine).cloned().into_iter().collect();
        let version = self.version.clone();
        Ok(Compiled { path: made.path, outcome, run: made.run, regions: made.regions, notes, version, record })
    }

    fn record(&self, made: &Made<'_>) -> Result<Record, CompileError> {
        let run = &made.run;
        let note = run.finding(Class::NeuralEngine).map(|f| json!({ "class": f.class, "status": f.status }));
        let stage = json!({
            "tool": self.tool.tool.name(),
            "version": self.version,
            "argv": run.argv,
            "end": run.end,
            "stdout": run.stdout.for_record(),
            "stderr": run.stderr.for_record(),
            "note": note,
            "source_digest_root": self.source.root(),
        });
        let mut checks = vec![Check { name: "compiles", figures: json!({ "bundles": 1 }) }];
        let mut not_run = needs_a_load();
        match &made.regions {
            Some(regions) => {
                checks.push(Check { name: "ane_regions", figures: serde_json::to_value(&regions.architectures)? })
            }
            None => not_run.push(NotRun { name: "ane_regions", reason: "Core ML places ops when it loads the model" }),
        }
        let ending = made.target.ending();
        Ok(Record {
            record_version: RECORD_VERSION,
            tool: Writer::this(),
            artefact: Artefact {
                name: format!("{}.{ending}", made.name),
                format: ending,
                digest_root: made.tree.root(),
                files: made.tree.files.clone(),
            },
            source: self.source_record(),
            options: made.target.options(),
            stages: serde_json::Map::from_iter([("compile".to_string(), stage)]),
            checks,
            not_run,
        })
    }

    fn source_record(&self) -> SourceRecord {
        let file = |f: &crate::bundle::FileDigest| SourceFile { name: f.path.clone(), sha256: f.sha256, bytes: f.size };
        SourceRecord { kind: "bundle", revision: None, seed: None, files: self.source.files.iter().map(file).collect() }
    }
}

/// The only bundle the tool left in the folder that was empty.
fn the_bundle(folder: &Path, wanted: &'static str, run: &Finished) -> Result<PathBuf, CompileError> {
    let io = |source| CompileError::Model { path: folder.display().to_string(), source };
    let entries = std::fs::read_dir(folder).map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?;
    let mut found: Vec<PathBuf> =
        entries.iter().map(std::fs::DirEntry::path).filter(|p| ending(p) == Some(wanted)).collect();
    found.sort();
    let name = |p: &PathBuf| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match found.as_slice() {
        // Not is_dir, which follows links.
        [only] if only.symlink_metadata().is_ok_and(|m| m.is_dir()) => Ok(only.clone()),
        [other] => Err(CompileError::NotFolder { name: name(other), run: Box::new(run.clone()) }),
        _ => {
            let found = found.iter().map(name).collect();
            Err(CompileError::Bundles { ending: wanted, found, run: Box::new(run.clone()) })
        }
    }
}

/// Holds the regions of `bundle` against what was asked for.
///
/// A message of the Neural Engine's compiler fails the bundle where nobody said how many regions there should be; where
/// the expected number is there, it is a note.
fn judge(
    bundle: &Path,
    prefer: Prefer,
    architecture: &Architecture,
    expect: Option<&Expectation>,
    run: &Finished,
) -> Result<Verdict, CompileError> {
    let boxed = || Box::new(run.clone());
    let compiled = CompiledBundle::open(bundle).map_err(|source| CompileError::Compiled { source, run: boxed() })?;
    let found = compiled.architectures.get(architecture.as_str()).map_or(0, |a| a.region_count());
    let expected = expect.and_then(|e| e.of(architecture.as_str()));
    let failed = run.finding(Class::NeuralEngine).is_some();
    match prefer {
        Prefer::NeuralEngine if found == 0 || (failed && expected != Some(found)) => {
            let architecture = architecture.to_string();
            return Err(CompileError::NeuralEngine { architecture, found, expected, run: boxed() });
        }
        Prefer::NeuralEngine | Prefer::Gpu => {}
    }
    let nothing = Expectation { each: None, named: BTreeMap::new() };
    let verdict = compiled.check(expect.unwrap_or(&nothing));
    if verdict.passed() { Ok(verdict) } else { Err(CompileError::Regions { faults: verdict.faults, run: boxed() }) }
}
