//! Reading tensors of a clip or of a run, and what is judged of any model's numbers.

use super::{Check, GateError, Golden, GoldenError, Measure, Subject, Tensors};
use crate::eval::{HostTensor, Values};
use serde::Serialize;
use serde_json::json;
use std::error::Error;

/// A float tensor of a golden, each value finite.
pub fn given<'g>(golden: &'g Golden, tensor: &'static str) -> Result<(&'g HostTensor, &'g [f32]), GoldenError> {
    let found = golden.tensors.get(tensor).ok_or(GoldenError::Missing { tensor })?;
    let expected = || GoldenError::Shape { tensor, found: found.fact().clone(), expected: "floats".into() };
    let values = found.floats().ok_or_else(expected)?;
    match values.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(GoldenError::NotFinite { tensor, index }),
        None => Ok((found, values)),
    }
}

/// How many leading ones a mask has, of ones and then zeros.
pub fn leading_ones(tensor: &'static str, mask: &[f32]) -> Result<usize, GoldenError> {
    let ones = mask.iter().take_while(|v| **v == 1.0).count();
    match mask.iter().enumerate().skip(ones).find(|(_, v)| **v != 0.0) {
        Some((index, value)) => Err(GoldenError::Mask { tensor, index, value: *value }),
        None => Ok(ones),
    }
}

/// A tensor with other values of the same kind and number.
pub fn with_values(tensor: &HostTensor, values: Vec<f32>) -> HostTensor {
    HostTensor::new(tensor.fact().clone(), Values::F32(values)).unwrap_or_else(|_| tensor.clone())
}

/// Runs `inputs`, which are those of the clip or question `name`.
pub fn run<E: Error>(name: &str, subject: &dyn Subject<Error = E>, inputs: &Tensors) -> Result<Tensors, GateError<E>> {
    subject.run(inputs).map_err(|source| GateError::Run { clip: name.into(), source })
}

/// Whether runs of the same inputs gave the same bits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Repeats {
    /// Runs that gave other bits than the first one.
    pub unlike: usize,
    /// An output that differed.
    pub output: Option<String>,
}

/// Runs `inputs` again, so that there are `repeats` runs with the one that gave `first`.
pub fn repeat<E: Error>(
    name: &str,
    subject: &dyn Subject<Error = E>,
    inputs: &Tensors,
    first: &Tensors,
    repeats: usize,
) -> Result<Repeats, GateError<E>> {
    let mut found = Repeats { unlike: 0, output: None };
    for _ in 1..repeats {
        let again = run(name, subject, inputs)?;
        let other = first.iter().find(|(name, tensor)| !again.get(*name).is_some_and(|a| same_bits(a, tensor)));
        if let Some((name, _)) = other {
            found.unlike += 1;
            found.output.get_or_insert_with(|| name.clone());
        }
    }
    Ok(found)
}

/// Bits, so that a NaN is itself and a zero has its sign.
fn same_bits(a: &HostTensor, b: &HostTensor) -> bool {
    let same = match (a.values(), b.values()) {
        (Values::F32(a), Values::F32(b)) => a.iter().map(|v| v.to_bits()).eq(b.iter().map(|v| v.to_bits())),
        (Values::I32(a), Values::I32(b)) => a == b,
        (Values::F32(_), Values::I32(_)) | (Values::I32(_), Values::F32(_)) => false,
    };
    same && a.fact() == b.fact()
}

/// Values that are not finite.
pub fn not_finite(values: &[f32]) -> usize {
    values.iter().filter(|v| !v.is_finite()).count()
}

/// What a model is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Noun {
    /// One of them.
    one: &'static str,
    /// Several.
    several: &'static str,
    /// What must be finite in each.
    outputs: &'static str,
}

impl Noun {
    /// Sound, in tokens.
    pub const CLIP: Noun = Noun { one: "clip", several: "clips", outputs: "every output at every valid token" };
    /// A text and options.
    pub const QUESTION: Noun =
        Noun { one: "question", several: "questions", outputs: "the logit of every option, and all of cls" };
}

/// The check of [`not_finite`] over clips or questions given as name and count.
pub fn finite_check(noun: Noun, clips: &[(&str, usize)]) -> Check {
    let bad: Vec<&(&str, usize)> = clips.iter().filter(|(_, n)| *n > 0).collect();
    let several = noun.several;
    let says = match bad.first() {
        None => noun.outputs.into(),
        Some((clip, n)) => format!("{} of {} {several} have values that are not, {clip} {n}", bad.len(), clips.len()),
    };
    let named: Vec<&str> = bad.iter().map(|(clip, _)| *clip).collect();
    let measure = Measure::none("not_finite", clips.iter().map(|(_, n)| n).sum());
    Check::run("finite", [measure], says, json!({ several: clips.len(), "not_finite": named }))
}

/// The check of [`repeat`] over clips or questions given with their names.
pub fn repeats_check(noun: Noun, clips: &[(&str, &Repeats)], repeats: usize) -> Check {
    if repeats < 2 {
        return Check::not_run("repeats", "one run repeats nothing; --repeats asks for more");
    }
    let Noun { one, several, .. } = noun;
    let bad: Vec<&str> = clips.iter().filter(|(_, r)| r.unlike > 0).map(|(clip, _)| *clip).collect();
    let says = match bad.first() {
        None => format!("{repeats} runs of each {one} gave the same bits"),
        Some(clip) => {
            format!("{} of {} {several} gave other bits when run again, such as {clip}", bad.len(), clips.len())
        }
    };
    let measure = Measure::none("unlike", clips.iter().map(|(_, r)| r.unlike).sum());
    Check::run("repeats", [measure], says, json!({ "runs": repeats, several: clips.len(), "unlike": bad }))
}
