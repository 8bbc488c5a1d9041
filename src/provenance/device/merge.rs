//! Device records into the record of their release, and out of it again.
//!
//! What a release says of devices is a function of the device records in it, so that [`before`] can take it back: that is
//! the record whose digest every device record names, however many were merged meanwhile.

use super::judge::{Verdicts, judge};
use super::{DeviceRecord, DeviceResult, FailureStage};
use crate::bundle::Format;
use crate::digest::Digest;
use crate::provenance::NEEDS_A_DEVICE;
use crate::provenance::release::{Outcome, RegionCount, Regions, ReleaseRecord, Released, Status};
use crate::provenance::texts::{README_FILE, readme};
use std::collections::BTreeMap;

/// What stands before the reason why the release itself did not count regions, once a device did.
const COUNTED: &str = "counted on a device; where it was released: ";

/// Why a device record does not belong in a release.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum MergeError {
    #[error("it is of release {found}, and this is {expected}")]
    OtherName { found: String, expected: String },
    #[error(
        "it is of a release whose record has sha256 {found}, and this one's had {expected} before anything was merged"
    )]
    OtherRelease { found: Digest, expected: Digest },
    #[error("it is merged already")]
    Twice,
    #[error("it has {architecture} of {artefact} twice")]
    ResultTwice { artefact: String, architecture: String },
    #[error("it has no result")]
    Empty,
    #[error("it tells of {artefact}, which the release has not")]
    NoArtefact { artefact: String },
    #[error("it tells of {artefact} with digest root {found}, and the release has {expected}")]
    OtherBytes { artefact: String, found: Digest, expected: Digest },
    #[error("it says {check} of {artefact} {}, and by its figures it {}", told(says), told(expected))]
    Verdict { artefact: String, check: &'static str, says: Status, expected: Status },
    #[error("the release's record could not be written as JSON")]
    Record(#[from] serde_json::Error),
}

fn told(status: &Status) -> String {
    let word = match status.outcome {
        Outcome::Pass => "passed",
        Outcome::Fail => "failed",
        Outcome::NotRun => "was not run",
    };
    status.reason.as_ref().map_or_else(|| word.to_string(), |reason| format!("{word} ({reason})"))
}

/// Takes `device` into `release`: its verdicts, regions, list of what was not run, and the digest of its README, which
/// tells of them. On an error `release` is as it was.
///
/// # Errors
/// It is of another release or of other bytes, is there already, or says what does not follow from its figures.
pub fn merge(release: &mut ReleaseRecord, device: DeviceRecord) -> Result<(), MergeError> {
    let base = before(release)?;
    belongs(&base, &device)?;
    if release.devices.contains(&device) {
        return Err(MergeError::Twice);
    }
    release.devices.push(device);
    follow(release);
    Ok(())
}

/// The record as it was before anything was merged into it.
///
/// # Errors
/// It cannot be written as JSON.
pub fn before(release: &ReleaseRecord) -> Result<ReleaseRecord, serde_json::Error> {
    let mut base = release.clone();
    if base.devices.is_empty() {
        return Ok(base);
    }
    base.devices.clear();
    follow(&mut base);
    Ok(base)
}

fn belongs(base: &ReleaseRecord, device: &DeviceRecord) -> Result<(), MergeError> {
    if device.release != base.name {
        return Err(MergeError::OtherName { found: device.release.clone(), expected: base.name.clone() });
    }
    let (found, expected) = (device.release_sha256, Digest::of(&base.to_bytes()?));
    if found != expected {
        return Err(MergeError::OtherRelease { found, expected });
    }
    if device.results.is_empty() {
        return Err(MergeError::Empty);
    }
    for (at, result) in device.results.iter().enumerate() {
        let same =
            |other: &DeviceResult| (&other.artefact, &other.architecture) == (&result.artefact, &result.architecture);
        if device.results.iter().take(at).any(same) {
            let (artefact, architecture) = (result.artefact.clone(), result.architecture.clone());
            return Err(MergeError::ResultTwice { artefact, architecture });
        }
        sound(base, result)?;
    }
    Ok(())
}

/// Holds a result against the bundle it is of, and its verdicts against its figures.
fn sound(base: &ReleaseRecord, result: &DeviceResult) -> Result<(), MergeError> {
    let artefact = || result.artefact.clone();
    let of = base.artefacts.iter().find(|bundle| bundle.name == result.artefact);
    let of = of.ok_or_else(|| MergeError::NoArtefact { artefact: artefact() })?;
    // What shipped compiled was loaded as it is.
    let shipped = result.arms.iter().filter_map(|arm| arm.bundle.as_ref()).filter(|bundle| bundle.shipped);
    for found in shipped.map(|bundle| bundle.digest_root).chain([result.digest_root]) {
        if found != of.digest_root {
            return Err(MergeError::OtherBytes { artefact: artefact(), found, expected: of.digest_root });
        }
    }
    let Verdicts { loads, placed } = judge(result);
    for (check, says, expected) in
        [("loads_on_device", &result.loads_on_device, loads), ("placed_on_ane", &result.placed_on_ane, placed)]
    {
        if *says != expected {
            return Err(MergeError::Verdict { artefact: artefact(), check, says: says.clone(), expected });
        }
    }
    Ok(())
}

/// Makes all that a release says of devices follow from its device records.
fn follow(release: &mut ReleaseRecord) {
    // Of one kind of machine the latest record counts.
    let latest: BTreeMap<&str, &DeviceRecord> =
        release.devices.iter().map(|device| (device.machine.model.as_str(), device)).collect();
    for bundle in &mut release.artefacts {
        let results: Vec<(&DeviceRecord, &DeviceResult)> = latest
            .values()
            .flat_map(|device| device.results.iter().map(|result| (*device, result)))
            .filter(|(_, result)| result.artefact == bundle.name)
            .collect();
        bundle.loads_on_device = together(&results, |result| &result.loads_on_device);
        bundle.placed_on_ane = together(&results, |result| &result.placed_on_ane);
        regions(bundle, &results);
    }
    release.not_run = release.left_out();
    let text = readme(release);
    if let Some(file) = release.files.iter_mut().find(|file| file.path == README_FILE) {
        (file.sha256, file.size) = (Digest::of(text.as_bytes()), text.len() as u64);
    }
}

/// One status of all: a failure beats a pass, and a pass beats what was not run.
fn together(results: &[(&DeviceRecord, &DeviceResult)], of: impl Fn(&DeviceResult) -> &Status) -> Status {
    let has = |outcome| results.iter().any(|(_, result)| of(result).outcome == outcome);
    let Some(outcome) = [Outcome::Fail, Outcome::Pass, Outcome::NotRun].into_iter().find(|outcome| has(*outcome))
    else {
        return Status::not_run(NEEDS_A_DEVICE);
    };
    let those = results.iter().filter(|(_, result)| of(result).outcome == outcome).map(|(device, result)| {
        let on = format!("{} on {}, {}", result.architecture, device.machine.model, device.machine.system);
        of(result).reason.as_ref().map_or_else(|| on.clone(), |reason| format!("{on}: {reason}"))
    });
    Status { outcome, reason: Some(those.collect::<Vec<_>>().join("; ")) }
}

/// Regions of a bundle that was compiled on a device; those of one that ships compiled were counted when it was.
fn regions(bundle: &mut Released, results: &[(&DeviceRecord, &DeviceResult)]) {
    if bundle.format != Format::AiModel {
        return;
    }
    let reason = bundle.regions.reason.take().unwrap_or_default();
    let reason = reason.strip_prefix(COUNTED).map(str::to_string).unwrap_or(reason);
    let first = results.iter().filter_map(|(_, result)| Some((*result, result.arms.first()?)));
    let failed = first.clone().any(|(_, arm)| arm.failure.as_ref().is_some_and(|f| f.stage == FailureStage::Regions));
    let architectures: BTreeMap<String, RegionCount> = first
        .filter_map(|(result, arm)| {
            Some((result.architecture.clone(), RegionCount { found: arm.regions?, expected: result.expected_regions }))
        })
        .collect();
    bundle.regions = match (failed, architectures.is_empty()) {
        (false, true) => Regions { outcome: Outcome::NotRun, reason: Some(reason), architectures },
        (failed, _) => {
            let outcome = if failed { Outcome::Fail } else { Outcome::Pass };
            Regions { outcome, reason: Some(format!("{COUNTED}{reason}")), architectures }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::FileDigest;
    use crate::provenance::device::judge::tests::{settle, sound};
    use crate::provenance::device::{DEVICE_VERSION, Machine, Protocol};
    use crate::provenance::release::{Gate, Origin, Program, RELEASE_VERSION, Strip};
    use serde_json::Value;

    fn program() -> Program {
        Program { name: "eg2-convert".into(), version: "0".into() }
    }

    /// A release of one `.aimodel`, as `release` leaves it.
    fn release() -> ReleaseRecord {
        let bundle = Released {
            name: "m.aimodel".into(),
            format: Format::AiModel,
            digest_root: Digest::of(b"m"),
            main_hash: None,
            bytes: 1,
            files: Vec::new(),
            compiled_from: None,
            strip: Strip { outcome: Outcome::Pass, reason: None, before: None, after: None },
            regions: Regions {
                outcome: Outcome::NotRun,
                reason: Some("coreai-build is not installed".into()),
                architectures: BTreeMap::new(),
            },
            gate: Gate::not_run("none"),
            loads_on_device: Status::not_run(NEEDS_A_DEVICE),
            placed_on_ane: Status::not_run(NEEDS_A_DEVICE),
            made: Value::Null,
        };
        let source = Origin {
            kind: "synthetic".into(),
            repository: None,
            revision: None,
            license: "Apache-2.0".into(),
            seed: Some(7),
            files: Vec::new(),
        };
        let mut record = ReleaseRecord {
            release_version: RELEASE_VERSION,
            name: "m".into(),
            synthetic: true,
            pinned: true,
            tool: program(),
            model: "reader".into(),
            recipe_sha256: Digest::of(b"recipe"),
            source,
            commands: Vec::new(),
            artefacts: vec![bundle],
            files: Vec::new(),
            not_run: Vec::new(),
            devices: Vec::new(),
        };
        record.not_run = record.left_out();
        let text = readme(&record);
        let (sha256, size) = (Digest::of(text.as_bytes()), text.len() as u64);
        record.files.push(FileDigest { path: README_FILE.into(), sha256, size });
        record
    }

    fn device(model: &str, change: impl FnOnce(&mut DeviceResult)) -> DeviceRecord {
        let base = release();
        let mut result = sound("m.aimodel", Digest::of(b"m"));
        change(&mut result);
        DeviceRecord {
            device_version: DEVICE_VERSION,
            release: "m".into(),
            release_sha256: Digest::of(&base.to_bytes().unwrap()),
            tool: program(),
            machine: Machine { model: model.into(), system: "macOS 27.0 (26A1)".into() },
            programs: Vec::new(),
            protocol: Protocol { rounds: 2, warmups: 1, runs: 10 },
            results: vec![result],
        }
    }

    fn on_the_gpu(result: &mut DeviceResult) {
        result.comparisons[0].bit_identical = true;
        settle(result);
    }

    #[test]
    fn what_is_merged_shows_everywhere_and_can_be_taken_back() {
        let mut merged = release();
        merge(&mut merged, device("Mac16,5", |_| ())).unwrap();
        let bundle = &merged.artefacts[0];
        assert_eq!((bundle.loads_on_device.outcome, bundle.placed_on_ane.outcome), (Outcome::Pass, Outcome::Pass));
        insta::assert_snapshot!(bundle.placed_on_ane.reason.as_ref().unwrap(), @"h16c on Mac16,5, macOS 27.0 (26A1): judged by outputs: other bits than the GPU's and cosine 0.9999 to them, the limit is 0.999; 1 Neural Engine region");
        insta::assert_snapshot!(bundle.regions.reason.as_ref().unwrap(), @"counted on a device; where it was released: coreai-build is not installed");
        assert_eq!(bundle.regions.architectures["h16c"], RegionCount { found: 1, expected: Some(1) });
        let left: Vec<&str> = merged.not_run.iter().map(|left| left.name.as_str()).collect();
        assert_eq!(left, ["gate"]);
        assert_eq!(merged.files[0].sha256, Digest::of(readme(&merged).as_bytes()));
        assert_ne!(merged.files, release().files);
        // As it is read back from its file.
        let read: ReleaseRecord = serde_json::from_slice(&merged.to_bytes().unwrap()).unwrap();
        assert_eq!((&read, before(&read).unwrap()), (&merged, release()));
    }

    #[test]
    fn of_several_machines_a_failure_counts_and_of_one_kind_the_latest() {
        let placed = |devices: Vec<DeviceRecord>| {
            let mut merged = release();
            devices.into_iter().for_each(|device| merge(&mut merged, device).unwrap());
            merged.artefacts[0].placed_on_ane.outcome
        };
        let (good, bad) = (|model| device(model, |_| ()), |model| device(model, on_the_gpu));
        let unknown = |model| {
            device(model, |r| {
                r.arms.truncate(1);
                settle(r);
            })
        };
        assert_eq!(placed(vec![good("a"), bad("b")]), Outcome::Fail);
        assert_eq!(placed(vec![bad("b"), good("a")]), Outcome::Fail);
        assert_eq!(placed(vec![bad("a"), good("a")]), Outcome::Pass);
        assert_eq!(placed(vec![good("a"), unknown("b")]), Outcome::Pass);
        assert_eq!(placed(vec![unknown("b")]), Outcome::NotRun);
    }

    #[test]
    fn what_does_not_belong_is_refused_and_changes_nothing() {
        let refused = |device: DeviceRecord| {
            let mut merged = release();
            let error = merge(&mut merged, device).unwrap_err();
            assert_eq!(merged, release());
            error.to_string()
        };
        let changed = |change: fn(&mut DeviceRecord)| {
            let mut device = device("a", |_| ());
            change(&mut device);
            refused(device)
        };
        insta::assert_snapshot!(changed(|d| d.release = "n".into()), @"it is of release n, and this is m");
        insta::assert_snapshot!(changed(|d| d.results.clear()), @"it has no result");
        insta::assert_snapshot!(changed(|d| d.results.push(d.results[0].clone())), @"it has h16c of m.aimodel twice");
        insta::assert_snapshot!(changed(|d| d.results[0].artefact = "n.aimodel".into()), @"it tells of n.aimodel, which the release has not");
        insta::assert_snapshot!(changed(|d| d.results[0].comparisons[0].bit_identical = true), @"it says placed_on_ane of m.aimodel passed (judged by outputs: other bits than the GPU's and cosine 0.9999 to them, the limit is 0.999; 1 Neural Engine region), and by its figures it failed (outputs of main are bit-identical to the GPU's, so it ran there)");
        assert!(changed(|d| d.release_sha256 = Digest::of(b"")).contains("before anything was merged"));
        assert!(changed(|d| d.results[0].digest_root = Digest::of(b"")).contains("with digest root"));
        assert!(changed(|d| d.results[0].arms[0].bundle.as_mut().unwrap().shipped = true).contains("with digest root"));
        let mut merged = release();
        merge(&mut merged, device("a", |_| ())).unwrap();
        insta::assert_snapshot!(merge(&mut merged, device("a", |_| ())).unwrap_err(), @"it is merged already");
    }

    #[test]
    fn regions_that_did_not_come_fail() {
        let mut merged = release();
        let failed = |r: &mut DeviceResult| {
            let message = "h16c: found 0 regions".into();
            r.arms[0].failure = Some(crate::provenance::device::Failure { stage: FailureStage::Regions, message });
            r.arms[0].regions = Some(0);
            settle(r);
        };
        merge(&mut merged, device("a", failed)).unwrap();
        let bundle = &merged.artefacts[0];
        assert_eq!((bundle.regions.outcome, bundle.loads_on_device.outcome), (Outcome::Fail, Outcome::NotRun));
        assert_eq!(before(&merged).unwrap(), release());
    }
}
