//! The mel filters: triangles, equally wide on the HTK scale, none normalised.

use super::spectrum::{BINS, LANES, Lanes};
use super::{MEL_BINS, SAMPLE_RATE};
use pulp::Arch;

/// Added before the logarithm, so that silence is `ln(0.001)`.
const FLOOR: f64 = 0.001;

/// The filters, each as the run of frequencies it weighs; outside of it every weight is zero.
pub struct MelBank {
    bands: Vec<Band>,
}

struct Band {
    first: usize,
    weights: Vec<f64>,
}

fn mel_of(hertz: f64) -> f64 {
    2595.0 * (1.0 + hertz / 700.0).log10()
}

fn hertz_of(mel: f64) -> f64 {
    700.0 * (10f64.powf(mel / 2595.0) - 1.0)
}

impl MelBank {
    /// Filters from 0 Hz to half the sample rate.
    pub fn new() -> MelBank {
        let top = f64::from(SAMPLE_RATE) / 2.0;
        let step = mel_of(top) / (MEL_BINS + 1) as f64;
        let edges: Vec<f64> = (0..MEL_BINS + 2).map(|i| hertz_of(step * i as f64)).collect();
        let hertz = |bin: usize| top * bin as f64 / (BINS - 1) as f64;
        let band = |edges: &[f64]| {
            let &[low, centre, high] = edges else { return Band { first: 0, weights: Vec::new() } };
            let weight = |bin| f64::min((hertz(bin) - low) / (centre - low), (high - hertz(bin)) / (high - centre));
            let inside = |bin: &usize| weight(*bin) > 0.0;
            let first = (0..BINS).find(inside).unwrap_or(0);
            Band { first, weights: (first..BINS).take_while(inside).map(weight).collect() }
        };
        MelBank { bands: edges.windows(3).map(band).collect() }
    }

    /// The logarithm of each filter's sum for every frame of `power`: magnitudes are rounded to float32 once, as the
    /// published extractor's are, and weighed and added up in float64.
    pub fn log(&self, power: &[Lanes; BINS], logs: &mut [[f32; LANES]; MEL_BINS]) {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let mut magnitudes = [[0f64; LANES]; BINS];
                for (to, from) in magnitudes.iter_mut().zip(power) {
                    *to = from.map(|power| f64::from(power.sqrt() as f32));
                }
                for (to, band) in logs.iter_mut().zip(&self.bands) {
                    let run = magnitudes.get(band.first..).unwrap_or_default();
                    let mut sum = [0f64; LANES];
                    for (weight, lanes) in band.weights.iter().zip(run) {
                        for (to, magnitude) in sum.iter_mut().zip(lanes) {
                            *to += weight * magnitude;
                        }
                    }
                    *to = sum.map(|sum| ln(sum + FLOOR) as f32);
                }
            },
        );
    }
}

/// Natural logarithm of a positive number that is not subnormal, written so that a loop over it vectorizes: with
/// `x = 2^e m` and `m` from sqrt(1/2) to sqrt(2), `ln x = e ln 2 + 2 artanh f` where `f = (m - 1) / (m + 1)`.
#[inline(always)]
fn ln(x: f64) -> f64 {
    /// Bits of sqrt(1/2), so that a whole exponent is what is above them.
    const SQRT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    /// 1.5 * 2^52: the low bits of a number near it are a whole number.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    let above = x.to_bits().wrapping_sub(SQRT_HALF) & (0xfff << 52);
    let m = f64::from_bits(x.to_bits().wrapping_sub(above));
    // The exponent is signed and sits at the top; moved down with its sign and added to the bits of WHOLE, it is a float.
    let e = f64::from_bits(WHOLE.to_bits().wrapping_add(((above as i64) >> 52) as u64)) - WHOLE;
    let f = (m - 1.0) / (m + 1.0);
    let s = f * f;
    // artanh f = f (1 + s/3 + s^2/5 + ...), and s is at most 0.0295: what is left out is below 1e-15.
    let mut series = 1.0 / 19.0;
    for k in [17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * s + 1.0 / k;
    }
    e * std::f64::consts::LN_2 + 2.0 * f * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frequency_is_shared_by_two_filters_at_most() {
        let bank = MelBank::new();
        assert_eq!(bank.bands.len(), MEL_BINS);
        let mut sums = [0f64; BINS];
        let mut counts = [0; BINS];
        for band in &bank.bands {
            for (at, weight) in band.weights.iter().enumerate() {
                assert!(*weight > 0.0 && *weight <= 1.0);
                sums[band.first + at] += weight;
                counts[band.first + at] += 1;
            }
        }
        assert!(counts.iter().all(|c| *c <= 2));
        // Neighbouring triangles add up to one, but below the first centre and above the last.
        assert!(sums[2..250].iter().all(|sum| (sum - 1.0).abs() < 1e-9));
        // The top edge, taken back from mel, may lie a rounding above 8 kHz.
        assert!(sums[0] == 0.0 && sums[BINS - 1] < 1e-9);
    }

    #[test]
    fn silence_is_the_floor() {
        let mut logs = [[1.0; LANES]; MEL_BINS];
        MelBank::new().log(&[[0.0; LANES]; BINS], &mut logs);
        assert!(logs.iter().flatten().all(|v| *v == 0.001f64.ln() as f32));
    }

    #[test]
    fn logarithms_are_those_of_the_library() {
        let mut x = 1e-3;
        while x < 1e9 {
            for x in [x, x * 1.3, x * std::f64::consts::SQRT_2] {
                assert!((ln(x) - x.ln()).abs() <= 2e-15 * x.ln().abs().max(1.0), "{x}: {} {}", ln(x), x.ln());
            }
            x *= 1.000_37;
        }
        for x in [1.0, 2.0, 0.5, f64::MIN_POSITIVE, f64::MAX, std::f64::consts::FRAC_1_SQRT_2] {
            assert!((ln(x) - x.ln()).abs() <= 2e-15 * x.ln().abs().max(1.0), "{x}");
        }
    }
}
