//! Numbers and the limits they are held to: all that a verdict is made of, so that whoever reads a report can make it
//! again.

use serde::{Deserialize, Serialize};

/// Numbers and limits are taken to so many decimals. A limit of 0.1 percentage points then holds for what is as many
/// errors more, whatever the last bit of a rate is; and a number that is written as JSON is read back as itself.
const DECIMALS: f64 = 1e9;

/// Which side of its limit a number has to be on; the limit itself is on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The limit or more.
    AtLeast,
    /// The limit or less.
    AtMost,
}

impl Bound {
    /// Whether `number` is on that side of `limit`. What is not finite is on no side.
    pub fn holds(self, number: f64, limit: f64) -> bool {
        let on_side = match self {
            Bound::AtLeast => number >= limit,
            Bound::AtMost => number <= limit,
        };
        on_side && number.is_finite() && limit.is_finite()
    }
}

/// A number that is judged, and by what.
///
/// In JSON a number that is not finite is `null`, which never holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// What was measured, one of a check's.
    pub name: &'static str,
    /// The number, to the ninth decimal.
    pub number: f64,
    /// Which side of the limit it has to be on.
    pub bound: Bound,
    /// The limit, to the ninth decimal.
    pub limit: f64,
}

impl Measure {
    /// A number that has to be `limit` or more.
    pub fn at_least(name: &'static str, number: f64, limit: f64) -> Measure {
        Measure { name, number: rounded(number), bound: Bound::AtLeast, limit: rounded(limit) }
    }

    /// A number that has to be `limit` or less.
    pub fn at_most(name: &'static str, number: f64, limit: f64) -> Measure {
        Measure { name, number: rounded(number), bound: Bound::AtMost, limit: rounded(limit) }
    }

    /// A count of faults, of which there may be none.
    pub fn none(name: &'static str, count: usize) -> Measure {
        Measure::at_most(name, count as f64, 0.0)
    }

    /// Whether the number keeps to its limit.
    pub fn holds(&self) -> bool {
        self.bound.holds(self.number, self.limit)
    }
}

/// The least of `values`, which is no number where one of them is none.
pub fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    let less = |least: f64, value: f64| if least.is_nan() || value >= least { least } else { value };
    values.into_iter().fold(f64::INFINITY, less)
}

/// A value as it is told.
pub(super) fn rounded(value: f64) -> f64 {
    let scaled = value * DECIMALS;
    // From 2^53 on every f64 is a whole number of these, or what JSON has no number for.
    if scaled.abs() < 9_007_199_254_740_992.0 { scaled.round() / DECIMALS } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// What is made of a measure by who has its JSON alone.
    fn again(measure: &Measure) -> bool {
        let json: Value = serde_json::from_str(&serde_json::to_string(measure).unwrap()).unwrap();
        let bound: Bound = serde_json::from_value(json["bound"].clone()).unwrap();
        let [number, limit] = ["number", "limit"].map(|key| json[key].as_f64());
        number.zip(limit).is_some_and(|(number, limit)| bound.holds(number, limit))
    }

    #[test]
    fn a_number_and_its_limit() {
        let made = [Measure::at_least, Measure::at_most];
        for (number, limit, holds) in [
            (1.0, 1.0, [true, true]),
            (0.9, 1.0, [false, true]),
            (1.1, 1.0, [true, false]),
            // 5.1 % less 5 % is a bit more than 0.1 points.
            (100.0 * (0.051 - 0.05), 0.1, [true, true]),
            (0.1 + 2e-9, 0.1, [true, false]),
            (0.1 - 2e-9, 0.1, [false, true]),
            (-0.0, 0.0, [true, true]),
            (f64::NAN, 0.0, [false, false]),
            (f64::INFINITY, 0.0, [false, false]),
            (f64::NEG_INFINITY, 0.0, [false, false]),
            (0.0, f64::INFINITY, [false, false]),
            (0.0, f64::NAN, [false, false]),
        ] {
            for (make, expected) in made.iter().zip(holds) {
                let measure = make("x", number, limit);
                assert_eq!((measure.holds(), again(&measure)), (expected, expected), "{measure:?}");
            }
        }
        assert!(Measure::none("wrong", 0).holds() && !Measure::none("wrong", 1).holds());
    }

    #[test]
    fn as_json() {
        insta::assert_snapshot!(json!(Measure::at_least("mean", 0.9991234567891, 0.999)), @r#"{"name":"mean","number":0.999123457,"bound":"at_least","limit":0.999}"#);
        insta::assert_snapshot!(json!(Measure::at_most("points", f64::NAN, 0.1)), @r#"{"name":"points","number":null,"bound":"at_most","limit":0.1}"#);
    }

    #[test]
    fn the_least_is_no_number_where_one_is_none() {
        assert_eq!(least([0.5, 0.25, 1.0]), 0.25);
        for values in [[f64::NAN, 0.5], [0.5, f64::NAN]] {
            assert!(least(values).is_nan());
        }
    }

    proptest! {
        #[test]
        fn a_verdict_is_the_same_of_what_is_written(
            limit in prop_oneof![-1.0..1.0f64, 0.0..1e3, (0u32..2_000_000).prop_map(f64::from)],
            off in prop_oneof![Just(0.0), -1e-8..1e-8, -1.0..1.0, any::<f64>()],
        ) {
            for make in [Measure::at_least, Measure::at_most] {
                let measure = make("x", limit + off, limit);
                prop_assert_eq!(measure.holds(), again(&measure), "{:?}", measure);
            }
        }
    }
}
