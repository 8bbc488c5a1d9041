//! WAV files: the header, and the samples mixed to one channel.
//!
//! The header is hound's to read. Its iterator takes samples one by one, which costs more than all that is made of them,
//! so the bytes behind the header are decoded here, a block at a time.

use super::resample::RATES;
use super::{AudioError, Samples};
use crate::files;
use hound::{Error, SampleFormat, WavReader, WavSpec};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Largest magnitude of a float sample. Full scale is 1, so that this is a file of something else; beyond it the
/// spectrum of a frame would leave float32.
const LOUDEST: f32 = 1e6;

/// Samples of all channels that are read at a time.
const BLOCK: usize = 1 << 16;

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

/// How a sample is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    U8,
    I16,
    I24,
    I32,
    F32,
}

impl Form {
    fn of(spec: WavSpec) -> Option<Form> {
        match (spec.sample_format, spec.bits_per_sample) {
            (SampleFormat::Int, 8) => Some(Form::U8),
            (SampleFormat::Int, 16) => Some(Form::I16),
            (SampleFormat::Int, 24) => Some(Form::I24),
            (SampleFormat::Int, 32) => Some(Form::I32),
            (SampleFormat::Float, 32) => Some(Form::F32),
            (SampleFormat::Int | SampleFormat::Float, _) => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Form::U8 => "8-bit integer",
            Form::I16 => "16-bit integer",
            Form::I24 => "24-bit integer",
            Form::I32 => "32-bit integer",
            Form::F32 => "32-bit float",
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Form::U8 => 1,
            Form::I16 => 2,
            Form::I24 => 3,
            Form::I32 | Form::F32 => 4,
        }
    }

    /// Brings stored samples to a full scale of 1: exact, or rounded once where 32 bits do not fit in a float.
    fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        out.clear();
        match self {
            Form::U8 => out.extend(bytes.iter().map(|b| (f32::from(*b) - 128.0) / 128.0)),
            Form::I16 => {
                out.extend(bytes.as_chunks().0.iter().map(|b| f32::from(i16::from_le_bytes(*b)) / 32_768.0));
            }
            Form::I24 => {
                let wide = |[a, b, c]: &[u8; 3]| i32::from_le_bytes([0, *a, *b, *c]);
                out.extend(bytes.as_chunks().0.iter().map(|b| wide(b) as f32 / 2_147_483_648.0));
            }
            Form::I32 => {
                out.extend(bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as f32 / 2_147_483_648.0));
            }
            Form::F32 => out.extend(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b))),
        }
    }
}

/// A WAV file being read.
pub struct Wav {
    path: PathBuf,
    file: File,
    facts: WavFacts,
    form: Form,
    /// Samples of each channel that were read.
    done: u64,
    bytes: Vec<u8>,
    stored: Vec<f32>,
}

