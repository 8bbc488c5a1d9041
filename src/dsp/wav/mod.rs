//! WAV files: the header, and the samples mixed to one channel.
//!
//! The header is read here rather than by `hound`, which takes no pad byte after an odd chunk, no length left open by a pipe and no
//! 64-bit floats, names no codec, and reads samples one at a time.

mod header;
#[cfg(test)]
mod tests;

use super::{AudioError, Samples};
use crate::files;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest magnitude of a float sample. Full scale is 1, so that this is a file of something else; beyond it a
/// step of float32 in a feature is more than the 1e-6 that is promised of it.
const LOUDEST: f32 = 1e5;

/// Bytes that are read at a time, if a sample of all channels is no larger.
const BUFFER: usize = 1 << 18;

/// What the header of a WAV file says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WavFacts {
    /// Channels, which are mixed by their mean.
    pub channels: u16,
    /// Samples a second.
    pub sample_rate: u32,
    /// How a sample is stored, such as `16-bit integer`.
    pub format: &'static str,
    /// Samples of each channel.
    pub samples: u64,
    /// Length.
    pub seconds: f64,
}

/// How one sample of one channel is stored, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    U8,
    I16,
    I24,
    I32,
    F32,
    F64,
}

impl Stored {
    const fn name(self) -> &'static str {
        match self {
            Stored::U8 => "8-bit integer",
            Stored::I16 => "16-bit integer",
            Stored::I24 => "24-bit integer",
            Stored::I32 => "32-bit integer",
            Stored::F32 => "32-bit float",
            Stored::F64 => "64-bit float",
        }
    }

    const fn size(self) -> usize {
        match self {
            Stored::U8 => 1,
            Stored::I16 => 2,
            Stored::I24 => 3,
            Stored::I32 | Stored::F32 => 4,
            Stored::F64 => 8,
        }
    }
}

/// A WAV file being read; it stands at the next sample.
pub struct Wav {
    path: PathBuf,
    file: File,
    facts: WavFacts,
    stored: Stored,
    /// Samples of each channel that were read.
    done: u64,
    bytes: Vec<u8>,
}

impl Wav {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// It cannot be read or is no WAV file, or its samples are in a form that is not read; or its header promises more of
    /// them than the file has, or none though they follow.
    pub fn open(path: &Path) -> Result<Wav, AudioError> {
        let io = |source| AudioError::Io { path: path.into(), source };
        let file = files::open(path).map_err(io)?;
        let (file, facts, stored) = header::read(path, file)?;
        Ok(Wav { path: path.into(), file, facts, stored, done: 0, bytes: Vec::new() })
    }

    /// What the header says.
    pub fn facts(&self) -> &WavFacts {
        &self.facts
    }

    /// Reads and mixes as many whole samples as `out` takes, which the file has to have.
    fn mix(&mut self, out: &mut [f32]) -> Result<(), AudioError> {
        let block = self.stored.size() * usize::from(self.facts.channels);
        self.bytes.resize(out.len() * block, 0);
        self.file.read_exact(&mut self.bytes).map_err(|source| {
            let path = self.path.clone();
            // A file that has shrunk since it was opened.
            if source.kind() == io::ErrorKind::UnexpectedEof {
                AudioError::Truncated { path, promised: self.facts.samples, found: self.done }
            } else {
                AudioError::Io { path, source }
            }
        })?;
        let channels = usize::from(self.facts.channels);
        // Divisions by powers of two are exact; more than 24 bits are rounded once, after the sum.
        let sound = match self.stored {
            Stored::U8 => mean::<1>(&self.bytes, channels, out, |[b]| (f64::from(b) - 128.0) / 128.0),
            Stored::I16 => mean::<2>(&self.bytes, channels, out, |b| f64::from(i16::from_le_bytes(b)) / 32_768.0),
            Stored::I24 => mean::<3>(&self.bytes, channels, out, |[a, b, c]| {
                f64::from(i32::from_le_bytes([0, a, b, c])) / 2_147_483_648.0
            }),
            Stored::I32 => {
                mean::<4>(&self.bytes, channels, out, |b| f64::from(i32::from_le_bytes(b)) / 2_147_483_648.0)
            }
            Stored::F32 => mean::<4>(&self.bytes, channels, out, |b| f64::from(f32::from_le_bytes(b))),
            Stored::F64 => mean::<8>(&self.bytes, channels, out, f64::from_le_bytes),
        };
        sound.map_err(|(at, channel, value)| AudioError::Sample {
            path: self.path.clone(),
            index: self.done + at as u64,
            channel,
            value: value as f32,
            limit: LOUDEST,
        })?;
        self.done += out.len() as u64;
        Ok(())
    }
}

/// Writes the mean of each sample's channels; fails at the first value that is too large or no number, with the sample,
/// its channel and the value.
fn mean<const SIZE: usize>(
    bytes: &[u8],
    channels: usize,
    out: &mut [f32],
    value: impl Fn([u8; SIZE]) -> f64,
) -> Result<(), (usize, usize, f64)> {
    let (values, _) = bytes.as_chunks::<SIZE>();
    for (at, (to, sample)) in out.iter_mut().zip(values.chunks_exact(channels)).enumerate() {
        let mut sum = 0.0;
        for (channel, stored) in sample.iter().enumerate() {
            let value = value(*stored);
            if value.is_nan() || value.abs() > f64::from(LOUDEST) {
                return Err((at, channel, value));
            }
            sum += value;
        }
        *to = (sum / channels as f64) as f32;
    }
    Ok(())
}

impl Samples for Wav {
    fn total(&self) -> u64 {
        self.facts.samples
    }

    fn fill(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let left = usize::try_from(self.facts.samples - self.done).unwrap_or(usize::MAX);
        let count = out.len().min(left);
        let block = self.stored.size() * usize::from(self.facts.channels);
        for part in out[..count].chunks_mut((BUFFER / block).max(1)) {
            self.mix(part)?;
        }
        Ok(count)
    }
}
