//! `exp`, `tanh`, `sigmoid` and both kinds of gelu in f32, written so that a loop over them vectorizes.
//!
//! No fused multiply-add is asked for: plain products and sums give the same bits on every machine, and do not fall
//! back to a library call where the instruction is missing. Relative error stays within 3e-7 (a test says so).

use std::f32::consts::LOG2_E;
use std::ops::{Add, Mul};

/// 2 * sqrt(2 / pi).
const TWICE_SQRT_2_OVER_PI: f64 = 1.595_769_121_605_731;
/// The high part of ln 2, short enough that its product with any exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
/// What is missing of ln 2.
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
const TO_INTEGER: f32 = 12_582_912.0;
/// Above it the result exceeds f32.
const EXP_MAX: f32 = 88.722_83;
/// Below it the result is under 2^-125 and given as zero.
const EXP_MIN: f32 = -87.0;

/// Least-maximum fit of `(e^r - 1 - r) / r^2` for `|r| <= 0.35`, relative to `e^r`: 3.3e-9.
const EXP: [f32; 5] = [4.999_999_3e-1, 1.666_651_5e-1, 4.166_845_6e-2, 8.369_411e-3, 1.381_315_9e-3];

/// Least-maximum fit of `(tanh x - x) / x^3` as a polynomial of `x^2` for `|x| <= 0.65`: 6.4e-9.
const TANH: [f32; 5] = [-3.333_326_3e-1, 1.333_089_9e-1, -5.369_296_4e-2, 2.048_330_6e-2, -5.528_624_6e-3];
/// Where `tanh` changes from the polynomial to the exponential; both are accurate there.
const TANH_SMALL: f32 = 0.625;

/// Where gelu is taken to have reached its limit, 0 or `x`: what is missing is no normal f32 beyond it.
const GELU_END: f32 = 14.0;
/// Least-maximum fit of `Phi(-a) * e^(a^2 / 2)` as `t * P(t)` with `t = 1 / (1 + a * TAIL_RATE)`, for `a` from 0 to
/// [`GELU_END`], relative: 3.2e-8.
const TAIL: [f64; 9] = [
    0.139_621_404_4,
    0.139_861_868_2,
    0.119_832_879_0,
    0.105_507_958_0,
    -0.023_109_724_6,
    0.159_173_998_5,
    -0.255_714_112_5,
    0.143_971_629_4,
    -0.029_145_916_4,
];
/// See [`TAIL`]; chosen so that the fit is good with coefficients that do not cancel.
const TAIL_RATE: f64 = 0.35;

#[inline(always)]
fn polynomial<T: Copy + Mul<Output = T> + Add<Output = T>, const N: usize>(c: &[T; N], x: T) -> T {
    let mut y = c[N - 1];
    for i in (0..N - 1).rev() {
        y = y * x + c[i];
    }
    y
}

/// `e^x`; infinite above 88.72, zero below -87, NaN for NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    exp_of_sum(x, 0.0)
}

/// `e^x` where `x` is known more closely than f32 can tell: what is missing of it is the error of the result.
#[inline(always)]
fn exp_of_wide(x: f64) -> f32 {
    let high = x as f32;
    exp_of_sum(high, (f64::from(high) - x) as f32)
}

/// `e^(x - less)`, `less` being at most an ulp of `x`.
#[inline(always)]
fn exp_of_sum(x: f32, less: f32) -> f32 {
    let low = if x < EXP_MIN { EXP_MIN } else { x };
    let bounded = if low > EXP_MAX { EXP_MAX } else { low };
    let shifted = bounded * LOG2_E + TO_INTEGER;
    let n = shifted - TO_INTEGER;
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW - less;
    let p = (polynomial(&EXP, r) * r) * r + r + 1.0;
    // 2^(n - 1), then doubled, because 2^128 is no f32; n = -126 becomes zero.
    let half_scale = f32::from_bits(shifted.to_bits().wrapping_add(126) << 23);
    let y = p * half_scale * 2.0;
    if x > EXP_MAX { f32::INFINITY } else { y }
}

