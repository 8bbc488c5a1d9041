//! Red arms: runs whose input is spoilt on purpose, which must break the result.

use super::{Check, Limits, Measure};
use serde::Serialize;
use serde_json::{Value, json};

/// What an arm did to a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It broke the result, as it must.
    Broke,
    /// It did not: the gate would not see an artefact that is broken so.
    Held,
    /// The result is too far off without the arm to tell.
    Unclear,
    /// By its length the clip has nothing for the arm to break.
    NotApplicable,
}

/// An arm on one clip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Arm {
    /// Which one.
    pub name: &'static str,
    /// What it did.
    pub outcome: Outcome,
    /// The figures it is judged by.
    pub figures: Value,
    /// The same in a sentence.
    #[serde(skip)]
    pub says: String,
    /// How much it did, to name the clip where that is least.
    #[serde(skip)]
    pub strength: f64,
}

impl Arm {
    /// The arm on a clip that has nothing for it to break.
    pub fn not_applicable(name: &'static str) -> Arm {
        Arm { name, outcome: Outcome::NotApplicable, figures: Value::Null, says: String::new(), strength: 0.0 }
    }
}

/// Cosines of a token: the arm's to the reference, that without the arm to the reference, and the two to each other.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Token {
    /// Which token.
    pub token: usize,
    /// Without the arm, to the reference.
    pub green: f64,
    /// With it, to the reference.
    pub red: f64,
    /// With it, to that without it.
    pub own: f64,
}

impl Token {
    /// Whether the arm broke the token.
    ///
    /// It has where the token left the reference, and is farther from it by a factor than without the arm: a token that
    /// is off anyway, as a near-silent one may be in fp16, shows nothing by being off. An arm that leaves the token where
    /// it was, or at the reference, has no teeth. Anything between is unclear: the artefact's own error is as large.
    pub fn outcome(&self, limits: &Limits) -> Outcome {
        let farther = 1.0 - self.red >= limits.arm_factor * (1.0 - self.green);
        if self.red < limits.arm_cosine && farther {
            Outcome::Broke
        } else if self.red >= limits.arm_cosine || self.own >= limits.arm_cosine {
            Outcome::Held
        } else {
            Outcome::Unclear
        }
    }
}

/// The clip that broke least, and how far.
fn weakest(clips: &[(&str, &Arm)]) -> String {
    let broke = clips.iter().filter(|(_, arm)| arm.outcome == Outcome::Broke);
    let least = broke.min_by(|(_, a), (_, b)| a.strength.total_cmp(&b.strength));
    least.map_or_else(String::new, |(clip, arm)| format!(", least {clip}: {}", arm.says))
}

/// The check of the arm `name` over clips, each by its name. `applies` says which clips it applies to.
pub fn check(name: &'static str, applies: &str, clips: &[(&str, &Arm)]) -> Check {
    let with = |outcome| {
        let of = move |(clip, arm): &&(&str, &Arm)| (arm.outcome == outcome).then(|| clip.to_string());
        clips.iter().filter_map(|c| of(&c)).collect::<Vec<String>>()
    };
    let [broke, held, unclear, none] =
        [Outcome::Broke, Outcome::Held, Outcome::Unclear, Outcome::NotApplicable].map(with);
    if broke.is_empty() && held.is_empty() {
        let reason = match unclear.first() {
            None => format!("it applies to {applies}, and no clip is one"),
            Some(clip) => {
                format!("the artefact's own error hides what it does to each clip it applies to, such as {clip}")
            }
        };
        return Check::not_run(name, reason);
    }
    let mut says = match held.first() {
        None => {
            let tried = broke.len() + unclear.len();
            format!("broke {} of {tried} clips it applies to{}", broke.len(), weakest(clips))
        }
        Some(clip) => {
            let tried = broke.len() + held.len() + unclear.len();
            format!("did not break {} of {tried} clips it applies to, such as {clip}", held.len())
        }
    };
    if let Some(clip) = unclear.first() {
        says.push_str(&format!("; the artefact's own error hides it in {}, such as {clip}", unclear.len()));
    }
    let figures =
        json!({ "applies_to": applies, "broke": broke, "held": held, "unclear": unclear, "not_applicable": none });
    let toothless = clips.iter().filter(|(_, arm)| matches!(arm.outcome, Outcome::Held | Outcome::Unclear));
    let lines = toothless.map(|(clip, arm)| format!("{clip}: {}", arm.says)).collect();
    let measures = [Measure::none("held", held.len()), Measure::at_least("broke", broke.len() as f64, 1.0)];
    Check::run(name, measures, says, figures).with_lines(lines)
}
