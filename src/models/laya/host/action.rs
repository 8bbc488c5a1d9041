//! The action head, which the host computes: whether to answer, from the class token and from how sure the options are.

use super::numbers::{not_finite, softmax};
use crate::checkpoint::{Ledger, ScopeError};
use crate::models::laya::stored::{ABOUT, ACT, ACT_WIDTH};
use crate::models::laya::{LayaConfig, SLOTS, UNSEEN, names};
use crate::tensor::{SourceError, WeightSource};
use serde::Serialize;

/// Smallest share whose logarithm is taken.
const SMALLEST_SHARE: f32 = 1e-9;

/// Largest number of options that training counted; a share of it is what the head reads.
const OPTIONS_SCALE: f32 = 255.0;

/// What answering is called; the other actions are the config's.
const ANSWER: &str = "act";

/// The head's weights.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionHead {
    hidden: usize,
    first: Linear,
    second: Linear,
    names: Vec<String>,
}

/// What to do, by the action head.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Action {
    /// Each action, answering first.
    pub names: Vec<String>,
    /// Its logit.
    pub logits: Vec<f32>,
    /// Its share.
    pub probabilities: Vec<f32>,
}

impl Action {
    /// How much is to be said for answering.
    pub fn act_probability(&self) -> f64 {
        self.probabilities.first().copied().map_or(0.0, f64::from)
    }
}

