//! `eg2-convert features`.

use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::{Table, thousands};
use super::{Checks, Common, Report};
use crate::dsp::{SAMPLE_RATE, WavFacts};
use crate::models::gemma_audio::Bucket;
use crate::pipeline::{FeaturesError, FeaturesOptions, features};
use crate::plural::counted;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Extract log-mel features of a recording, as an encoder takes them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert features clip.wav -o features.safetensors --bucket 3000\n  eg2-convert run \
                        out/eg2_encoder_fp16_T3000.mlpackage --inputs features.safetensors --outputs tokens.safetensors"
)]
pub struct Opts {
    /// The recording: WAV of integers or floats, any rate, any number of channels
    clip: PathBuf,
    /// The safetensors file that is written
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Pad to that many frames, with half_mask and n_tokens beside [default: the features as they are]
    #[arg(long, value_name = "FRAMES")]
    bucket: Option<usize>,
}

/// Extracts the features and tells how many there are.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let bucket = opts.bucket.map(Bucket::new).transpose().map_err(|e| Failure::new(Exit::Usage, &e))?;
    let options = FeaturesOptions { clip: opts.clip, output: opts.output, bucket };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let started = Instant::now();
    let found = features(&options, &bar).map_err(|e| failure(&e))?;
    drop(bar);
    let seconds = started.elapsed().as_secs_f64();
    notes(&found.audio);
    if found.frames == 0 {
        tracing::warn!("{} samples at 16 kHz are fewer than the 161 of a first frame: there is none", found.samples);
    }
    let mut table = Table::default();
    table
        .row("clip", options.clip.display())
        .row("audio", told(&found.audio))
        .row("samples", format!("{} at 16 kHz", thousands(found.samples)))
        .row("frames", thousands(found.frames))
        .row("soft tokens", thousands(found.tokens));
    if let Some(bucket) = found.bucket {
        table.row("bucket", thousands(bucket as u64));
    }
    table.row("written to", options.output.display()).row("seconds", format!("{seconds:.2}"));
    let json = json!({
        "clip": options.clip.display().to_string(),
        "audio": found.audio,
        "samples": found.samples,
        "frames": found.frames,
        "tokens": found.tokens,
        "bucket": found.bucket,
        "file": options.output.display().to_string(),
        "seconds": seconds,
    });
    Ok(Report { text: table.render(), json, checks: Checks::Passed })
}

/// Says what was done to a recording before it was looked at.
pub(super) fn notes(audio: &WavFacts) {
    if audio.channels > 1 {
        tracing::warn!("{} channels were mixed to one", audio.channels);
    }
    if audio.sample_rate != SAMPLE_RATE {
        tracing::warn!("resampled from {} Hz to {SAMPLE_RATE} Hz", audio.sample_rate);
    }
}

fn told(audio: &WavFacts) -> String {
    let channels = counted(audio.channels.into(), "channel");
    format!("{:.2} s, {} Hz, {channels}, {}", audio.seconds, audio.sample_rate, audio.format)
}

fn failure(error: &FeaturesError) -> Failure {
    let exit = match error {
        FeaturesError::Audio(_) | FeaturesError::TooLong { .. } => Exit::BadInput,
        FeaturesError::Overwrites { .. } | FeaturesError::Output { .. } => Exit::Usage,
        FeaturesError::Interrupted => Exit::Interrupted,
    };
    Failure::new(exit, error)
}
