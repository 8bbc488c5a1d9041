//! The gate of the word reader: `soft_tokens` [1, T, D] and `token_mask` [1, T] to `top1_index`, `top1_logit` and
//! `blank_logit`, [1, T] each.
//!
//! Labels and blanks are judged, logits are told: the best word of a blank token is arbitrary and not counted, near-ties
//! flip in fp16, and Apple's CPU gives a `top1_logit` of 0 for a negative one. The red arm zeroes the second half of the clip's soft
//! tokens, which must change what is read there; a mask of ones may change nothing and is no arm.

use super::numbers::{self, Noun, Repeats, finite_check, given, leading_ones, repeat, repeats_check, run, with_values};
use super::red_arm::{self, Arm, Outcome};
use super::transcripts::{self, Read};
use super::{
    Case, Check, GateError, Golden, GoldenError, Limits, Measure, Options, Report, Subject, Tensors, Vocabulary,
};
use crate::eval::{HostTensor, Values};
use crate::models::reader::{HostRuleError, Reading, token_mask};
use crate::plural::counted;
use crate::tensor::{DType, Fact};
use serde::Serialize;
use serde_json::json;
use std::error::Error;
use std::ops::Range;

const SOFT_TOKENS: &str = "soft_tokens";
const TOKEN_MASK: &str = "token_mask";
const TOP1_INDEX: &str = "top1_index";
const TOP1_LOGIT: &str = "top1_logit";
const BLANK_LOGIT: &str = "blank_logit";
const MARGIN: &str = "margin";

const ARM: &str = "red arm second half";

/// Outputs of a reader, of the artefact or of the reference.
struct Outputs {
    index: Vec<i32>,
    top1: Vec<f32>,
    blank: Vec<f32>,
}

impl Outputs {
    /// What is read at a token: the best word, and whether it is blank.
    fn at(&self, token: usize) -> Option<(i32, bool)> {
        let blank = self.blank.get(token)? > self.top1.get(token)?;
        Some((*self.index.get(token)?, blank))
    }

    /// Tokens of `range` that are not read as in `other`.
    fn unlike(&self, other: &Outputs, range: Range<usize>) -> usize {
        range.filter(|token| self.at(*token) != other.at(*token)).count()
    }

    fn text(&self, valid: usize, words: &dyn Vocabulary) -> Result<String, HostRuleError> {
        let Outputs { index, top1, blank } = self;
        transcripts::read(&Reading { top1_index: index, top1_logit: top1, blank_logit: blank, valid }, words)
    }
}

/// A golden that keeps to the reader's contract.
struct Clip<'g> {
    soft: &'g HostTensor,
    mask: &'g HostTensor,
    reference: Outputs,
    margin: Option<&'g [f32]>,
    valid: usize,
}

