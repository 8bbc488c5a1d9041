//! The gate on a graph small enough to see through, whole and with one fault each.

use super::*;
use crate::eval::Values;
use crate::gate::{Subject, Verdict};
use crate::models::laya::host::{QuestionType, masks};
use crate::models::laya::{Encoder, LayaConfig, UNSEEN};
use crate::passes::Precision;
use crate::tensor::{DType, Fact, Memory};
use std::cell::Cell;

const LENGTH: usize = 16;
const HIDDEN: usize = 4;
const WINDOW: usize = 4;
const MARKERS: [usize; 3] = [2, 5, 10];

/// What is wrong with a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Masks or the type's vector of its own in place of those given.
    Deaf(&'static str),
    /// Logits are so much off, the first more than the others.
    Off(f32),
    /// `cls` is so much off.
    ClsOff(f32),
    /// A logit of an option is no number.
    NotFinite,
    /// A logit of a slot without an option is no number, which means nothing.
    NotFiniteBehind,
    /// Each run gives a little more.
    Wobble,
    /// An output of another shape.
    Flat,
    /// It does not run.
    Stops,
}

#[derive(Debug, thiserror::Error)]
#[error("it stopped")]
struct Stopped;

/// For each option, sums over the keys that its marker sees in either mask, and the type's vector by the marker's place.
struct Graph {
    fault: Fault,
    runs: Cell<usize>,
    inputs: Vec<(String, Fact)>,
}

impl Graph {
    fn with(fault: Fault) -> Graph {
        Graph { fault, runs: Cell::new(0), inputs: Vec::new() }
    }

    fn given(&self, inputs: &Tensors, name: &'static str) -> Vec<f32> {
        let from = if self.fault == Fault::Deaf(name) { &question_inputs(valid(), 1.0) } else { inputs };
        from[name].floats().unwrap().to_vec()
    }

    fn logits(&self, inputs: &Tensors) -> Vec<f32> {
        let input = |name| self.given(inputs, name);
        let [embeddings, full, local, types, markers] = names::INPUTS.map(input);
        let seen = |mask: &[f32], query: usize| -> f32 {
            (0..LENGTH).filter(|key| mask[key * LENGTH + query] == 0.0).map(|key| embeddings[key]).sum()
        };
        let token =
            |at: usize| 2.0 * seen(&full, at) * (at as f32 * 0.3).sin() + seen(&local, at) + types[0] * at as f32 / 4.0;
        let slot = |slot: usize| (0..LENGTH).map(|at| markers[at * SLOTS + slot] * token(at)).sum();
        (0..SLOTS).map(slot).collect()
    }
}

impl Subject for Graph {
    type Error = Stopped;

    fn inputs(&self) -> &[(String, Fact)] {
        &self.inputs
    }

    fn run(&self, inputs: &Tensors) -> Result<Tensors, Stopped> {
        if self.fault == Fault::Stops {
            return Err(Stopped);
        }
        self.runs.set(self.runs.get() + 1);
        let mut logits = self.logits(inputs);
        let mut cls = vec![logits[0], 1.0, -2.0, 0.5];
        match self.fault {
            Fault::Off(by) => logits[0] += by,
            Fault::ClsOff(by) => cls[2] += by,
            Fault::NotFinite => logits[1] = f32::INFINITY,
            Fault::NotFiniteBehind => logits[MARKERS.len()] = f32::NAN,
            Fault::Wobble => logits[0] += self.runs.get() as f32 * 1e-6,
            Fault::None | Fault::Deaf(_) | Fault::Flat | Fault::Stops => {}
        }
        let dims = if self.fault == Fault::Flat { vec![SLOTS] } else { vec![1, 1, 1, SLOTS] };
        Ok(Tensors::from([
            (names::LOGITS.to_string(), tensor(&dims, logits)),
            (names::CLS.to_string(), tensor(&[1, HIDDEN, 1, 1], cls)),
        ]))
    }
}

fn tensor(dims: &[usize], values: Vec<f32>) -> HostTensor {
    HostTensor::new(Fact::new(DType::F32, dims.to_vec()), Values::F32(values)).unwrap()
}

