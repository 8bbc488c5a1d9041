//! The record of a release: one JSON that ties what was made to what it was made of, to the bytes that were judged, and
//! to what was not checked.
//!
//! It is read back as strictly as it was written, because [`verify`](crate::pipeline::verify) holds every part of it
//! against the others.

use super::device::DeviceRecord;
use super::intoto;
use crate::bundle::{FileDigest, Format};
use crate::digest::Digest;
use crate::gate::{self, Bound, SOURCE_CHECK};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Version of the record's form.
pub const RELEASE_VERSION: u32 = 1;

/// The record's file.
pub const RELEASE_FILE: &str = "release.json";
/// The record as other tools read it.
pub const STATEMENT_FILE: &str = "release.intoto.json";
/// Digests of all files but itself, as `sha256sum` writes them.
pub const SUMS_FILE: &str = "SHA256SUMS";
/// The recipe, as it was.
pub const RECIPE_FILE: &str = "recipe.toml";

/// One release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRecord {
    /// Always [`RELEASE_VERSION`].
    pub release_version: u32,
    /// What it is called.
    pub name: String,
    /// Whether the weights are random, so that this is no release of a model.
    pub synthetic: bool,
    /// Whether the recipe has the digest of every source file.
    pub pinned: bool,
    /// What made it.
    pub tool: Program,
    /// `encoder` or `reader`.
    pub model: String,
    /// Digest of the recipe.
    pub recipe_sha256: Digest,
    /// What it was made of.
    pub source: Origin,
    /// What was run, in order; each is also a command of one's own.
    pub commands: Vec<CommandLine>,
    /// The bundles, each after the one it was compiled from.
    pub artefacts: Vec<Released>,
    /// Every file that is in no bundle, this record, its statement and the list of digests apart.
    pub files: Vec<FileDigest>,
    /// All that was not run, of every bundle. Never to be read as a pass.
    pub not_run: Vec<Left>,
    /// What machines with the hardware found since.
    pub devices: Vec<DeviceRecord>,
}

/// A program and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Program {
    pub name: String,
    pub version: String,
}

/// Where weights came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// `checkpoint` or `synthetic`.
    pub kind: String,
    /// The repository, by the recipe.
    pub repository: Option<String>,
    /// Its revision, by the recipe.
    pub revision: Option<String>,
    /// SPDX identifier of its licence.
    pub license: String,
    /// Seed of weights that are in no file.
    pub seed: Option<u64>,
    /// Every file that was read.
    pub files: Vec<OriginFile>,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginFile {
    /// Its name, without its folder.
    pub name: String,
    /// Digest of its content.
    pub sha256: Digest,
    /// Its size.
    pub bytes: u64,
    /// Whether the recipe has this digest.
    pub pinned: bool,
}

/// A command that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandLine {
    /// `author`, `strip`, `compile` or `gate`.
    pub stage: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The program's version.
    pub version: Option<String>,
}

/// A bundle of the release.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Released {
    /// Folder name.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Digest of the sorted lines `sha256  path` of its files: what was judged, and what ships.
    pub digest_root: Digest,
    /// What `main.hash` says, by which runtimes cache; two bundles may share it.
    pub main_hash: Option<Digest>,
    /// Bytes of all its files.
    pub bytes: u64,
    /// The files.
    pub files: Vec<FileDigest>,
    /// The bundle it was compiled from; none where it was authored.
    pub compiled_from: Option<Parent>,
    /// Its debug locations.
    pub strip: Strip,
    /// Its regions.
    pub regions: Regions,
    /// What the gate found.
    pub gate: Gate,
    /// Whether a device loaded it.
    pub loads_on_device: Status,
    /// Whether it ran on the Neural Engine, judged by outputs against those of the GPU.
    pub placed_on_ane: Status,
    /// How it was made: options, stages and checks of its own record.
    pub made: Value,
}

/// The bundle another was compiled from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Parent {
    pub name: String,
    pub digest_root: Digest,
}

/// What became of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "their names say it")]
pub enum Outcome {
    Pass,
    Fail,
    NotRun,
}

/// What became of a check, and why it was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Status {
    pub outcome: Outcome,
    pub reason: Option<String>,
}

/// The bundle before and after its debug locations were taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Strip {
    pub outcome: Outcome,
    pub reason: Option<String>,
    /// Digest root as it was made.
    pub before: Option<Digest>,
    /// Digest root as it ships.
    pub after: Option<Digest>,
}

/// Neural Engine regions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Regions {
    pub outcome: Outcome,
    pub reason: Option<String>,
    pub architectures: BTreeMap<String, RegionCount>,
}

/// Regions of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionCount {
    /// Counted.
    pub found: usize,
    /// By the recipe; none where it says nothing.
    pub expected: Option<usize>,
}

/// What a gate found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Fail where a check failed, not run where none was, else pass.
    pub outcome: Outcome,
    /// Why it was not run.
    pub reason: Option<String>,
    /// What was judged, and how.
    pub judged: Option<Judged>,
}

