//! Power of the Fourier transform of a few frames side by side.

use super::AudioError;
use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};
use std::sync::Arc;

/// Samples a window spans: 20 ms.
pub const WINDOW: usize = 320;

/// Length of the transform: the next power of two, filled up with zeros.
const FFT: usize = 512;

/// Frequencies of the transform, 31.25 Hz apart.
pub const BINS: usize = FFT / 2 + 1;

/// Frames side by side: as many as the widest vectors have float64 numbers.
pub const LANES: usize = 8;

/// One number of each frame side by side.
pub type Lanes = [f64; LANES];

/// The transform and its window; shared by threads, each with its own [`Scratch`].
pub struct Spectrum {
    fft: Arc<dyn RealToComplex<f64>>,
    window: [f32; WINDOW],
}

/// What one thread computes in.
pub struct Scratch {
    padded: Vec<f64>,
    transformed: Vec<Complex<f64>>,
    work: Vec<Complex<f64>>,
    /// The power of each frequency, by frame: what [`Spectrum::power`] left there.
    pub power: [Lanes; BINS],
}

impl Spectrum {
    /// The transform with a periodic Hann window.
    pub fn new() -> Spectrum {
        // The published extractor stores its window as float32, which moves quiet bins by 1e-5.
        let hann = |n: usize| 0.5 - 0.5 * (std::f64::consts::TAU * n as f64 / WINDOW as f64).cos();
        Spectrum { fft: RealFftPlanner::new().plan_fft_forward(FFT), window: std::array::from_fn(|n| hann(n) as f32) }
    }

    /// Room for one thread.
    pub fn scratch(&self) -> Scratch {
        Scratch {
            padded: self.fft.make_input_vec(),
            transformed: self.fft.make_output_vec(),
            work: self.fft.make_scratch_vec(),
            power: [[0.0; LANES]; BINS],
        }
    }

    /// Leaves the power of `frame` in `lane` of `scratch`, transformed in float64.
    ///
    /// # Errors
    /// Never, but for a fault of the transform.
    pub fn power(&self, frame: &[f32; WINDOW], lane: usize, scratch: &mut Scratch) -> Result<(), AudioError> {
        let Scratch { padded, transformed, work, power } = scratch;
        let (samples, zeros) = padded.split_at_mut(WINDOW);
        for ((to, sample), weight) in samples.iter_mut().zip(frame).zip(&self.window) {
            *to = f64::from(sample * weight);
        }
        zeros.fill(0.0);
        self.fft.process_with_scratch(padded, transformed, work)?;
        for (to, bin) in power.iter_mut().zip(transformed) {
            if let Some(to) = to.get_mut(lane) {
                *to = bin.re * bin.re + bin.im * bin.im;
            }
        }
        Ok(())
    }
}
