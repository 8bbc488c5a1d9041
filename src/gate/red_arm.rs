//! Red arms: runs whose input is spoilt on purpose, which must break the result.

use super::{Check, Limits};
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
}

impl Arm {
    /// The arm on a clip that has nothing for it to break.
    pub fn not_applicable(name: &'static str) -> Arm {
        Arm { name, outcome: Outcome::NotApplicable, figures: Value::Null, says: String::new() }
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
    /// It has where the token left the reference, and is farther from it by a factor than without the arm. Where the
    /// token is off without the arm already, as a near-silent one may be in fp16, being off shows nothing: the factor
    /// alone decides; an arm that leaves such a token where it is has no teeth, and anything between is unclear, since
    /// noise alone moves such a token about.
    pub fn outcome(&self, limits: &Limits) -> Outcome {
        let farther = 1.0 - self.red >= limits.arm_factor * (1.0 - self.green);
        if self.red < limits.arm_cosine && farther {
            Outcome::Broke
        } else if self.green >= limits.arm_cosine || self.own >= limits.arm_cosine {
            Outcome::Held
        } else {
            Outcome::Unclear
        }
    }
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
            Some(clip) => format!("each clip it applies to is off without it, such as {clip}"),
        };
        return Check::not_run(name, reason);
    }
    let mut says = match held.first() {
        None => format!("broke {} of {} clips it applies to", broke.len(), broke.len() + unclear.len()),
        Some(clip) => {
            let tried = broke.len() + held.len() + unclear.len();
            format!("did not break {} of {tried} clips it applies to, such as {clip}", held.len())
        }
    };
    if let Some(clip) = unclear.first() {
        says.push_str(&format!("; {} are off without it, such as {clip}", unclear.len()));
    }
    let figures =
        json!({ "applies_to": applies, "broke": broke, "held": held, "unclear": unclear, "not_applicable": none });
    let toothless = clips.iter().filter(|(_, arm)| matches!(arm.outcome, Outcome::Held | Outcome::Unclear));
    let lines = toothless.map(|(clip, arm)| format!("{clip}: {}", arm.says)).collect();
    Check::run(name, held.is_empty(), says, figures).with_lines(lines)
}
