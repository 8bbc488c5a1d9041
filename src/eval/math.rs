//! `exp`, `tanh` and `sigmoid` in f32, written so that a loop over them vectorizes.
//!
//! No fused multiply-add is asked for: plain products and sums give the same bits on every machine, and do not fall
//! back to a library call where the instruction is missing. Relative error stays within 3e-7 (a test says so).

use std::f32::consts::LOG2_E;

/// sqrt(2 / pi).
const SQRT_2_OVER_PI: f32 = 0.797_884_56;
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

#[inline(always)]
fn polynomial(c: &[f32; 5], x: f32) -> f32 {
    (((c[4] * x + c[3]) * x + c[2]) * x + c[1]) * x + c[0]
}

/// `e^x`; infinite above 88.72, zero below -87, NaN for NaN.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let low = if x < EXP_MIN { EXP_MIN } else { x };
    let bounded = if low > EXP_MAX { EXP_MAX } else { low };
    let shifted = bounded * LOG2_E + TO_INTEGER;
    let n = shifted - TO_INTEGER;
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW;
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

/// The error function.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    libm::erff(x)
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + 0.044_715 * (x * x * x))))
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
        for (name, error) in [
            ("exp", worst((-86.0, 88.72), exp, f64::exp)),
            ("tanh", worst((-12.0, 12.0), tanh, f64::tanh)),
            ("tanh near 0", worst((-1e-3, 1e-3), tanh, f64::tanh)),
            ("sigmoid", worst((-80.0, 80.0), sigmoid, sigmoid64)),
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
    }
}
