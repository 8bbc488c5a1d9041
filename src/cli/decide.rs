//! `eg2-convert decide`.

use super::converted::exit_of as exit_of_weights;
use super::failure::{Exit, Failure};
use super::run::exit_of as exit_of_run;
use super::table::Table;
use super::{Checks, Common, Report};
use crate::checkpoint::{LAYA, LocateEnv, locate};
use crate::models::laya::host::{Answer, Overlong, QuestionType, Replaced};
use crate::pipeline::{DecideError, DecideOptions, Decided, QuestionRun, Request, RequestResult, decide};
use crate::toolchain::Interrupt;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What the one question of the command line is called.
const QUESTION: &str = "question";

/// Answer questions about a text with artefacts of the decision model
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert decide --artifact out/laya_fp16_L96.mlpackage --checkpoint DIR --state \"The invoice was \
                  paid twice.\" --question \"Which team?\" --options billing support\n  eg2-convert decide --artifact \
                  out/laya_fp16_L96.mlpackage out/laya_fp16_L192.mlpackage --checkpoint DIR --request requests.json --json"
)]
pub struct Opts {
    /// Artefacts of the decision model, .mlpackage or .aimodel, one for each length: the shortest that a question fits
    /// answers it
    #[arg(long, alias = "artefact", value_name = "ARTEFACT", num_args = 1.., required = true)]
    artifact: Vec<PathBuf>,
    /// The checkpoint they were made of, with its tokenizer/ [default: $EG2_CHECKPOINT, then ./model.safetensors, then
    /// the Hugging Face cache]
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,
    /// The text that the question is about
    #[arg(long, value_name = "TEXT", required_unless_present = "request", allow_hyphen_values = true)]
    state: Option<String>,
    /// The question
    #[arg(long, value_name = "TEXT", required_unless_present = "request", allow_hyphen_values = true)]
    question: Option<String>,
    /// Labels of a choice, levels of a score from the lowest up, or the words for false and true of a noul
    #[arg(long, value_name = "OPTION", num_args = 1.., allow_hyphen_values = false)]
    options: Vec<String>,
    /// What kind of answer is wanted: one of several labels, a level, or how true a statement is [default: choice with
    /// --options, else noul]
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    kind: Option<KindArg>,
    /// Requests as JSON, one or a list: {"state", "questions": {ID: {"type", "instructions", "criteria"}}}
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["state", "question", "options", "kind"])]
    request: Vec<PathBuf>,
    /// Cut a state that fits no length, at its end, or at its beginning where it is a list; without it that is refused
    #[arg(long)]
    truncate: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum KindArg {
    Choice,
    Score,
    Noul,
}

/// Answers and tells.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let alone = opts.request.is_empty();
    let requests = if alone { vec![asked(&opts)?] } else { read(&opts.request)? };
    let found = locate(opts.checkpoint.as_deref(), &LocateEnv::from_process(), LAYA, None);
    let options = DecideOptions {
        artefacts: opts.artifact,
        checkpoint: found.map_err(|e| Failure::new(Exit::BadInput, &e))?,
        requests,
        overlong: if opts.truncate { Overlong::CutState } else { Overlong::Refuse },
    };
    let interrupt = Interrupt::listen().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let decided = decide(&options, &interrupt).map_err(|e| Failure::new(exit_of(&e), &e))?;
    notes(&decided, common);
    // Alone, a refusal is all that there is to tell.
    match decided.results.first().and_then(|result| result.refusal.as_ref()).filter(|_| alone) {
        Some(refusal) => Err(Failure::bad_input(refusal.clone())),
        None => Ok(report(&decided)),
    }
}

fn read(files: &[PathBuf]) -> Result<Vec<Request>, Failure> {
    let mut requests = Vec::new();
    for file in files {
        requests.extend(Request::read(file).map_err(|e| Failure::new(Exit::BadInput, &e))?);
    }
    Ok(requests)
}

/// The request of the command line.
fn asked(opts: &Opts) -> Result<Request, Failure> {
    let kind = match (opts.kind, opts.options.is_empty()) {
        (Some(KindArg::Choice), _) | (None, false) => QuestionType::Choice,
        (Some(KindArg::Score), _) => QuestionType::Score,
        (Some(KindArg::Noul), _) | (None, true) => QuestionType::Noul,
    };
    let mut question = Map::new();
    question.insert("type".into(), kind.name().into());
    question.insert("instructions".into(), opts.question.clone().into());
    match (kind, opts.options.as_slice()) {
        (QuestionType::Choice | QuestionType::Score, options) => {
            question.insert("criteria".into(), options.into());
        }
        (QuestionType::Noul, []) => {}
        (QuestionType::Noul, [no, yes]) => {
            question.insert("labels".into(), json!({ "false": no, "true": yes }));
        }
        (QuestionType::Noul, other) => {
            let count = other.len();
            return Err(Failure::usage(format!("a noul has {count} --options, expected the words for false and true")));
        }
    }
    let questions = Map::from_iter([(QUESTION.to_string(), Value::Object(question))]);
    Ok(Request { name: None, state: opts.state.clone().into(), questions })
}

