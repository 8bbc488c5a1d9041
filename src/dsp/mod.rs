//! From a WAV file to log-mel features, streamed. Level 0.
//!
//! [`Wav`] decodes and mixes, [`Resampled`] brings any rate to 16 kHz, [`Extractor`] turns samples into rows of
//! features; [`Features`] is the three in a chain. Memory does not grow with the length of the audio, and the result
//! depends neither on how much is asked for at a time nor on the number of threads.

mod error;
mod extractor;
mod features;
mod mel;
mod resample;
mod spectrum;
mod wav;

pub use error::AudioError;
pub use extractor::Extractor;
pub use features::Features;
pub use resample::{RATES, Resampled};
pub use wav::{Wav, WavFacts};

/// Rate the features are made of, in Hz.
pub const SAMPLE_RATE: u32 = 16_000;

/// Mel bins of one frame: what the published extractor makes.
pub const MEL_BINS: usize = 128;

/// Samples from one frame to the next: 10 ms.
pub const HOP: usize = 160;

/// Samples a frame needs to be there, counted from its first: one more than it uses, as in the published extractor.
const FRAME: usize = 321;

/// Zeros put in front of the audio.
const PAD: usize = 160;

/// Frames of so many samples at 16 kHz: those whose window is all audio.
pub const fn frames_of(samples: u64) -> u64 {
    match samples.checked_sub((FRAME - PAD) as u64) {
        Some(rest) => rest / HOP as u64 + 1,
        None => 0,
    }
}

/// Mono samples, one after the other.
pub trait Samples: Send {
    /// How many there are in all, known before any is read.
    fn total(&self) -> u64;

    /// Fills `out` with the next ones and says how many they are: fewer than it has room for only at the end.
    ///
    /// # Errors
    /// The file they come from cannot be read, or holds one that is no number.
    fn fill(&mut self, out: &mut [f32]) -> Result<usize, AudioError>;
}

/// Samples in memory.
#[derive(Clone, Debug)]
pub struct InMemory<'a> {
    rest: &'a [f32],
    total: u64,
}

impl<'a> InMemory<'a> {
    /// These samples.
    pub fn new(samples: &'a [f32]) -> InMemory<'a> {
        InMemory { rest: samples, total: samples.len() as u64 }
    }
}

impl Samples for InMemory<'_> {
    fn total(&self) -> u64 {
        self.total
    }

    fn fill(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let count = out.len().min(self.rest.len());
        let (next, rest) = self.rest.split_at(count);
        out[..count].copy_from_slice(next);
        self.rest = rest;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_need_a_whole_window_of_audio() {
        let lengths = [0, 1, 160, 161, 320, 321, 479, 480, 481, 16_000, 480_000, 480_001, 3_600_000];
        assert_eq!(lengths.map(frames_of), [0, 0, 0, 1, 1, 2, 2, 2, 3, 99, 2999, 3000, 22_499]);
    }
}
