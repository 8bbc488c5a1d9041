//! Both gates on subjects small enough to see through, whole and with one fault each.

use super::*;
use crate::eval::Values;
use crate::passes::Precision;
use crate::tensor::DType;
use std::cell::Cell;

const BINS: usize = 2;
const WIDTH: usize = 4;
const BUCKET: usize = 24;

fn tensor(dims: &[usize], values: Vec<f32>) -> HostTensor {
    HostTensor::new(Fact::new(DType::F32, dims.to_vec()), Values::F32(values)).unwrap()
}

fn integers(dims: &[usize], values: Vec<i32>) -> HostTensor {
    HostTensor::new(Fact::new(DType::I32, dims.to_vec()), Values::I32(values)).unwrap()
}

fn floats<'t>(tensors: &'t Tensors, name: &str) -> &'t [f32] {
    tensors[name].floats().unwrap()
}

#[derive(Debug, thiserror::Error)]
#[error("it stopped")]
struct Stopped;

/// What is wrong with a subject.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Its own mask in place of the one given.
    DullMask,
    /// Zeros in place of the padding given.
    DullPadding,
    /// Each run gives a little more.
    Wobble,
    /// A value that is no number.
    NotFinite,
    /// One token points the other way.
    Negated(usize),
    /// Whatever goes in, the reference comes out.
    Fixed,
    /// Another label.
    Flip(usize),
    /// A blank where there is a word.
    Blank(usize),
    /// It does not run.
    Stops,
}

/// Two convolutions of stride 2 and width 3, as the encoder's subsampling: half rows are sums of three frames, tokens
/// have three half rows side by side, and a bias.
struct Encoder {
    inputs: Vec<(String, Fact)>,
    fault: Fault,
    runs: Cell<usize>,
}

impl Encoder {
    fn with(fault: Fault) -> Encoder {
        let fact = |dims: &[usize]| Fact::new(DType::F32, dims.to_vec());
        let inputs =
            vec![("features".to_string(), fact(&[1, BUCKET, BINS])), ("half_mask".to_string(), fact(&[1, BUCKET / 2]))];
        Encoder { inputs, fault, runs: Cell::new(0) }
    }

    fn tokens(&self, features: &[f32], mask: &[f32]) -> Vec<f32> {
        let mut features = features.to_vec();
        if self.fault == Fault::DullPadding {
            features.iter_mut().filter(|v| (**v + 6.9078).abs() < 1e-3).for_each(|v| *v = 0.0);
        }
        let frame = |at: Option<usize>| match at {
            Some(at) if at < BUCKET => features[at * BINS] + 0.5 * features[at * BINS + 1],
            _ => 0.0,
        };
        let around = |at: usize, of: &dyn Fn(Option<usize>) -> f32| {
            [of((2 * at).checked_sub(1)), of(Some(2 * at)), of(Some(2 * at + 1))]
        };
        let seen = |at: usize| around(at, &frame).iter().sum::<f32>();
        let mask: Vec<f32> = if self.fault == Fault::DullMask {
            (0..BUCKET / 2).map(|h| f32::from(u8::from(frame(Some(2 * h)) != 0.0))).collect()
        } else {
            mask.to_vec()
        };
        let half = |at: Option<usize>| at.filter(|at| *at < BUCKET / 2).map_or(0.0, |at| seen(at) * mask[at]);
        (0..BUCKET / 4).flat_map(|token| [around(token, &half).as_slice(), &[2.0]].concat()).collect()
    }
}

impl Subject for Encoder {
    type Error = Stopped;

    fn inputs(&self) -> &[(String, Fact)] {
        &self.inputs
    }

    fn run(&self, inputs: &Tensors) -> Result<Tensors, Stopped> {
        if self.fault == Fault::Stops {
            return Err(Stopped);
        }
        self.runs.set(self.runs.get() + 1);
        let mask = floats(inputs, "half_mask");
        let mut tokens = self.tokens(floats(inputs, "features"), mask);
        if self.fault == Fault::Wobble {
            tokens[0] += self.runs.get() as f32 * 1e-6;
        }
        if self.fault == Fault::NotFinite {
            tokens[1] = f32::INFINITY;
        }
        if let Fault::Negated(token) = self.fault {
            tokens[token * WIDTH..][..WIDTH].iter_mut().for_each(|v| *v = -*v);
        }
        Ok(Tensors::from([("soft_tokens".into(), tensor(&[1, BUCKET / 4, WIDTH], tokens))]))
    }
}

/// A clip of so many frames, with the tokens of a subject without fault.
fn clip(frames: usize) -> Golden {
    let features: Vec<f32> =
        (0..BUCKET * BINS).map(|i| if i < frames * BINS { -3.0 + (i as f32 * 0.7).sin() } else { 0.0 }).collect();
    let mask: Vec<f32> = (0..BUCKET / 2).map(|h| f32::from(u8::from(2 * h < frames))).collect();
    let tokens = Encoder::with(Fault::None).tokens(&features, &mask);
    let tensors = [
        ("features", tensor(&[1, BUCKET, BINS], features)),
        ("half_mask", tensor(&[1, BUCKET / 2], mask)),
        ("soft_tokens", tensor(&[1, BUCKET / 4, WIDTH], tokens)),
        ("n_tokens", integers(&[1], vec![frames.div_ceil(4) as i32])),
    ];
    Golden { name: format!("f{frames}"), tensors: tensors.map(|(name, t)| (name.to_string(), t)).into() }
}

