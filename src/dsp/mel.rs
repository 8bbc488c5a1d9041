//! The mel filters: triangles, equally wide on the HTK scale, none normalised.

use super::spectrum::BINS;
use super::{MEL_BINS, SAMPLE_RATE};

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

    /// Writes the logarithm of each filter's sum, added up in float64.
    pub fn log(&self, magnitudes: &[f32; BINS], row: &mut [f32]) {
        for (to, band) in row.iter_mut().zip(&self.bands) {
            let run = &magnitudes[band.first..];
            let sum: f64 = band.weights.iter().zip(run).map(|(weight, m)| weight * f64::from(*m)).sum();
            *to = (sum + FLOOR).ln() as f32;
        }
    }
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
        assert_eq!((counts[0], counts[BINS - 1]), (0, 0));
    }

    #[test]
    fn silence_is_the_floor() {
        let mut row = [1.0; MEL_BINS];
        MelBank::new().log(&[0.0; BINS], &mut row);
        assert!(row.iter().all(|v| *v == 0.001f64.ln() as f32));
    }
}
