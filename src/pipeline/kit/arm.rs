//! One way to run a bundle: what it is compiled to, and what its rounds gave.

use super::error::KitError;
use super::plan::{Subject, Target};
use super::runner::{RanFunction, RoundAnswer};
use crate::bundle::Tree;
use crate::bundle::compiled::{CompiledBundle, Expectation};
use crate::digest::Digest;
use crate::eval::{HostTensor, Values, compare};
use crate::pipeline::compile::COMPILE_LIMIT;
use crate::pipeline::{CompileError, CompileOptions, CoreAiTarget, Progress, compile};
use crate::provenance::device::{Arm, Compared, Failure, FailureStage, Loaded, Round, Spread, Timed, micros};
use crate::tensor::{DType, Fact};
use crate::toolchain::{Interrupt, Prefer, Search, without_paths};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What compiling needs.
#[derive(Clone, Copy)]
pub struct Compiler<'a> {
    pub search: &'a Search,
    pub interrupt: &'a Interrupt,
    pub progress: &'a dyn Progress,
}

/// A function, the place of an input among its files, and an output.
type OutputKey = (String, usize, String);

/// An arm while it is tried.
pub struct Trial {
    /// Its unit.
    pub prefer: Prefer,
    /// Where the compiled bundle is.
    pub path: Option<PathBuf>,
    loaded: Option<Loaded>,
    regions: Option<usize>,
    /// What ended it.
    pub failure: Option<Failure>,
    rounds: Vec<Round>,
    /// Of the first round.
    outputs: BTreeMap<OutputKey, HostTensor>,
    /// Of each round.
    digests: Vec<BTreeMap<OutputKey, Digest>>,
    seconds: BTreeMap<(String, usize), Vec<f64>>,
}

impl Trial {
    fn new(prefer: Prefer) -> Trial {
        Trial {
            prefer,
            path: None,
            loaded: None,
            regions: None,
            failure: None,
            rounds: Vec::new(),
            outputs: BTreeMap::new(),
            digests: Vec::new(),
            seconds: BTreeMap::new(),
        }
    }

    /// The release's own bundle.
    pub fn shipped(path: PathBuf, subject: &Subject, prefer: Prefer) -> Result<Trial, KitError> {
        let (name, digest_root) = subject.artefact();
        let compiled = CompiledBundle::open(&path).map_err(|source| KitError::Shipped { name: name.into(), source })?;
        let mut trial = Trial::new(prefer);
        trial.take(&compiled, &subject.architecture, digest_root, true);
        Ok(trial)
    }

    /// `model` compiled into `folder`. A bundle that does not compile is a failed trial.
    ///
    /// # Errors
    /// There is no compiler, no space, or the user asked to stop.
    pub fn compiled(
        model: &Path,
        subject: &Subject,
        target: &Target,
        prefer: Prefer,
        folder: &Path,
        compiler: Compiler<'_>,
    ) -> Result<Trial, KitError> {
        let expect = match prefer {
            Prefer::NeuralEngine => subject.regions.map(Expectation::each),
            Prefer::Gpu if target.prefer == Prefer::Gpu => subject.regions.map(Expectation::each),
            // What is compared with has to be the GPU's alone.
            Prefer::Gpu => Some(Expectation::each(0)),
        };
        let options = CompileOptions {
            model: model.into(),
            out: Some(folder.into()),
            target: Some(CoreAiTarget {
                platform: target.platform,
                architectures: vec![target.architecture.clone()],
                prefer,
                expect,
            }),
            timeout: COMPILE_LIMIT,
            force: false,
        };
        let mut trial = Trial::new(prefer);
        match compile(&options, compiler.search, compiler.interrupt, compiler.progress) {
            Ok(made) => {
                for bundle in &made {
                    let name = bundle.record.artefact.name.clone();
                    let compiled =
                        CompiledBundle::open(&bundle.path).map_err(|source| KitError::Shipped { name, source })?;
                    let root = Tree::of(&bundle.path)?.root();
                    trial.take(&compiled, &subject.architecture, root, false);
                }
            }
            Err(error) => trial.fails(error)?,
        }
        Ok(trial)
    }

    fn take(&mut self, compiled: &CompiledBundle, architecture: &str, digest_root: Digest, shipped: bool) {
        let main_hash = compiled.hash.declared();
        self.loaded = Some(Loaded { name: compiled.name.clone(), digest_root, main_hash, shipped });
        self.regions = Some(compiled.architectures.get(architecture).map_or(0, |found| found.region_count()));
        self.path = Some(compiled.path.clone());
    }

    /// Notes why it did not compile, where that is the bundle's to answer for.
    fn fails(&mut self, error: CompileError) -> Result<(), KitError> {
        if let CompileError::NeuralEngine { found, .. } = &error {
            self.regions = Some(*found);
        }
        let regions = matches!(error, CompileError::NeuralEngine { .. } | CompileError::Regions { .. });
        let stage = match error.run() {
            Some(_) if regions => FailureStage::Regions,
            Some(_) => FailureStage::Compile,
            None if matches!(error, CompileError::Interrupted) => return Err(KitError::Interrupted),
            // The compiler was not run, or what it made has no place: nothing of the bundle's.
            None => return Err(error.into()),
        };
        tracing::warn!("{error}");
        self.failure = Some(failure(stage, &error));
        Ok(())
    }

