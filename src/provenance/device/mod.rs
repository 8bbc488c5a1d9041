//! What a machine with the hardware found of a release: the record that `kit run` writes there, and that is merged into
//! the release's own.
//!
//! Whether a bundle was loaded and where it ran follows from the figures of the record ([`judge`]): whoever merges it
//! judges again, and refuses one that says otherwise. Paths, names of hosts and of people are not in it.

mod judge;
mod merge;

pub use judge::{Verdicts, judge};
pub use merge::{MergeError, before, merge};

use super::release::{Program, Status, lines};
use crate::digest::Digest;
use serde::{Deserialize, Serialize};

/// Version of the record's form.
pub const DEVICE_VERSION: u32 = 1;

/// What was found on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRecord {
    /// Always [`DEVICE_VERSION`].
    pub device_version: u32,
    /// The release.
    pub release: String,
    /// Digest of its record, as it was before anything was merged into it.
    pub release_sha256: Digest,
    /// What wrote this.
    pub tool: Program,
    /// Where.
    pub machine: Machine,
    /// The tools that were used there.
    pub programs: Vec<Program>,
    /// How it was timed.
    pub protocol: Protocol,
    /// What was found, a bundle and an architecture at a time.
    pub results: Vec<DeviceResult>,
}

/// A kind of machine and its system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// `sysctl hw.model`, such as `Mac16,5`.
    pub model: String,
    /// Version and build of its macOS.
    pub system: String,
}

/// How the bundles were timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// Processes of each arm, in turns: A B B A A B B A.
    pub rounds: u32,
    /// Calls of each function that are not timed, in each process.
    pub warmups: u32,
    /// Calls that are.
    pub runs: u32,
}

/// A bundle as compiled for one architecture, against the same on the GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceResult {
    /// The release's bundle: a compiled one that was loaded as it ships, else what was compiled there.
    pub artefact: String,
    /// Its digest root.
    pub digest_root: Digest,
    /// `macOS` or `iOS`.
    pub platform: String,
    /// Such as `h16c`.
    pub architecture: String,
    /// Regions by the recipe.
    pub expected_regions: Option<usize>,
    /// Least cosine to the GPU's outputs, the gate's limit.
    pub cosine_limit: f64,
    /// The unit that was asked for and, where that is not the GPU, the GPU.
    pub arms: Vec<Arm>,
    /// Outputs of the first arm against those of the GPU.
    pub comparisons: Vec<Compared>,
    /// Whether it was loaded and ran.
    pub loads_on_device: Status,
    /// Whether it ran on the Neural Engine.
    pub placed_on_ane: Status,
}

/// One way to run a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// `neural-engine` or `gpu`.
    pub prefer: String,
    /// What was loaded; none where it did not compile.
    pub bundle: Option<Loaded>,
    /// Its Neural Engine regions.
    pub regions: Option<usize>,
    /// Why it was not compiled, not loaded or not run to the end.
    pub failure: Option<Failure>,
    /// Whether all rounds gave the same bits; none after fewer than two.
    pub repeatable: Option<bool>,
    /// Its processes, in the order they were run in.
    pub rounds: Vec<Round>,
    /// Times of calls over all of them.
    pub functions: Vec<Timed>,
}

/// A compiled bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// Folder name.
    pub name: String,
    /// Digest root.
    pub digest_root: Digest,
    /// What `main.hash` says, by which the runtime caches.
    pub main_hash: Option<Digest>,
    /// Whether it is the release's own.
    pub shipped: bool,
}

/// What went wrong with an arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Where.
    pub stage: FailureStage,
    /// In a sentence, without paths.
    pub message: String,
}

/// Where an arm can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureStage {
    /// The compiler failed.
    Compile,
    /// It did not give the expected regions.
    Regions,
    /// The bundle was refused, or the process that ran it died.
    Run,
}

/// One process that loaded a bundle and ran it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Its place among the processes of both arms, from 1.
    pub place: u32,
    /// The first load; in an arm's first round it is a cold one, unless the machine had loaded the bundle before.
    pub load_seconds: f64,
    /// The second load of the same process.
    pub warm_load_seconds: f64,
    /// Before it loaded.
    pub thermal_before: Thermal,
    /// After the last call.
    pub thermal_after: Thermal,
    /// Most memory it held; none where the system does not tell.
    pub peak_rss_bytes: Option<u64>,
}

/// How hot a machine says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the system's")]
pub enum Thermal {
    Nominal,
    Fair,
    Serious,
    Critical,
    Unknown,
}

/// Times of one function on one file of inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Timed {
    pub function: String,
    pub input: String,
    /// Calls that were timed.
    pub runs: u32,
    pub seconds: Spread,
}

/// Times of several calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

/// One output of both arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "their names say it")]
pub struct Compared {
    pub function: String,
    pub input: String,
    pub output: String,
    pub bit_identical: bool,
    /// Largest absolute difference; none where it is not finite.
    pub max_abs: Option<f64>,
    /// Cosine of the whole output; none for integers.
    pub cosine: Option<f64>,
}

/// Why a file is no device record.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DeviceError {
    #[error("it is no device record")]
    Form(#[from] serde_json::Error),
    #[error("it is a device record of version {found}, expected {DEVICE_VERSION}")]
    Version { found: u64 },
}

impl Spread {
    /// Of `seconds`, rounded to a microsecond; none where there are none.
    pub fn of(seconds: &[f64]) -> Option<Spread> {
        let mut sorted = seconds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(Spread { median: micros(f64::midpoint(lower, upper)), min: micros(min), max: micros(max) })
    }
}

/// Seconds to a microsecond: what is below that is noise, and so few digits are read back as they were written.
pub fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

impl DeviceRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// It is none, or of another version.
    pub fn parse(bytes: &[u8]) -> Result<DeviceRecord, DeviceError> {
        let value = crate::json::read(bytes)?;
        // First, so that another version's fields are not told of as unknown.
        match value.get("device_version").and_then(serde_json::Value::as_u64) {
            Some(found) if found != u64::from(DEVICE_VERSION) => Err(DeviceError::Version { found }),
            Some(_) | None => Ok(serde_json::from_value(value)?),
        }
    }

    /// The record's bytes: indented JSON, ended by a newline.
    ///
    /// # Errors
    /// A number is not finite.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        lines(&serde_json::to_value(self)?)
    }

    /// What the file for a release is called.
    pub fn file_name(release: &str) -> String {
        format!("{release}.device.json")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[2.0, 1.0, 4.0]), Some(Spread { median: 2.0, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of(&[0.1, 0.200_000_4]).map(|s| s.median), Some(0.15));
    }

    #[test]
    fn what_is_no_record() {
        let told = |text: &str| {
            let error = DeviceRecord::parse(text.as_bytes()).unwrap_err();
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            format!("{error}{cause}")
        };
        insta::assert_snapshot!(told("{"), @"it is no device record: EOF while parsing an object at line 1 column 1");
        insta::assert_snapshot!(told("{}"), @"it is no device record: missing field `device_version`");
        insta::assert_snapshot!(told(r#"{"device_version": 2}"#), @"it is a device record of version 2, expected 1");
        insta::assert_snapshot!(told(r#"{"device_version": 1, "more": 1}"#), @"it is no device record: unknown field `more`, expected one of `device_version`, `release`, `release_sha256`, `tool`, `machine`, `programs`, `protocol`, `results`");
    }
}
