//! What a result must keep to. Defaults go by the numbers an artefact computes in; flags or a recipe replace them.

use super::Bound;
use super::laya;
use super::measure::rounded;
use crate::passes::Precision;
use serde::{Deserialize, Serialize};

/// How far two fp32 computations of a decision model are apart at most; a right one is at 3e-6.
const FP32_APART: f64 = 1e-4;

/// Limits of every check.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Least mean over the valid tokens of a clip of their cosine to the reference.
    pub cosine_mean: f64,
    /// Least cosine of any valid token; none where it is told and not judged.
    pub cosine_min: Option<f64>,
    /// A red arm of the encoder has broken a token whose cosine to the reference is below this.
    pub arm_cosine: f64,
    /// And which is so many times as far from the reference, in 1 - cosine, as without the arm.
    pub arm_factor: f64,
    /// A label is judged where the two best words of the reference are more than so many logits apart, a blank where
    /// it is so far from the best word.
    pub margin: f64,
    /// Most labels that may differ from the reference, percent of the valid tokens of all clips; see
    /// [`flips`](Self::flips).
    pub flips_percent: f64,
    /// Least clips whose transcript is the reference's, percent.
    pub transcripts_percent: f64,
    /// How much the word error rate may be above that of the reference, percentage points.
    pub wer_points: f64,
    /// Most that a share may be off, of a decision model's options or actions.
    pub probability: f64,
    /// Most that an option's logit may be off; none where it is told and not judged.
    pub logit: Option<f64>,
    /// Most that a number of `cls` may be off, of the reference's largest; none where it is told and not judged.
    pub cls: Option<f64>,
}

impl Limits {
    /// Limits of an artefact that computes in `precision`.
    pub const fn of(precision: Precision) -> Limits {
        let exact = match precision {
            Precision::Fp32 => Some(FP32_APART),
            Precision::Fp16 | Precision::Fp16W32 | Precision::Int8 => None,
        };
        let cosine_min = match precision {
            // Ours: a right fp32 graph is at 0.9999998.
            Precision::Fp32 => Some(0.99999),
            // The published parity bar.
            Precision::Fp16W32 | Precision::Int8 => Some(0.99),
            // One fp16 step in the inputs moves a near-silent token between 0.97 and 0.9999, so fp16 is judged by its
            // task.
            Precision::Fp16 => None,
        };
        let margin = match precision {
            Precision::Fp32 => 1e-3,
            // What the port's readers kept to at the larger scale, 216; see `at_scale`.
            Precision::Fp16 | Precision::Fp16W32 | Precision::Int8 => 0.25,
        };
        Limits {
            // The published parity bar.
            cosine_mean: 0.999,
            cosine_min,
            // What fp32 is held to. Broken tokens are mostly at 0.79 to 0.96; but random weights of full size make tokens
            // that are all alike, and theirs break to 0.9999 only, where fp32 is at 1 - 1e-12 and fp16 at 0.99999.
            arm_cosine: 0.99999,
            arm_factor: 2.0,
            margin,
            // The port saw 2 of 44,162.
            flips_percent: 1.0,
            // The port's gates: 19 of 20 clips, and 0.1 points.
            transcripts_percent: 95.0,
            wer_points: 0.1,
            // The port's gate; in fp32 what the published modules themselves are held to.
            probability: match exact {
                Some(limit) => limit,
                None => 0.02,
            },
            logit: exact,
            cls: exact,
        }
    }

    /// These limits for a reader whose cosines are multiplied by `scale`: a cosine's error in fp16 grows with it, and no
    /// label of the port's readers flipped with a margin above 0.1 logits at a scale of 91, or 0.25 at 216.
    pub fn at_scale(self, scale: f64) -> Limits {
        let rounded = Limits::of(Precision::Fp16).margin;
        if self.margin < rounded || !scale.is_finite() || scale <= 0.0 {
            return self;
        }
        // To a thousandth, which is how it is told.
        let margin = (scale * 100.0 / 91.0).round() / 1000.0;
        Limits { margin: margin.min(rounded), ..self }
    }

