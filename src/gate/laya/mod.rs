//! The gate of the decision model: what the host makes of the graph's `logits` [1, 1, 1, 32] and `cls` [1, C, 1, 1], against
//! what the reference makes of the same question.
//!
//! The likeliest option must be the reference's, and calibrated shares and shares of the actions within a limit of it:
//! one without the other is too weak, as the likeliest option stays where shares are far off. Shares near 1 hide what
//! happens to logits, so how many questions are so is told, and logits and `cls` are told beside and judged in fp32.

mod arms;
mod asked;
#[cfg(test)]
mod tests;

pub use arms::NAMES as ARMS;
pub use asked::{Asked, Layout, Reference, TENSORS, reference, rows, same_inputs, tensors};

use super::numbers::{Noun, Repeats, finite_check, not_finite, repeat, repeats_check, run};
use super::{Check, GateError, Limits, Measure, Report, Tensors};
use crate::eval::HostTensor;
use crate::models::laya::host::{ActionHead, Calibration, argmax, shares, softmax};
use crate::models::laya::{SLOTS, names};
use crate::plural::counted;
use serde::Serialize;
use serde_json::json;
use std::error::Error;

/// Name of the model in reports.
pub const MODEL: &str = "laya";

/// A share above which a question is saturated: of a logit's error no more than a hundredth is left in the share.
const SATURATED: f64 = 0.99;

/// What the host makes of outputs, and what its masks are made by.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// Temperatures.
    pub calibration: &'a Calibration,
    /// The action head.
    pub action: &'a ActionHead,
    /// The window of local layers, in tokens.
    pub window: usize,
}

/// Questions to judge by.
pub struct Questions<'a, E> {
    /// Those that are asked.
    pub asked: Vec<Asked<'a, E>>,
    /// Those that are longer than the artefact, by name and tokens.
    pub skipped: Vec<(String, usize)>,
}

/// How far an artefact is from the reference on a question. What is not finite is no number.
#[derive(Clone, Debug, Serialize)]
pub struct Distance {
    /// The likeliest option.
    pub argmax: usize,
    /// The reference's likeliest option.
    pub argmax_reference: usize,
    /// Largest difference of a calibrated share.
    pub probability: f64,
    /// Largest difference of an action's share; none where the reference has none.
    pub action: Option<f64>,
    /// Largest difference of an option's logit.
    pub logit: f64,
    /// Largest difference in `cls`, by the reference's largest number; none where the reference has none.
    pub cls: Option<f64>,
}

impl Distance {
    /// Whether a gate of this question alone would pass.
    fn holds(&self, limits: &Limits) -> bool {
        let within = |number: Option<f64>, limit: Option<f64>| match (number, limit) {
            (Some(number), Some(limit)) => Measure::at_most("", number, limit).holds(),
            (None, _) | (_, None) => true,
        };
        self.argmax == self.argmax_reference
            && within(Some(self.probability), Some(limits.probability))
            && within(self.action, Some(limits.probability))
            && within(Some(self.logit), limits.logit)
            && within(self.cls, limits.cls)
    }

    fn says(&self) -> String {
        let other = if self.argmax == self.argmax_reference { "the same" } else { "another" };
        let action = self.action.map_or_else(String::new, |action| format!(", of an action {action:.2e}"));
        format!("{other} option, share apart by {:.2e}{action}, logit by {:.2e}", self.probability, self.logit)
    }
}

/// What was found of a question.
#[derive(Debug, Serialize)]
struct Judged {
    question: String,
    kind: &'static str,
    options: usize,
    tokens: usize,
    length: usize,
    #[serde(flatten)]
    distance: Distance,
    /// The reference's largest calibrated share.
    top: f64,
    /// Logits between the reference's two likeliest options.
    margin: Option<f64>,
    not_finite: usize,
    repeats: Repeats,
    /// Whether the host made the reference's tokens of it; none where there is no text.
    tokens_alike: Option<bool>,
    #[serde(skip)]
    layout: Option<Layout>,
}

