//! `eg2-convert transcribe`.

use super::converted::exit_of as exit_of_weights;
use super::failure::{Exit, Failure};
use super::features;
use super::progress::Bar;
use super::run::exit_of as exit_of_run;
use super::{Checks, Common, Report};
use crate::models::gemma_audio::Bucket;
use crate::models::windows::OVERLAP;
use crate::pipeline::{TranscribeError, TranscribeOptions, Transcript, transcribe};
use serde_json::json;
use std::path::PathBuf;

/// Write down the words of a recording of any length, by an encoder and a reader
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert transcribe clip.wav --encoder out/eg2_encoder_fp16_T3000.mlpackage --reader \
                  out/eg2_reader_v2_fp16_T750.mlpackage --words words.txt\n  eg2-convert transcribe clip.wav --encoder \
                  model.safetensors --reader reader_config.json --timestamps"
)]
pub struct Opts {
    /// The recording: WAV of integers or floats, any rate, any number of channels
    clip: PathBuf,
    /// The encoder: an .mlpackage, an .aimodel, or a checkpoint, whose graph is evaluated in fp32
    #[arg(long, value_name = "ENCODER")]
    encoder: PathBuf,
    /// The reader: an .mlpackage, an .aimodel, or a reader_config.json, whose graph is evaluated in fp32
    #[arg(long, value_name = "READER")]
    reader: PathBuf,
    /// The reader's words, one a line [default: those that a reader_config.json names]
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,
    /// Soft tokens of 40 ms that a window shares with the one before
    #[arg(long, value_name = "TOKENS", default_value_t = OVERLAP)]
    overlap: usize,
    /// Frames of 10 ms in a window, where the encoder is a checkpoint; a reader_config.json is read in windows of as many
    /// tokens, 750 at most [default: 3000]
    #[arg(long, value_name = "FRAMES")]
    bucket: Option<usize>,
    /// Write the joined soft tokens to a safetensors file, soft_tokens [1, N, D]
    #[arg(long, value_name = "FILE")]
    soft_tokens: Option<PathBuf>,
    /// A line for each word: seconds of its start and its end, and the word, with tabs between
    #[arg(long)]
    timestamps: bool,
}

/// Transcribes the recording and tells its words.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let options = TranscribeOptions {
        clip: opts.clip,
        encoder: opts.encoder,
        reader: opts.reader,
        words: opts.words,
        overlap: opts.overlap,
        soft_tokens: opts.soft_tokens,
        bucket: opts.bucket.map(Bucket::evaluated).transpose().map_err(|e| Failure::new(Exit::Usage, &e))?,
    };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let found = transcribe(&options, bar.interrupt(), &bar).map_err(|e| Failure::new(exit_of(&e), &e))?;
    drop(bar);
    notes(&found);
    let text = if opts.timestamps { lines(&found) } else { format!("{}\n", found.text) };
    Ok(Report { text, json: json!(found), checks: Checks::Passed })
}

fn notes(found: &Transcript) {
    features::notes(&found.audio);
    if found.tokens == 0 {
        tracing::warn!(
            "{} samples at 16 kHz are fewer than the 161 of a first frame: there is nothing to read",
            found.samples
        );
    }
    tracing::info!(
        "{:.1} s for {:.1} s of sound: real-time factor {:.3}",
        found.seconds,
        found.audio.seconds,
        found.real_time_factor
    );
}

fn lines(found: &Transcript) -> String {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let line = |word: &crate::pipeline::SpokenWord| {
        format!("{:.2}\t{:.2}\t{}\n", seconds(word.start_ms), seconds(word.end_ms), word.word)
    };
    found.words.iter().map(line).collect()
}

/// The exit code of what kept a clip from being transcribed.
pub(super) const fn exit_of(error: &TranscribeError) -> Exit {
    match error {
        TranscribeError::Run(error) => exit_of_run(error),
        TranscribeError::Artefact { source, .. } => exit_of_run(source),
        TranscribeError::Weights(error) => exit_of_weights(error),
        TranscribeError::Audio(_)
        | TranscribeError::Silent { .. }
        | TranscribeError::Contract { .. }
        | TranscribeError::Widths { .. }
        | TranscribeError::NoReader { .. }
        | TranscribeError::Words(_)
        | TranscribeError::OtherWords { .. }
        | TranscribeError::Window { .. }
        | TranscribeError::Values { .. }
        | TranscribeError::NotFinite { .. }
        | TranscribeError::Host(_)
        | TranscribeError::Reading { .. }
        | TranscribeError::Tree(_)
        | TranscribeError::Record(_) => Exit::BadInput,
        TranscribeError::Output { .. }
        | TranscribeError::Overwrites { .. }
        | TranscribeError::Model { .. }
        | TranscribeError::NoWords { .. }
        | TranscribeError::Tokens(_)
        | TranscribeError::Bucket { .. }
        | TranscribeError::Overlap { .. } => Exit::Usage,
        TranscribeError::Unknown(_) => Exit::Unsupported,
        TranscribeError::Interrupted => Exit::Interrupted,
    }
}