    /// Notes that a process failed.
    pub fn broke(&mut self, error: &dyn std::error::Error) {
        tracing::warn!("{error}");
        self.failure = Some(failure(FailureStage::Run, error));
    }

    /// Takes what a process did.
    ///
    /// # Errors
    /// An output cannot be read.
    pub fn ran(&mut self, place: u32, answer: RoundAnswer) -> io::Result<()> {
        self.rounds.push(Round {
            place,
            load_seconds: micros(answer.load_seconds),
            warm_load_seconds: micros(answer.warm_load_seconds),
            thermal_before: answer.thermal_before,
            thermal_after: answer.thermal_after,
            peak_rss_bytes: answer.peak_rss_bytes,
        });
        let mut digests = BTreeMap::new();
        for RanFunction { function, input, seconds, outputs } in answer.functions {
            for (name, raw) in outputs {
                let bytes = std::fs::read(&raw.file)?;
                let key = (function.clone(), input, name);
                let fact = format!("{} {:?} ", raw.dtype, raw.shape);
                digests.insert(key.clone(), Digest::of(&[fact.as_bytes(), &bytes].concat()));
                if self.digests.is_empty() {
                    let unknown = || io::Error::new(io::ErrorKind::InvalidData, format!("{fact}is no tensor of ours"));
                    let dtype = DType::parse(&raw.dtype).ok_or_else(unknown)?;
                    let tensor =
                        HostTensor::from_bytes(Fact::new(dtype, raw.shape), &bytes).map_err(io::Error::other)?;
                    self.outputs.insert(key, tensor);
                }
            }
            self.seconds.entry((function, input)).or_default().extend(seconds);
        }
        self.digests.push(digests);
        Ok(())
    }

    /// Each output against the GPU's.
    pub fn compared(&self, gpu: &Trial, subject: &Subject) -> Vec<Compared> {
        let (Some(ours), Some(theirs)) = (self.digests.first(), gpu.digests.first()) else { return Vec::new() };
        let one = |(key, tensor): (&OutputKey, &HostTensor)| {
            let (function, input, output) = key.clone();
            let (max_abs, cosine) = gpu.outputs.get(key).map_or((None, Some(0.0)), |other| apart(tensor, other));
            let bit_identical = ours.get(key).is_some_and(|digest| theirs.get(key) == Some(digest));
            Compared { input: input_name(subject, &function, input), function, output, bit_identical, max_abs, cosine }
        };
        self.outputs.iter().map(one).collect()
    }

    /// The arm as it is recorded.
    pub fn into_arm(self, subject: &Subject) -> Arm {
        let repeatable = match self.digests.split_first() {
            Some((first, rest)) if !rest.is_empty() => Some(rest.iter().all(|round| round == first)),
            Some(_) | None => None,
        };
        let timed = self.seconds.iter().filter_map(|((function, input), seconds)| {
            Some(Timed {
                function: function.clone(),
                input: input_name(subject, function, *input),
                runs: u32::try_from(seconds.len()).unwrap_or(u32::MAX),
                seconds: Spread::of(seconds)?,
            })
        });
        Arm {
            prefer: self.prefer.name().into(),
            functions: timed.collect(),
            bundle: self.loaded,
            regions: self.regions,
            failure: self.failure,
            repeatable,
            rounds: self.rounds,
        }
    }
}

fn input_name(subject: &Subject, function: &str, input: usize) -> String {
    let plan = subject.functions.iter().find(|plan| plan.name == function);
    plan.and_then(|plan| plan.inputs.get(input)).cloned().unwrap_or_default()
}

/// Largest difference and cosine, with no more digits than are told and read back.
fn apart(found: &HostTensor, gpu: &HostTensor) -> (Option<f64>, Option<f64>) {
    let short = |number: f64| format!("{number:.6e}").parse::<f64>().ok().filter(|number| number.is_finite());
    match (found.floats(), gpu.floats()) {
        (Some(a), Some(b)) => match compare(a, b, a.len()) {
            Ok(found) => (short(found.max_abs), Some((found.cosine_mean * 1e9).round() / 1e9)),
            Err(_) => (None, Some(0.0)),
        },
        _ => (short(integers_apart(found.values(), gpu.values())), None),
    }
}

/// Largest difference of integers; infinite where they are no integers, or not as many.
fn integers_apart(found: &Values, gpu: &Values) -> f64 {
    match (found, gpu) {
        (Values::I32(a), Values::I32(b)) if a.len() == b.len() => {
            let most = a.iter().zip(b).map(|(x, y)| x.abs_diff(*y)).max();
            most.map_or(0.0, f64::from)
        }
        (Values::I32(_) | Values::F32(_), _) => f64::INFINITY,
    }
}

/// The first line of what went wrong: the rest is a tool's, and was logged.
fn failure(stage: FailureStage, error: &dyn std::error::Error) -> Failure {
    let text = error.to_string();
    Failure { stage, message: without_paths(text.lines().next().unwrap_or_default()) }
}
