//! The gate of the audio encoder: `features` [1, Tb, 128] and `half_mask` [1, Tb/2] to `soft_tokens` [1, Tb/4, D].
//!
//! Its two red arms each break the last token of clips of some lengths, by which of its inputs look past the clip's
//! end. A mask of ones lets the second convolution see padding, where n % 4 == 2; log-silence in place of zeros lets
//! the first convolution see it, where n is odd.

use super::measure::least;
use super::numbers::{self, Noun, Repeats, finite_check, given, leading_ones, repeat, repeats_check, run, with_values};
use super::reader::read_soft;
use super::red_arm::{self, Arm, Token};
use super::transcripts::{self, Read};
use super::{Case, Check, GateError, Golden, GoldenError, Limits, Measure, Options, Report, Tensors};
use crate::eval::{Comparison, HostTensor, Values, compare};
use crate::plural::counted;
use serde::Serialize;
use serde_json::json;
use std::error::Error;

const FEATURES: &str = "features";
const HALF_MASK: &str = "half_mask";
const SOFT_TOKENS: &str = "soft_tokens";
const N_TOKENS: &str = "n_tokens";

/// log 0.001, which silence is in every mel bin.
const LOG_SILENCE: f32 = -6.907_755_4;

const MASK_ARM: &str = "red arm half_mask";
const PADDING_ARM: &str = "red arm padding";

/// A golden that keeps to the encoder's contract.
struct Clip<'g> {
    features: &'g HostTensor,
    half_mask: &'g HostTensor,
    /// Rows of the valid tokens.
    reference: &'g [f32],
    /// Width of a soft token.
    width: usize,
    /// Valid feature frames.
    frames: usize,
    /// Valid soft tokens.
    tokens: usize,
}