    /// The measures that `check` has where it was run; none where no gate has such a check.
    pub fn measures(&self, check: &str) -> Option<Vec<Held>> {
        let at_least = |name, limit: f64| Held { name, bound: Bound::AtLeast, limit: Some(rounded(limit)) };
        let at_most = |name, limit: f64| Held { name, bound: Bound::AtMost, limit: Some(rounded(limit)) };
        Some(match check {
            "cosine" => {
                let min = self.cosine_min.map(|limit| at_least("min", limit));
                [at_least("least_mean", self.cosine_mean)].into_iter().chain(min).collect()
            }
            "finite" => vec![at_most("not_finite", 0.0)],
            "repeats" => vec![at_most("unlike", 0.0)],
            "labels" | "blanks" => vec![at_most("above_margin", 0.0)],
            // As many as `flips` says of the labels that there were.
            "flips" => vec![Held { name: "flips", bound: Bound::AtMost, limit: None }],
            "transcripts" | "audio transcripts" => vec![at_least("equal_percent", self.transcripts_percent)],
            "wer" | "audio wer" => vec![at_most("points", self.wer_points)],
            // Told where some were not judged, and then never run.
            "functions" | "skipped" => Vec::new(),
            "argmax" => vec![at_most("other", 0.0)],
            "probabilities" | "action" => vec![at_most("probability", self.probability)],
            "logits" => vec![at_most("apart", self.logit?)],
            "cls" => vec![at_most("apart", self.cls?)],
            "tokens" => vec![at_most("unlike", 0.0)],
            _ if laya::ARMS.contains(&check) => vec![at_least("broke", 1.0)],
            "source" | "halves" => vec![at_most("of_others", 0.0)],
            "red arm half_mask" | "red arm padding" | "red arm second half" | "audio red arm second half" => {
                vec![at_most("held", 0.0), at_least("broke", 1.0)]
            }
            _ => return None,
        })
    }

    /// How many labels of `tokens` may differ: rounded down, but one of a short clip unless none may.
    pub fn flips(&self, tokens: usize) -> usize {
        let least = usize::from(self.flips_percent > 0.0);
        // As many as the percentage says, whatever the last bit of the product is.
        ((self.flips_percent * tokens as f64 / 100.0 + 1e-9) as usize).max(least)
    }

    /// These limits with those of `overrides` in their place.
    ///
    /// # Errors
    /// One is out of the range it makes sense in.
    pub fn with(self, overrides: &LimitOverrides) -> Result<Limits, BadLimit> {
        let LimitOverrides {
            cosine_mean,
            cosine_min,
            margin,
            flips_percent,
            transcripts_percent,
            wer_points,
            probability,
        } = *overrides;
        let one = |name, value: Option<f64>, low: f64, high: f64| match value {
            Some(value) if !(low..=high).contains(&value) => Err(BadLimit { name, value, low, high }),
            value => Ok(value),
        };
        Ok(Limits {
            cosine_mean: one("cosine_mean", cosine_mean, -1.0, 1.0)?.unwrap_or(self.cosine_mean),
            cosine_min: one("cosine_min", cosine_min, -1.0, 1.0)?.or(self.cosine_min),
            margin: one("margin", margin, 0.0, f64::MAX)?.unwrap_or(self.margin),
            flips_percent: one("flips_percent", flips_percent, 0.0, 100.0)?.unwrap_or(self.flips_percent),
            transcripts_percent: one("transcripts_percent", transcripts_percent, 0.0, 100.0)?
                .unwrap_or(self.transcripts_percent),
            wer_points: one("wer_points", wer_points, 0.0, f64::MAX)?.unwrap_or(self.wer_points),
            probability: one("probability", probability, 0.0, 1.0)?.unwrap_or(self.probability),
            ..self
        })
    }
}

