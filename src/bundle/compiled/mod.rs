//! Compiled Core AI bundles (`.aimodelc`), judged by the files in them.
//!
//! The compiler exits 0 when its Neural Engine half failed, so the evidence is the bundle: one folder per region,
//! named `<function>_ANE_region_<i>_<j>.bc`, inside a `*.llir.bundle` of an architecture's delegates. What is counted
//! is [`Region`]s; what the manifest says of them is compared ([`Signal`]) and never counted.
//!
//! Invariant: one walk, no link followed, nothing loaded or run. A count is necessary and not sufficient: a bundle
//! with its regions can still be refused by the device, or run on the GPU.

mod expect;
mod identity;
mod manifest;
mod read;
mod regions;
mod signals;
mod stats;
mod walk;

pub use expect::{Expectation, ExpectationError, Fault, Found, Verdict};
pub use identity::{Announcement, HashCheck, Identity, shared_hash};
pub use read::{CompiledError, Violation};
pub use regions::{Region, short_stem};
pub use signals::{Agreement, Says, Signal, SignalKind};
pub use stats::Stats;

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A compiled bundle as its files show it.
#[derive(Clone, Debug, Serialize)]
pub struct CompiledBundle {
    /// Folder name.
    pub name: String,
    /// Where it is, free of links.
    #[serde(skip)]
    pub path: PathBuf,
    /// Whether it was named by a link. The runtime fails to load a bundle through one.
    pub linked: bool,
    /// Files in it.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// What it holds for each architecture.
    pub architectures: BTreeMap<String, Architecture>,
    /// Whether `main.hash` is the digest of a stub.
    pub hash: HashCheck,
    /// Entries of `metadata.json`.
    pub metadata: BTreeMap<String, String>,
    /// What `stats.json` counts; none where there is no such file, or a damaged one, which is a signal.
    pub stats: Option<Stats>,
    /// Faults that let the count stand but not the bundle.
    pub violations: Vec<Violation>,
}

/// What a bundle holds for one architecture, such as `h18p`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Architecture {
    /// Regions of each function, by the function's symbol; a function known from the manifest alone has none.
    pub functions: BTreeMap<String, Vec<Region>>,
    /// Names of the delegates, such as `MPSGraph`.
    pub delegates: Vec<String>,
    /// Every `preferredDevice=...` in the stub: what was asked for, not what was got.
    pub preferred_devices: Vec<String>,
    /// What other files say of the regions.
    pub signals: Vec<Signal>,
}

impl Architecture {
    /// Regions of all functions.
    pub fn region_count(&self) -> usize {
        self.functions.values().map(Vec::len).sum()
    }

    /// Bytes of the regions' code.
    pub fn ir_bytes(&self) -> u64 {
        self.functions.values().flatten().map(|region| region.ir_bytes).sum()
    }

    /// Regions of what `signal`, one of this architecture's, is about.
    pub fn counted(&self, signal: &Signal) -> usize {
        match &signal.function {
            Some(function) => self.functions.get(function).map_or(0, Vec::len),
            None => self.region_count(),
        }
    }

    /// How `signal`, one of this architecture's, fits the count.
    pub fn agreement(&self, signal: &Signal) -> Agreement {
        signal.says.agreement(self.counted(signal))
    }
}

impl CompiledBundle {
    /// Regions of all architectures and functions.
    pub fn region_count(&self) -> usize {
        self.architectures.values().map(Architecture::region_count).sum()
    }
}

#[cfg(test)]
mod tests;
