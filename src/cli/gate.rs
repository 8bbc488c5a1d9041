//! `eg2-convert gate`.

use super::converted::exit_of as exit_of_weights;
use super::failure::{Exit, Failure};
use super::run::exit_of;
use super::table::Table;
use super::transcribe::exit_of as exit_of_transcription;
use super::{Checks, Common, Report};
use crate::gate::{Check, GateError, LimitOverrides, SOURCE_CHECK, Verdict, laya};
use crate::models::windows::OVERLAP;
use crate::pipeline::{GateFailure, GateOptions, Gated, HalvesError, RunError, gate};
use crate::toolchain::Interrupt;
use clap::error::{ContextKind, ContextValue};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Most lines of a check that are shown.
const LINES: usize = 12;

/// Judge an artefact by goldens, recordings or questions: numbers, labels, transcripts, answers, and red arms that must break them
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "eg2-convert gate <ARTEFACT> [--golden <FILE|DIR>...] [--audio <FILE|DIR>...] [OPTIONS]",
    after_help = "Examples:\n  eg2-convert gate out/eg2_encoder_fp16_T3000.mlpackage --golden clips/\n  \
                        eg2-convert gate out/eg2_encoder_fp16_T3000.mlpackage --golden clips/ \\\n    \
                        --reader out/eg2_reader_v2_fp16_T750.mlpackage --words words.txt \\\n    \
                        --transcripts reference.tsv --wer said.tsv\n  \
                        eg2-convert gate out/eg2_reader_v2_fp16_T750.mlpackage --encoder \
                        out/eg2_encoder_fp16_T3000.mlpackage \\\n    --audio recordings/ --words words.txt \
                        --transcripts reference.tsv\n  \
                        eg2-convert gate out/eg2_encoder_front7_fp32_T3000.mlpackage --body \
                        out/eg2_encoder_body7_fp16_T3000.mlpackage \\\n    --golden clips/\n  \
                        eg2-convert gate out/laya_fp16_L96.mlpackage --checkpoint DIR --golden goldens/ --questions \
                        questions.json\n\n\
                        A golden is a safetensors file of one clip. For an encoder: features, half_mask and the \
                        reference's soft_tokens. For a reader: soft_tokens, token_mask and the reference's top1_index, \
                        top1_logit, blank_logit, and margin where it is known. For a decision model, of one question: \
                        the graph's inputs, input_ids, attention_mask, marker_pos, marker_mask and qtype they are made \
                        of, and the reference's logits, cls and action. Where its header has source_sha256, that \
                        must be a weights file of the artefact's record."
)]
pub struct Opts {
    /// The .mlpackage or .aimodel
    artefact: PathBuf,
    /// The body of the encoder whose front the artefact is, .mlpackage or .aimodel: both halves of `encoder --split-after` are
    /// judged as one, by the limits of the body's precision
    #[arg(long, value_name = "ARTEFACT")]
    body: Option<PathBuf>,
    /// A safetensors file of one clip, or a folder of them; may be given more than once
    #[arg(long, value_name = "FILE|DIR", required_unless_present_any = ["audio", "questions"], num_args = 1..)]
    golden: Vec<PathBuf>,
    /// A question set, for a decision model; may be given more than once
    #[arg(long, value_name = "FILE", num_args = 1..)]
    questions: Vec<PathBuf>,
    /// The checkpoint that a decision model was made of, with its tokenizer/: its host asks and answers
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,
    /// Folder of a decision model's configs, where `laya --config` had them in place of the checkpoint's own
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// The function to judge [default: the one whose length is the golden's]
    #[arg(long)]
    function: Option<String>,
    /// The reader's words, one a line
    #[arg(long, value_name = "FILE")]
    words: Option<PathBuf>,
    /// The reference's transcripts: a line CLIP<TAB>TEXT for each golden and recording, CLIP being its file name without ending
    #[arg(long, value_name = "FILE")]
    transcripts: Option<PathBuf>,
    /// What was truly said, in lines as of --transcripts
    #[arg(long, value_name = "FILE")]
    wer: Option<PathBuf>,
    /// A reader, .mlpackage or .aimodel, to read an encoder's soft tokens
    #[arg(long, value_name = "ARTEFACT")]
    reader: Option<PathBuf>,
    /// An encoder, .mlpackage or .aimodel, to encode recordings for a reader
    #[arg(long, value_name = "ARTEFACT")]
    encoder: Option<PathBuf>,
    /// A recording, WAV, or a folder of them, for --transcripts and --wer; may be given more than once
    #[arg(long, value_name = "FILE|DIR", num_args = 1..)]
    audio: Vec<PathBuf>,
    /// Soft tokens of 40 ms that a window of a recording shares with the one before
    #[arg(long, value_name = "TOKENS", default_value_t = OVERLAP)]
    overlap: usize,
    /// Runs of each clip that must agree bit for bit
    #[arg(long, value_name = "RUNS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    limits: LimitOpts,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits [default: by the artefact's precision]")]
struct LimitOpts {
    /// Least cosine of any soft token to the reference [default: 0.99999 for fp32, 0.99 for fp16w32 and int8, none for
    /// fp16, which is judged by its task]
    #[arg(long, value_name = "COSINE", allow_negative_numbers = true)]
    cosine_min: Option<f64>,
    /// Least mean cosine of a clip's soft tokens [default: 0.999]
    #[arg(long, value_name = "COSINE", allow_negative_numbers = true)]
    cosine_mean: Option<f64>,
    /// Labels and blanks with more logits between them and the next best must be the reference's [default: 0.001 for
    /// fp32, else 0.1 for each 91 of the scale in the record, 0.25 at most]
    #[arg(long, value_name = "LOGITS", allow_negative_numbers = true)]
    margin: Option<f64>,
    /// Most labels that may differ, of all valid tokens, rounded down but at least one label unless this is 0; the
    /// label of a token that both read as blank is told and not counted [default: 1]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    flips: Option<f64>,
    /// Least clips whose transcript is the reference's [default: 95]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    transcripts_equal: Option<f64>,
    /// How much the word error rate may be above the reference's [default: 0.1]
    #[arg(long, value_name = "POINTS", allow_negative_numbers = true)]
    wer_points: Option<f64>,
    /// Most that a share may be off, of a decision model's options or actions [default: 0.0001 for fp32, else 0.02]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    probability: Option<f64>,
}

/// What to say to whoever gave no artefact, or gave it behind an option that took it for one of its files.
const ARTEFACT_FIRST: &str = "give the artefact before --golden and --audio, which take every path after them";

/// The same usage error, with a hint where the artefact is missing from a call of this command.
pub fn hinted(mut error: clap::Error) -> clap::Error {
    let lacks = |kind: ContextKind, part: &str| error.get(kind).is_some_and(|value| value.to_string().contains(part));
    if lacks(ContextKind::InvalidArg, "<ARTEFACT>") && lacks(ContextKind::Usage, "eg2-convert gate") {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![ARTEFACT_FIRST.into()]));
    }
    error
}