/// Checks that every report on a decision model has, run or not.
pub fn checks(limits: &Limits) -> Vec<&'static str> {
    let exact = [("logits", limits.logit), ("cls", limits.cls)];
    let exact = exact.into_iter().filter(|(_, limit)| limit.is_some()).map(|(name, _)| name);
    let first = ["argmax", "probabilities", "action"].into_iter();
    first.chain(exact).chain(["tokens", "finite", "repeats"]).chain(arms::NAMES).collect()
}

/// Gates a decision model.
///
/// # Errors
/// The artefact does not give what a decision model does, or a run failed.
pub fn laya<E: Error>(
    questions: &Questions<'_, E>,
    judge: &Judge<'_>,
    limits: Limits,
    repeats: usize,
) -> Result<Report, GateError<E>> {
    let mut found = Vec::new();
    for asked in &questions.asked {
        found.push(judged(asked, judge, repeats)?);
    }
    let with = |checks| {
        let clips = found.iter().map(|f| json!(f)).collect();
        Report { model: MODEL, limits, repeats, clips, checks }
    };
    let skipped = skipped_check(questions);
    if found.is_empty() {
        let none =
            checks(&limits).into_iter().map(|name| Check::not_run(name, "no question is as short as the artefact"));
        return Ok(with(none.chain(skipped).collect()));
    }
    let mut all = vec![argmax_check(&found), probabilities_check(&found, &limits), action_check(&found, &limits)];
    all.extend(exact_checks(&found, &limits));
    all.push(tokens_check(&found));
    let bad: Vec<_> = found.iter().map(|f| (f.question.as_str(), f.not_finite)).collect();
    all.push(finite_check(Noun::QUESTION, &bad));
    let runs: Vec<_> = found.iter().map(|f| (f.question.as_str(), &f.repeats)).collect();
    all.push(repeats_check(Noun::QUESTION, &runs, repeats));
    all.extend(arms::checks(&questions.asked.iter().zip(&found).collect::<Vec<_>>(), judge, &limits)?);
    all.extend(skipped);
    Ok(with(all))
}

/// What an artefact gave for a question.
struct Outputs<'t> {
    logits: &'t [f32],
    cls: &'t [f32],
}

impl<'t> Outputs<'t> {
    fn of<E: Error>(asked: &Asked<'_, E>, found: &'t Tensors, judge: &Judge<'_>) -> Result<Self, GateError<E>> {
        let output = |name: &'static str, dims: [usize; 4]| {
            let tensor = found.get(name);
            let floats = tensor.filter(|t| t.fact().shape.dims() == dims).and_then(HostTensor::floats);
            floats.ok_or_else(|| GateError::Output {
                model: "decision model",
                clip: asked.name.clone(),
                output: name,
                found: tensor.map_or_else(|| "absent".into(), |t| t.fact().to_string()),
                expected: format!("floats of {dims:?}"),
            })
        };
        let logits = output(names::LOGITS, [1, 1, 1, SLOTS])?;
        Ok(Outputs {
            // Those of slots without an option mean nothing.
            logits: logits.get(..asked.options()).unwrap_or_default(),
            cls: output(names::CLS, [1, judge.action.hidden(), 1, 1])?,
        })
    }
}

fn judged<E: Error>(asked: &Asked<'_, E>, judge: &Judge<'_>, repeats: usize) -> Result<Judged, GateError<E>> {
    let outputs = run(&asked.name, asked.subject, &asked.inputs)?;
    let distance = distance(asked, &outputs, judge)?;
    let Outputs { logits, cls } = Outputs::of(asked, &outputs, judge)?;
    let mut ranked = asked.reference.logits.clone();
    ranked.sort_by(|a, b| b.total_cmp(a));
    let top = shares(asked.kind, &asked.reference.logits, judge.calibration).into_iter().fold(0f32, f32::max);
    Ok(Judged {
        question: asked.name.clone(),
        kind: asked.kind.name(),
        options: asked.options(),
        tokens: asked.tokens(),
        length: asked.valid.len(),
        top: f64::from(top),
        margin: ranked.first().zip(ranked.get(1)).map(|(first, second)| f64::from(first - second)),
        not_finite: not_finite(logits) + not_finite(cls),
        repeats: repeat(&asked.name, asked.subject, &asked.inputs, &outputs, repeats)?,
        tokens_alike: asked.layout.as_ref().map(|layout| *layout == Layout::Same),
        layout: asked.layout.clone(),
        distance,
    })
}