/// What an answer leaves out.
fn notes(decided: &Decided, common: &Common) {
    for replaced in &decided.temperatures_replaced {
        let Replaced { entry, given, taken } = replaced;
        tracing::warn!("the config's temperature {entry} is {given}, and {taken} was taken for it");
    }
    for one in decided.artefacts.iter().filter(|one| !one.of_record) {
        tracing::warn!("{} has no record: whether it was made of this checkpoint is not known", one.artefact);
    }
    if common.quiet {
        return;
    }
    for (result, id, run) in decided.results.iter().flat_map(runs) {
        let place = format!("request {}, question {id}", result.name);
        if run.question.options_distinct < run.question.options {
            let (distinct, options) = (run.question.options_distinct, run.question.options);
            tracing::warn!("{place}: of {options} options {distinct} differ in what the model reads of them");
        }
        if run.state.truncated {
            let (used, all) = (run.state.state_tokens_used, run.state.state_tokens);
            tracing::warn!("{place}: of {all} tokens of the state {used} were read");
        }
    }
}

fn runs(result: &RequestResult) -> impl Iterator<Item = (&RequestResult, &str, &QuestionRun)> {
    result.runs.iter().flat_map(|runs| &runs.0).map(move |(id, run)| (result, id.as_str(), run))
}

fn report(decided: &Decided) -> Report {
    let mut table = Table::default();
    let several = decided.results.len() > 1;
    for result in &decided.results {
        if several {
            table.row("request", &result.name);
        }
        if let Some(refusal) = &result.refusal {
            table.prose("refused", refusal);
        }
        for ((id, answer), (_, _, run)) in result.answers.iter().flat_map(|all| &all.0).zip(runs(result)) {
            rows(id, answer, &mut table);
            table.row("  tokens", format!("{} of {}", run.tokens, run.length));
        }
    }
    let checks = match decided.refused {
        0 if decided.artefacts.iter().all(|one| one.of_record) => Checks::Passed,
        0 => Checks::NotRun,
        _ => Checks::Refused,
    };
    Report { text: table.render(), json: json!(decided), checks }
}

fn rows(id: &str, answer: &Answer, table: &mut Table) {
    let shares = |shares: &[(String, f64)]| {
        shares.iter().map(|(label, share)| format!("{label} {share:.4}")).collect::<Vec<_>>().join(", ")
    };
    let (text, detail, action) = match answer {
        Answer::Choice { choice, probabilities, action, .. } => {
            let label = choice.as_str().map_or_else(|| choice.to_string(), str::to_string);
            (label, shares(&probabilities.0), action)
        }
        Answer::Score { score, probabilities, action, .. } => {
            (format!("level {score:.4}"), shares(&probabilities.0), action)
        }
        Answer::Noul { noul, action, .. } => (format!("true by {noul:.4}"), String::new(), action),
    };
    table.row(id, text);
    if !detail.is_empty() {
        table.prose("  shares", &detail);
    }
    table.row("  go by it", format!("{:.4}", action.act_probability));
}

/// The exit code of what kept requests from being answered.
pub(super) const fn exit_of(error: &DecideError) -> Exit {
    match error {
        DecideError::Weights(error) => exit_of_weights(error),
        DecideError::Run(error) => exit_of_run(error),
        DecideError::Host(_)
        | DecideError::Tree(_)
        | DecideError::Record(_)
        | DecideError::Io { .. }
        | DecideError::Shape { .. }
        | DecideError::Foreign(_) => Exit::BadInput,
        DecideError::NoArtefact | DecideError::Model { .. } | DecideError::Lengths(_) | DecideError::Twice { .. } => {
            Exit::Usage
        }
        DecideError::Unknown(_) => Exit::Unsupported,
        DecideError::NoGraph { .. } | DecideError::Output { .. } | DecideError::Feature { .. } => Exit::Bug,
        DecideError::Interrupted => Exit::Interrupted,
    }
}
