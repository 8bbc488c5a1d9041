//! Samples to rows of features.

use super::mel::MelBank;
use super::spectrum::{LANES, Spectrum, WINDOW};
use super::{AudioError, FRAME, HOP, MEL_BINS, PAD, Samples, frames_of};
use rayon::prelude::*;

/// Frames that are computed from one buffer of samples: 41 s, 2.6 MB.
const BLOCK: usize = 4096;

/// Frames one thread takes at a time.
const TASK: usize = 64;

/// Log-mel features of a stream of samples.
pub struct Extractor<S> {
    samples: S,
    spectrum: Spectrum,
    mel: MelBank,
    /// Samples from the first of the next frame on.
    buffer: Vec<f32>,
    frames: u64,
    done: u64,
}

impl<S: Samples> Extractor<S> {
    /// Features of all `samples`.
    pub fn new(samples: S) -> Extractor<S> {
        let frames = frames_of(samples.total());
        Extractor { samples, spectrum: Spectrum::new(), mel: MelBank::new(), buffer: vec![0.0; PAD], frames, done: 0 }
    }

    /// The samples' source.
    pub fn source(&self) -> &S {
        &self.samples
    }

    /// Frames in all.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes the next frames, as many as `rows` has room for, and says how many they are: 0 at the end. A rest of
    /// `rows` shorter than a row is left alone.
    ///
    /// # Errors
    /// The samples' own.
    pub fn read(&mut self, rows: &mut [f32]) -> Result<usize, AudioError> {
        let left = usize::try_from(self.frames - self.done).unwrap_or(usize::MAX);
        let count = left.min(rows.len() / MEL_BINS);
        for block in rows[..count * MEL_BINS].chunks_mut(BLOCK * MEL_BINS) {
            self.block(block)?;
        }
        self.done += count as u64;
        if self.done == self.frames {
            self.rest()?;
        }
        Ok(count)
    }

    /// Reads what is too short for a frame of its own, so that a fault there is found as well.
    fn rest(&mut self) -> Result<(), AudioError> {
        let mut rest = [0f32; FRAME];
        while self.samples.fill(&mut rest)? > 0 {}
        Ok(())
    }

    fn block(&mut self, rows: &mut [f32]) -> Result<(), AudioError> {
        let frames = rows.len() / MEL_BINS;
        let have = self.buffer.len();
        self.buffer.resize((frames - 1) * HOP + FRAME, 0.0);
        self.samples.fill(&mut self.buffer[have..])?;
        let (spectrum, mel, buffer) = (&self.spectrum, &self.mel, &self.buffer);
        rows.par_chunks_mut(TASK * MEL_BINS).enumerate().try_for_each_init(
            || (spectrum.scratch(), [[0f32; LANES]; MEL_BINS]),
            |(scratch, logs), (task, rows)| {
                let mut frames = buffer[task * TASK * HOP..].windows(WINDOW).step_by(HOP);
                for rows in rows.chunks_mut(LANES * MEL_BINS) {
                    let count = rows.len() / MEL_BINS;
                    for (lane, frame) in frames.by_ref().take(count).enumerate() {
                        let Some(frame) = frame.first_chunk() else { continue };
                        spectrum.power(frame, lane, scratch)?;
                    }
                    mel.log(&scratch.power, logs);
                    for (lane, row) in rows.chunks_exact_mut(MEL_BINS).enumerate() {
                        for (to, lanes) in row.iter_mut().zip(logs.iter()) {
                            *to = lanes.get(lane).copied().unwrap_or_default();
                        }
                    }
                }
                Ok::<(), AudioError>(())
            },
        )?;
        self.buffer.drain(..frames * HOP);
        Ok(())
    }
}
