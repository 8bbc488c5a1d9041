//! What follows from the figures of a result.
//!
//! A bundle with all its regions can still run on the GPU, and nothing the system tells says where it ran. So placement
//! is judged by outputs: two units round differently, and outputs that have the GPU's very bits are the GPU's.

use super::{Arm, Compared, DeviceResult, FailureStage};
use crate::plural::counted;
use crate::provenance::release::{Outcome, Status};

/// The platform whose bundles are not loaded on a Mac: one of them can wedge its GPU.
pub const NOT_LOADED: &str = "iOS";

/// The unit that placement is judged by.
const NEURAL_ENGINE: &str = "neural-engine";

/// What a result's figures say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// Whether it was loaded and ran.
    pub loads: Status,
    /// Whether it ran on the Neural Engine.
    pub placed: Status,
}

/// Judges a result by its arms and comparisons.
pub fn judge(result: &DeviceResult) -> Verdicts {
    let Some(first) = result.arms.first() else {
        return Verdicts { loads: Status::not_run("it was not tried"), placed: Status::not_run("it was not tried") };
    };
    let loads = loads(result, first);
    let placed = match (loads.outcome, first.prefer.as_str()) {
        (_, prefer) if prefer != NEURAL_ENGINE => Status::not_run("it was compiled for the GPU"),
        (Outcome::Pass, _) => placed(result, first),
        (Outcome::Fail, _) => Status::not_run("it was not loaded"),
        (Outcome::NotRun, _) => loads.clone(),
    };
    Verdicts { loads, placed }
}

fn loads(result: &DeviceResult, arm: &Arm) -> Status {
    match &arm.failure {
        Some(failure) if failure.stage == FailureStage::Run => {
            Status { outcome: Outcome::Fail, reason: Some(failure.message.clone()) }
        }
        Some(failure) => Status::not_run(format!("it was not compiled: {}", failure.message)),
        None if result.platform == NOT_LOADED => Status::not_run("an iOS bundle is not loaded on a Mac"),
        None if arm.rounds.is_empty() || arm.functions.is_empty() => Status::not_run("it was not run"),
        None => Status { outcome: Outcome::Pass, reason: None },
    }
}

fn placed(result: &DeviceResult, arm: &Arm) -> Status {
    let fail = |reason: String| Status { outcome: Outcome::Fail, reason: Some(reason) };
    let found = arm.regions.unwrap_or(0);
    if found == 0 || result.expected_regions.is_some_and(|expected| expected != found) {
        let expected = result.expected_regions.map_or("at least 1".to_string(), |n| n.to_string());
        return fail(format!("it has {}, expected {expected}", counted(found, "Neural Engine region")));
    }
    let Some(gpu) = result.arms.get(1) else { return Status::not_run("there is no run on the GPU to compare with") };
    if let Some(failure) = &gpu.failure {
        return Status::not_run(format!("there is no run on the GPU to compare with: {}", failure.message));
    }
    if arm.repeatable != Some(true) || gpu.repeatable != Some(true) {
        return Status::not_run("rounds of one arm did not give the same bits, so that bits tell nothing");
    }
    // Each function is placed by itself.
    let mut functions: Vec<&str> = arm.functions.iter().map(|timed| timed.function.as_str()).collect();
    functions.dedup();
    let of = |function: &str| result.comparisons.iter().filter(|c| c.function == function).collect::<Vec<_>>();
    for function in functions {
        let compared = of(function);
        if compared.is_empty() {
            return Status::not_run(format!("outputs of {function} were not compared with the GPU's"));
        }
        if compared.iter().all(|c| c.bit_identical) {
            let same = |arm: &Arm| arm.bundle.as_ref().and_then(|bundle| bundle.main_hash);
            return match (same(arm), same(gpu)) {
                (Some(one), Some(other)) if one == other => Status::not_run(format!(
                    "outputs of {function} are bit-identical to the GPU's, but both bundles share main.hash, by which the \
                     runtime caches: they may be one bundle's"
                )),
                _ => fail(format!("outputs of {function} are bit-identical to the GPU's, so it ran there")),
            };
        }
    }
    within(&result.comparisons, result.cosine_limit, found)
}

