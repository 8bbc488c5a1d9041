//! `eg2-convert kit`.

use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::Table;
use super::{Checks, Common, Report, compile};
use crate::pipeline::{KitError, KitOptions, KitRan, RunnerError, run_kit};
use crate::plural::counted;
use crate::provenance::device::{Arm, DeviceResult, Thermal};
use crate::provenance::release::{Outcome, Status};
use crate::toolchain::Search;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Try a release on a Mac, from the kit that `release --kit` packs
#[derive(Debug, clap::Args)]
pub struct Opts {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Run(RunOpts),
}

/// Compile, load, run, time and compare every bundle of a kit with the GPU, and write the device record
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert kit run dist/reader-fp16.kit\n  ./reader-fp16.kit/run.sh --rounds 6\n\n\
                        Takes minutes for each bundle, most of them its first load. Nothing in the kit is changed."
)]
struct RunOpts {
    /// The kit's folder
    kit: PathBuf,
    /// Folder that takes NAME.device.json [default: the kit's own]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Processes of each arm, the Neural Engine's and the GPU's in turns [default: the kit's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: Option<u32>,
    /// Replace the record of an earlier run
    #[arg(long)]
    force: bool,
}

/// Runs the kit and tells what was found.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let Command::Run(opts) = opts.command;
    let options = KitOptions { kit: opts.kit, out: opts.out, rounds: opts.rounds, force: opts.force };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let started = Instant::now();
    let ran = run_kit(&options, &Search::from_process(), bar.interrupt(), &bar).map_err(|e| failure(&e))?;
    drop(bar);
    Ok(report(&ran, started.elapsed().as_secs_f64()))
}

fn failure(error: &KitError) -> Failure {
    let exit = match error {
        KitError::NoKit { .. } | KitError::Tree(_) | KitError::Plan(_) => Exit::BadInput,
        KitError::Changed { .. } | KitError::OtherRelease { .. } | KitError::OtherBytes { .. } => Exit::CheckFailed,
        KitError::Exists { .. } | KitError::Publish(_) | KitError::Io { .. } => Exit::Usage,
        KitError::NotInstalled(_) | KitError::NoUnits | KitError::Output { .. } | KitError::Shipped { .. } => {
            Exit::Tool
        }
        KitError::Runner(RunnerError::Interrupted) | KitError::Interrupted => Exit::Interrupted,
        KitError::Runner(RunnerError::Handover(_)) => Exit::Usage,
        KitError::Runner(
            RunnerError::NotInstalled
            | RunnerError::Refused { .. }
            | RunnerError::Died { .. }
            | RunnerError::TimedOut { .. }
            | RunnerError::Answer { .. }
            | RunnerError::Start(_),
        ) => Exit::Tool,
        KitError::Compile(error) => return compile::failure(error),
        KitError::Json(_) => Exit::Bug,
    };
    let details = if let KitError::Changed { found } = error { json!(found) } else { Value::Null };
    Failure::new(exit, error).with_details(details)
}

fn report(ran: &KitRan, seconds: f64) -> Report {
    let record = &ran.record;
    let mut table = Table::default();
    table
        .row("record", ran.path.display())
        .row("release", &record.release)
        .row("machine", format!("{}, {}", record.machine.model, record.machine.system));
    for result in &record.results {
        rows(result, &mut table);
    }
    table.row("seconds", format!("{seconds:.1}"));
    let outcomes = record.results.iter().flat_map(|r| [r.loads_on_device.outcome, r.placed_on_ane.outcome]);
    let any = |wanted| outcomes.clone().any(|outcome| outcome == wanted);
    let broken = record.results.iter().flat_map(|r| &r.arms).any(|arm| arm.failure.is_some());
    let checks = match (any(Outcome::Fail) || broken, any(Outcome::NotRun)) {
        (true, _) => Checks::Failed,
        (false, true) => Checks::NotRun,
        (false, false) => Checks::Passed,
    };
    let json = json!({ "path": ran.path.display().to_string(), "record": record, "seconds": seconds });
    Report { text: table.wrapped(), json, checks }
}

fn rows(result: &DeviceResult, table: &mut Table) {
    table.row("bundle", format!("{}, for {} {}", result.artefact, result.platform, result.architecture));
    for arm in &result.arms {
        arm_rows(arm, result, table);
    }
    for compared in &result.comparisons {
        let same = if compared.bit_identical { "bit-identical" } else { "other bits" };
        let most = compared.max_abs.map_or_else(|| "not finite".to_string(), |most| format!("{most:e} at most"));
        let cosine = compared.cosine.map_or_else(String::new, |cosine| format!(", cosine {cosine}"));
        let of = format!("{} {} {}", compared.function, compared.input, compared.output);
        table.row("  to the GPU", format!("{of}: {same}, apart {most}{cosine}"));
    }
    table.row("  loads on device", said(&result.loads_on_device));
    table.row("  placed on ANE", said(&result.placed_on_ane));
}

fn arm_rows(arm: &Arm, result: &DeviceResult, table: &mut Table) {
    let expected = result.expected_regions.filter(|_| arm.prefer == "neural-engine");
    let expected = expected.map_or_else(String::new, |n| format!(", {n} expected"));
    let regions = arm
        .regions
        .map_or_else(|| "not counted".to_string(), |found| format!("{}{expected}", counted(found, "region")));
    table.row(format!("  {}", arm.prefer), regions);
    if let Some(failure) = &arm.failure {
        table.row("    failed", &failure.message);
    }
    if let Some(first) = arm.rounds.first() {
        let warm = arm.rounds.iter().map(|round| round.warm_load_seconds).fold(f64::INFINITY, f64::min);
        table.row("    loads", format!("{:.3} s at first, {warm:.3} s warm", first.load_seconds));
    }
    for timed in &arm.functions {
        let spread = timed.seconds;
        let seconds = format!("{:.6} s ({:.6} to {:.6})", spread.median, spread.min, spread.max);
        table.row(format!("    {}", timed.function), format!("{seconds} of {} runs", timed.runs));
    }
    let hot = |state: Thermal| matches!(state, Thermal::Serious | Thermal::Critical);
    let hot = arm.rounds.iter().filter(|round| hot(round.thermal_before) || hot(round.thermal_after)).count();
    if hot > 0 {
        table.row("    thermal", format!("{hot} of {} rounds were slowed down by heat", arm.rounds.len()));
    }
}

fn said(status: &Status) -> String {
    let reason = status.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let word = match status.outcome {
        Outcome::Pass => "passed",
        Outcome::Fail => "FAILED",
        Outcome::NotRun => "not run",
    };
    format!("{word}{reason}")
}
