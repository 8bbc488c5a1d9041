//! Answers, with the keys of the published host; its numbers are rounded to four digits, and these are not.

use super::action::{Action, ActionError, active};
use super::calibration::Calibration;
use super::numbers::{argmax, softmax};
use super::question::{Question, QuestionType};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;

/// Smallest share whose logarithm is taken.
const SMALLEST_SHARE: f64 = 1e-12;

/// Entries by key, in the order of the options.
#[derive(Clone, Debug, PartialEq)]
pub struct ByOption<T>(pub Vec<(String, T)>);

impl<T: Serialize> Serialize for ByOption<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, entry)| (key, entry)))
    }
}

/// Whether to go by an answer.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct AnswerAction {
    /// How much is to be said for it.
    pub act_probability: f64,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// The answer to a choice.
    Choice {
        /// The label of the likeliest option, as it was given.
        choice: Value,
        /// The share of each label.
        probabilities: ByOption<f64>,
        /// 1 less the entropy over its largest.
        confidence: f64,
        /// The likeliest option's share.
        answer_confidence: f64,
        /// Whether to go by it.
        action: AnswerAction,
    },
    /// The answer to a score.
    Score {
        /// The mean level.
        score: f64,
        /// What each level means.
        legend: ByOption<String>,
        /// The share of each level.
        probabilities: ByOption<f64>,
        /// 1 less the entropy over its largest.
        confidence: f64,
        /// The likeliest level's share.
        answer_confidence: f64,
        /// Whether to go by it.
        action: AnswerAction,
    },
    /// The answer to a noul.
    Noul {
        /// How true the statement is, 0 to 1.
        noul: f64,
        /// The share of the likelier of true and false.
        confidence: f64,
        /// The same.
        answer_confidence: f64,
        /// Whether to go by it.
        action: AnswerAction,
    },
}

/// The calibrated share of each option, in the request's order, from the graph's `logits` `[32]`.
///
/// # Errors
/// As [`active`].
pub fn probabilities(question: &Question, logits: &[f32], calibration: &Calibration) -> Result<Vec<f32>, ActionError> {
    let active = active(logits, question.options().len())?;
    Ok(question.by_option(&shares(question.kind(), active, calibration)))
}

/// The calibrated share of each option, in the order in which they are shown, from its logits.
pub fn shares(kind: QuestionType, active: &[f32], calibration: &Calibration) -> Vec<f32> {
    let temperature = calibration.temperature(kind, active.len()) as f32;
    let scaled: Vec<f32> = active.iter().map(|logit| logit / temperature).collect();
    softmax(&scaled)
}

impl Answer {
    /// The answer to `question` of those [`probabilities`].
    pub fn new(question: &Question, probabilities: &[f32], action: &Action) -> Answer {
        let action = AnswerAction { act_probability: action.act_probability() };
        let likeliest = argmax(probabilities);
        let shares: Vec<f64> = probabilities.iter().copied().map(f64::from).collect();
        let answer_confidence = shares.get(likeliest).copied().unwrap_or_default();
        let by_key = |key: &dyn Fn(usize) -> String| {
            ByOption(shares.iter().enumerate().map(|(index, share)| (key(index), *share)).collect())
        };
        let options = question.options();
        match question.kind() {
            QuestionType::Choice => Answer::Choice {
                choice: options.get(likeliest).map(|option| option.label.clone()).unwrap_or_default(),
                probabilities: by_key(&|index| options.get(index).map(|option| option.key()).unwrap_or_default()),
                confidence: concentration(&shares),
                answer_confidence,
                action,
            },
            QuestionType::Score => Answer::Score {
                score: shares.iter().enumerate().map(|(level, share)| level as f64 * share).sum(),
                legend: ByOption(options.iter().enumerate().map(|(i, option)| (i.to_string(), option.key())).collect()),
                probabilities: by_key(&|index| index.to_string()),
                confidence: concentration(&shares),
                answer_confidence,
                action,
            },
            QuestionType::Noul => {
                let noul = shares.get(1).copied().unwrap_or_default();
                Answer::Noul { noul, confidence: noul.max(1.0 - noul), answer_confidence, action }
            }
        }
    }
}

/// 1 less the entropy over the largest that so many shares can have: 1 where there is no doubt.
fn concentration(shares: &[f64]) -> f64 {
    if shares.len() < 2 {
        return 1.0;
    }
    let entropy = -shares.iter().map(|p| p * p.clamp(SMALLEST_SHARE, 1.0).ln()).sum::<f64>();
    (1.0 - entropy / (shares.len() as f64).ln()).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn action() -> Action {
        Action { names: vec!["act".into()], logits: vec![0.0], probabilities: vec![0.75] }
    }

    fn answer(definition: Value, shares: &[f32]) -> String {
        serde_json::to_string(&Answer::new(&Question::parse("q", &definition).unwrap(), shares, &action())).unwrap()
    }

    #[test]
    fn keys_and_order() {
        let choice = json!({"type": "choice", "instructions": "i", "criteria": {"z": "about", "a": null}});
        let score = json!({"type": "score", "instructions": "i", "criteria": ["low", {"b": 1.0}, "high"]});
        let all = [
            answer(choice, &[0.5, 0.5]),
            answer(json!({"type": "choice", "instructions": "i", "criteria": [true, 2.5]}), &[0.0, 1.0]),
            answer(score, &[0.25, 0.25, 0.5]),
            answer(json!({"type": "noul", "instructions": "i"}), &[0.75, 0.25]),
        ];
        insta::assert_snapshot!(all.join("\n"), @r#"
        {"type":"choice","choice":"z","probabilities":{"z":0.5,"a":0.5},"confidence":0.0,"answer_confidence":0.5,"action":{"act_probability":0.75}}
        {"type":"choice","choice":2.5,"probabilities":{"true":0.0,"2.5":1.0},"confidence":1.0,"answer_confidence":1.0,"action":{"act_probability":0.75}}
        {"type":"score","score":1.25,"legend":{"0":"low","1":"{\"b\": 1.0}","2":"high"},"probabilities":{"0":0.25,"1":0.25,"2":0.5},"confidence":0.05360536964281404,"answer_confidence":0.5,"action":{"act_probability":0.75}}
        {"type":"noul","noul":0.25,"confidence":0.75,"answer_confidence":0.75,"action":{"act_probability":0.75}}
        "#);
    }

    #[test]
    fn no_doubt_is_one() {
        assert_eq!([concentration(&[1.0]), concentration(&[1.0, 0.0])], [1.0, 1.0]);
        assert_eq!([concentration(&[0.5, 0.5]), concentration(&[])], [0.0, 1.0]);
    }
}