/// Gates the artefact and tells each check.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let LimitOpts { cosine_min, cosine_mean, margin, flips, transcripts_equal, wer_points, probability } = opts.limits;
    let options = GateOptions {
        artefact: opts.artefact,
        body: opts.body,
        goldens: opts.golden,
        questions: opts.questions,
        checkpoint: opts.checkpoint,
        config: opts.config,
        function: opts.function,
        words: opts.words,
        transcripts: opts.transcripts,
        truth: opts.wer,
        reader: opts.reader,
        encoder: opts.encoder,
        audio: opts.audio,
        overlap: opts.overlap,
        repeats: opts.repeats as usize,
        limits: LimitOverrides {
            cosine_mean,
            cosine_min,
            margin,
            flips_percent: flips,
            transcripts_percent: transcripts_equal,
            wer_points,
            probability,
        },
    };
    let started = Instant::now();
    let interrupt = Interrupt::listen().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let gated = gate(&options, &interrupt).map_err(|e| failure(&e))?;
    if !common.quiet {
        for cast in &gated.casts {
            tracing::warn!("input {} was cast from {} to {}", cast.input, cast.from, cast.to);
        }
    }
    Ok(report(&gated, started.elapsed().as_secs_f64()))
}

/// What ended it.
pub(super) fn failure(error: &GateFailure) -> Failure {
    let exit = match error {
        GateFailure::Run(error) => exit_of(error),
        GateFailure::Gate(error) => exit_of_gate(error),
        GateFailure::Audio(error) => exit_of_transcription(error),
        GateFailure::Halves(HalvesError::Alone { .. } | HalvesError::Not { .. }) => Exit::Usage,
        GateFailure::Weights(error) => exit_of_weights(error),
        GateFailure::Halves(HalvesError::Unmatched { .. } | HalvesError::Cut { .. } | HalvesError::Source { .. })
        | GateFailure::Golden(_)
        | GateFailure::Clip { .. }
        | GateFailure::Clips(_)
        | GateFailure::Evidence(_)
        | GateFailure::Source(_)
        | GateFailure::Record(_)
        | GateFailure::Tree(_)
        | GateFailure::Foreign(_)
        | GateFailure::Host(_)
        | GateFailure::Rows { .. }
        | GateFailure::Questions(_)
        | GateFailure::Length { .. }
        | GateFailure::NoInput { .. }
        | GateFailure::Text { .. }
        | GateFailure::NotText { .. }
        | GateFailure::Words(_)
        | GateFailure::Lines { .. } => Exit::BadInput,
        GateFailure::Limit(_)
        | GateFailure::Model { .. }
        | GateFailure::Needless { .. }
        | GateFailure::NoCheckpoint { .. }
        | GateFailure::NothingToJudgeBy => Exit::Usage,
        GateFailure::Tensors(_) => Exit::Bug,
        GateFailure::Unknown(_) => Exit::Unsupported,
    };
    Failure::new(exit, error)
}