/// `tanh x`, accurate relative to the result down to zero.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let small = (polynomial(&TANH, z) * z) * x + x;
    let large = (1.0 - 2.0 / (exp(2.0 * a) + 1.0)).copysign(x);
    if a < TANH_SMALL { small } else { large }
}

/// `x * Phi(x)`, where `Phi` is the distribution function of the normal distribution.
///
/// Written as `relu(x) - |x| * Phi(-|x|)`: nothing cancels, so the error stays relative to the result far into the
/// negative tail, where `1 + erf(x / sqrt 2)` has no correct digit left.
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    let wide = f64::from(bounded_magnitude(x));
    let t = 1.0 / (1.0 + TAIL_RATE * wide);
    // |x| * Phi(-|x|) = |x| * t * P(t) * e^(-x^2 / 2).
    relu(x) - (wide * t * polynomial(&TAIL, t)) as f32 * exp_of_wide(-0.5 * wide * wide)
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`, in the same way, since `(1 + tanh u) / 2 = sigmoid(2 u)`.
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    let a = bounded_magnitude(x);
    let wide = f64::from(a);
    relu(x) - a / (1.0 + exp_of_wide(TWICE_SQRT_2_OVER_PI * (wide + 0.044_715 * (wide * wide * wide))))
}

/// `|x|`, at most where both kinds of gelu have reached their limits; finite, so that no infinity meets a zero.
#[inline(always)]
fn bounded_magnitude(x: f32) -> f32 {
    let a = x.abs();
    if a > GELU_END { GELU_END } else { a }
}

/// The larger of `x` and zero; NaN for NaN.
#[inline(always)]
pub(super) fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest relative error over a fine grid of `range`.
    fn worst(range: (f32, f32), ours: fn(f32) -> f32, exact: fn(f64) -> f64) -> f64 {
        let steps = 1_000_000;
        (0..=steps)
            .map(|i| range.0 + (range.1 - range.0) * i as f32 / steps as f32)
            .map(|x| (f64::from(ours(x)), exact(f64::from(x))))
            .map(|(got, want)| if want == 0.0 { got.abs() } else { ((got - want) / want).abs() })
            .fold(0.0, f64::max)
    }

    #[test]
    fn relative_error_is_that_of_f32() {
        let sigmoid64 = |x: f64| 1.0 / (1.0 + (-x).exp());
        let gelu64 = |x: f64| 0.5 * x * libm::erfc(-x / 2f64.sqrt());
        let gelu_tanh64 = |x: f64| {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x / (1.0 + (-2.0 * u).exp())
        };
        for (name, error) in [
            ("exp", worst((-86.0, 88.72), exp, f64::exp)),
            ("tanh", worst((-12.0, 12.0), tanh, f64::tanh)),
            ("tanh near 0", worst((-1e-3, 1e-3), tanh, f64::tanh)),
            ("sigmoid", worst((-80.0, 80.0), sigmoid, sigmoid64)),
            ("gelu", worst((-13.0, 13.0), gelu, gelu64)),
            ("gelu near 0", worst((-1e-3, 1e-3), gelu, gelu64)),
            ("gelu_tanh", worst((-10.0, 10.0), gelu_tanh, gelu_tanh64)),
            ("gelu_tanh near 0", worst((-1e-3, 1e-3), gelu_tanh, gelu_tanh64)),
        ] {
            assert!(error < 3e-7, "{name}: {error:e}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!((exp(f32::NEG_INFINITY), exp(-1e4), exp(0.0)), (0.0, 0.0, 1.0));
        assert_eq!((exp(89.0), exp(f32::INFINITY)), (f32::INFINITY, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan() && tanh(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
        assert_eq!((tanh(0.0), tanh(f32::INFINITY), tanh(-50.0)), (0.0, 1.0, -1.0));
        assert_eq!((sigmoid(f32::NEG_INFINITY), sigmoid(f32::INFINITY)), (0.0, 1.0));
        for gelu in [gelu, gelu_tanh] {
            assert_eq!(
                [f32::NEG_INFINITY, -20.0, 0.0, 20.0, f32::INFINITY].map(gelu),
                [0.0, 0.0, 0.0, 20.0, f32::INFINITY]
            );
            assert!(gelu(f32::NAN).is_nan());
        }
    }
}
