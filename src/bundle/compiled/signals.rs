//! What other files of a bundle say of its regions. A signal is compared with the count and never counted; one that
//! says nothing is `unknown`, which is no disagreement.

use super::manifest::{Manifest, ManifestError};
use serde::Serialize;

/// Where a signal comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// `mps.fullyPlacedOnANE` and `mps.noGPUActivity` of an entry function.
    PlacementFlags,
    /// The manifest's `ANERegionsHash`.
    RegionHash,
    /// A `*.llir.bundle` among the manifest's binary files.
    RegionBundle,
    /// `stats.json`.
    Statistics,
}

impl SignalKind {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            SignalKind::PlacementFlags => "placement flags",
            SignalKind::RegionHash => "region hash",
            SignalKind::RegionBundle => "region bundle",
            SignalKind::Statistics => "statistics",
        }
    }
}

/// What a signal claims.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// There are regions.
    Regions,
    /// There are none.
    NoRegions,
    /// Nothing, and why.
    Unknown(&'static str),
    /// It is there and cannot be read, which no intact bundle shows.
    Unreadable(String),
}

/// How a claim fits a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// It says the same.
    Agrees,
    /// It says otherwise, or is damaged.
    Disagrees,
    /// It says nothing.
    Unknown,
}

impl Agreement {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Agreement::Agrees => "agrees",
            Agreement::Disagrees => "DISAGREES",
            Agreement::Unknown => "unknown",
        }
    }
}

impl Says {
    pub(super) fn agreement(&self, counted: usize) -> Agreement {
        let agrees = match self {
            Says::Regions => counted > 0,
            Says::NoRegions => counted == 0,
            Says::Unreadable(_) => false,
            Says::Unknown(_) => return Agreement::Unknown,
        };
        if agrees { Agreement::Agrees } else { Agreement::Disagrees }
    }

    /// The claim for people.
    pub fn text(&self) -> &str {
        match self {
            Says::Regions => "regions",
            Says::NoRegions => "no region",
            Says::Unknown(why) => why,
            Says::Unreadable(why) => why,
        }
    }
}

/// One claim about the regions of an architecture or a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signal {
    /// Where it comes from.
    pub kind: SignalKind,
    /// The function it is about, by symbol; none if about the architecture.
    pub function: Option<String>,
    /// What stands there.
    pub found: String,
    /// What that means.
    pub says: Says,
}

/// Attributes of an entry function that is run by the Neural Engine alone.
const FLAGS: [&str; 2] = ["mps.fullyPlacedOnANE", "mps.noGPUActivity"];

/// SHA-256 of nothing: the second half of a region hash where nothing was hashed.
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// First half of the region hash of every bundle without regions seen so far (two, coreai-build 3600.67, h18p).
const NO_REGION: &str = "cb3fa77a6b0458bc550ab7c272729a68fa6d74ed03463ec907576a0dd82b027d";

/// What the manifest of one of `architecture`'s delegates says. It is `None` where there is none.
pub(super) fn of_manifest(architecture: &str, manifest: Option<&Result<Manifest, ManifestError>>) -> Vec<Signal> {
    let about = |kind, found: &str, says| Signal { kind, function: None, found: found.to_string(), says };
    let manifest = match manifest {
        None => {
            let absent = |kind| about(kind, "", Says::Unknown("there is no manifest.plist"));
            return [SignalKind::PlacementFlags, SignalKind::RegionHash].map(absent).into();
        }
        Some(Err(error)) => {
            let says = Says::Unreadable(format!("manifest.plist cannot be read: {error}"));
            return vec![about(SignalKind::PlacementFlags, "", says)];
        }
        Some(Ok(manifest)) => manifest,
    };
    let mut signals: Vec<Signal> = manifest.entries.iter().map(|(symbol, found)| flags(symbol, found)).collect();
    if signals.is_empty() {
        signals.push(about(SignalKind::PlacementFlags, "", Says::Unknown("the manifest names no entry function")));
    }
    signals.push(match manifest.region_hashes.get(architecture) {
        Some(hash) => about(SignalKind::RegionHash, hash, hash_says(hash)),
        None => about(SignalKind::RegionHash, "", Says::Unknown("the manifest has none for this architecture")),
    });
    let bundles = manifest.bundles.iter().map(|name| about(SignalKind::RegionBundle, name, Says::Regions));
    signals.extend(bundles);
    signals
}

fn flags(symbol: &str, attributes: &std::collections::BTreeSet<String>) -> Signal {
    let placed: Vec<&str> = FLAGS.into_iter().filter(|flag| attributes.contains(*flag)).collect();
    // Without them a function may still have regions, and the GPU the rest.
    let says = if placed.is_empty() { Says::Unknown("neither flag is set") } else { Says::Regions };
    let (function, found) = (Some(symbol.to_string()), placed.join(", "));
    Signal { kind: SignalKind::PlacementFlags, function, found, says }
}

fn hash_says(hash: &str) -> Says {
    let Some((first, second)) = hash.split_once('_') else { return Says::Unknown("it is not of the form A_B") };
    if !second.eq_ignore_ascii_case(NOTHING) {
        Says::Regions
    } else if first.eq_ignore_ascii_case(NO_REGION) {
        Says::NoRegions
    } else {
        // Regions that hold no weights may hash like this too.
        Says::Unknown("half of it is the hash of nothing")
    }
}

/// What `stats.json` says, given whether it is there and was read.
pub(super) fn of_stats(stats: Option<Result<(), String>>) -> Signal {
    let says = match stats {
        None => Says::Unknown("there is no stats.json"),
        Some(Ok(())) => Says::Unknown("it counts the graph before placement"),
        Some(Err(why)) => Says::Unreadable(format!("stats.json cannot be read: {why}")),
    };
    Signal { kind: SignalKind::Statistics, function: None, found: String::new(), says }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_hashes() {
        let some = "1".repeat(64);
        assert_eq!(hash_says(&format!("{some}_{some}")), Says::Regions);
        assert_eq!(hash_says(&format!("{}_{}", NO_REGION.to_uppercase(), NOTHING.to_uppercase())), Says::NoRegions);
        assert!(matches!(hash_says(&format!("{some}_{NOTHING}")), Says::Unknown(_)));
        assert!(matches!(hash_says("x"), Says::Unknown(_)));
    }

    #[test]
    fn agreement() {
        for (says, at_none, at_some) in [
            (Says::Regions, Agreement::Disagrees, Agreement::Agrees),
            (Says::NoRegions, Agreement::Agrees, Agreement::Disagrees),
            (Says::Unknown(""), Agreement::Unknown, Agreement::Unknown),
            (Says::Unreadable(String::new()), Agreement::Disagrees, Agreement::Disagrees),
        ] {
            assert_eq!([says.agreement(0), says.agreement(3)], [at_none, at_some], "{says:?}");
        }
    }
}