const fn exit_of_gate(error: &GateError<RunError>) -> Exit {
    match error {
        GateError::Run { source, .. } => exit_of(source),
        GateError::Golden { .. }
        | GateError::Input { .. }
        | GateError::Output { .. }
        | GateError::TooLong { .. }
        | GateError::Reading { .. }
        | GateError::Transcripts(_) => Exit::BadInput,
    }
}

fn report(gated: &Gated, seconds: f64) -> Report {
    let Gated { artefact, digest_root, body, other, runtime, precision, precision_from, casts, evidence, report } =
        gated;
    let of = if body.is_some() { "body's " } else { "" };
    let mut table = Table::default();
    table
        .row("artefact", artefact)
        .row("model", format!("{} in {}, by its {of}{precision_from}", report.model, precision.name()))
        .row("digest root", digest_root)
        .row("runtime", runtime);
    for (row, other) in [("body", body), ("together with", other)] {
        if let Some(other) = other {
            table.row(row, format!("{}, digest root {}", other.artefact, other.digest_root));
        }
    }
    table.row(if report.model == laya::MODEL { "questions" } else { "clips" }, report.clips.len());
    for check in &report.checks {
        rows(check, &mut table);
    }
    let (passed, left_out) = (report.passed(), report.left_out());
    // Of whose weights the evidence is says nothing of the artefact.
    let nothing = !report.checks.iter().any(|check| check.verdict == Verdict::Pass && check.name != SOURCE_CHECK);
    let (verdict, told) = match (passed, left_out) {
        (false, _) => ("fail", "FAILED"),
        (true, true) if nothing => ("not_run", "not run: nothing was checked"),
        (true, true) => ("pass", "passed, but for what was not run"),
        (true, false) => ("pass", "passed"),
    };
    table.row("verdict", told).row("seconds", format!("{seconds:.1}"));
    let json = json!({
        "artefact": artefact,
        "digest_root": digest_root,
        "body": body,
        "other": other,
        "runtime": runtime,
        "precision": precision,
        "precision_from": precision_from,
        "casts": casts,
        "evidence": evidence,
        "verdict": verdict,
        "passed": passed && !nothing,
        "report": report,
        "seconds": seconds,
    });
    let checks = match (passed, left_out) {
        (false, _) => Checks::Failed,
        (true, true) => Checks::NotRun,
        (true, false) => Checks::Passed,
    };
    Report { text: table.wrapped(), json, checks }
}

fn rows(check: &Check, table: &mut Table) {
    let says = match &check.verdict {
        Verdict::Pass => format!("passed: {}", check.says),
        Verdict::Fail => format!("FAILED: {}", check.says),
        Verdict::NotRun { reason } => format!("not run: {reason}"),
    };
    table.row(check.name, says);
    for line in check.lines.iter().take(LINES) {
        table.row("", line);
    }
    if check.lines.len() > LINES {
        table.row("", format!("and {} more; --json lists them", check.lines.len() - LINES));
    }
}