/// A sequence of twelve tokens.
fn valid() -> Vec<bool> {
    (0..LENGTH).map(|at| at < 12).collect()
}

fn question_inputs(valid: Vec<bool>, kind: f32) -> Tensors {
    let [full, local] = masks(&valid, WINDOW);
    let embeddings = (0..HIDDEN * LENGTH).map(|i| ((i % LENGTH) as f32 * 0.7).cos() / 2.0).collect();
    let mut markers = vec![0f32; LENGTH * SLOTS];
    MARKERS.iter().enumerate().for_each(|(slot, at)| markers[at * SLOTS + slot] = 1.0);
    let named = |name: &str, dims: [usize; 4], values| (name.to_string(), tensor(&dims, values));
    Tensors::from([
        named(names::EMBEDDINGS, [1, HIDDEN, 1, LENGTH], embeddings),
        named(names::FULL_MASK, [1, LENGTH, 1, LENGTH], full),
        named(names::LOCAL_MASK, [1, LENGTH, 1, LENGTH], local),
        named(names::TYPE_VECTORS, [1, HIDDEN, 1, 1], vec![kind; HIDDEN]),
        named(names::MARKER_MAP, [1, LENGTH, 1, SLOTS], markers),
    ])
}

fn config() -> LayaConfig {
    let whole = LayaConfig::multilingual();
    LayaConfig { encoder: Encoder { hidden: HIDDEN, window: WINDOW, ..whole.encoder }, ..whole }
}

fn head(config: &LayaConfig) -> ActionHead {
    let mut memory = Memory::default();
    let actions = config.agent.actions.len() + 1;
    for (name, dims) in [
        ("act_head.0.weight", vec![256, HIDDEN + 4]),
        ("act_head.0.bias", vec![256]),
        ("act_head.2.weight", vec![actions, 256]),
        ("act_head.2.bias", vec![actions]),
    ] {
        let count: usize = dims.iter().product();
        memory.insert_f32(name, &dims, &(0..count).map(|i| (i as f32 * 0.37).sin() / 8.0).collect::<Vec<_>>());
    }
    ActionHead::read(config, &memory).unwrap()
}

/// A question that `subject` is asked, with what a graph without fault makes of it.
fn asked<'a>(name: &str, inputs: Tensors, judge: &Judge<'_>, subject: &'a Graph) -> Asked<'a, Stopped> {
    let reference = Graph::with(Fault::None).run(&inputs).unwrap();
    let output = |name: &str| reference[name].floats().unwrap().to_vec();
    let logits = output(names::LOGITS);
    let action = judge.action.decide(&logits, &output(names::CLS), MARKERS.len()).unwrap();
    let seen = |at: usize| inputs[names::FULL_MASK].floats().unwrap()[at * LENGTH] != UNSEEN;
    Asked {
        name: name.into(),
        kind: QuestionType::Choice,
        valid: (0..LENGTH).map(seen).collect(),
        inputs,
        reference: Reference {
            logits: logits[..MARKERS.len()].to_vec(),
            cls: Some(output(names::CLS)),
            action: Some(action.logits),
        },
        layout: Some(Layout::Same),
        subject,
    }
}