impl Wav {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    /// It cannot be read or is no WAV file, or its samples are in a form that is not read; or its header promises more of
    /// them than the file has, or none though they follow.
    pub fn open(path: &Path) -> Result<Wav, AudioError> {
        let io = |source| AudioError::Io { path: path.into(), source };
        let mut file = files::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Err(AudioError::NotWav { path: path.into(), why: "it is empty".into() });
        }
        // Read without a buffer, so that the file is left at the first sample.
        let reader = WavReader::new(&mut file).map_err(|e| not_read(path, e))?;
        let (spec, all, samples) = (reader.spec(), u64::from(reader.len()), u64::from(reader.duration()));
        let form = |found| AudioError::Form { path: path.into(), found };
        let stored = Form::of(spec).ok_or_else(|| form(format!("samples of {} bits", spec.bits_per_sample)))?;
        if !RATES.contains(&spec.sample_rate) {
            return Err(AudioError::Rate { path: path.into(), found: spec.sample_rate });
        }
        let header = Header::read(&mut file).map_err(io)?;
        if header.promised != all * stored.bytes() as u64 {
            let size = header.promised / all.max(1);
            return Err(form(format!("samples of {} bits in {size} bytes each", spec.bits_per_sample)));
        }
        header.hold(path, samples, u64::from(spec.channels) * stored.bytes() as u64)?;
        let facts = WavFacts {
            channels: spec.channels,
            sample_rate: spec.sample_rate,
            format: stored.name(),
            samples,
            seconds: samples as f64 / f64::from(spec.sample_rate),
        };
        Ok(Wav { path: path.into(), file, facts, form: stored, done: 0, bytes: Vec::new(), stored: Vec::new() })
    }

    /// What the header says.
    pub fn facts(&self) -> &WavFacts {
        &self.facts
    }

    /// Fills `out`, for which there are samples.
    fn block(&mut self, out: &mut [f32]) -> Result<(), AudioError> {
        let channels = usize::from(self.facts.channels);
        self.bytes.resize(out.len() * channels * self.form.bytes(), 0);
        self.file.read_exact(&mut self.bytes).map_err(|source| match source.kind() {
            // The file has shrunk since it was opened.
            io::ErrorKind::UnexpectedEof => {
                let (path, promised) = (self.path.clone(), self.facts.samples);
                AudioError::Truncated { path, promised, found: self.done }
            }
            _ => AudioError::Io { path: self.path.clone(), source },
        })?;
        self.form.decode(&self.bytes, &mut self.stored);
        if let Some(at) = self.stored.iter().position(|v| !v.is_finite() || v.abs() > LOUDEST) {
            return Err(AudioError::Sample {
                path: self.path.clone(),
                index: self.done + (at / channels) as u64,
                channel: at % channels,
                value: self.stored.get(at).copied().unwrap_or_default(),
                limit: LOUDEST,
            });
        }
        if channels == 1 {
            out.copy_from_slice(&self.stored);
        } else {
            for (to, all) in out.iter_mut().zip(self.stored.chunks_exact(channels)) {
                *to = (all.iter().map(|v| f64::from(*v)).sum::<f64>() / channels as f64) as f32;
            }
        }
        self.done += out.len() as u64;
        Ok(())
    }
}

impl Samples for Wav {
    fn total(&self) -> u64 {
        self.facts.samples
    }

    fn fill(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let count = out.len().min(usize::try_from(self.facts.samples - self.done).unwrap_or(usize::MAX));
        let block = (BLOCK / usize::from(self.facts.channels.max(1))).max(1);
        for part in out.get_mut(..count).unwrap_or_default().chunks_mut(block) {
            self.block(part)?;
        }
        Ok(count)
    }
}

/// What the header says of its own file.
struct Header {
    /// Bytes of samples it promises.
    promised: u64,
    /// Bytes from the first sample to the end of the file.
    left: u64,
    /// Whether it says that something follows the samples.
    more: bool,
}

impl Header {
    /// Of a file that stands at its first sample, and does so again afterwards.
    fn read(file: &mut File) -> io::Result<Header> {
        let (start, length) = (file.stream_position()?, file.metadata()?.len());
        let mut number = |at| {
            let mut bytes = [0u8; 4];
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut bytes)?;
            Ok::<u64, io::Error>(u64::from(u32::from_le_bytes(bytes)))
        };
        let (riff, promised) = (number(4)?, number(start.saturating_sub(4))?);
        file.seek(SeekFrom::Start(start))?;
        Ok(Header { promised, left: length.saturating_sub(start), more: riff + 8 > start + promised + 1 })
    }

    /// Holds what is promised, `samples` of `size` bytes, against what there is.
    fn hold(&self, path: &Path, samples: u64, size: u64) -> Result<(), AudioError> {
        if self.promised > self.left {
            let found = self.left / size.max(1);
            return Err(AudioError::Truncated { path: path.into(), promised: samples, found });
        }
        // Who streams a WAV file writes the lengths last, and may not have come to that.
        if self.promised == 0 && self.left > 1 && !self.more {
            return Err(AudioError::Unfinished { path: path.into(), left: self.left });
        }
        Ok(())
    }
}

fn not_read(path: &Path, error: Error) -> AudioError {
    let path = path.to_path_buf();
    let form = |found: &str| AudioError::Form { path: path.clone(), found: found.into() };
    match error {
        Error::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            AudioError::NotWav { path, why: "it ends within its header".into() }
        }
        Error::IoError(source) => AudioError::Io { path, source },
        Error::FormatError(why) => AudioError::NotWav { path, why: why.into() },
        Error::Unsupported => form("a codec or a layout of samples that is not read"),
        Error::TooWide | Error::InvalidSampleFormat => form("samples of more bits than their header says"),
        Error::UnfinishedSample => form("a number of samples that its channels do not divide"),
    }
}