/// What a measure of a check is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// The measure.
    pub name: &'static str,
    /// Which side of its limit it has to be on.
    pub bound: Bound,
    /// Its limit; none where that goes by what was judged.
    pub limit: Option<f64>,
}

/// Limits to put in the place of defaults, by the names they have in [`Limits`]. What makes a red arm is no matter of
/// choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of Limits")]
pub struct LimitOverrides {
    pub cosine_mean: Option<f64>,
    pub cosine_min: Option<f64>,
    pub margin: Option<f64>,
    pub flips_percent: Option<f64>,
    pub transcripts_percent: Option<f64>,
    pub wer_points: Option<f64>,
    pub probability: Option<f64>,
}

/// A limit that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("limit {name} is {value}, expected {}", range(*low, *high))]
pub struct BadLimit {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// Least value there is a sense in.
    pub low: f64,
    /// Largest such value.
    pub high: f64,
}

fn range(low: f64, high: f64) -> String {
    if high == f64::MAX { format!("at least {low}") } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_what_replaces_them() {
        let limits = Limits::of(Precision::Fp32);
        assert_eq!(limits.with(&LimitOverrides::default()), Ok(limits));
        let overrides: LimitOverrides = serde_json::from_str(r#"{"margin": 0.1, "cosine_min": 0.9}"#).unwrap();
        let replaced = Limits::of(Precision::Fp16).with(&overrides).unwrap();
        assert_eq!((replaced.margin, replaced.cosine_min, replaced.cosine_mean), (0.1, Some(0.9), 0.999));
        insta::assert_snapshot!(serde_json::from_str::<LimitOverrides>(r#"{"cosine": 1}"#).unwrap_err(), @"unknown field `cosine`, expected one of `cosine_mean`, `cosine_min`, `margin`, `flips_percent`, `transcripts_percent`, `wer_points`, `probability` at line 1 column 9");
    }

    #[test]
    fn limits_without_sense() {
        let bad = |overrides| Limits::of(Precision::Fp16).with(&overrides).unwrap_err();
        insta::assert_snapshot!(bad(LimitOverrides { cosine_min: Some(1.5), ..Default::default() }), @"limit cosine_min is 1.5, expected -1 to 1");
        insta::assert_snapshot!(bad(LimitOverrides { margin: Some(-1.0), ..Default::default() }), @"limit margin is -1, expected at least 0");
        insta::assert_snapshot!(bad(LimitOverrides { wer_points: Some(f64::NAN), ..Default::default() }), @"limit wer_points is NaN, expected at least 0");
        insta::assert_snapshot!(bad(LimitOverrides { flips_percent: Some(101.0), ..Default::default() }), @"limit flips_percent is 101, expected 0 to 100");
    }

    #[test]
    fn one_flip_of_few_tokens_is_allowed() {
        for (percent, tokens, allowed) in
            [(1.0, 1, 1), (1.0, 99, 1), (1.0, 199, 1), (1.0, 200, 2), (0.7, 1000, 7), (0.0, 1000, 0), (100.0, 3, 3)]
        {
            let limits = Limits { flips_percent: percent, ..Limits::of(Precision::Fp16) };
            assert_eq!(limits.flips(tokens), allowed, "{percent} % of {tokens}");
        }
    }

    #[test]
    fn a_margin_grows_with_the_scale() {
        let margin = |precision, scale| Limits::of(precision).at_scale(scale).margin;
        assert!((margin(Precision::Fp16, 91.0) - 0.1).abs() < 1e-12);
        assert!(margin(Precision::Fp16, 216.0) < 0.25 && margin(Precision::Fp16, 216.0) > 0.2);
        assert_eq!((margin(Precision::Fp16, 1e4), margin(Precision::Fp16, f64::NAN)), (0.25, 0.25));
        assert_eq!(margin(Precision::Fp32, 216.0), 1e-3);
    }
}
