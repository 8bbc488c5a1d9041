//! Sums that keep twice the digits of an f64.

/// A number as the sum of two, the second no more than half a unit in the last place of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pair {
    pub high: f64,
    low: f64,
}

/// `a + b` without error, where `b` is not the greater.
fn sum_ordered(a: f64, b: f64) -> Pair {
    let high = a + b;
    Pair { high, low: b - (high - a) }
}

/// The upper and the lower half of a number's digits.
fn halves(a: f64) -> (f64, f64) {
    const SPLIT: f64 = 134_217_729.0; // 2^27 + 1
    let scaled = SPLIT * a;
    let high = scaled - (scaled - a);
    (high, a - high)
}

/// `a * b` without error.
///
/// By halves: a fused multiplication would be a call into a library on processors built for in general.
fn product(a: f64, b: f64) -> Pair {
    let high = a * b;
    let ((a1, a0), (b1, b0)) = (halves(a), halves(b));
    Pair { high, low: ((a1 * b1 - high) + a1 * b0 + a0 * b1) + a0 * b0 }
}

impl Pair {
    /// `a + b` without error.
    pub fn sum(a: f64, b: f64) -> Pair {
        let high = a + b;
        let b_there = high - a;
        Pair { high, low: (a - (high - b_there)) + (b - b_there) }
    }

    pub fn plus(self, other: Pair) -> Pair {
        let (high, low) = (Pair::sum(self.high, other.high), Pair::sum(self.low, other.low));
        let first = sum_ordered(high.high, high.low + low.high);
        sum_ordered(first.high, first.low + low.low)
    }

    pub fn minus(self, other: Pair) -> Pair {
        self.plus(Pair { high: -other.high, low: -other.low })
    }

    pub fn times(self, other: Pair) -> Pair {
        let high = product(self.high, other.high);
        sum_ordered(high.high, high.low + (self.high * other.low + self.low * other.high))
    }

    pub fn times_single(self, other: f64) -> Pair {
        let high = product(self.high, other);
        sum_ordered(high.high, high.low + self.low * other)
    }

    /// Less than a single number.
    pub fn is_below(self, other: f64) -> bool {
        self.high < other || (self.high == other && self.low < 0.0)
    }

    /// As one number.
    pub fn single(self) -> f64 {
        self.high + self.low
    }
}
