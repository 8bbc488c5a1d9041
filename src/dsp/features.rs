//! Features of a WAV file.

use super::{AudioError, Extractor, Resampled, Samples, Wav, WavFacts};
use std::path::Path;

/// Streaming log-mel features of a WAV file.
pub struct Features {
    facts: WavFacts,
    extractor: Extractor<Resampled<Wav>>,
}

impl Features {
    /// Opens the file and reads its header.
    ///
    /// # Errors
    /// It is no WAV file, its samples are in a form that is not read, or its header promises more of them than there
    /// are.
    pub fn open(path: &Path) -> Result<Features, AudioError> {
        let wav = Wav::open(path)?;
        let facts = wav.facts().clone();
        let samples = Resampled::new(wav, facts.sample_rate)?;
        Ok(Features { facts, extractor: Extractor::new(samples) })
    }

    /// What the file's header says.
    pub fn wav(&self) -> &WavFacts {
        &self.facts
    }

    /// Mono samples at 16 kHz, in all.
    pub fn samples(&self) -> u64 {
        self.extractor.source().total()
    }

    /// Frames in all.
    pub fn frames(&self) -> u64 {
        self.extractor.frames()
    }

    /// Writes the next frames, [`MEL_BINS`](super::MEL_BINS) values each, as many as `rows` has room for, and says how
    /// many they are: 0 at the end.
    ///
    /// # Errors
    /// The file cannot be read, was cut short since it was opened, or holds a sample that is no number.
    pub fn read(&mut self, rows: &mut [f32]) -> Result<usize, AudioError> {
        self.extractor.read(rows)
    }
}