/// Outputs of another unit, which have to be the same model's.
fn within(compared: &[Compared], limit: f64, regions: usize) -> Status {
    let Some(worst) = compared.iter().filter_map(|c| c.cosine).reduce(f64::min) else {
        return Status::not_run("outputs have other bits than the GPU's, but all are integers, which have no cosine");
    };
    if worst < limit || worst.is_nan() {
        let reason = format!("outputs are apart from the GPU's: cosine {worst}, the limit is {limit}");
        return Status { outcome: Outcome::Fail, reason: Some(reason) };
    }
    let reason = format!(
        "judged by outputs: other bits than the GPU's and cosine {worst} to them, the limit is {limit}; {}",
        counted(regions, "Neural Engine region")
    );
    Status { outcome: Outcome::Pass, reason: Some(reason) }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::provenance::device::{Failure, Loaded, Round, Spread, Thermal, Timed};

    fn arm(prefer: &str, regions: usize) -> Arm {
        let name = "m.h16c.aimodelc".to_string();
        let root = Digest::of(prefer.as_bytes());
        let round = |place| Round {
            place,
            load_seconds: 2.0,
            warm_load_seconds: 0.5,
            thermal_before: Thermal::Nominal,
            thermal_after: Thermal::Fair,
            peak_rss_bytes: Some(1 << 20),
        };
        Arm {
            prefer: prefer.into(),
            bundle: Some(Loaded { name, digest_root: root, main_hash: Some(root), shipped: false }),
            regions: Some(regions),
            failure: None,
            repeatable: Some(true),
            rounds: vec![round(1), round(4)],
            functions: vec![Timed {
                function: "main".into(),
                input: "a.safetensors".into(),
                runs: 20,
                seconds: Spread { median: 0.002, min: 0.001, max: 0.004 },
            }],
        }
    }

    /// A result that passes everything.
    pub fn sound(artefact: &str, digest_root: Digest) -> DeviceResult {
        let compared = Compared {
            function: "main".into(),
            input: "a.safetensors".into(),
            output: "y".into(),
            bit_identical: false,
            max_abs: Some(0.001),
            cosine: Some(0.9999),
        };
        let none = Status::not_run("");
        let mut result = DeviceResult {
            artefact: artefact.into(),
            digest_root,
            platform: "macOS".into(),
            architecture: "h16c".into(),
            expected_regions: Some(1),
            cosine_limit: 0.999,
            arms: vec![arm("neural-engine", 1), arm("gpu", 0)],
            comparisons: vec![compared],
            loads_on_device: none.clone(),
            placed_on_ane: none,
        };
        settle(&mut result);
        result
    }

    /// Makes a result say what follows from its figures.
    pub fn settle(result: &mut DeviceResult) {
        let Verdicts { loads, placed } = judge(result);
        (result.loads_on_device, result.placed_on_ane) = (loads, placed);
    }

    /// Both verdicts of a sound result after `change`.
    fn told(change: impl FnOnce(&mut DeviceResult)) -> String {
        let mut result = sound("m.aimodel", Digest::of(b"m"));
        change(&mut result);
        let say = |s: Status| format!("{:?} {}", s.outcome, s.reason.unwrap_or_default());
        let Verdicts { loads, placed } = judge(&result);
        format!("{} | {}", say(loads), say(placed))
    }

    fn failed(stage: FailureStage) -> Option<Failure> {
        Some(Failure { stage, message: "it fell".into() })
    }

    #[test]
    fn by_outputs() {
        insta::assert_snapshot!(told(|_| ()), @"Pass  | Pass judged by outputs: other bits than the GPU's and cosine 0.9999 to them, the limit is 0.999; 1 Neural Engine region");
        insta::assert_snapshot!(told(|r| r.comparisons[0].bit_identical = true), @"Pass  | Fail outputs of main are bit-identical to the GPU's, so it ran there");
        insta::assert_snapshot!(told(|r| {
            r.comparisons[0].bit_identical = true;
            r.arms[1].bundle = r.arms[0].bundle.clone();
        }), @"Pass  | NotRun outputs of main are bit-identical to the GPU's, but both bundles share main.hash, by which the runtime caches: they may be one bundle's");
        insta::assert_snapshot!(told(|r| r.comparisons[0].cosine = Some(0.5)), @"Pass  | Fail outputs are apart from the GPU's: cosine 0.5, the limit is 0.999");
        insta::assert_snapshot!(told(|r| r.comparisons[0].cosine = None), @"Pass  | NotRun outputs have other bits than the GPU's, but all are integers, which have no cosine");
        insta::assert_snapshot!(told(|r| r.comparisons.clear()), @"Pass  | NotRun outputs of main were not compared with the GPU's");
        // One function on the GPU is enough.
        insta::assert_snapshot!(told(|r| {
            let mut more = r.arms[0].functions[0].clone();
            more.function = "other".into();
            r.arms[0].functions.push(more);
            let mut same = r.comparisons[0].clone();
            (same.function, same.bit_identical) = ("other".into(), true);
            r.comparisons.push(same);
        }), @"Pass  | Fail outputs of other are bit-identical to the GPU's, so it ran there");
    }

    #[test]
    fn what_cannot_be_judged_is_not_run() {
        insta::assert_snapshot!(told(|r| r.arms[0].repeatable = Some(false)), @"Pass  | NotRun rounds of one arm did not give the same bits, so that bits tell nothing");
        insta::assert_snapshot!(told(|r| r.arms[1].repeatable = None), @"Pass  | NotRun rounds of one arm did not give the same bits, so that bits tell nothing");
        insta::assert_snapshot!(told(|r| r.arms[1].failure = failed(FailureStage::Run)), @"Pass  | NotRun there is no run on the GPU to compare with: it fell");
        insta::assert_snapshot!(told(|r| r.arms.truncate(1)), @"Pass  | NotRun there is no run on the GPU to compare with");
        insta::assert_snapshot!(told(|r| { r.arms.remove(0); }), @"Pass  | NotRun it was compiled for the GPU");
        insta::assert_snapshot!(told(|r| r.arms.clear()), @"NotRun it was not tried | NotRun it was not tried");
        insta::assert_snapshot!(told(|r| r.arms[0].rounds.clear()), @"NotRun it was not run | NotRun it was not run");
        insta::assert_snapshot!(told(|r| r.platform = "iOS".into()), @"NotRun an iOS bundle is not loaded on a Mac | NotRun an iOS bundle is not loaded on a Mac");
    }

    #[test]
    fn what_fails() {
        insta::assert_snapshot!(told(|r| r.arms[0].failure = failed(FailureStage::Run)), @"Fail it fell | NotRun it was not loaded");
        insta::assert_snapshot!(told(|r| r.arms[0].failure = failed(FailureStage::Compile)), @"NotRun it was not compiled: it fell | NotRun it was not compiled: it fell");
        insta::assert_snapshot!(told(|r| r.expected_regions = Some(2)), @"Pass  | Fail it has 1 Neural Engine region, expected 2");
        insta::assert_snapshot!(told(|r| (r.arms[0].regions, r.expected_regions) = (Some(0), None)), @"Pass  | Fail it has 0 Neural Engine regions, expected at least 1");
    }
}
