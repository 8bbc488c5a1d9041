//! Any sample rate to 16 kHz.

use super::{AudioError, SAMPLE_RATE, Samples};
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler};
use std::ops::{Range, RangeInclusive};

/// Sample rates that are read, in Hz: from what no speech survives to what studios record. A rate that
/// shares no divisor with 16 kHz takes a transform of twice its number of samples.
pub const RATES: RangeInclusive<u32> = 1_000..=384_000;

/// Least samples at 16 kHz that are made at a time. The filter is as long: at 4096 it is flat to 7.9 kHz and stops
/// what is above 8 kHz.
const CHUNK: usize = 4096;

/// Samples of `S`, brought to 16 kHz: `ceil(n * 16000 / rate)` of them, the first at the time of the first.
pub struct Resampled<S> {
    source: S,
    total: u64,
    /// None where the source has the rate already.
    stage: Option<Stage>,
}

struct Stage {
    rate: u32,
    fft: Fft<f64>,
    taken: Vec<f32>,
    input: Vec<f64>,
    output: Vec<f64>,
    /// Part of `output` that was not handed on yet.
    ready: Range<usize>,
    /// What the filter gives before the first sample, still to be left out.
    delay: usize,
    /// Samples still to be handed on.
    left: u64,
}

impl<S: Samples> Resampled<S> {
    /// The samples of `source`, which has `rate`.
    ///
    /// # Errors
    /// The rate is none of [`RATES`] (the caller names the file), or no resampler could be made.
    pub fn new(source: S, rate: u32) -> Result<Resampled<S>, AudioError> {
        if rate == SAMPLE_RATE {
            return Ok(Resampled { total: source.total(), source, stage: None });
        }
        let total = u128::from(source.total()) * u128::from(SAMPLE_RATE);
        let total = u64::try_from(total.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX);
        Ok(Resampled { total, source, stage: Some(Stage::new(rate, total)?) })
    }
}

impl<S: Samples> Samples for Resampled<S> {
    fn total(&self) -> u64 {
        self.total
    }

    fn fill(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        match &mut self.stage {
            None => self.source.fill(out),
            Some(stage) => stage.fill(&mut self.source, out),
        }
    }
}

impl Stage {
    fn new(rate: u32, total: u64) -> Result<Stage, AudioError> {
        let (from, to) = (rate as usize, SAMPLE_RATE as usize);
        let divisor = gcd(from, to);
        // Both sides even: half of each, the delay of the filter, is then a whole number of samples.
        let blocks = (CHUNK * divisor).div_ceil(to).next_multiple_of(2);
        let fft = Fft::new_custom(
            from,
            to,
            blocks * (from / divisor),
            1,
            1,
            rubato::WindowFunction::BlackmanHarris2,
            FixedSync::Both,
        )
        .map_err(|e| fault(rate, &e))?;
        let (input, output) = (fft.input_frames_max(), fft.output_frames_max());
        Ok(Stage {
            rate,
            delay: fft.output_delay(),
            fft,
            taken: vec![0.0; input],
            input: vec![0.0; input],
            output: vec![0.0; output],
            ready: 0..0,
            left: total,
        })
    }

    fn fill(&mut self, source: &mut impl Samples, out: &mut [f32]) -> Result<usize, AudioError> {
        let count = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let mut rest = &mut out[..count];
        while !rest.is_empty() {
            if self.ready.is_empty() {
                self.next(source)?;
            }
            let part = rest.len().min(self.ready.len());
            let (now, later) = rest.split_at_mut(part);
            for (to, from) in now.iter_mut().zip(&self.output[self.ready.clone()]) {
                *to = *from as f32;
            }
            self.ready.start += part;
            rest = later;
        }
        self.left -= count as u64;
        Ok(count)
    }

    /// Resamples the next block; past the source's end there is silence.
    fn next(&mut self, source: &mut impl Samples) -> Result<(), AudioError> {
        let count = source.fill(&mut self.taken)?;
        self.input.fill(0.0);
        for (to, from) in self.input.iter_mut().zip(&self.taken[..count]) {
            *to = f64::from(*from);
        }
        let rate = self.rate;
        let frames = self.output.len();
        let input = InterleavedSlice::new(&self.input, 1, self.input.len()).map_err(|e| fault(rate, &e))?;
        let mut output = InterleavedSlice::new_mut(&mut self.output, 1, frames).map_err(|e| fault(rate, &e))?;
        self.fft.process_into_buffer(&input, &mut output, None).map_err(|e| fault(rate, &e))?;
        let late = self.delay.min(frames);
        self.delay -= late;
        self.ready = late..frames;
        Ok(())
    }
}

fn fault(rate: u32, error: &dyn std::error::Error) -> AudioError {
    AudioError::Resampler { rate, why: error.to_string() }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsp::InMemory;

    /// What is left out at both ends, where the filter sees the silence around the audio.
    const EDGE: usize = 2 * CHUNK;

    fn tone(hertz: f64, rate: u32, count: usize) -> Vec<f32> {
        let angle = std::f64::consts::TAU * hertz / f64::from(rate);
        (0..count).map(|n| (0.5 * (angle * n as f64).sin()) as f32).collect()
    }

    fn resampled(samples: &[f32], rate: u32, asked: usize) -> Vec<f32> {
        let mut source = Resampled::new(InMemory::new(samples), rate).unwrap();
        let mut all = Vec::new();
        let mut part = vec![0.0; asked];
        loop {
            let count = source.fill(&mut part).unwrap();
            all.extend_from_slice(&part[..count]);
            if count < asked {
                assert_eq!(all.len() as u64, source.total());
                return all;
            }
        }
    }

    fn apart(a: &[f32], b: &[f32]) -> f32 {
        let inner = EDGE..a.len() - EDGE;
        a[inner.clone()].iter().zip(&b[inner]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn tones_pass_in_place_and_what_has_no_room_is_stopped() {
        // -80 dB of the amplitude.
        let limit = 0.5e-4;
        for rate in [8_000, 11_025, 22_050, 44_056, 44_100, 48_000, 192_000] {
            let count = 2 * rate as usize + 7;
            for hertz in [100.0, 997.0, 3400.0, 6900.0].into_iter().filter(|h| *h < 0.43 * f64::from(rate)) {
                let got = resampled(&tone(hertz, rate, count), rate, 1000);
                assert_eq!(got.len(), (count * 16_000).div_ceil(rate as usize));
                assert!(apart(&got, &tone(hertz, SAMPLE_RATE, got.len())) < limit, "{hertz} of {rate}");
            }
            for hertz in [8050.0, 9000.0, 20_000.0].into_iter().filter(|h| *h < 0.49 * f64::from(rate)) {
                let got = resampled(&tone(hertz, rate, count), rate, 1000);
                assert!(apart(&got, &vec![0.0; got.len()]) < limit, "{hertz} of {rate}");
            }
            let got = resampled(&vec![0.25; count], rate, 1000);
            assert!(apart(&got, &vec![0.25; got.len()]) < 1e-6);
        }
    }

    #[test]
    fn lengths_round_up_and_do_not_depend_on_how_they_are_asked_for() {
        for count in [0, 1, 2, 3, 44_100, 44_101] {
            let samples = tone(440.0, 44_100, count);
            let got = resampled(&samples, 44_100, 1 << 20);
            assert_eq!(got.len(), (count * 160).div_ceil(441));
            assert_eq!(got, resampled(&samples, 44_100, 7));
        }
    }
}
