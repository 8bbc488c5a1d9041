//! `eg2-convert compile`.

use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::{Table, bytes};
use super::{Checks, Common, Report};
use crate::bundle::compiled::Expectation;
use crate::pipeline::{CompileError, CompileOptions, Compiled, CoreAiTarget, compile};
use crate::toolchain::{Architecture, Class, Finished, Interrupt, Platform, Prefer, Search};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Compile an artefact with Apple's tools and check that the result is what was asked for
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert compile out/eg2_encoder_fp16_T3000.aimodel --platform macOS --arch h16c \
                  --prefer neural-engine --expect 1\n  eg2-convert compile out/eg2_encoder_fp16_T3000.mlpackage"
)]
pub struct Opts {
    /// The .aimodel or .mlpackage
    model: PathBuf,
    /// System an .aimodel is for
    #[arg(long, value_name = "macOS|iOS", value_parser = platform)]
    platform: Option<Platform>,
    /// Device architectures an .aimodel is for, with commas between; each gives a bundle of its own
    #[arg(long, value_name = "h16c,..", value_delimiter = ',')]
    arch: Vec<Architecture>,
    /// Unit an .aimodel should run on
    #[arg(long, value_name = "gpu|neural-engine", value_parser = prefer)]
    prefer: Option<Prefer>,
    /// Neural Engine regions there should be: a count, or h16c=1,h18p=0, or @FILE
    #[arg(long, value_name = "N")]
    expect: Option<Expectation>,
    /// Folder that takes the compiled bundle and its record [default: the model's]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How long the tool may take for one architecture, e.g. 90s, 30m or 2h
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    timeout: Duration,
    /// Replace another bundle of the same name
    #[arg(long)]
    force: bool,
}

fn platform(word: &str) -> Result<Platform, String> {
    let known = [Platform::macOS, Platform::iOS];
    known.into_iter().find(|p| p.name().eq_ignore_ascii_case(word)).ok_or_else(|| "it is macOS or iOS".to_string())
}

fn prefer(word: &str) -> Result<Prefer, String> {
    let known = [Prefer::Gpu, Prefer::NeuralEngine];
    known.into_iter().find(|p| p.name() == word).ok_or_else(|| "it is gpu or neural-engine".to_string())
}

/// `90s`, `30m`, `2h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time is a whole number and s, m or h, such as 30m".to_string();
    let unit = match text.chars().next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some(_) | None => return Err(wrong()),
    };
    let number = &text[..text.len() - 1];
    if !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|n| *n > 0).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

/// Compiles the model and tells what came out.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let options = options(opts)?;
    let interrupt = Interrupt::listen().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let bar = Bar::new(common);
    let made = compile(&options, &Search::from_process(), &interrupt, &bar).map_err(|e| failure(&e))?;
    drop(bar);
    Ok(report(&made))
}

fn options(opts: Opts) -> Result<CompileOptions, Failure> {
    let mut architectures = opts.arch;
    architectures.sort();
    if architectures.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage("--arch names an architecture twice"));
    }
    let target = match (opts.platform, architectures.is_empty(), opts.prefer, opts.expect) {
        (None, true, None, None) => None,
        (Some(platform), false, Some(prefer), expect) => Some(CoreAiTarget { platform, architectures, prefer, expect }),
        _ => return Err(Failure::new(Exit::Usage, &CompileError::NoTarget)),
    };
    let (model, out, timeout, force) = (opts.model, opts.out, opts.timeout, opts.force);
    Ok(CompileOptions { model, out, target, timeout, force })
}

/// What ended it.
pub(super) fn failure(error: &CompileError) -> Failure {
    let exit = match error {
        CompileError::Model { .. } | CompileError::Format { .. } | CompileError::Source(_) => Exit::BadInput,
        CompileError::NoTarget
        | CompileError::NeedlessTarget
        | CompileError::NotAsked { .. }
        | CompileError::Publish(_) => Exit::Usage,
        CompileError::Ended { class: Class::NeuralEngine, .. } => Exit::CheckFailed,
        CompileError::NotInstalled(_)
        | CompileError::Run(_)
        | CompileError::Ended { .. }
        | CompileError::TimedOut { .. }
        | CompileError::Bundles { .. }
        | CompileError::NotFolder { .. } => Exit::Tool,
        CompileError::NeuralEngine { .. }
        | CompileError::Regions { .. }
        | CompileError::Compiled { .. }
        | CompileError::Made { .. } => Exit::CheckFailed,
        CompileError::Interrupted => Exit::Interrupted,
        CompileError::Record(_) => Exit::Bug,
    };
    let findings: Vec<_> = error.run().into_iter().flat_map(Finished::findings).collect();
    Failure::new(exit, error).with_details(json!({
        "class": error.class(),
        "findings": findings,
        "run": error.run(),
    }))
}

fn report(made: &[Compiled]) -> Report {
    let mut table = Table::default();
    for compiled in made {
        rows(compiled, &mut table);
    }
    let artefacts: Vec<Value> = made
        .iter()
        .map(|c| {
            json!({
                "artefact": c.path.display().to_string(),
                "outcome": c.outcome,
                "seconds": c.run.seconds,
                "regions": c.regions,
                "notes": c.notes,
                "not_run": c.record.not_run,
                "record": c.record,
            })
        })
        .collect();
    Report { text: table.render(), json: json!({ "artefacts": artefacts }), checks: Checks::NotRun }
}

fn rows(compiled: &Compiled, table: &mut Table) {
    let Compiled { path, outcome, run, regions, notes, version, record } = compiled;
    let size: u64 = record.artefact.files.iter().map(|f| f.size).sum();
    table.row("artefact", path.display()).row("outcome", outcome);
    table.row("size", bytes(size)).row("digest root", record.artefact.digest_root);
    table.row("tool", format!("{}, {}", version.as_deref().unwrap_or("of a version it does not tell"), run.end));
    table.prose("command", &run.argv.join(" "));
    for (architecture, held) in regions.iter().flat_map(|r| &r.architectures) {
        let expected = held.expected.map_or_else(String::new, |n| format!(", {n} expected"));
        table.row("regions", format!("{architecture}: {} found{expected}", held.found.unwrap_or(0)));
    }
    for note in notes {
        let status = note.status.map_or_else(String::new, |n| format!(" (aneCompileStatus={n})"));
        table.row("note", format!("the Neural Engine's compiler complained{status}; the regions are there"));
    }
    table.not_run(&record.not_run).row("seconds", format!("{:.1}", run.seconds));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, seconds) in [("1s", 1), ("30m", 1800), ("2h", 7200)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for text in
            ["", "m", "0s", "30", "-1s", "+1s", "1.5h", "99999999999999999999s", "18446744073709551615h", "1\u{e9}"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