impl<'g> Clip<'g> {
    fn of(golden: &'g Golden) -> Result<Clip<'g>, GoldenError> {
        let (features, frames) = given(golden, FEATURES)?;
        let (half_mask, mask) = given(golden, HALF_MASK)?;
        let (soft, values) = given(golden, SOFT_TOKENS)?;
        let wrong = |tensor, found: &HostTensor, expected: &str| GoldenError::Shape {
            tensor,
            found: found.fact().clone(),
            expected: expected.into(),
        };
        let &[1, bucket, bins @ (1..)] = features.fact().shape.dims() else {
            return Err(wrong(FEATURES, features, "[1, frames, bins]"));
        };
        if half_mask.fact().shape.dims() != [1, bucket / 2] || !bucket.is_multiple_of(4) {
            return Err(wrong(HALF_MASK, half_mask, &format!("[1, {}] for {bucket} frames", bucket / 2)));
        }
        let half = leading_ones(HALF_MASK, mask)?;
        let tokens = half.div_ceil(2);
        if tokens == 0 {
            return Err(GoldenError::Empty);
        }
        let &[1, rows, width @ (1..)] = soft.fact().shape.dims() else {
            return Err(wrong(SOFT_TOKENS, soft, "[1, tokens, width]"));
        };
        if rows < tokens || rows > bucket / 4 {
            return Err(wrong(SOFT_TOKENS, soft, &format!("{tokens} to {} tokens", bucket / 4)));
        }
        said_tokens(golden, half, tokens)?;
        Ok(Clip {
            features,
            half_mask,
            reference: values.get(..tokens * width).unwrap_or_default(),
            width,
            frames: valid_frames(frames, bins, half)?,
            tokens,
        })
    }

    fn inputs(&self) -> Tensors {
        Tensors::from([(FEATURES.into(), self.features.clone()), (HALF_MASK.into(), self.half_mask.clone())])
    }

    /// The arm that this clip has something to break for, and its inputs.
    fn arm(&self) -> Option<(&'static str, Tensors)> {
        let mut inputs = self.inputs();
        match self.frames % 4 {
            2 => {
                let ones = vec![1.0; self.half_mask.values().len()];
                inputs.insert(HALF_MASK.into(), with_values(self.half_mask, ones));
                Some((MASK_ARM, inputs))
            }
            1 | 3 => {
                let mut features = self.features.floats().unwrap_or_default().to_vec();
                let bins = self.features.fact().shape.dims().last().copied().unwrap_or(1);
                features.iter_mut().skip(self.frames * bins).for_each(|v| *v = LOG_SILENCE);
                inputs.insert(FEATURES.into(), with_values(self.features, features));
                Some((PADDING_ARM, inputs))
            }
            _ => None,
        }
    }
}

/// Frames of a clip whose mask has `half` valid columns: the mask says them up to one, which the last row that is not
/// zero tells. A feature is a logarithm, and never 0 in all bins.
fn valid_frames(features: &[f32], bins: usize, half: usize) -> Result<usize, GoldenError> {
    let rows = features.chunks_exact(bins).rposition(|row| row.iter().any(|v| *v != 0.0)).map_or(0, |row| row + 1);
    match rows.cmp(&(2 * half)) {
        std::cmp::Ordering::Equal => Ok(rows),
        std::cmp::Ordering::Less if rows + 1 == 2 * half => Ok(rows),
        std::cmp::Ordering::Less => Err(GoldenError::Frames { rows, half }),
        std::cmp::Ordering::Greater => Err(GoldenError::Padding { row: rows - 1, frames: 2 * half }),
    }
}

/// Holds `n_tokens`, where the golden has it, against the mask.
fn said_tokens(golden: &Golden, half: usize, expected: usize) -> Result<(), GoldenError> {
    let Some(said) = golden.tensors.get(N_TOKENS) else { return Ok(()) };
    match said.values() {
        Values::I32(said) if said.len() == 1 => {
            let found = said.iter().copied().map(i64::from).sum();
            if usize::try_from(found) == Ok(expected) {
                Ok(())
            } else {
                Err(GoldenError::Tokens { found, half, expected })
            }
        }
        Values::I32(_) | Values::F32(_) => {
            Err(GoldenError::Shape { tensor: N_TOKENS, found: said.fact().clone(), expected: "one integer".into() })
        }
    }
}

/// What was found of a clip.
#[derive(Debug, Serialize)]
struct Found {
    clip: String,
    frames: usize,
    tokens: usize,
    cosine: Comparison,
    not_finite: usize,
    repeats: Repeats,
    red_arm: Option<Arm>,
}

/// Checks that every report on an encoder has, run or not.
pub const CHECKS: [&str; 5] = ["cosine", "finite", "repeats", MASK_ARM, PADDING_ARM];

/// Gates an encoder.
///
/// # Errors
/// A clip breaks the contract, the artefact does not take or give what an encoder does, or a run failed.
pub fn encoder<E: Error>(cases: &[Case<'_, E>], options: &Options<'_>) -> Result<Report, GateError<E>> {
    let mut clips = Vec::new();
    for case in cases {
        let of = |source| GateError::Golden { clip: case.golden.name.clone(), source };
        clips.push((case, Clip::of(case.golden).map_err(of)?));
    }
    if clips.is_empty() {
        return Ok(Report::without_goldens("encoder", &CHECKS, options));
    }
    let unread = unread(cases, options);
    transcripts::cover(cases.iter().map(|case| case.golden.name.as_str()), options)?;
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    for (case, clip) in &clips {
        let green = soft_tokens(case, clip, &clip.inputs())?;
        let valid = green.valid(clip);
        let cosine = rows(valid, clip.reference, clip.width);
        let red_arm = arm(case, clip, valid, &options.limits)?;
        if unread.is_none() {
            texts.extend(read_soft(case, [valid, clip.reference], clip.width, options)?);
        }
        found.push(Found {
            clip: case.golden.name.clone(),
            frames: clip.frames,
            tokens: clip.tokens,
            cosine,
            not_finite: numbers::not_finite(valid),
            repeats: repeat(&case.golden.name, case.subject, &clip.inputs(), &green.outputs, options.repeats)?,
            red_arm,
        });
    }
    let mut checks = vec![
        cosine_check(&found, &options.limits),
        finite_check(Noun::CLIP, &found.iter().map(|f| (f.clip.as_str(), f.not_finite)).collect::<Vec<_>>()),
        repeats_check(
            Noun::CLIP,
            &found.iter().map(|f| (f.clip.as_str(), &f.repeats)).collect::<Vec<_>>(),
            options.repeats,
        ),
        arm_check(MASK_ARM, "clips of n % 4 == 2 frames", &found),
        arm_check(PADDING_ARM, "clips of an odd number of frames", &found),
    ];
    checks.extend(task_checks(unread, &texts, options));
    let clips = found.iter().map(|f| json!(f)).collect();
    Ok(Report { model: "encoder", limits: options.limits, repeats: options.repeats, clips, checks })
}

/// What a run gave.
struct Green {
    outputs: Tensors,
    soft: Vec<f32>,
}

impl Green {
    fn valid(&self, clip: &Clip<'_>) -> &[f32] {
        self.soft.get(..clip.tokens * clip.width).unwrap_or_default()
    }
}

fn soft_tokens<E: Error>(case: &Case<'_, E>, clip: &Clip<'_>, inputs: &Tensors) -> Result<Green, GateError<E>> {
    let outputs = run(&case.golden.name, case.subject, inputs)?;
    let expected = [1, clip.half_mask.values().len() / 2, clip.width];
    let found = outputs.get(SOFT_TOKENS);
    let soft = found.filter(|t| t.fact().shape.dims() == expected).and_then(HostTensor::floats).map(<[f32]>::to_vec);
    let wrong = || GateError::Output {
        model: "encoder",
        clip: case.golden.name.clone(),
        output: SOFT_TOKENS,
        found: found.map_or_else(|| "absent".into(), |t| t.fact().to_string()),
        expected: format!("floats of {expected:?}"),
    };
    let soft = soft.ok_or_else(wrong)?;
    Ok(Green { outputs, soft })
}

/// Two stretches of rows compared; they have the same number of values, and at least one row.
fn rows(found: &[f32], reference: &[f32], width: usize) -> Comparison {
    compare(found, reference, width).unwrap_or(Comparison {
        rows: 0,
        cosine_min: 0.0,
        cosine_min_row: 0,
        cosine_mean: 0.0,
        max_abs: f64::INFINITY,
        snr_db: f64::NEG_INFINITY,
    })
}

fn arm<E: Error>(
    case: &Case<'_, E>,
    clip: &Clip<'_>,
    green: &[f32],
    limits: &Limits,
) -> Result<Option<Arm>, GateError<E>> {
    let Some((name, inputs)) = clip.arm() else { return Ok(None) };
    let red = soft_tokens(case, clip, &inputs)?;
    let last = |values: &[f32]| values.get((clip.tokens - 1) * clip.width..).unwrap_or_default().to_vec();
    let (green, red, reference) = (last(green), last(red.valid(clip)), last(clip.reference));
    let cosine = |a: &[f32], b: &[f32]| rows(a, b, clip.width).cosine_min;
    let token = Token {
        token: clip.tokens - 1,
        green: cosine(&green, &reference),
        red: cosine(&red, &reference),
        own: cosine(&red, &green),
    };
    let says = format!("last token at {:.5} to the reference, without the arm {:.5}", token.red, token.green);
    let (outcome, strength) = (token.outcome(limits), 1.0 - token.red);
    Ok(Some(Arm { name, outcome, figures: json!(token), says, strength }))
}

fn cosine_check(found: &[Found], limits: &Limits) -> Check {
    let measures = |mean: f64, min: f64| -> Vec<Measure> {
        let judged = limits.cosine_min.map(|limit| Measure::at_least("min", min, limit));
        std::iter::once(Measure::at_least("least_mean", mean, limits.cosine_mean)).chain(judged).collect()
    };
    let fails = |f: &&Found| !measures(f.cosine.cosine_mean, f.cosine.cosine_min).iter().all(Measure::holds);
    let bad: Vec<&Found> = found.iter().filter(fails).collect();
    let tokens: usize = found.iter().map(|f| f.tokens).sum();
    let least_mean = least(found.iter().map(|f| f.cosine.cosine_mean));
    let min = least(found.iter().map(|f| f.cosine.cosine_min));
    let max_abs = found.iter().map(|f| f.cosine.max_abs).fold(0.0, f64::max);
    let worst = found.iter().find(|f| f.cosine.cosine_min.to_bits() == min.to_bits());
    let place = worst.map_or_else(String::new, |f| format!("{} token {}", f.clip, f.cosine.cosine_min_row));
    let bound = limits.cosine_min.map_or_else(|| "not judged".into(), |limit| format!("limit {limit}"));
    let says = format!(
        "mean {least_mean:.7} in the worst clip (limit {}), min {min:.7} at {place} ({bound}), {}",
        limits.cosine_mean,
        counted(tokens, "token")
    );
    let figures = json!({
        "tokens": tokens, "least_mean": least_mean, "min": min, "min_at": place, "max_abs": max_abs,
        "failed": bad.iter().map(|f| &f.clip).collect::<Vec<_>>(),
    });
    let line = |f: &Found| {
        let Comparison { cosine_mean, cosine_min, cosine_min_row, .. } = f.cosine;
        format!("{}: mean {cosine_mean:.7}, min {cosine_min:.7} at token {cosine_min_row}", f.clip)
    };
    let lines = bad.into_iter().map(line).collect();
    Check::run("cosine", measures(least_mean, min), says, figures).with_lines(lines)
}

fn arm_check(name: &'static str, applies: &str, found: &[Found]) -> Check {
    let none = || Arm::not_applicable(name);
    let of = |f: &Found| f.red_arm.clone().filter(|arm| arm.name == name).unwrap_or_else(none);
    let arms: Vec<Arm> = found.iter().map(of).collect();
    let clips: Vec<(&str, &Arm)> = found.iter().map(|f| f.clip.as_str()).zip(&arms).collect();
    red_arm::check(name, applies, &clips)
}

/// Why the artefact's soft tokens are not read; none where they are.
fn unread<E>(cases: &[Case<'_, E>], options: &Options<'_>) -> Option<&'static str> {
    if cases.iter().any(|case| case.reader.is_none()) {
        Some("needs a reader, by --reader")
    } else if options.words.is_none() {
        Some(transcripts::NEEDS_WORDS)
    } else {
        None
    }
}

fn task_checks(unread: Option<&'static str>, texts: &[Read], options: &Options<'_>) -> [Check; 2] {
    match (unread, options.truth) {
        (Some(why), _) => ["transcripts", "wer"].map(|name| Check::not_run(name, why)),
        (None, None) => {
            [transcripts::transcripts_check(texts, &options.limits), Check::not_run("wer", transcripts::NEEDS_TRUTH)]
        }
        (None, Some(_)) => {
            [transcripts::transcripts_check(texts, &options.limits), transcripts::wer_check(texts, &options.limits)]
        }
    }
}
