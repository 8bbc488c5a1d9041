//! Everything that can be wrong with audio.

use super::resample::RATES;
use std::io;
use std::path::PathBuf;

/// A WAV file that cannot be used. Samples are counted for each channel.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum AudioError {
    #[error("{} cannot be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is no WAV file: {why}", path.display())]
    NotWav { path: PathBuf, why: String },
    #[error("{} has {found}, expected integers of 8, 16, 24 or 32 bits or floats of 32 or 64", path.display())]
    Form { path: PathBuf, found: String },
    #[error("{} has {found} samples a second, expected {} to {}", path.display(), RATES.start(), RATES.end())]
    Rate { path: PathBuf, found: u32 },
    #[error("{} is cut short: its header promises {promised} samples, and there are {found}", path.display())]
    Truncated { path: PathBuf, promised: u64, found: u64 },
    #[error("{} was never finished: its header promises no samples, and {left} bytes follow", path.display())]
    Unfinished { path: PathBuf, left: u64 },
    #[error(
        "{}: sample {index} of channel {channel} is {value}, expected a number of magnitude {limit} at most; full scale is 1",
        path.display()
    )]
    Sample { path: PathBuf, index: u64, channel: usize, value: f32, limit: f32 },
    #[error("no resampler from {rate} Hz could be made or run: {why}")]
    Resampler { rate: u32, why: String },
    #[error("the Fourier transform of a frame failed")]
    Transform(#[from] realfft::FftError),
}