/// How far what an artefact gave is from the reference.
fn distance<E: Error>(asked: &Asked<'_, E>, outputs: &Tensors, judge: &Judge<'_>) -> Result<Distance, GateError<E>> {
    let Outputs { logits, cls } = Outputs::of(asked, outputs, judge)?;
    let Reference { logits: expected, cls: expected_cls, action } = &asked.reference;
    let calibrated = |logits| shares(asked.kind, logits, judge.calibration);
    // Of what is not finite the head makes nothing, and the difference is no number.
    let mut all = logits.to_vec();
    all.resize(SLOTS, 0.0);
    let done = judge.action.decide(&all, cls, logits.len()).map(|action| action.probabilities).unwrap_or_default();
    Ok(Distance {
        argmax: argmax(logits),
        argmax_reference: argmax(expected),
        probability: apart(&calibrated(logits), &calibrated(expected)),
        action: action.as_ref().map(|action| apart(&done, &softmax(action))),
        logit: apart(logits, expected),
        cls: expected_cls.as_ref().map(|expected| {
            let largest = expected.iter().fold(0f32, |most, v| most.max(v.abs()));
            apart(cls, expected) / f64::from(largest.max(f32::MIN_POSITIVE))
        }),
    })
}

/// The largest difference of two stretches; no number where one has none, or where they are not of one length.
fn apart(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::NAN;
    }
    let differences = found.iter().zip(expected).map(|(a, b)| f64::from(a - b).abs());
    most(differences)
}

/// The largest of `values`, which is no number where one of them is none.
fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, |most: f64, value| if most.is_nan() || value <= most { most } else { value })
}

/// The question where `value` is largest, or no number.
fn worst(found: &[Judged], value: impl Fn(&Judged) -> Option<f64>) -> Option<(&Judged, f64)> {
    let some = found.iter().filter_map(|f| Some((f, value(f)?)));
    // In order of size, NaN comes last; of equals the first is told.
    some.rev().max_by(|(_, a), (_, b)| a.total_cmp(b))
}

fn argmax_check(found: &[Judged]) -> Check {
    let other: Vec<&Judged> = found.iter().filter(|f| f.distance.argmax != f.distance.argmax_reference).collect();
    let says = match other.as_slice() {
        [] => format!("the reference's option in {}", counted(found.len(), "question")),
        [first, ..] => {
            format!(
                "another option in {} of {}, such as {}",
                other.len(),
                counted(found.len(), "question"),
                first.question
            )
        }
    };
    let line = |f: &&Judged| {
        let Distance { argmax, argmax_reference, .. } = f.distance;
        let margin = f.margin.unwrap_or_default();
        format!("{}: option {argmax}, the reference has {argmax_reference} by {margin:.2e} logits", f.question)
    };
    let figures = json!({ "questions": found.len(), "other": other.iter().map(|f| &f.question).collect::<Vec<_>>() });
    Check::run("argmax", [Measure::none("other", other.len())], says, figures)
        .with_lines(other.iter().map(line).collect())
}

