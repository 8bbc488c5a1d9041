//! WAV files: the header, and the samples mixed to one channel.

use super::resample::RATES;
use super::{AudioError, Samples};
use crate::files;
use hound::{Error, SampleFormat, WavReader};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Largest magnitude of a float sample. Full scale is 1, so that this is a file of something else; beyond it the
/// spectrum of a frame would leave float32.
const LOUDEST: f32 = 1e6;

/// Bytes that are read at a time.
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

/// A WAV file being read.
pub struct Wav {
    path: PathBuf,
    reader: WavReader<BufReader<File>>,
    facts: WavFacts,
    /// What an integer sample is divided by; none where samples are floats.
    full_scale: Option<f64>,
    /// Samples of each channel that were read.
    done: u64,
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
        let header = Header::read(&mut file, path)?;
        file.rewind().map_err(io)?;
        let reader = WavReader::new(BufReader::with_capacity(BUFFER, file)).map_err(|e| not_read(path, e))?;
        let spec = reader.spec();
        let (format, full_scale) = match (spec.sample_format, spec.bits_per_sample) {
            (SampleFormat::Int, 8) => ("8-bit integer", Some(128.0)),
            (SampleFormat::Int, 16) => ("16-bit integer", Some(32_768.0)),
            (SampleFormat::Int, 24) => ("24-bit integer", Some(8_388_608.0)),
            (SampleFormat::Int, 32) => ("32-bit integer", Some(2_147_483_648.0)),
            (SampleFormat::Float, 32) => ("32-bit float", None),
            (SampleFormat::Int | SampleFormat::Float, bits) => {
                return Err(AudioError::Form { path: path.into(), found: format!("samples of {bits} bits") });
            }
        };
        if !RATES.contains(&spec.sample_rate) {
            return Err(AudioError::Rate { path: path.into(), found: spec.sample_rate });
        }
        let samples = u64::from(reader.duration());
        header.hold(path, samples, u64::from(spec.channels) * u64::from(spec.bits_per_sample / 8))?;
        let facts = WavFacts {
            channels: spec.channels,
            sample_rate: spec.sample_rate,
            format,
            samples,
            seconds: samples as f64 / f64::from(spec.sample_rate),
        };
        Ok(Wav { path: path.into(), reader, facts, full_scale, done: 0 })
    }

    /// What the header says.
    pub fn facts(&self) -> &WavFacts {
        &self.facts
    }

    /// Mixes whole samples of `channels` into `out`, each brought to full scale by `scaled`, and says how many there were.
    fn mixed<S: hound::Sample>(&mut self, out: &mut [f32], scaled: impl Fn(S) -> f32) -> Result<usize, AudioError> {
        let channels = self.facts.channels;
        let mut stored = self.reader.samples::<S>();
        for (at, to) in out.iter_mut().enumerate() {
            let mut sum = 0f64;
            for channel in 0..channels {
                let sample = match stored.next() {
                    Some(Ok(sample)) => scaled(sample),
                    None if channel == 0 => return Ok(at),
                    None => return Err(cut_short(&self.path, &self.facts, self.done + at as u64)),
                    Some(Err(Error::IoError(e))) if e.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(cut_short(&self.path, &self.facts, self.done + at as u64));
                    }
                    Some(Err(error)) => return Err(not_read(&self.path, error)),
                };
                if !sample.is_finite() || sample.abs() > LOUDEST {
                    let (path, index) = (self.path.clone(), self.done + at as u64);
                    return Err(AudioError::Sample { path, index, channel, value: sample, limit: LOUDEST });
                }
                sum += f64::from(sample);
            }
            *to = (sum / f64::from(channels)) as f32;
        }
        Ok(out.len())
    }
}

impl Samples for Wav {
    fn total(&self) -> u64 {
        self.facts.samples
    }

    fn fill(&mut self, out: &mut [f32]) -> Result<usize, AudioError> {
        let read = match self.full_scale {
            // Exact: a power of two, and rounded once where 32 bits do not fit in a float.
            Some(full_scale) => self.mixed(out, |sample: i32| (f64::from(sample) / full_scale) as f32)?,
            None => self.mixed(out, |sample: f32| sample)?,
        };
        self.done += read as u64;
        if read < out.len() && self.done < self.facts.samples {
            return Err(cut_short(&self.path, &self.facts, self.done));
        }
        Ok(read)
    }
}

/// Where the samples are, and how much of the file is there.
struct Header {
    /// Bytes from the first sample to the end of the file.
    left: u64,
    /// Whether the header says that more follows the samples it tells of.
    more: bool,
}

impl Header {
    fn read(file: &mut File, path: &Path) -> Result<Header, AudioError> {
        let io = |source| AudioError::Io { path: path.into(), source };
        let length = file.metadata().map_err(io)?.len();
        if length == 0 {
            return Err(AudioError::NotWav { path: path.into(), why: "it is empty".into() });
        }
        // Read without a buffer, so that the file is left at the first sample.
        WavReader::new(&mut *file).map_err(|e| not_read(path, e))?;
        let start = file.stream_position().map_err(io)?;
        let mut riff = [0u8; 8];
        file.seek(SeekFrom::Start(0)).and_then(|_| file.read_exact(&mut riff)).map_err(io)?;
        let [.., a, b, c, d] = riff;
        let more = u64::from(u32::from_le_bytes([a, b, c, d])) + 8 > start + 1;
        Ok(Header { left: length.saturating_sub(start), more })
    }

    /// Holds what the header promises, `samples` of `size` bytes, against what there is.
    fn hold(&self, path: &Path, samples: u64, size: u64) -> Result<(), AudioError> {
        if samples * size > self.left {
            let found = self.left / size.max(1);
            return Err(AudioError::Truncated { path: path.into(), promised: samples, found });
        }
        // Who streams a WAV file writes the length last, and may not have come to that.
        if samples == 0 && self.left > 1 && !self.more {
            return Err(AudioError::Unfinished { path: path.into(), left: self.left });
        }
        Ok(())
    }
}

fn cut_short(path: &Path, facts: &WavFacts, found: u64) -> AudioError {
    AudioError::Truncated { path: path.into(), promised: facts.samples, found }
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