impl<'g> Clip<'g> {
    fn of(golden: &'g Golden, rows: Option<usize>) -> Result<Clip<'g>, GoldenError> {
        let shape = |tensor, found: &HostTensor, expected: String| GoldenError::Shape {
            tensor,
            found: found.fact().clone(),
            expected,
        };
        let (soft, _) = given(golden, SOFT_TOKENS)?;
        let &[1, length, (1..)] = soft.fact().shape.dims() else {
            return Err(shape(SOFT_TOKENS, soft, "[1, tokens, width]".into()));
        };
        let row = |tensor| {
            let (found, values) = given(golden, tensor)?;
            if found.fact().shape.dims() == [1, length] {
                Ok((found, values))
            } else {
                Err(shape(tensor, found, format!("[1, {length}]")))
            }
        };
        let (mask, ones) = row(TOKEN_MASK)?;
        let valid = leading_ones(TOKEN_MASK, ones)?;
        if valid == 0 {
            return Err(GoldenError::Empty);
        }
        let index = golden.tensors.get(TOP1_INDEX).ok_or(GoldenError::Missing { tensor: TOP1_INDEX })?;
        let Values::I32(labels) = index.values() else {
            return Err(shape(TOP1_INDEX, index, "integers".into()));
        };
        if index.fact().shape.dims() != [1, length] {
            return Err(shape(TOP1_INDEX, index, format!("[1, {length}]")));
        }
        if let Some(rows) = rows {
            let inside = |label: i32| usize::try_from(label).is_ok_and(|label| label < rows);
            if let Some((index, label)) = labels.iter().take(valid).enumerate().find(|(_, label)| !inside(**label)) {
                return Err(GoldenError::Label { index, label: *label, rows });
            }
        }
        let reference =
            Outputs { index: labels.clone(), top1: row(TOP1_LOGIT)?.1.to_vec(), blank: row(BLANK_LOGIT)?.1.to_vec() };
        let margin = golden.tensors.contains_key(MARGIN).then(|| row(MARGIN)).transpose()?.map(|(_, values)| values);
        if let Some((index, value)) = margin.and_then(|m| m.iter().enumerate().find(|(_, v)| **v < 0.0)) {
            return Err(GoldenError::Margin { index, value: *value });
        }
        Ok(Clip { soft, mask, reference, margin, valid })
    }

    fn inputs(&self) -> Tensors {
        Tensors::from([(SOFT_TOKENS.into(), self.soft.clone()), (TOKEN_MASK.into(), self.mask.clone())])
    }

    /// How many labels are judged: those whose margin is above the limit.
    fn clear_labels(&self, limits: &Limits) -> Option<usize> {
        let margins = self.margin?.iter().take(self.valid);
        Some(margins.filter(|margin| f64::from(**margin) > limits.margin).count())
    }

    /// Logits between the reference's blank and its best word at a token.
    fn blank_margin(&self, token: usize) -> Option<f32> {
        Some((self.reference.blank.get(token)? - self.reference.top1.get(token)?).abs())
    }

    /// How many blanks are judged: those farther from the best word than the limit.
    fn clear_blanks(&self, limits: &Limits) -> usize {
        (0..self.valid).filter_map(|token| self.blank_margin(token)).filter(|m| f64::from(*m) > limits.margin).count()
    }

    /// The second half of the valid tokens; none where there are not two.
    fn second_half(&self) -> Option<Range<usize>> {
        (self.valid >= 2).then(|| self.valid.div_ceil(2)..self.valid)
    }

    /// The clip with the soft tokens of `range` zeroed.
    fn zeroed(&self, range: &Range<usize>) -> Tensors {
        let width = self.soft.fact().shape.dims().last().copied().unwrap_or(1);
        let mut values = self.soft.floats().unwrap_or_default().to_vec();
        values.iter_mut().take(range.end * width).skip(range.start * width).for_each(|v| *v = 0.0);
        let mut inputs = self.inputs();
        inputs.insert(SOFT_TOKENS.into(), with_values(self.soft, values));
        inputs
    }
}

/// A label that is not the reference's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Flip {
    token: usize,
    found: i32,
    reference: i32,
    /// Logits between the reference's two best words, where the golden tells.
    margin: Option<f32>,
    /// Whether both read the token as blank, so that its label is arbitrary and not counted.
    blank: bool,
}

/// A blank where the reference has a word, or a word where it has a blank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct BlankFlip {
    token: usize,
    /// Whether the artefact reads the token as blank.
    found: bool,
    /// Logits between the reference's blank and its best word.
    margin: f32,
}

/// What was found of a clip.
#[derive(Debug, Serialize)]
struct Found {
    clip: String,
    tokens: usize,
    /// Labels whose margin is above the limit; none where the golden tells no margins.
    clear_labels: Option<usize>,
    /// Tokens whose blank and best word are apart by more than the limit.
    clear_blanks: usize,
    flips: Vec<Flip>,
    blank_flips: Vec<BlankFlip>,
    /// Largest difference of a `top1_logit`: told, never judged.
    top1_logit_max_abs: f64,
    not_finite: usize,
    repeats: Repeats,
    red_arm: Arm,
}

/// Checks that every report on a reader has, run or not.
pub const CHECKS: [&str; 6] = ["labels", "flips", "blanks", "finite", "repeats", ARM];