/// What becomes of a graph with that fault, on questions changed by `change`.
fn gated(
    fault: Fault,
    precision: Precision,
    change: impl Fn(&mut Questions<'_, Stopped>),
) -> Result<Report, GateError<Stopped>> {
    let config = config();
    let (calibration, action) = (Calibration::new(&config.agent), head(&config));
    let judge = Judge { calibration: &calibration, action: &action, window: WINDOW };
    let subject = Graph::with(fault);
    let ask = |name: &str, kind| asked(name, question_inputs(valid(), kind), &judge, &subject);
    let mut questions = Questions { asked: vec![ask("first", 1.0), ask("second", -0.5)], skipped: Vec::new() };
    change(&mut questions);
    laya(&questions, &judge, Limits::of(precision), 2)
}

fn told(report: &Report) -> String {
    let line = |check: &Check| match &check.verdict {
        Verdict::Pass => format!("{} passed: {}", check.name, check.says),
        Verdict::Fail => format!("{} FAILED: {}", check.name, check.says),
        Verdict::NotRun { reason } => format!("{} not run: {reason}", check.name),
    };
    report.checks.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The lines of those that did not pass.
fn failed(fault: Fault, precision: Precision) -> String {
    let report = gated(fault, precision, |_| {}).unwrap();
    let lines = told(&report);
    lines.lines().filter(|line| !line.contains(" passed: ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_sound_graph_passes_every_check() {
    let report = gated(Fault::None, Precision::Fp32, |_| {}).unwrap();
    insta::assert_snapshot!(told(&report), @"
    argmax passed: the reference's option in 2 questions
    probabilities passed: calibrated shares apart by 0.00e0 at first (limit 0.0001), logits by 0.00e0, cls by 0.00e0
    action passed: shares apart by 0.00e0 at first (limit 0.0001), 2 questions
    logits passed: apart by 0.00e0 at first (limit 0.0001)
    cls passed: apart by 0.00e0 at first (limit 0.0001)
    tokens passed: the reference's tokens in 2 questions
    finite passed: the logit of every option, and all of cls
    repeats passed: 2 runs of each question gave the same bits
    red arm window passed: broke first: the same option, share apart by 7.44e-2, of an action 2.04e-3, logit by 3.88e-1
    red arm all global passed: broke first: another option, share apart by 4.74e-1, of an action 7.66e-3, logit by 2.31e0
    red arm all local passed: broke first: the same option, share apart by 1.30e-1, of an action 6.14e-3, logit by 4.61e0
    red arm padding seen passed: broke first: the same option, share apart by 1.22e-1, of an action 1.71e-2, logit by 2.87e0
    red arm no type passed: broke first: the same option, share apart by 3.57e-1, of an action 1.23e-2, logit by 2.50e0
    ");
    assert!(report.passed() && !report.left_out());
    for precision in Precision::ALL {
        let report = gated(Fault::None, precision, |_| {}).unwrap();
        let names: Vec<&str> = report.checks.iter().map(|check| check.name).collect();
        assert_eq!(names, checks(&Limits::of(precision)), "{}", precision.name());
        assert!(report.passed() && !report.left_out());
    }
    assert_eq!(gated(Fault::NotFiniteBehind, Precision::Fp32, |_| {}).unwrap().checks, report.checks);
}

#[test]
fn every_check_has_measures_that_a_record_is_held_to() {
    for precision in Precision::ALL {
        let limits = Limits::of(precision);
        for check in gated(Fault::None, precision, |_| {}).unwrap().checks {
            let held = limits.measures(check.name).unwrap();
            assert_eq!(held.len(), check.measures.len(), "{}", check.name);
            for (held, measure) in held.iter().zip(&check.measures) {
                assert_eq!((held.name, held.bound, held.limit), (measure.name, measure.bound, Some(measure.limit)));
            }
        }
    }
}

#[test]
fn each_fault_fails_its_checks() {
    insta::assert_snapshot!(failed(Fault::Off(0.3), Precision::Fp16), @"
    probabilities FAILED: calibrated shares apart by 7.25e-2 at second (limit 0.02), logits by 3.00e-1, cls by 0.00e0
    red arm window not run: the artefact fails each question it applies to without it, such as first
    red arm all global not run: the artefact fails each question it applies to without it, such as first
    red arm all local not run: the artefact fails each question it applies to without it, such as first
    red arm padding seen not run: the artefact fails each question it applies to without it, such as first
    red arm no type not run: the artefact fails each question it applies to without it, such as first
    ");
    insta::assert_snapshot!(failed(Fault::Off(9.0), Precision::Fp16), @"
    argmax FAILED: another option in 1 of 2 questions, such as first
    probabilities FAILED: calibrated shares apart by 9.14e-1 at first (limit 0.02), logits by 9.00e0, cls by 0.00e0
    red arm window not run: the artefact fails each question it applies to without it, such as first
    red arm all global not run: the artefact fails each question it applies to without it, such as first
    red arm all local not run: the artefact fails each question it applies to without it, such as first
    red arm padding seen not run: the artefact fails each question it applies to without it, such as first
    red arm no type not run: the artefact fails each question it applies to without it, such as first
    ");
    insta::assert_snapshot!(failed(Fault::Off(2e-4), Precision::Fp32), @"
    logits FAILED: apart by 2.00e-4 at first (limit 0.0001)
    red arm window not run: the artefact fails each question it applies to without it, such as first
    red arm all global not run: the artefact fails each question it applies to without it, such as first
    red arm all local not run: the artefact fails each question it applies to without it, such as first
    red arm padding seen not run: the artefact fails each question it applies to without it, such as first
    red arm no type not run: the artefact fails each question it applies to without it, such as first
    ");
    assert_eq!(failed(Fault::Off(2e-4), Precision::Fp16), "");
    insta::assert_snapshot!(failed(Fault::ClsOff(3e-4), Precision::Fp32), @"
    cls FAILED: apart by 1.50e-4 at first (limit 0.0001)
    red arm window not run: the artefact fails each question it applies to without it, such as first
    red arm all global not run: the artefact fails each question it applies to without it, such as first
    red arm all local not run: the artefact fails each question it applies to without it, such as first
    red arm padding seen not run: the artefact fails each question it applies to without it, such as first
    red arm no type not run: the artefact fails each question it applies to without it, such as first
    ");
    assert_eq!(failed(Fault::ClsOff(3e-4), Precision::Fp16), "");
    insta::assert_snapshot!(failed(Fault::NotFinite, Precision::Fp16), @"
    argmax FAILED: another option in 2 of 2 questions, such as first
    probabilities FAILED: calibrated shares apart by NaN at first (limit 0.02), logits by inf, cls by 0.00e0
    action FAILED: shares apart by NaN at first (limit 0.02), 2 questions
    finite FAILED: 2 of 2 questions have values that are not, first 1
    red arm window not run: the artefact fails each question it applies to without it, such as first
    red arm all global not run: the artefact fails each question it applies to without it, such as first
    red arm all local not run: the artefact fails each question it applies to without it, such as first
    red arm padding seen not run: the artefact fails each question it applies to without it, such as first
    red arm no type not run: the artefact fails each question it applies to without it, such as first
    ");
    insta::assert_snapshot!(failed(Fault::Wobble, Precision::Fp16), @"repeats FAILED: 2 of 2 questions gave other bits when run again, such as first");
}

#[test]
fn an_arm_that_a_graph_is_deaf_to_fails() {
    for (input, arms) in [(names::LOCAL_MASK, &[0, 1][..]), (names::FULL_MASK, &[2]), (names::TYPE_VECTORS, &[4])] {
        // The type's vector of its own is right for the first question alone.
        let one = |questions: &mut Questions<'_, Stopped>| questions.asked.truncate(1);
        let report = gated(Fault::Deaf(input), Precision::Fp16, one).unwrap();
        let toothless: Vec<&str> =
            report.checks.iter().filter(|check| check.verdict == Verdict::Fail).map(|check| check.name).collect();
        let expected: Vec<&str> = arms.iter().map(|arm| ARMS[*arm]).collect();
        assert_eq!(toothless, expected, "{input}");
    }
    let one = |questions: &mut Questions<'_, Stopped>| questions.asked.truncate(1);
    let report = gated(Fault::Deaf(names::TYPE_VECTORS), Precision::Fp16, one).unwrap();
    let check = report.checks.iter().find(|check| check.name == ARMS[4]).unwrap();
    insta::assert_snapshot!(check.says, @"did not break any of 1 question that it applies to");
}

#[test]
fn what_is_not_judged_is_not_run() {
    let none = gated(Fault::None, Precision::Fp16, |questions| {
        questions.asked.clear();
        questions.skipped.push(("long".into(), 99));
    });
    let none = none.unwrap();
    assert!(none.checks.iter().all(|check| matches!(check.verdict, Verdict::NotRun { .. })));
    insta::assert_snapshot!(told(&none).lines().last().unwrap(), @"skipped not run: 1 of 1 question longer than the artefact, such as long of 99 tokens");

    let silent = gated(Fault::None, Precision::Fp32, |questions| {
        for asked in &mut questions.asked {
            asked.reference.cls = None;
            asked.reference.action = None;
            asked.layout = None;
        }
        questions.skipped.push(("long".into(), 17));
    });
    let silent = told(&silent.unwrap());
    let left: Vec<&str> = silent.lines().filter(|line| line.contains(" not run: ")).collect();
    insta::assert_snapshot!(left.join("\n"), @"
    action not run: no golden and no question set tells the action head's logits
    cls not run: no golden has cls
    tokens not run: no question with its texts is given, by --questions
    skipped not run: 1 of 3 questions longer than the artefact, such as long of 17 tokens
    ");

    // Twelve tokens fill the graph, and a question of no type.
    let full = gated(Fault::None, Precision::Fp16, |questions| {
        questions.asked.truncate(1);
        let asked = &mut questions.asked[0];
        asked.inputs = question_inputs(vec![true; LENGTH], 0.0);
        asked.valid = vec![true; LENGTH];
        let outputs = Graph::with(Fault::None).run(&asked.inputs).unwrap();
        asked.reference.logits = outputs[names::LOGITS].floats().unwrap()[..MARKERS.len()].to_vec();
        asked.reference.action = None;
    });
    let full = told(&full.unwrap());
    let left: Vec<&str> = full.lines().filter(|line| line.contains(" not run: ")).collect();
    insta::assert_snapshot!(left.join("\n"), @"
    action not run: no golden and no question set tells the action head's logits
    red arm padding seen not run: it applies to questions shorter than the graph, and there is none
    red arm no type not run: it applies to questions of a type whose vector is not zero, and there is none
    ");
}

#[test]
fn shares_near_one_hide_logits() {
    let saturate = |some: usize| {
        move |questions: &mut Questions<'_, Stopped>| {
            for asked in questions.asked.iter_mut().take(some) {
                // One marker far above the others.
                let mut embeddings = asked.inputs[names::EMBEDDINGS].floats().unwrap().to_vec();
                embeddings.iter_mut().for_each(|v| *v *= 40.0);
                asked.inputs.insert(names::EMBEDDINGS.into(), tensor(&[1, HIDDEN, 1, LENGTH], embeddings));
                let outputs = Graph::with(Fault::None).run(&asked.inputs).unwrap();
                asked.reference.logits = outputs[names::LOGITS].floats().unwrap()[..MARKERS.len()].to_vec();
                asked.reference.action = None;
            }
        }
    };
    let says = |some| {
        let report = gated(Fault::None, Precision::Fp16, saturate(some)).unwrap();
        told(&report).lines().find(|line| line.starts_with("probabilities")).unwrap().to_string()
    };
    insta::assert_snapshot!(says(1), @"probabilities passed: calibrated shares apart by 0.00e0 at first (limit 0.02), logits by 0.00e0, cls by 2.60e1; 1 of 2 questions have a share above 0.99, which hides what happens to logits");
    insta::assert_snapshot!(says(2), @"probabilities not run: the reference's option has a share above 0.99 in 2 questions, and shares of such hide what happens to logits (apart by 0.00e0)");
}

#[test]
fn another_layout_fails() {
    let report = gated(Fault::None, Precision::Fp16, |questions| {
        questions.asked[1].layout = Some(Layout::Other { says: "another token at 3 of 12".into() });
    });
    let report = report.unwrap();
    let check = report.checks.iter().find(|check| check.name == "tokens").unwrap();
    assert_eq!(check.verdict, Verdict::Fail);
    insta::assert_snapshot!(format!("{}\n{}", check.says, check.lines.join("\n")), @"
    others than the reference's in 1 of 2 questions
    second: another token at 3 of 12
    ");
}

#[test]
fn what_cannot_be_judged() {
    let error = |fault| gated(fault, Precision::Fp16, |_| {}).unwrap_err().to_string();
    insta::assert_snapshot!(error(Fault::Flat), @"logits of the decision model for clip first is f32[32], expected floats of [1, 1, 1, 32]");
    insta::assert_snapshot!(error(Fault::Stops), @"clip first was not run");
}