/// Outputs of the graph that nothing can be made of, or weights that are not there.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ActionError {
    #[error("{output} has {found} numbers, expected {expected}")]
    Entries { output: &'static str, found: usize, expected: usize },
    #[error("there are {found} options, expected 1 to {SLOTS}")]
    Options { found: usize },
    #[error("{output} is {found} at {index}, expected finite numbers")]
    NotFinite { output: &'static str, index: usize, found: f32 },
    #[error(transparent)]
    Tensor(#[from] ScopeError),
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A linear layer: a row of weights and a bias for each output.
#[derive(Clone, Debug, PartialEq)]
struct Linear {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    fn read(source: &dyn WeightSource, path: &str, [outputs, inputs]: [usize; 2]) -> Result<Linear, ActionError> {
        let ledger = Ledger::new(source);
        let tensor = |name: &str, dims: &[usize]| -> Result<Vec<f32>, ActionError> {
            let tensor = ledger.root().scope(path).tensor(name, dims)?;
            let mut values = vec![0f32; dims.iter().product()];
            source.read_f32(&tensor.name, 0, &mut values)?;
            Ok(values)
        };
        Ok(Linear { weight: tensor("weight", &[outputs, inputs])?, bias: tensor("bias", &[outputs])? })
    }

    /// Sums run in f64, so that their order is no matter.
    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let row = |(row, bias): (&[f32], &f32)| {
            let sum: f64 = row.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            (sum + f64::from(*bias)) as f32
        };
        self.weight.chunks_exact(x.len().max(1)).zip(&self.bias).map(row).collect()
    }
}

impl ActionHead {
    /// The head of a checkpoint.
    ///
    /// # Errors
    /// A tensor is absent, misshapen or unreadable.
    pub fn read(config: &LayaConfig, source: &dyn WeightSource) -> Result<ActionHead, ActionError> {
        let hidden = config.encoder.hidden;
        let names: Vec<String> = std::iter::once(ANSWER.into()).chain(config.agent.actions.iter().cloned()).collect();
        let [first, second] = ACT;
        Ok(ActionHead {
            hidden,
            first: Linear::read(source, first, [ACT_WIDTH, hidden + ABOUT])?,
            second: Linear::read(source, second, [names.len(), ACT_WIDTH])?,
            names,
        })
    }

    /// Width of the class token that it reads.
    pub fn hidden(&self) -> usize {
        self.hidden
    }

    /// How many actions there are.
    pub fn actions(&self) -> usize {
        self.names.len()
    }

    /// What to do, from the graph's `logits` `[32]` and `cls` `[C]`, for a question of so many `options`. Logits of the
    /// slots behind them are not looked at.
    ///
    /// # Errors
    /// Another number of values, or one that is not finite.
    pub fn decide(&self, logits: &[f32], cls: &[f32], options: usize) -> Result<Action, ActionError> {
        let active = active(logits, options)?;
        if cls.len() != self.hidden {
            return Err(ActionError::Entries { output: names::CLS, found: cls.len(), expected: self.hidden });
        }
        finite(names::CLS, cls)?;
        let input: Vec<f32> = cls.iter().copied().chain(about(active)).collect();
        let inner: Vec<f32> = self.first.apply(&input).into_iter().map(gelu).collect();
        let logits = self.second.apply(&inner);
        finite("the action's logits", &logits)?;
        Ok(Action { names: self.names.clone(), probabilities: softmax(&logits), logits })
    }
}

fn finite(output: &'static str, values: &[f32]) -> Result<(), ActionError> {
    match not_finite(values).and_then(|index| Some((index, *values.get(index)?))) {
        Some((index, found)) => Err(ActionError::NotFinite { output, index, found }),
        None => Ok(()),
    }
}

/// The logits of slots with an option.
///
/// # Errors
/// There are not as many logits as slots, no options or more than slots, or a logit is not finite.
pub fn active(logits: &[f32], options: usize) -> Result<&[f32], ActionError> {
    if logits.len() != SLOTS {
        return Err(ActionError::Entries { output: names::LOGITS, found: logits.len(), expected: SLOTS });
    }
    let active = logits.get(..options).filter(|active| !active.is_empty());
    let active = active.ok_or(ActionError::Options { found: options })?;
    finite(names::LOGITS, active)?;
    Ok(active)
}

/// How sure the options are: the largest share, how far the second is below it, the entropy over its largest, and how
/// many options there are.
fn about(active: &[f32]) -> [f32; ABOUT] {
    let slots: Vec<f32> = active.iter().copied().chain(std::iter::repeat(UNSEEN)).take(SLOTS).collect();
    let mut shares = softmax(&slots);
    let entropy: f32 = -shares.iter().map(|p| p * p.max(SMALLEST_SHARE).ln()).sum::<f32>();
    shares.sort_by(|a, b| b.total_cmp(a));
    let [first, second] = [0, 1].map(|place| shares.get(place).copied().unwrap_or_default());
    let options = active.len().max(2) as f32;
    [first, first - second, entropy / options.ln(), options / OPTIONS_SCALE]
}

/// GELU by the error function.
fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)) / 2.0) as f32
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;
    use crate::tensor::Memory;

    fn memory(hidden: usize) -> Memory {
        let mut memory = Memory::default();
        let shapes: [(&str, &[usize]); 4] = [
            ("act_head.0.weight", &[ACT_WIDTH, hidden + ABOUT]),
            ("act_head.0.bias", &[ACT_WIDTH]),
            ("act_head.2.weight", &[3, ACT_WIDTH]),
            ("act_head.2.bias", &[3]),
        ];
        for (name, dims) in shapes {
            memory.insert_f32(name, dims, &vec![0.0; dims.iter().product()]);
        }
        memory
    }

    #[test]
    fn about_the_options() {
        let [top, margin, entropy, count] = about(&[0.0, 0.0]);
        assert_eq!([top, margin, count], [0.5, 0.0, 2.0 / 255.0]);
        assert!((entropy - 1.0).abs() < 1e-6);
        // One option counts as two, and leaves no doubt.
        assert_eq!(about(&[3.0]), [1.0, 1.0, 0.0, 2.0 / 255.0]);
        let [.., entropy, count] = about(&[1.0; SLOTS]);
        assert!((entropy - 1.0).abs() < 1e-6);
        assert_eq!(count, 32.0 / 255.0);
        assert_eq!([gelu(0.0), gelu(-20.0), gelu(20.0)], [0.0, 0.0, 20.0]);
    }

    #[test]
    fn outputs_that_are_refused() {
        let config = config();
        let hidden = config.encoder.hidden;
        let head = ActionHead::read(&config, &memory(hidden)).unwrap();
        let (logits, cls) = ([0f32; SLOTS], vec![0f32; hidden]);
        let action = head.decide(&logits, &cls, 2).unwrap();
        assert_eq!(
            (action.names.join(" "), action.act_probability()),
            ("act escalate gather".into(), f64::from(1f32 / 3.0))
        );

        let refused = |logits: &[f32], cls: &[f32], options| head.decide(logits, cls, options).unwrap_err().to_string();
        let with = |at: usize, value: f32| {
            let mut logits = logits;
            logits[at] = value;
            logits
        };
        let mut hot = cls.clone();
        hot[7] = f32::INFINITY;
        let all = [
            refused(&logits[1..], &cls, 2),
            refused(&logits, &cls[1..], 2),
            refused(&logits, &cls, 0),
            refused(&logits, &cls, 33),
            refused(&with(1, f32::NAN), &cls, 2),
            refused(&logits, &hot, 2),
        ];
        insta::assert_snapshot!(all.join("\n"), @"
        logits has 31 numbers, expected 32
        cls has 127 numbers, expected 128
        there are 0 options, expected 1 to 32
        there are 33 options, expected 1 to 32
        logits is NaN at 1, expected finite numbers
        cls is inf at 7, expected finite numbers
        ");
        assert_eq!(
            head.decide(&with(2, f32::NAN), &cls, 2).unwrap(),
            action,
            "slots without an option are not looked at"
        );
    }

    #[test]
    fn weights_that_are_refused() {
        let config = config();
        let mut lacking = memory(config.encoder.hidden);
        lacking.0.remove("act_head.2.bias");
        let absent = ActionHead::read(&config, &lacking).unwrap_err();
        let narrow = ActionHead::read(&config, &memory(64)).unwrap_err();
        insta::assert_snapshot!(format!("{absent}\n{narrow}"), @"
        tensor act_head.2.bias is not in memory, expected f64, f32, f16 or bf16 of shape [3]; it has act_head.2.weight, act_head.0.bias, act_head.0.weight
        tensor act_head.0.weight in memory is f32[256,68], expected f64, f32, f16 or bf16 of shape [256,132]
        ");
    }
}
