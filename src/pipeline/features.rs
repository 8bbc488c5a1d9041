//! A recording to a file of its features: what `run` and the gate take as inputs of an encoder.

use super::{Progress, Unit};
use crate::checkpoint::write_safetensors_header;
use crate::dsp::{AudioError, Features, MEL_BINS, WavFacts};
use crate::files::{self, Replacement};
use crate::models::gemma_audio::{Bucket, half_mask, tokens_of};
use crate::tensor::{DType, Fact};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Rows that are computed at a time: 41 s of sound.
const ROWS: usize = 4096;

/// What to extract, and where it goes.
#[derive(Clone, Debug)]
pub struct FeaturesOptions {
    /// The WAV file.
    pub clip: PathBuf,
    /// The safetensors file.
    pub output: PathBuf,
    /// The static length to pad to; none for the features as they are.
    pub bucket: Option<Bucket>,
}

/// Why no features were written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum FeaturesError {
    #[error(transparent)]
    Audio(#[from] AudioError),
    #[error(
        "{} has {frames} frames, and the bucket {bucket}: give a longer --bucket, or none; `transcribe` takes recordings of \
         any length in windows", clip.display()
    )]
    TooLong { clip: PathBuf, frames: u64, bucket: usize },
    #[error("the features would replace {}, which is read", path.display())]
    Overwrites { path: PathBuf },
    #[error("the features could not be written to {}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("interrupted; nothing was written")]
    Interrupted,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Extracted {
    /// The recording.
    pub audio: WavFacts,
    /// Samples of it at 16 kHz.
    pub samples: u64,
    /// Frames of 10 ms.
    pub frames: u64,
    /// Soft tokens of 40 ms that an encoder makes of them.
    pub tokens: u64,
    /// Rows with padding; none where there is none.
    pub bucket: Option<usize>,
}

/// Extracts the features of a clip: `features [n, 128]`, or with a bucket `features [1, Tb, 128]`, 0 past the clip,
/// `half_mask [1, Tb/2]` and `n_tokens [1]`.
///
/// # Errors
/// The clip cannot be read or is longer than the bucket, or the output cannot be written; then no file is left behind.
pub fn features(options: &FeaturesOptions, progress: &dyn Progress) -> Result<Extracted, FeaturesError> {
    let mut features = Features::open(&options.clip)?;
    if files::replaces(&options.output, [options.clip.as_path()]) {
        return Err(FeaturesError::Overwrites { path: options.output.clone() });
    }
    let frames = features.frames();
    let bucket = options.bucket.map(Bucket::frames);
    if let Some(bucket) = bucket.filter(|bucket| (*bucket as u64) < frames) {
        return Err(FeaturesError::TooLong { clip: options.clip.clone(), frames, bucket });
    }
    let failed = |source| FeaturesError::Output { path: options.output.clone(), source };
    let mut file = Replacement::new(&options.output).map_err(failed)?;
    let mut out = BufWriter::new(&mut file);
    let valid = usize::try_from(frames).unwrap_or(usize::MAX);
    let facts = facts(valid, bucket);
    write_safetensors_header(&facts.iter().map(|(name, fact)| (*name, fact)).collect(), &mut out).map_err(failed)?;
    progress.stage("extracting", frames, Unit::Frames);
    let mut rows = vec![0f32; ROWS.min(valid) * MEL_BINS];
    loop {
        let read = features.read(&mut rows)?;
        if progress.stopped() {
            return Err(FeaturesError::Interrupted);
        }
        if read == 0 {
            break;
        }
        write(rows.get(..read * MEL_BINS).unwrap_or_default(), &mut out).map_err(failed)?;
        progress.advance(read as u64);
    }
    if let Some(bucket) = bucket {
        padding(valid, bucket, &mut out).map_err(failed)?;
    }
    out.flush().map_err(failed)?;
    drop(out);
    file.persist().map_err(failed)?;
    Ok(Extracted {
        audio: features.wav().clone(),
        samples: features.samples(),
        frames,
        tokens: tokens_of(valid) as u64,
        bucket,
    })
}

/// The tensors of the file, whose bytes are written in the order of their names.
fn facts(frames: usize, bucket: Option<usize>) -> BTreeMap<&'static str, Fact> {
    match bucket {
        None => BTreeMap::from([("features", Fact::new(DType::F32, [frames, MEL_BINS]))]),
        Some(bucket) => BTreeMap::from([
            ("features", Fact::new(DType::F32, [1, bucket, MEL_BINS])),
            ("half_mask", Fact::new(DType::F32, [1, bucket / 2])),
            ("n_tokens", Fact::new(DType::I32, [1])),
        ]),
    }
}

/// What follows the clip's rows in a bucket.
fn padding(frames: usize, bucket: usize, out: &mut impl Write) -> io::Result<()> {
    let zeros = [0u8; 4 * MEL_BINS];
    (frames..bucket).try_for_each(|_| out.write_all(&zeros))?;
    write(&half_mask(frames, bucket), out)?;
    out.write_all(&i32::try_from(tokens_of(frames)).unwrap_or(i32::MAX).to_le_bytes())
}

/// Writes numbers, little endian.
pub(super) fn write(values: &[f32], out: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0u8; size_of_val(values)];
    for (to, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *to = value.to_le_bytes();
    }
    out.write_all(&bytes)
}
