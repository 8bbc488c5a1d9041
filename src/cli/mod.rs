//! The command line: one file per subcommand, each an `Opts` and a `run`.
//!
//! stdout is the result, a short table or exactly one JSON object; stderr is progress and log. Level 9.

mod compile;
mod completions;
mod converted;
mod decide;
mod destination;
mod diff;
mod doctor;
mod encoder;
mod failure;
mod features;
mod gate;
mod inspect;
mod kit;
mod laya;
mod precision;
mod progress;
mod reader;
mod regions;
mod release;
mod run;
mod schema;
mod strip;
mod table;
mod tools;
mod transcribe;
mod verify;

pub use failure::{Exit, Failure};

use clap::{Parser, Subcommand};
use serde_json::Value;
use std::io::Write;

/// Turns published model weights into static graphs for Apple hardware, and proves what it wrote.
#[derive(Debug, Parser)]
#[command(name = "eg2-convert", version, max_term_width = 100, after_help = Exit::help())]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

/// Options every subcommand takes.
#[derive(Debug, clap::Args)]
struct Common {
    /// Print exactly one JSON object on stdout, errors included
    #[arg(long, global = true)]
    json: bool,
    /// Exit 4 also where something is told as `not run`
    #[arg(long, global = true)]
    strict: bool,
    /// Say nothing on stderr but errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Say more on stderr; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Diff(diff::Opts),
    Compile(compile::Opts),
    Completions(completions::Opts),
    Decide(decide::Opts),
    Doctor(doctor::Opts),
    Encoder(encoder::Opts),
    Features(features::Opts),
    Gate(Box<gate::Opts>),
    Inspect(inspect::Opts),
    Kit(kit::Opts),
    Laya(laya::Opts),
    Reader(reader::Opts),
    Regions(regions::Opts),
    Release(release::Opts),
    Run(run::Opts),
    Schema(schema::Opts),
    Strip(strip::Opts),
    Tools(tools::Opts),
    Transcribe(transcribe::Opts),
    Verify(verify::Opts),
}

/// What a subcommand found, for people and for programs.
struct Report {
    text: String,
    json: Value,
    checks: Checks,
}

/// What became of the checks that a report tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checks {
    /// Each was run, and passed.
    Passed,
    /// One was not run; none failed.
    NotRun,
    /// One failed.
    Failed,
    /// Part of what was asked could not be answered; the report has the rest.
    Refused,
}

impl Checks {
    fn exit(self, strict: bool) -> Exit {
        match (self, strict) {
            (Checks::Failed, _) | (Checks::NotRun, true) => Exit::CheckFailed,
            (Checks::Refused, _) => Exit::BadInput,
            (Checks::Passed, _) | (Checks::NotRun, false) => Exit::Done,
        }
    }
}

/// Parses `args`, runs the subcommand, prints its result, and says how the process should end.
pub fn main(args: impl IntoIterator<Item = std::ffi::OsString>) -> Exit {
    let args: Vec<_> = args.into_iter().collect();
    let wants_json = args.iter().any(|a| a == "--json");
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return Exit::Done;
        }
        Err(error) => return usage(&gate::hinted(error), wants_json),
    };
    log_to_stderr(&cli.common);
    let result = match cli.command {
        Command::Diff(opts) => diff::run(opts),
        Command::Compile(opts) => compile::run(opts, &cli.common),
        Command::Completions(opts) => completions::run(opts),
        Command::Decide(opts) => decide::run(opts, &cli.common),
        Command::Doctor(opts) => doctor::run(opts),
        Command::Encoder(opts) => encoder::run(opts, &cli.common),
        Command::Features(opts) => features::run(opts, &cli.common),
        Command::Gate(opts) => gate::run(*opts, &cli.common),
        Command::Inspect(opts) => inspect::run(opts),
        Command::Kit(opts) => kit::run(opts, &cli.common),
        Command::Laya(opts) => laya::run(opts, &cli.common),
        Command::Reader(opts) => reader::run(opts, &cli.common),
        Command::Regions(opts) => regions::run(opts),
        Command::Release(opts) => release::run(opts, &cli.common),
        Command::Run(opts) => run::run(opts, &cli.common),
        Command::Schema(opts) => schema::run(opts),
        Command::Strip(opts) => strip::run(opts, &cli.common),
        Command::Tools(opts) => tools::run(opts, &cli.common),
        Command::Transcribe(opts) => transcribe::run(opts, &cli.common),
        Command::Verify(opts) => verify::run(opts, &cli.common),
    };
    match result {
        Ok(report) => {
            let exit = report.checks.exit(cli.common.strict);
            let text = if cli.common.json { pretty(&report.json) } else { report.text };
            match std::io::stdout().write_all(text.as_bytes()) {
                Ok(()) => exit,
                // Whoever read the table has seen enough of it.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit,
                Err(error) => {
                    let _ = writeln!(std::io::stderr(), "error: the result cannot be written to stdout: {error}");
                    Exit::Usage
                }
            }
        }
        Err(failure) => report_failure(&failure, cli.common.json),
    }
}

fn report_failure(failure: &Failure, json: bool) -> Exit {
    if json {
        let _ = std::io::stdout().write_all(pretty(&failure.json()).as_bytes());
    } else {
        let _ = std::io::stderr().write_all(failure.text().as_bytes());
    }
    failure.exit
}

fn usage(error: &clap::Error, json: bool) -> Exit {
    if json {
        // What is wrong and the hints; the usage and where help is come after them.
        let message = error.to_string();
        let told = |line: &&str| !["Usage:", "For more"].iter().any(|start| line.starts_with(start));
        let lines = message.lines().map(str::trim).take_while(told).filter(|line| !line.is_empty());
        let lines: Vec<&str> = lines.collect();
        let message = lines.join(" ").replace(" tip: ", "; tip: ").trim_start_matches("error: ").to_string();
        return report_failure(&Failure::usage(message), true);
    }
    let _ = error.print();
    Exit::Usage
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

fn log_to_stderr(common: &Common) {
    let level = match (common.quiet, common.verbose) {
        (true, _) => tracing::Level::ERROR,
        (false, 0) => tracing::Level::WARN,
        (false, 1) => tracing::Level::INFO,
        (false, _) => tracing::Level::DEBUG,
    };
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .with_ansi(std::env::var_os("NO_COLOR").is_none() && std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .try_init();
}
