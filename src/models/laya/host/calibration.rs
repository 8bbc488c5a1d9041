//! Temperatures that logits are divided by, by type and number of options.

use super::question::QuestionType;
use super::render;
use crate::models::laya::Agent;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Smallest and largest temperature that is taken: what is fitted outside of them distorts instead of calibrating.
const TAKEN: [f64; 2] = [0.5, 5.0];

/// Temperature of an entry that is no number.
const NEUTRAL: f64 = 1.0;

/// An entry that was not taken as it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replaced {
    /// Its key in the config.
    pub entry: String,
    /// What stands there.
    pub given: Value,
    /// What was taken.
    pub taken: f64,
}

/// Temperatures within bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    by_type: [f64; 3],
    by_bucket: BTreeMap<String, f64>,
    replaced: Vec<Replaced>,
}

/// How many options there are, as far as calibration tells them apart.
fn bucket(options: usize) -> &'static str {
    match options {
        0..=2 => "2",
        3..=5 => "3-5",
        6..=10 => "6-10",
        11.. => "11+",
    }
}

/// The number of an entry: one that is written as text is taken for it.
fn number(given: &Value) -> Option<f64> {
    let written = |text: &str| render::stripped(text).parse().ok();
    given.as_f64().or_else(|| given.as_str().and_then(written)).filter(|x| x.is_finite())
}

impl Calibration {
    /// The temperatures of a config.
    pub fn new(agent: &Agent) -> Calibration {
        let mut replaced = Vec::new();
        let mut take = |entry: String, given: &Value| {
            let [least, most] = TAKEN;
            let number = number(given);
            let taken = number.map_or(NEUTRAL, |x| x.clamp(least, most));
            if number != Some(taken) {
                replaced.push(Replaced { entry, given: given.clone(), taken });
            }
            taken
        };
        let [choice, score, noul] = &agent.temperature;
        let by_type = [choice, score, noul];
        let mut index = 0;
        let by_type = by_type.map(|given| {
            index += 1;
            take(format!("temperature[{}]", index - 1), given)
        });
        let entries = agent.temperature_by_options.iter();
        let by_bucket = entries
            .map(|(key, given)| (key.clone(), take(format!("temperature_by_options[{key:?}]"), given)))
            .collect();
        Calibration { by_type, by_bucket, replaced }
    }

    /// Entries that were brought within bounds: confidences that come from them are not calibrated.
    pub fn replaced(&self) -> &[Replaced] {
        &self.replaced
    }

    /// The temperature of a question of that type with so many options.
    pub fn temperature(&self, kind: QuestionType, options: usize) -> f64 {
        let [choice, score, noul] = self.by_type;
        let of_type = match kind {
            QuestionType::Choice => choice,
            QuestionType::Score => score,
            QuestionType::Noul => noul,
        };
        self.by_bucket.get(&format!("{kind}:{}", bucket(options))).copied().unwrap_or(of_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::laya::LayaConfig;
    use serde_json::json;

    fn calibration(by_type: [Value; 3], by_options: Value) -> Calibration {
        let mut agent = LayaConfig::multilingual().agent;
        agent.temperature = by_type;
        agent.temperature_by_options = serde_json::from_value(by_options).unwrap();
        Calibration::new(&agent)
    }

    #[test]
    fn by_bucket_then_by_type() {
        let given = json!({"choice:2": 2.0, "choice:3-5": 3.0, "choice:6-10": 4.0, "choice:11+": 4.5, "noul:3-5": 9.0});
        let calibration = calibration([json!(1.5), json!(0.75), json!(1)], given);
        let found = [1, 2, 3, 5, 6, 10, 11, 32].map(|n| calibration.temperature(QuestionType::Choice, n));
        assert_eq!(found, [2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.5, 4.5]);
        assert_eq!(calibration.temperature(QuestionType::Score, 4), 0.75);
        assert_eq!(calibration.temperature(QuestionType::Noul, 2), 1.0);
    }

    #[test]
    fn bounds_are_told() {
        let given = json!({"choice:11+": 0.1, "noul:2": true, "score:2": "1.25", "score:3-5": "nan"});
        let calibration = calibration([json!(0.5), json!(5.0), json!(7)], given);
        let told = serde_json::to_string_pretty(calibration.replaced()).unwrap();
        insta::assert_snapshot!(told, @r#"
        [
          {
            "entry": "temperature[2]",
            "given": 7,
            "taken": 5.0
          },
          {
            "entry": "temperature_by_options[\"choice:11+\"]",
            "given": 0.1,
            "taken": 0.5
          },
          {
            "entry": "temperature_by_options[\"noul:2\"]",
            "given": true,
            "taken": 1.0
          },
          {
            "entry": "temperature_by_options[\"score:3-5\"]",
            "given": "nan",
            "taken": 1.0
          }
        ]
        "#);
        assert_eq!(calibration.temperature(QuestionType::Score, 2), 1.25);
        assert_eq!(calibration.temperature(QuestionType::Choice, 12), 0.5);
    }
}