fn probabilities_check(found: &[Judged], limits: &Limits) -> Check {
    const NAME: &str = "probabilities";
    let Some((at, apart)) = worst(found, |f| Some(f.distance.probability)) else {
        return Check::not_run(NAME, "there is no question");
    };
    let logit = most(found.iter().map(|f| f.distance.logit));
    let saturated: Vec<&String> = found.iter().filter(|f| f.top > SATURATED).map(|f| &f.question).collect();
    let measure = Measure::at_most("probability", apart, limits.probability);
    if measure.holds() && saturated.len() == found.len() {
        let reason = format!(
            "the reference's option has a share above {SATURATED} in {}, and shares of such hide what happens to logits \
             (apart by {logit:.2e})",
            counted(found.len(), "question")
        );
        return Check::not_run(NAME, reason);
    }
    let mut says = format!(
        "calibrated shares apart by {apart:.2e} at {} (limit {}), logits by {logit:.2e}",
        at.question, limits.probability
    );
    if let Some((_, cls)) = worst(found, |f| f.distance.cls) {
        says.push_str(&format!(", cls by {cls:.2e}"));
    }
    if !saturated.is_empty() {
        says.push_str(&format!(
            "; {} of {} have a share above {SATURATED}, which hides what happens to logits",
            saturated.len(),
            counted(found.len(), "question")
        ));
    }
    let figures = json!({
        "questions": found.len(), "probability": apart, "at": at.question, "logit": logit, "saturated": saturated,
    });
    let above = |f: &&Judged| !Measure::at_most("", f.distance.probability, limits.probability).holds();
    let lines = found.iter().filter(above).map(|f| format!("{}: {}", f.question, f.distance.says())).collect();
    Check::run(NAME, [measure], says, figures).with_lines(lines)
}

fn action_check(found: &[Judged], limits: &Limits) -> Check {
    let told = found.iter().filter(|f| f.distance.action.is_some()).count();
    let Some((at, apart)) = worst(found, |f| f.distance.action) else {
        return Check::not_run("action", "no golden and no question set tells the action head's logits");
    };
    let of = counted(told, "question");
    let says = format!("shares apart by {apart:.2e} at {} (limit {}), {of}", at.question, limits.probability);
    let figures = json!({ "questions": told, "probability": apart, "at": at.question });
    Check::run("action", [Measure::at_most("probability", apart, limits.probability)], says, figures)
}

/// The checks of numbers that are judged only where the artefact computes as exactly as the reference.
fn exact_checks(found: &[Judged], limits: &Limits) -> Vec<Check> {
    let check = |name, limit: Option<f64>, value: &dyn Fn(&Judged) -> Option<f64>| {
        let limit = limit?;
        let Some((at, apart)) = worst(found, value) else {
            return Some(Check::not_run(name, format!("no golden has {name}")));
        };
        let says = format!("apart by {apart:.2e} at {} (limit {limit})", at.question);
        let figures = json!({ "apart": apart, "at": at.question });
        Some(Check::run(name, [Measure::at_most("apart", apart, limit)], says, figures))
    };
    let logits = check("logits", limits.logit, &|f| Some(f.distance.logit));
    let cls = check("cls", limits.cls, &|f| f.distance.cls);
    logits.into_iter().chain(cls).collect()
}

fn tokens_check(found: &[Judged]) -> Check {
    let told: Vec<(&Judged, &Layout)> = found.iter().filter_map(|f| Some((f, f.layout.as_ref()?))).collect();
    if told.is_empty() {
        return Check::not_run("tokens", "no question with its texts is given, by --questions");
    }
    let other = |(f, layout): &(&Judged, &Layout)| match layout {
        Layout::Same => None,
        Layout::Other { says } => Some(format!("{}: {says}", f.question)),
    };
    let lines: Vec<String> = told.iter().filter_map(other).collect();
    let all = counted(told.len(), "question");
    let says = match lines.as_slice() {
        [] => format!("the reference's tokens in {all}"),
        [_, ..] => format!("others than the reference's in {} of {all}", lines.len()),
    };
    let figures = json!({ "questions": told.len(), "unlike": lines });
    Check::run("tokens", [Measure::none("unlike", lines.len())], says, figures).with_lines(lines)
}

/// The questions that are longer than the artefact: a pass of the others says nothing of them.
fn skipped_check<E>(questions: &Questions<'_, E>) -> Option<Check> {
    let (name, tokens) = questions.skipped.first()?;
    let (skipped, all) = (questions.skipped.len(), questions.skipped.len() + questions.asked.len());
    let all = counted(all, "question");
    let reason = format!("{skipped} of {all} longer than the artefact, such as {name} of {tokens} tokens");
    Some(Check::not_run("skipped", reason))
}