fn options<'a>(precision: Precision) -> Options<'a> {
    Options {
        limits: Limits::of(precision),
        repeats: 2,
        rows: Some(WORDS),
        words: None,
        transcripts: None,
        truth: None,
    }
}

fn gated(fault: Fault, frames: &[usize], precision: Precision) -> Report {
    let (subject, goldens) = (Encoder::with(fault), frames.iter().map(|n| clip(*n)).collect::<Vec<_>>());
    let cases: Vec<Case<'_, Stopped>> =
        goldens.iter().map(|golden| Case { golden, subject: &subject, reader: None }).collect();
    encoder(&cases, &options(precision)).unwrap()
}

fn failed(report: &Report) -> Vec<&str> {
    report.checks.iter().filter(|c| c.verdict == Verdict::Fail).map(|c| c.name).collect()
}

/// The checks as people read them.
fn told(report: &Report) -> String {
    let line = |c: &Check| match &c.verdict {
        Verdict::Pass => format!("{} passed: {}\n", c.name, c.says),
        Verdict::Fail => format!("{} FAILED: {} {:?}\n", c.name, c.says, c.lines),
        Verdict::NotRun { reason } => format!("{} not run: {reason}\n", c.name),
    };
    report.checks.iter().map(line).collect()
}

const CLASSES: [usize; 4] = [13, 14, 15, 16];