/// A gate that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// Digest root of the bytes that were judged.
    pub digest_root: Digest,
    /// `reference` or `coreai`.
    pub runtime: String,
    /// The numbers whose limits were taken.
    pub precision: String,
    /// Every limit.
    pub limits: Value,
    /// The body that was run behind it, where it is the front of an encoder.
    pub body: Option<Parent>,
    /// The other artefact of a pair.
    pub together: Option<Parent>,
    /// The files it was judged by.
    pub evidence: Vec<Evidence>,
    /// The checks.
    pub checks: Vec<GateCheck>,
}

/// A file that an artefact was judged by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Evidence {
    pub kind: String,
    pub name: String,
    pub sha256: Digest,
}

/// One check of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateCheck {
    /// What was checked.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Why it was not run.
    pub reason: Option<String>,
    /// The figures in a sentence.
    pub says: String,
    /// Each number with its limit: the check passed where all of them hold.
    pub measures: Vec<Measure>,
}

/// A number that was judged, and by what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What was measured.
    pub name: String,
    /// The number; none where it was not finite.
    pub number: Option<f64>,
    /// Which side of the limit it has to be on.
    pub bound: Bound,
    /// The limit.
    pub limit: f64,
}

/// Something that was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Left {
    pub artefact: String,
    pub name: String,
    pub reason: String,
}

impl Status {
    /// Not run, for that reason.
    pub fn not_run(reason: impl Into<String>) -> Status {
        Status { outcome: Outcome::NotRun, reason: Some(reason.into()) }
    }
}

impl Gate {
    /// A gate that was not run, for that reason.
    pub fn not_run(reason: impl Into<String>) -> Gate {
        Gate { outcome: Outcome::NotRun, reason: Some(reason.into()), judged: None }
    }

    /// What follows from the checks. That the evidence is of the artefact's weights judges no artefact.
    pub fn outcome_of(checks: &[GateCheck]) -> Outcome {
        if checks.iter().any(|check| check.outcome == Outcome::Fail) {
            Outcome::Fail
        } else if checks.iter().any(|check| check.outcome == Outcome::Pass && check.name != SOURCE_CHECK) {
            Outcome::Pass
        } else {
            Outcome::NotRun
        }
    }
}

impl Measure {
    /// Whether the number keeps to its limit.
    pub fn holds(&self) -> bool {
        self.number.is_some_and(|number| self.bound.holds(number, self.limit))
    }
}

impl From<&gate::Measure> for Measure {
    fn from(measure: &gate::Measure) -> Measure {
        let gate::Measure { name, number, bound, limit } = *measure;
        Measure { name: name.into(), number: Some(number).filter(|n| n.is_finite()), bound, limit }
    }
}

impl From<&gate::Check> for GateCheck {
    fn from(check: &gate::Check) -> GateCheck {
        let (outcome, reason) = match &check.verdict {
            gate::Verdict::Pass => (Outcome::Pass, None),
            gate::Verdict::Fail => (Outcome::Fail, None),
            gate::Verdict::NotRun { reason } => (Outcome::NotRun, Some(reason.clone())),
        };
        let measures = check.measures.iter().map(Measure::from).collect();
        GateCheck { name: check.name.into(), outcome, reason, says: check.says.clone(), measures }
    }
}

impl GateCheck {
    /// What follows from the measures; one that was not run has none.
    pub fn outcome_of(measures: &[Measure]) -> Outcome {
        match measures {
            [] => Outcome::NotRun,
            measures if measures.iter().all(Measure::holds) => Outcome::Pass,
            _ => Outcome::Fail,
        }
    }
}

impl Released {
    /// All of it that was not run.
    pub fn left_out(&self) -> Vec<Left> {
        let own = [
            ("strip", self.strip.outcome, &self.strip.reason),
            ("ane_regions", self.regions.outcome, &self.regions.reason),
            ("gate", self.gate.outcome, &self.gate.reason),
            ("loads_on_device", self.loads_on_device.outcome, &self.loads_on_device.reason),
            ("placed_on_ane", self.placed_on_ane.outcome, &self.placed_on_ane.reason),
        ];
        let checks = self.gate.judged.iter().flat_map(|judged| &judged.checks);
        let checks = checks.map(|check| (format!("gate.{}", check.name), check.outcome, &check.reason));
        let all = own.into_iter().map(|(name, outcome, reason)| (name.to_string(), outcome, reason)).chain(checks);
        all.filter(|(_, outcome, _)| *outcome == Outcome::NotRun)
            .map(|(name, _, reason)| Left {
                artefact: self.name.clone(),
                name,
                reason: reason.clone().unwrap_or_default(),
            })
            .collect()
    }
}

impl ReleaseRecord {
    /// All that was not run, of every bundle.
    pub fn left_out(&self) -> Vec<Left> {
        self.artefacts.iter().flat_map(Released::left_out).collect()
    }

    /// The record's bytes: indented JSON, ended by a newline.
    ///
    /// # Errors
    /// A stage's report has a key that is not a string.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        lines(&serde_json::to_value(self)?)
    }

    /// The bytes of the statement that tools of the in-toto kind read.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    pub fn statement(&self) -> Result<Vec<u8>, serde_json::Error> {
        lines(&intoto::statement(self)?)
    }
}

pub(super) fn lines(value: &Value) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}