/// Gates a reader.
///
/// # Errors
/// A clip breaks the contract, the artefact does not take or give what a reader does, or a run failed.
pub fn reader<E: Error>(cases: &[Case<'_, E>], options: &Options<'_>) -> Result<Report, GateError<E>> {
    let mut clips = Vec::new();
    for case in cases {
        let of = |source| GateError::Golden { clip: case.golden.name.clone(), source };
        clips.push((case, Clip::of(case.golden, options.rows).map_err(of)?));
    }
    if clips.is_empty() {
        return Ok(Report::without_goldens("reader", &CHECKS, options));
    }
    transcripts::cover(cases.iter().map(|case| case.golden.name.as_str()), options)?;
    let (mut found, mut texts) = (Vec::new(), Vec::new());
    for (case, clip) in &clips {
        let name = &case.golden.name;
        let raw = run(&case.golden.name, case.subject, &clip.inputs())?;
        let green = outputs(&raw, name, clip.mask.values().len())?;
        if let Some(words) = options.words {
            texts.push(read_clip(clip, &green, name, words, options)?);
        }
        found.push(Found {
            clip: name.clone(),
            tokens: clip.valid,
            clear_labels: clip.clear_labels(&options.limits),
            clear_blanks: clip.clear_blanks(&options.limits),
            flips: flips(clip, &green),
            blank_flips: blank_flips(clip, &green),
            top1_logit_max_abs: max_abs(&green.top1, &clip.reference.top1, clip.valid),
            not_finite: [&green.top1, &green.blank]
                .map(|logits| numbers::not_finite(logits.get(..clip.valid).unwrap_or_default()))
                .iter()
                .sum(),
            repeats: repeat(&case.golden.name, case.subject, &clip.inputs(), &raw, options.repeats)?,
            red_arm: arm(case, clip, &green)?,
        });
    }
    let arms: Vec<(&str, &Arm)> = found.iter().map(|f| (f.clip.as_str(), &f.red_arm)).collect();
    let mut checks = vec![
        labels_check(&found, &options.limits),
        flips_check(&found, &options.limits),
        blanks_check(&found, &options.limits),
        finite_check(Noun::CLIP, &found.iter().map(|f| (f.clip.as_str(), f.not_finite)).collect::<Vec<_>>()),
        repeats_check(
            Noun::CLIP,
            &found.iter().map(|f| (f.clip.as_str(), &f.repeats)).collect::<Vec<_>>(),
            options.repeats,
        ),
        red_arm::check(ARM, "clips of two tokens or more", &arms),
    ];
    checks.extend(task_checks(&texts, options));
    let clips = found.iter().map(|f| json!(f)).collect();
    Ok(Report { model: "reader", limits: options.limits, repeats: options.repeats, clips, checks })
}

/// The outputs among `raw`, of `length` tokens each.
fn outputs<E: Error>(raw: &Tensors, clip: &str, length: usize) -> Result<Outputs, GateError<E>> {
    let wrong = |output, expected: &str| GateError::Output {
        model: "reader",
        clip: clip.into(),
        output,
        found: raw.get(output).map_or_else(|| "absent".into(), |t| t.fact().to_string()),
        expected: format!("{expected} of [1, {length}]"),
    };
    let row = |output| raw.get(output).filter(|t| t.fact().shape.dims() == [1, length]).map(HostTensor::values);
    let floats = |output| match row(output) {
        Some(Values::F32(values)) => Ok(values.clone()),
        Some(Values::I32(_)) | None => Err(wrong(output, "floats")),
    };
    let index = match row(TOP1_INDEX) {
        Some(Values::I32(values)) => values.clone(),
        Some(Values::F32(_)) | None => return Err(wrong(TOP1_INDEX, "integers")),
    };
    Ok(Outputs { index, top1: floats(TOP1_LOGIT)?, blank: floats(BLANK_LOGIT)? })
}

fn flips(clip: &Clip<'_>, found: &Outputs) -> Vec<Flip> {
    let one = |token: usize| {
        let ((found, blank), (reference, reference_blank)) = (found.at(token)?, clip.reference.at(token)?);
        let blank = blank && reference_blank;
        let margin = clip.margin.and_then(|margin| margin.get(token).copied());
        (found != reference).then_some(Flip { token, found, reference, margin, blank })
    };
    (0..clip.valid).filter_map(one).collect()
}

fn blank_flips(clip: &Clip<'_>, found: &Outputs) -> Vec<BlankFlip> {
    let one = |token: usize| {
        let ((_, found), (_, reference)) = (found.at(token)?, clip.reference.at(token)?);
        let margin = clip.blank_margin(token)?;
        (found != reference).then_some(BlankFlip { token, found, margin })
    };
    (0..clip.valid).filter_map(one).collect()
}

fn max_abs(found: &[f32], reference: &[f32], valid: usize) -> f64 {
    let apart = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
    let larger = |most: f64, d: f64| if d.is_nan() { f64::INFINITY } else { most.max(d) };
    found.iter().zip(reference).take(valid).map(apart).fold(0.0, larger)
}

/// The arm broke the clip where the artefact reads the zeroed half otherwise than before, and is farther from the
/// reference there: either alone may be a flip of a near-tie. Where the half is nowhere read as by the reference anyway,
/// it cannot be farther, which leaves unclear what the arm does unless it changes nothing.
fn arm<E: Error>(case: &Case<'_, E>, clip: &Clip<'_>, green: &Outputs) -> Result<Arm, GateError<E>> {
    let Some(half) = clip.second_half() else {
        return Ok(Arm::not_applicable(ARM));
    };
    let raw = run(&case.golden.name, case.subject, &clip.zeroed(&half))?;
    let red = outputs(&raw, &case.golden.name, clip.mask.values().len())?;
    let changed = red.unlike(green, half.clone());
    let off = [green, &red].map(|found| found.unlike(&clip.reference, half.clone()));
    let outcome = match changed {
        0 => Outcome::Held,
        _ if off[1] > off[0] => Outcome::Broke,
        _ if off[0] == half.len() => Outcome::Unclear,
        _ => Outcome::Held,
    };
    let figures = json!({ "tokens": half.len(), "changed": changed, "off_without": off[0], "off_with": off[1] });
    let says = format!(
        "{changed} of {} tokens read otherwise, {} unlike the reference, without the arm {}",
        half.len(),
        off[1],
        off[0]
    );
    Ok(Arm { name: ARM, outcome, figures, says, strength: changed as f64 / half.len() as f64 })
}

fn labels_check(found: &[Found], limits: &Limits) -> Check {
    const NAME: &str = "labels";
    let told: Vec<&Found> = found.iter().filter(|f| f.clear_labels.is_some()).collect();
    if told.is_empty() {
        return Check::not_run(NAME, "no golden has the tensor margin");
    }
    let clear: usize = told.iter().filter_map(|f| f.clear_labels).sum();
    let labels = counted(told.iter().map(|f| f.tokens).sum(), "label");
    if clear == 0 {
        return Check::not_run(NAME, format!("none of {labels} has a margin above {}", limits.margin));
    }
    let margin = |flip: &Flip| f64::from(flip.margin.unwrap_or_default());
    let flips = || told.iter().flat_map(|f| f.flips.iter().map(|flip| (f.clip.as_str(), flip)));
    let bad: Vec<_> = flips().filter(|(_, flip)| margin(flip) > limits.margin).collect();
    let widest = flips().map(|(_, flip)| margin(flip)).fold(0.0, f64::max);
    let mut says = match bad.first() {
        None => {
            format!("equal at all {clear} of {labels} whose margin is above {}; widest flip {widest:.4}", limits.margin)
        }
        Some((clip, flip)) => format!(
            "not equal at {} of {clear} whose margin is above {}, of {labels}, such as {clip} token {}: {}, the \
             reference {}, margin {:.4}",
            bad.len(),
            limits.margin,
            flip.token,
            flip.found,
            flip.reference,
            margin(flip)
        ),
    };
    if told.len() < found.len() {
        says.push_str(&format!("; no margin told by {}", counted(found.len() - told.len(), "clip")));
    }
    let figures = json!({ "clips": told.len(), "judged": clear, "above_margin": bad.len(), "widest_flip": widest });
    Check::run(NAME, [Measure::none("above_margin", bad.len())], says, figures)
}

fn flips_check(found: &[Found], limits: &Limits) -> Check {
    let tokens: usize = found.iter().map(|f| f.tokens).sum();
    let (blank, spoken): (Vec<&Flip>, Vec<&Flip>) = found.iter().flat_map(|f| &f.flips).partition(|flip| flip.blank);
    let (flips, allowed) = (spoken.len(), limits.flips(tokens));
    let percent = 100.0 * flips as f64 / tokens.max(1) as f64;
    let apart = found.iter().map(|f| f.top1_logit_max_abs).fold(0.0, f64::max);
    let mut says = format!(
        "{flips} of {} ({percent:.2} %, limit {} %, here {allowed})",
        counted(tokens, "label"),
        limits.flips_percent
    );
    if !blank.is_empty() {
        says.push_str(&format!("; {} more where both read a blank", blank.len()));
    }
    says.push_str(&format!("; top1_logit apart by {apart:.3e}"));
    let figures = json!({
        "tokens": tokens,
        "flips": flips,
        "allowed": allowed,
        "flips_of_blanks": blank.len(),
        "percent": percent,
        "top1_logit_max_abs": apart,
    });
    let line = |clip: &str, flip: &Flip| {
        let margin = flip.margin.map_or_else(|| "unknown".into(), |margin| format!("{margin:.4}"));
        let blank = if flip.blank { ", blank" } else { "" };
        format!("{clip} token {}: {}, the reference {}, margin {margin}{blank}", flip.token, flip.found, flip.reference)
    };
    let lines = found.iter().flat_map(|f| f.flips.iter().map(|flip| line(&f.clip, flip))).collect();
    Check::run("flips", [Measure::at_most("flips", flips as f64, allowed as f64)], says, figures).with_lines(lines)
}

fn blanks_check(found: &[Found], limits: &Limits) -> Check {
    const NAME: &str = "blanks";
    let flips = || found.iter().flat_map(|f| f.blank_flips.iter().map(|flip| (f.clip.as_str(), flip)));
    let bad: Vec<_> = flips().filter(|(_, flip)| f64::from(flip.margin) > limits.margin).collect();
    let clear: usize = found.iter().map(|f| f.clear_blanks).sum();
    let tokens = counted(found.iter().map(|f| f.tokens).sum(), "token");
    let says = match bad.first() {
        None => format!(
            "equal at all {clear} of {tokens} whose blank and word are more than {} apart; {}",
            limits.margin,
            counted(flips().count(), "flip")
        ),
        Some((clip, flip)) => format!(
            "not equal at {} of {clear} whose blank and word are more than {} apart, of {tokens}, such as {clip} token \
             {}: {}, apart by {:.4}",
            bad.len(),
            limits.margin,
            flip.token,
            if flip.found { "blank" } else { "a word" },
            flip.margin
        ),
    };
    let line = |(clip, flip): (&str, &BlankFlip)| {
        let read = if flip.found { "blank" } else { "a word" };
        format!("{clip} token {}: {read}, apart by {:.4}", flip.token, flip.margin)
    };
    let check = if clear == 0 {
        let reason = format!("at none of {tokens} are blank and word more than {} apart", limits.margin);
        Check::not_run(NAME, reason)
    } else {
        let figures = json!({ "judged": clear, "flips": flips().count(), "above_margin": bad.len() });
        Check::run(NAME, [Measure::none("above_margin", bad.len())], says, figures)
    };
    check.with_lines(flips().map(line).collect())
}

fn read_clip<E: Error>(
    clip: &Clip<'_>,
    green: &Outputs,
    name: &str,
    words: &dyn Vocabulary,
    options: &Options<'_>,
) -> Result<Read, GateError<E>> {
    let own = clip
        .reference
        .text(clip.valid, words)
        .map_err(|source| GateError::Golden { clip: name.into(), source: GoldenError::Labels(source) })?;
    let reference = match options.transcripts {
        Some(lines) => lines.of(name, "--transcripts")?.to_string(),
        None => own,
    };
    let found = green.text(clip.valid, words).map_err(|e| e.to_string());
    Ok(Read { clip: name.into(), found, reference, truth: truth(name, options)? })
}

fn truth<E: Error>(clip: &str, options: &Options<'_>) -> Result<Option<String>, GateError<E>> {
    Ok(options.truth.map(|lines| lines.of(clip, "--wer").map(str::to_string)).transpose()?)
}

/// Labels are compared already, so transcripts are only where the user has the reference's.
fn task_checks(texts: &[Read], options: &Options<'_>) -> [Check; 2] {
    let check = |name, given: bool, needs, judge: fn(&[Read], &Limits) -> Check| match (given, options.words) {
        (false, _) => Check::not_run(name, needs),
        (true, None) => Check::not_run(name, transcripts::NEEDS_WORDS),
        (true, Some(_)) => judge(texts, &options.limits),
    };
    [
        check(
            "transcripts",
            options.transcripts.is_some(),
            transcripts::NEEDS_TRANSCRIPTS,
            transcripts::transcripts_check,
        ),
        check("wer", options.truth.is_some(), transcripts::NEEDS_TRUTH, transcripts::wer_check),
    ]
}

/// An encoder's soft tokens and the reference's, rows of `width` for each valid token, read by the reader of `case`.
/// Gives nothing where there is no reader or are no words.
///
/// # Errors
/// The reader does not take them, or a run failed.
pub(super) fn read_soft<E: Error>(
    case: &Case<'_, E>,
    [found, reference]: [&[f32]; 2],
    width: usize,
    options: &Options<'_>,
) -> Result<Option<Read>, GateError<E>> {
    let (Some(reader), Some(words)) = (case.reader, options.words) else { return Ok(None) };
    let clip = &case.golden.name;
    let heard = |soft: &[f32]| hear(reader, clip, soft, width);
    let tokens = reference.len() / width;
    // What is not finite reads as nothing, and cannot be cast to fp16.
    let found = match numbers::not_finite(found) {
        0 => heard(found)?.text(tokens, words).map_err(|e| e.to_string()),
        _ => Err("a soft token is not finite".into()),
    };
    let reference = match options.transcripts {
        Some(lines) => lines.of(clip, "--transcripts")?.to_string(),
        None => {
            heard(reference)?.text(tokens, words).map_err(|source| GateError::Reading { clip: clip.clone(), source })?
        }
    };
    Ok(Some(Read { clip: clip.clone(), found, reference, truth: truth(clip, options)? }))
}

/// Runs the reader on soft tokens, padded with zeros to its length.
fn hear<E: Error>(
    reader: &dyn Subject<Error = E>,
    clip: &str,
    soft: &[f32],
    width: usize,
) -> Result<Outputs, GateError<E>> {
    let declared = reader.input(SOFT_TOKENS).map(|fact| fact.shape.dims().to_vec()).unwrap_or_default();
    let wrong =
        |expected| GateError::Input { model: "reader", input: SOFT_TOKENS, found: format!("{declared:?}"), expected };
    let &[1, length, wide] = declared.as_slice() else { return Err(wrong("[1, tokens, width]".into())) };
    if wide != width {
        return Err(wrong(format!("a width of {width}, as the encoder gives")));
    }
    let tokens = soft.len() / width;
    if tokens > length {
        return Err(GateError::TooLong { clip: clip.into(), tokens, length });
    }
    let mut padded = soft.to_vec();
    padded.resize(length * width, 0.0);
    let tensor = |name: &str, dims: Vec<usize>, values| {
        HostTensor::new(Fact::new(DType::F32, dims), Values::F32(values)).ok().map(|tensor| (name.to_string(), tensor))
    };
    let inputs = [
        tensor(SOFT_TOKENS, vec![1, length, width], padded),
        tensor(TOKEN_MASK, vec![1, length], token_mask(tokens, length)),
    ];
    let inputs: Tensors = inputs.into_iter().flatten().collect();
    let raw = reader.run(&inputs).map_err(|source| GateError::Run { clip: clip.into(), source })?;
    outputs(&raw, clip, length)
}