#[test]
fn a_whole_encoder_passes() {
    for precision in Precision::ALL {
        let report = gated(Fault::None, &CLASSES, precision);
        assert!(report.passed() && report.left_out());
    }
    insta::assert_snapshot!(told(&gated(Fault::None, &CLASSES, Precision::Fp32)), @"
    cosine passed: mean 1.0000000 in the worst clip (limit 0.999), min 1.0000000 at f13 token 2 (limit 0.99999), 16 tokens
    finite passed: every output at every valid token
    repeats passed: 2 runs of each clip gave the same bits
    red arm half_mask passed: broke 1 of 1 clips it applies to, least f14: last token at 0.96720 to the reference, without the arm 1.00000
    red arm padding passed: broke 2 of 2 clips it applies to, least f13: last token at 0.94436 to the reference, without the arm 1.00000
    transcripts not run: needs a reader, by --reader
    wer not run: needs a reader, by --reader
    ");
    for shortest in [1, 2, 3] {
        assert!(gated(Fault::None, &[shortest], Precision::Fp32).passed(), "{shortest}");
    }
}

#[test]
fn each_fault_of_an_encoder_fails_its_check() {
    for (fault, check) in [
        (Fault::DullMask, "red arm half_mask"),
        (Fault::DullPadding, "red arm padding"),
        (Fault::Wobble, "repeats"),
        (Fault::Negated(1), "cosine"),
    ] {
        let report = gated(fault, &CLASSES, Precision::Fp32);
        assert_eq!(failed(&report), [check], "{fault:?}");
        assert!(!report.passed());
    }
    assert_eq!(failed(&gated(Fault::NotFinite, &CLASSES, Precision::Fp16)), ["cosine", "finite"]);
    // One dull clip of several is enough.
    insta::assert_snapshot!(told(&gated(Fault::DullMask, &CLASSES, Precision::Fp16)), @r#"
    cosine passed: mean 1.0000000 in the worst clip (limit 0.999), min 1.0000000 at f13 token 2 (not judged), 16 tokens
    finite passed: every output at every valid token
    repeats passed: 2 runs of each clip gave the same bits
    red arm half_mask FAILED: did not break 1 of 1 clips it applies to, such as f14 ["f14: last token at 1.00000 to the reference, without the arm 1.00000"]
    red arm padding passed: broke 2 of 2 clips it applies to, least f15: last token at 0.93574 to the reference, without the arm 1.00000
    transcripts not run: needs a reader, by --reader
    wer not run: needs a reader, by --reader
    "#);
}

/// What each check that was run is judged by, with a mark where it does not hold.
fn measured(report: &Report) -> String {
    let sign = |bound| if bound == Bound::AtLeast { ">=" } else { "<=" };
    let one = |m: &Measure| {
        let fails = if m.holds() { "" } else { " FAILS" };
        format!(" {} {} {} {}{fails}", m.name, (m.number * 1e5).round() / 1e5, sign(m.bound), m.limit)
    };
    let line = |c: &Check| format!("{}:{}\n", c.name, c.measures.iter().map(one).collect::<Vec<_>>().join(","));
    report.checks.iter().filter(|c| !matches!(c.verdict, Verdict::NotRun { .. })).map(line).collect()
}

#[test]
fn every_check_of_an_encoder_has_its_measures() {
    insta::assert_snapshot!(measured(&gated(Fault::None, &CLASSES, Precision::Fp16)), @"
    cosine: least_mean 1 >= 0.999
    finite: not_finite 0 <= 0
    repeats: unlike 0 <= 0
    red arm half_mask: held 0 <= 0, broke 1 >= 1
    red arm padding: held 0 <= 0, broke 2 >= 1
    ");
    insta::assert_snapshot!(measured(&gated(Fault::DullMask, &CLASSES, Precision::Fp32)), @"
    cosine: least_mean 1 >= 0.999, min 1 >= 0.99999
    finite: not_finite 0 <= 0
    repeats: unlike 0 <= 0
    red arm half_mask: held 1 <= 0 FAILS, broke 0 >= 1 FAILS
    red arm padding: held 0 <= 0, broke 2 >= 1
    ");
    insta::assert_snapshot!(measured(&gated(Fault::NotFinite, &CLASSES, Precision::Fp32)), @"
    cosine: least_mean 0.75 >= 0.999 FAILS, min 0 >= 0.99999 FAILS
    finite: not_finite 4 <= 0 FAILS
    repeats: unlike 0 <= 0
    red arm half_mask: held 0 <= 0, broke 1 >= 1
    red arm padding: held 0 <= 0, broke 2 >= 1
    ");
    insta::assert_snapshot!(measured(&gated(Fault::Wobble, &CLASSES, Precision::Fp16)), @"
    cosine: least_mean 1 >= 0.999
    finite: not_finite 0 <= 0
    repeats: unlike 4 <= 0 FAILS
    red arm half_mask: held 0 <= 0, broke 1 >= 1
    red arm padding: held 0 <= 0, broke 2 >= 1
    ");
    let not_run = &gated(Fault::None, &[16], Precision::Fp32).checks[3];
    assert_eq!((&not_run.measures, not_run.verdict == Verdict::Pass), (&Vec::new(), false));
    assert_eq!(Check::run("empty", [], String::new(), serde_json::Value::Null).verdict, Verdict::Fail);
}

#[test]
fn a_check_as_json() {
    let json = |check: &Check| serde_json::to_string_pretty(check).unwrap();
    insta::assert_snapshot!(json(&gated(Fault::NotFinite, &[16], Precision::Fp16).checks[1]), @r#"
    {
      "name": "finite",
      "verdict": {
        "outcome": "fail"
      },
      "measures": [
        {
          "name": "not_finite",
          "number": 1.0,
          "bound": "at_most",
          "limit": 0.0
        }
      ],
      "says": "1 of 1 clips have values that are not, f16 1",
      "figures": {
        "clips": 1,
        "not_finite": [
          "f16"
        ]
      }
    }
    "#);
    insta::assert_snapshot!(json(&gated(Fault::None, &[16], Precision::Fp16).checks[3]), @r#"
    {
      "name": "red arm half_mask",
      "verdict": {
        "outcome": "not_run",
        "reason": "it applies to clips of n % 4 == 2 frames, and no clip is one"
      },
      "measures": [],
      "says": "",
      "figures": null
    }
    "#);
}

#[test]
fn an_arm_without_a_clip_is_not_run() {
    let report = gated(Fault::DullMask, &[16], Precision::Fp32);
    assert!(report.passed());
    insta::assert_snapshot!(told(&report), @"
    cosine passed: mean 1.0000000 in the worst clip (limit 0.999), min 1.0000000 at f16 token 2 (limit 0.99999), 4 tokens
    finite passed: every output at every valid token
    repeats passed: 2 runs of each clip gave the same bits
    red arm half_mask not run: it applies to clips of n % 4 == 2 frames, and no clip is one
    red arm padding not run: it applies to clips of an odd number of frames, and no clip is one
    transcripts not run: needs a reader, by --reader
    wer not run: needs a reader, by --reader
    ");
}

/// A token that is off without the arm shows nothing, unless the arm leaves it where it is.
#[test]
fn an_arm_on_a_token_that_is_off() {
    use super::red_arm::{Outcome, Token};
    let limits = Limits::of(Precision::Fp16);
    for (green, red, own, expected) in [
        (1.0, 0.85, 0.85, Outcome::Broke),
        (1.0 - 1e-12, 0.99993, 0.99993, Outcome::Broke),
        (1.0, 0.999991, 0.99999, Outcome::Held),
        (0.99999, 0.99993, 0.99993, Outcome::Broke),
        // The artefact's own error is as large as what the arm does.
        (0.9999, 0.99985, 0.9999, Outcome::Unclear),
        (0.97, 0.85, 0.9, Outcome::Broke),
        (0.97, 0.95, 0.96, Outcome::Unclear),
        (0.97, 0.97, 1.0, Outcome::Held),
        (0.5, 0.4, 0.3, Outcome::Unclear),
        (0.999, 0.0, 0.0, Outcome::Broke),
    ] {
        assert_eq!(Token { token: 0, green, red, own }.outcome(&limits), expected, "{green} {red} {own}");
    }
}

#[test]
fn arms_that_cannot_be_told_are_no_pass() {
    use super::red_arm::{Arm, Outcome, check};
    let arm = |outcome| Arm { outcome, says: "so far".into(), strength: 0.5, ..Arm::not_applicable("arm") };
    let told = |outcomes: &[Outcome]| {
        let arms: Vec<Arm> = outcomes.iter().map(|outcome| arm(*outcome)).collect();
        let check = check("arm", "odd clips", &arms.iter().map(|arm| ("clip", arm)).collect::<Vec<_>>());
        format!("{:?} {}", check.verdict, check.says)
    };
    use Outcome::{Broke, Held, NotApplicable, Unclear};
    insta::assert_snapshot!(told(&[NotApplicable]), @r#"NotRun { reason: "it applies to odd clips, and no clip is one" } "#);
    insta::assert_snapshot!(told(&[NotApplicable, Unclear]), @r#"NotRun { reason: "the artefact's own error hides what it does to each clip it applies to, such as clip" } "#);
    insta::assert_snapshot!(told(&[Broke, Unclear]), @"Pass broke 1 of 2 clips it applies to, least clip: so far; the artefact's own error hides it in 1, such as clip");
    insta::assert_snapshot!(told(&[Broke, Held]), @"Fail did not break 1 of 2 clips it applies to, such as clip");
    insta::assert_snapshot!(told(&[Held, NotApplicable]), @"Fail did not break 1 of 1 clips it applies to, such as clip");
}

fn refused(change: impl FnOnce(&mut Golden)) -> String {
    let mut golden = clip(14);
    change(&mut golden);
    let subject = Encoder::with(Fault::None);
    let case = Case { golden: &golden, subject: &subject, reader: None };
    let error = encoder(&[case], &options(Precision::Fp32)).unwrap_err();
    assert_eq!(subject.runs.get(), 0, "refused before anything is run");
    Error::source(&error).unwrap().to_string()
}

fn edit(golden: &mut Golden, name: &str, change: impl FnOnce(&mut Vec<f32>)) {
    let old = &golden.tensors[name];
    let mut values = old.floats().unwrap().to_vec();
    change(&mut values);
    let new = tensor(old.fact().shape.dims(), values);
    golden.tensors.insert(name.into(), new);
}

#[test]
fn goldens_that_break_the_encoders_contract() {
    insta::assert_snapshot!(refused(|g| edit(g, "features", |v| v[15 * BINS] = -6.9)), @"features are not all zero in row 15, past the 14 frames that half_mask has at most; padding is 0, not silence");
    insta::assert_snapshot!(refused(|g| edit(g, "features", |v| v[12 * BINS..].fill(0.0))), @"features end after 12 frames, and half_mask has 7 valid columns, which is 13 or 14 frames");
    insta::assert_snapshot!(refused(|g| edit(g, "features", |v| v[3] = f32::NAN)), @"features has a value that is not finite at element 3");
    insta::assert_snapshot!(refused(|g| edit(g, "half_mask", |v| v[9] = 1.0)), @"half_mask is 1 at 9, expected ones and then zeros");
    insta::assert_snapshot!(refused(|g| edit(g, "half_mask", |v| v[0] = 0.5)), @"half_mask is 0.5 at 0, expected ones and then zeros");
    insta::assert_snapshot!(refused(|g| edit(g, "half_mask", |v| v.fill(0.0))), @"no token is valid");
    insta::assert_snapshot!(refused(|g| drop(g.tensors.remove("soft_tokens"))), @"there is no tensor soft_tokens");
    insta::assert_snapshot!(refused(|g| drop(g.tensors.insert("n_tokens".into(), integers(&[1], vec![5])))), @"n_tokens is 5, and half_mask has 7 valid columns, which is 4 tokens");
    insta::assert_snapshot!(refused(|g| drop(g.tensors.insert("half_mask".into(), tensor(&[1, 3], vec![1.0; 3])))), @"half_mask is f32[1,3], expected [1, 12] for 24 frames");
    insta::assert_snapshot!(refused(|g| drop(g.tensors.insert("soft_tokens".into(), tensor(&[1, 3, 1], vec![1.0; 3])))), @"soft_tokens is f32[1,3,1], expected 4 to 6 tokens");
    insta::assert_snapshot!(refused(|g| drop(g.tensors.insert("features".into(), tensor(&[24, 2], vec![1.0; 48])))), @"features is f32[24,2], expected [1, frames, bins]");
}

#[test]
fn what_is_no_encoder() {
    let golden = clip(14);
    let error = |subject: &dyn Subject<Error = Stopped>| {
        let case = Case { golden: &golden, subject, reader: None };
        encoder(&[case], &options(Precision::Fp32)).unwrap_err()
    };
    insta::assert_snapshot!(error(&Encoder::with(Fault::Stops)), @"clip f14 was not run");
    insta::assert_snapshot!(error(&Reader::with(Fault::Fixed, 24)), @"soft_tokens of the encoder for clip f14 is absent, expected floats of [1, 6, 4]");
    for report in [encoder::<Stopped>(&[], &options(Precision::Fp32)), reader(&[], &options(Precision::Fp32))] {
        let report = report.unwrap();
        assert!(report.checks.len() > 4 && report.checks.iter().all(|c| matches!(c.verdict, Verdict::NotRun { .. })));
    }
}

const WORDS: usize = 50;

/// Reads each token by itself: what it points to is its word, how long it is the word's logit.
struct Reader {
    inputs: Vec<(String, Fact)>,
    fault: Fault,
    length: usize,
}

impl Reader {
    fn with(fault: Fault, length: usize) -> Reader {
        let fact = |dims: &[usize]| Fact::new(DType::F32, dims.to_vec());
        let inputs = vec![
            ("soft_tokens".to_string(), fact(&[1, length, WIDTH])),
            ("token_mask".to_string(), fact(&[1, length])),
        ];
        Reader { inputs, fault, length }
    }

    fn read(&self, soft: &[f32]) -> Tensors {
        let row = |token: &[f32]| ((token[0] * 7.0).abs() as i32 % WORDS as i32, token[1], 0.1 - token[2]);
        let rows: Vec<_> = soft.chunks(WIDTH).map(row).collect();
        let dims = [1, self.length];
        Tensors::from([
            ("top1_index".into(), integers(&dims, rows.iter().map(|r| r.0).collect())),
            ("top1_logit".into(), tensor(&dims, rows.iter().map(|r| r.1).collect())),
            ("blank_logit".into(), tensor(&dims, rows.iter().map(|r| r.2).collect())),
        ])
    }
}

impl Subject for Reader {
    type Error = Stopped;

    fn inputs(&self) -> &[(String, Fact)] {
        &self.inputs
    }

    fn run(&self, inputs: &Tensors) -> Result<Tensors, Stopped> {
        let fixed = soft(self.length);
        let given = if self.fault == Fault::Fixed { &fixed } else { floats(inputs, "soft_tokens") };
        let mut outputs = self.read(given);
        let flipped = if let Fault::Flip(token) = self.fault {
            Some((token, "top1_index"))
        } else if let Fault::Blank(token) = self.fault {
            Some((token, "blank_logit"))
        } else {
            (self.fault == Fault::NotFinite).then_some((0, "top1_logit"))
        };
        if let Some((token, name)) = flipped {
            let dims = [1, self.length];
            let new = match outputs[name].values().clone() {
                Values::I32(mut v) => {
                    v[token] = WORDS as i32 - 1 - v[token];
                    integers(&dims, v)
                }
                Values::F32(mut v) => {
                    v[token] = if name == "top1_logit" { f32::NAN } else { 9.0 };
                    tensor(&dims, v)
                }
            };
            outputs.insert(name.into(), new);
        }
        Ok(outputs)
    }
}

fn soft(length: usize) -> Vec<f32> {
    (0..length * WIDTH).map(|i| 1.5 + (i as f32 * 0.9).sin()).collect()
}

/// A clip of so many tokens; the margin is narrow at token 1 and wide elsewhere.
fn spoken(valid: usize, length: usize) -> Golden {
    spoken_by(soft(length), valid, length)
}

fn spoken_by(soft: Vec<f32>, valid: usize, length: usize) -> Golden {
    let mut tensors = Reader::with(Fault::None, length).read(&soft);
    let mask = (0..length).map(|t| f32::from(u8::from(t < valid))).collect();
    let margin = (0..length).map(|t| if t == 1 { 0.0005 } else { 1.0 }).collect();
    tensors.insert("soft_tokens".into(), tensor(&[1, length, WIDTH], soft));
    tensors.insert("token_mask".into(), tensor(&[1, length], mask));
    tensors.insert("margin".into(), tensor(&[1, length], margin));
    Golden { name: format!("t{valid}"), tensors }
}

const LENGTH: usize = 160;

fn read_by(fault: Fault, goldens: &[Golden], options: &Options<'_>) -> Report {
    let subject = Reader::with(fault, LENGTH);
    let cases: Vec<Case<'_, Stopped>> =
        goldens.iter().map(|golden| Case { golden, subject: &subject, reader: None }).collect();
    reader(&cases, options).unwrap()
}

#[test]
fn a_whole_reader_passes() {
    let goldens = [spoken(150, LENGTH), spoken(1, LENGTH)];
    insta::assert_snapshot!(told(&read_by(Fault::None, &goldens, &options(Precision::Fp32))), @"
    labels passed: equal at all 150 of 151 labels whose margin is above 0.001; widest flip 0.0000
    flips passed: 0 of 151 labels (0.00 %, limit 1 %, here 1); top1_logit apart by 0.000e0
    blanks passed: equal at all 151 of 151 tokens whose blank and word are more than 0.001 apart; 0 flips
    finite passed: every output at every valid token
    repeats passed: 2 runs of each clip gave the same bits
    red arm second half passed: broke 1 of 1 clips it applies to, least t150: 75 of 75 tokens read otherwise, 75 unlike the reference, without the arm 0
    transcripts not run: needs the reference's transcripts, by --transcripts
    wer not run: needs what was truly said, by --wer
    ");
}

#[test]
fn each_fault_of_a_reader_fails_its_check() {
    let goldens = [spoken(150, LENGTH)];
    let of = |fault| read_by(fault, &goldens, &options(Precision::Fp32));
    // One flip of 150 is allowed: it is judged by its margin.
    assert_eq!(failed(&of(Fault::Flip(1))), [""; 0]);
    assert_eq!(failed(&of(Fault::Flip(2))), ["labels"]);
    assert_eq!(failed(&of(Fault::Flip(155))), [""; 0], "past the valid tokens");
    assert_eq!(failed(&of(Fault::Blank(3))), ["blanks"]);
    assert_eq!(failed(&of(Fault::NotFinite)), ["finite"]);
    // Nothing that goes in changes what comes out: only the arm sees it.
    assert_eq!(failed(&of(Fault::Fixed)), ["red arm second half"]);
    insta::assert_snapshot!(told(&of(Fault::Flip(2))), @"
    labels FAILED: not equal at 1 of 149 whose margin is above 0.001, of 150 labels, such as t150 token 2: 33, the reference 16, margin 1.0000 []
    flips passed: 1 of 150 labels (0.67 %, limit 1 %, here 1); top1_logit apart by 0.000e0
    blanks passed: equal at all 150 of 150 tokens whose blank and word are more than 0.001 apart; 0 flips
    finite passed: every output at every valid token
    repeats passed: 2 runs of each clip gave the same bits
    red arm second half passed: broke 1 of 1 clips it applies to, least t150: 75 of 75 tokens read otherwise, 75 unlike the reference, without the arm 0
    transcripts not run: needs the reference's transcripts, by --transcripts
    wer not run: needs what was truly said, by --wer
    ");
    insta::assert_snapshot!(told(&of(Fault::Fixed)), @r#"
    labels passed: equal at all 149 of 150 labels whose margin is above 0.001; widest flip 0.0000
    flips passed: 0 of 150 labels (0.00 %, limit 1 %, here 1); top1_logit apart by 0.000e0
    blanks passed: equal at all 150 of 150 tokens whose blank and word are more than 0.001 apart; 0 flips
    finite passed: every output at every valid token
    repeats passed: 2 runs of each clip gave the same bits
    red arm second half FAILED: did not break 1 of 1 clips it applies to, such as t150 ["t150: 0 of 75 tokens read otherwise, 0 unlike the reference, without the arm 0"]
    transcripts not run: needs the reference's transcripts, by --transcripts
    wer not run: needs what was truly said, by --wer
    "#);
}

#[test]
fn every_check_of_a_reader_has_its_measures() {
    let of = |fault| measured(&read_by(fault, &[spoken(150, LENGTH)], &options(Precision::Fp32)));
    insta::assert_snapshot!(of(Fault::None), @"
    labels: above_margin 0 <= 0
    flips: flips 0 <= 1
    blanks: above_margin 0 <= 0
    finite: not_finite 0 <= 0
    repeats: unlike 0 <= 0
    red arm second half: held 0 <= 0, broke 1 >= 1
    ");
    insta::assert_snapshot!(of(Fault::Flip(2)), @"
    labels: above_margin 1 <= 0 FAILS
    flips: flips 1 <= 1
    blanks: above_margin 0 <= 0
    finite: not_finite 0 <= 0
    repeats: unlike 0 <= 0
    red arm second half: held 0 <= 0, broke 1 >= 1
    ");
    insta::assert_snapshot!(of(Fault::Blank(3)), @"
    labels: above_margin 0 <= 0
    flips: flips 0 <= 1
    blanks: above_margin 1 <= 0 FAILS
    finite: not_finite 0 <= 0
    repeats: unlike 0 <= 0
    red arm second half: held 0 <= 0, broke 1 >= 1
    ");
    insta::assert_snapshot!(of(Fault::Fixed), @"
    labels: above_margin 0 <= 0
    flips: flips 0 <= 1
    blanks: above_margin 0 <= 0
    finite: not_finite 0 <= 0
    repeats: unlike 0 <= 0
    red arm second half: held 1 <= 0 FAILS, broke 0 >= 1 FAILS
    ");
}

#[test]
fn without_margins_flips_are_counted_only() {
    let mut golden = spoken(150, LENGTH);
    golden.tensors.remove("margin");
    let report = read_by(Fault::Flip(2), &[golden.clone()], &options(Precision::Fp32));
    assert_eq!(failed(&report), [""; 0]);
    assert_eq!(report.checks[0], Check::not_run("labels", "no golden has the tensor margin"));
    let limits = Limits { flips_percent: 0.5, ..Limits::of(Precision::Fp32) };
    let strict = Options { limits, ..options(Precision::Fp32) };
    assert_eq!(failed(&read_by(Fault::Flip(2), &[golden.clone()], &strict)), [""; 0], "one may");
    let two = [golden.clone(), Golden { name: "again".into(), ..golden }];
    assert_eq!(failed(&read_by(Fault::Flip(2), &two, &strict)), ["flips"]);
}

#[test]
fn labels_of_blanks_are_told_and_not_counted() {
    let limits = Limits { flips_percent: 0.0, ..Limits::of(Precision::Fp32) };
    let strict = Options { limits, ..options(Precision::Fp32) };
    // Token 2 points nowhere near a word, so that its blank is above.
    let mut quiet = soft(LENGTH);
    quiet[2 * WIDTH + 1] = -9.0;
    let mut golden = spoken_by(quiet, 150, LENGTH);
    golden.tensors.remove("margin");
    let report = read_by(Fault::Flip(2), &[golden], &strict);
    assert_eq!(failed(&report), [""; 0]);
    insta::assert_snapshot!(report.checks[1].says, @"0 of 150 labels (0.00 %, limit 0 %, here 0); 1 more where both read a blank; top1_logit apart by 0.000e0");
    insta::assert_snapshot!(report.checks[1].lines.join("\n"), @"t150 token 2: 33, the reference 16, margin unknown, blank");
    // Where only the reference reads a blank, the artefact's word is read.
    let mut golden = spoken(150, LENGTH);
    golden.tensors.remove("margin");
    edit(&mut golden, "blank_logit", |v| v[2] = 9.0);
    let report = read_by(Fault::Flip(2), &[golden], &strict);
    assert_eq!(failed(&report), ["flips", "blanks"]);
}

#[test]
fn a_clip_of_one_token_has_no_second_half() {
    let report = read_by(Fault::Fixed, &[spoken(1, LENGTH)], &options(Precision::Fp32));
    let arm = report.checks.iter().find(|c| c.name.starts_with("red arm")).unwrap();
    insta::assert_snapshot!(format!("{:?}", arm.verdict), @r#"NotRun { reason: "it applies to clips of two tokens or more, and no clip is one" }"#);
    // Of two and of three tokens it is the last.
    for valid in [2, 3] {
        let report = read_by(Fault::None, &[spoken(valid, LENGTH)], &options(Precision::Fp32));
        assert_eq!(report.clips[0]["red_arm"]["figures"]["tokens"], 1);
    }
}

/// Nothing is judged where every margin is below the limit, and that is no pass.
#[test]
fn labels_and_blanks_that_are_all_near_ties() {
    let limits = Limits { margin: 100.0, ..Limits::of(Precision::Fp32) };
    let report = read_by(Fault::Blank(3), &[spoken(150, LENGTH)], &Options { limits, ..options(Precision::Fp32) });
    insta::assert_snapshot!(told(&report).lines().take(3).collect::<Vec<_>>().join("\n"), @"
    labels not run: none of 150 labels has a margin above 100
    flips passed: 0 of 150 labels (0.00 %, limit 1 %, here 1); top1_logit apart by 0.000e0
    blanks not run: at none of 150 tokens are blank and word more than 100 apart
    ");
    assert_eq!(report.checks[2].lines.len(), 1, "the flip is listed all the same");
    // A label behind the clip may be anything.
    let mut golden = spoken(4, LENGTH);
    let labels = golden.tensors["top1_index"].values().clone();
    let Values::I32(mut labels) = labels else { panic!() };
    labels[4] = WORDS as i32;
    golden.tensors.insert("top1_index".into(), integers(&[1, LENGTH], labels));
    assert_eq!(failed(&read_by(Fault::None, &[golden], &options(Precision::Fp32))), [""; 0]);
}

/// Where the artefact is wrong at every token of the half, the arm cannot make it worse.
#[test]
fn an_arm_on_a_half_that_is_wrong_anyway() {
    let mut golden = spoken(4, LENGTH);
    edit(&mut golden, "blank_logit", |v| v[2..4].fill(9.0));
    let arm = |fault| {
        let report = read_by(fault, std::slice::from_ref(&golden), &options(Precision::Fp32));
        report.clips[0]["red_arm"]["outcome"].clone()
    };
    assert_eq!((arm(Fault::None), arm(Fault::Fixed)), ("unclear".into(), "held".into()));
    edit(&mut golden, "blank_logit", |v| v[2] = -9.0);
    let report = read_by(Fault::None, &[golden], &options(Precision::Fp32));
    assert_eq!(report.clips[0]["red_arm"]["outcome"], "broke", "one token is right without the arm");
}

fn words() -> Vec<String> {
    (0..WORDS).map(|i| format!("w{i}")).collect()
}

#[test]
fn transcripts_and_word_errors_of_a_reader() {
    let (words, golden) = (words(), spoken(4, LENGTH));
    let subject = Reader::with(Fault::None, LENGTH);
    let text = {
        let lines = Transcripts::parse("t4\tother").unwrap();
        let judged = Options { words: Some(&words), transcripts: Some(&lines), ..options(Precision::Fp32) };
        let report = reader(&[Case { golden: &golden, subject: &subject, reader: None }], &judged).unwrap();
        assert_eq!(failed(&report), ["transcripts"]);
        let check = report.checks.iter().find(|c| c.name == "transcripts").unwrap();
        check.figures["unlike"][0]["found"].as_str().unwrap().to_string()
    };
    let lines = Transcripts::parse(&format!("t4\t{text}")).unwrap();
    let judged = |words, transcripts, truth| Options { words, transcripts, truth, ..options(Precision::Fp32) };
    let goldens = [golden];
    let last_two = |options: &Options<'_>| {
        told(&read_by(Fault::None, &goldens, options)).lines().skip(6).collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(last_two(&judged(Some(&words), Some(&lines), Some(&lines))), @"
    transcripts passed: 1 of 1 are the reference's (100.0 %), 4 words
    wer passed: 0.00 % of 4 words, the reference 0.00 %, +0.00 points
    ");
    insta::assert_snapshot!(last_two(&judged(None, Some(&lines), None)), @"
    transcripts not run: needs the reader's words, by --words
    wer not run: needs what was truly said, by --wer
    ");
    // Without the reference's transcripts, its labels are the reference.
    let truth = Transcripts::parse("t4\tw1 w2").unwrap();
    insta::assert_snapshot!(last_two(&judged(Some(&words), None, Some(&truth))), @"
    transcripts not run: needs the reference's transcripts, by --transcripts
    wer passed: 200.00 % of 2 words, the reference 200.00 %, +0.00 points
    ");
    let other = Transcripts::parse("x\t").unwrap();
    let case = Case { golden: &goldens[0], subject: &subject, reader: None };
    insta::assert_snapshot!(reader(&[case], &judged(None, None, Some(&other))).unwrap_err(), @"--wer has no line for clip t4");
}

#[test]
fn an_encoder_by_its_task() {
    let (words, goldens) = (words(), CLASSES.map(clip));
    let judge = |fault, length, transcripts: Option<&Transcripts>| {
        let (subject, listener) = (Encoder::with(fault), Reader::with(Fault::None, length));
        let case =
            |golden| Case { golden, subject: &subject as &dyn Subject<Error = Stopped>, reader: Some(&listener as _) };
        let judged = Options { words: Some(&words), transcripts, ..options(Precision::Fp16) };
        encoder(&goldens.iter().map(case).collect::<Vec<_>>(), &judged)
    };
    assert_eq!(failed(&judge(Fault::None, 6, None).unwrap()), [""; 0]);
    assert_eq!(failed(&judge(Fault::None, 4, None).unwrap()), [""; 0], "clips are shorter than their bucket");
    assert!(failed(&judge(Fault::Negated(1), 9, None).unwrap()).contains(&"transcripts"));
    assert!(failed(&judge(Fault::NotFinite, 9, None).unwrap()).contains(&"transcripts"));
    let lines = Transcripts::parse("f13\tx\nf14\t\nf15\t\nf16\t").unwrap();
    assert_eq!(failed(&judge(Fault::None, 6, Some(&lines)).unwrap()), ["transcripts"]);
    insta::assert_snapshot!(judge(Fault::None, 3, None).unwrap_err(), @"the reader cannot take clip f13: it has 4 tokens, and the reader 3");
}

#[test]
fn goldens_that_break_the_readers_contract() {
    let refused = |change: &dyn Fn(&mut Golden)| {
        let mut golden = spoken(4, 8);
        change(&mut golden);
        let subject = Reader::with(Fault::None, 8);
        let error = reader(&[Case { golden: &golden, subject: &subject, reader: None }], &options(Precision::Fp32));
        Error::source(&error.unwrap_err()).unwrap().to_string()
    };
    insta::assert_snapshot!(refused(&|g| edit(g, "token_mask", |v| v.fill(0.0))), @"no token is valid");
    insta::assert_snapshot!(refused(&|g| edit(g, "token_mask", |v| v[6] = 1.0)), @"token_mask is 1 at 6, expected ones and then zeros");
    insta::assert_snapshot!(refused(&|g| drop(g.tensors.remove("top1_index"))), @"there is no tensor top1_index");
    insta::assert_snapshot!(refused(&|g| drop(g.tensors.insert("top1_index".into(), tensor(&[1, 8], vec![0.0; 8])))), @"top1_index is f32[1,8], expected integers");
    insta::assert_snapshot!(refused(&|g| drop(g.tensors.insert("margin".into(), tensor(&[1, 7], vec![0.0; 7])))), @"margin is f32[1,7], expected [1, 8]");
    let label = |g: &mut Golden, at: usize, label: i32| {
        let mut labels = vec![0; 8];
        labels[at] = label;
        g.tensors.insert("top1_index".into(), integers(&[1, 8], labels));
    };
    insta::assert_snapshot!(refused(&|g| label(g, 3, 50)), @"top1_index is 50 at 3, and the reader's table has 50 rows");
    insta::assert_snapshot!(refused(&|g| label(g, 2, -1)), @"top1_index is -1 at 2, and the reader's table has 50 rows");
    insta::assert_snapshot!(refused(&|g| edit(g, "margin", |v| v[4] = -0.5)), @"margin is -0.5 at 4, expected the best word's logit less the second's, 0 or more");
    insta::assert_snapshot!(refused(&|g| edit(g, "margin", |v| v[4] = f32::NAN)), @"margin has a value that is not finite at element 4");
    insta::assert_snapshot!(refused(&|g| edit(g, "blank_logit", |v| v[0] = f32::INFINITY)), @"blank_logit has a value that is not finite at element 0");
}
