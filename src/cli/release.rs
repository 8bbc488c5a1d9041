//! `eg2-convert release`.

use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::Table;
use super::{Checks, Common, Report, compile, converted, gate, run, strip};
use crate::checkpoint::LocateEnv;
use crate::pipeline::{Release, ReleaseError, ReleaseOptions, ReleaseSourceError, Shard, StageError, release};
use crate::provenance::release::{Outcome, Released};
use crate::toolchain::Search;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Make releases by their recipes: author, emit, strip, compile where the compiler is, count regions, judge, record
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert release recipes/encoder-fp16.toml\n  eg2-convert release recipes/tiny\n  \
                        eg2-convert release recipes --only reader-v2-fp16,encoder-fp16\n  eg2-convert release recipes \
                        --shard 1/4\n\nEvery stage is kept by what it was made of, so a second run computes nothing, and one \
                        that was stopped goes on where it ended."
)]
pub struct Opts {
    /// Recipes, .toml, and folders of such
    #[arg(required = true, value_name = "RECIPE")]
    recipes: Vec<PathBuf>,
    /// Folder that takes a folder for each release
    #[arg(long, value_name = "DIR", default_value = "dist")]
    out: PathBuf,
    /// Folder that keeps what stages made [default: .release/cache in --out]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Releases to make of those, by name, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Make the I-th of N parts of them, for a CI matrix
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Shard>,
    /// Releases that are made at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Make those too whose recipe has not the sha256 of every source file; their records say so
    #[arg(long)]
    allow_unpinned: bool,
    /// The checkpoint of encoders and decision models, where a recipe names none [default: as of `encoder` and `laya`]
    #[arg(long, value_name = "PATH")]
    checkpoint: Option<PathBuf>,
    /// The reader_config.json of readers, where a recipe names none
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Pack each release for a Mac too, into NAME.kit beside it; see `kit run`
    #[arg(long)]
    kit: bool,
    /// Replace other releases of the same names
    #[arg(long)]
    force: bool,
}

/// `2/4`.
fn shard(text: &str) -> Result<Shard, String> {
    let wrong = || "a shard is I/N, such as 2/4, with I from 1 to N".to_string();
    let (index, of) = text.split_once('/').ok_or_else(wrong)?;
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<usize>().ok()).flatten();
    let (index, of) = number(index).zip(number(of)).ok_or_else(wrong)?;
    if (1..=of).contains(&index) { Ok(Shard { index, of }) } else { Err(wrong()) }
}

/// Makes the releases and tells what became of each.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let options = ReleaseOptions {
        recipes: opts.recipes,
        out: opts.out,
        cache: opts.cache,
        only: opts.only,
        shard: opts.shard.unwrap_or(Shard::WHOLE),
        jobs: opts.jobs.into(),
        allow_unpinned: opts.allow_unpinned,
        force: opts.force,
        kit: opts.kit,
        checkpoint: opts.checkpoint,
        reader_config: opts.config,
        surroundings: LocateEnv::from_process(),
    };
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let started = Instant::now();
    let results = release(&options, &Search::from_process(), bar.interrupt(), &bar).map_err(|e| failure(&e))?;
    drop(bar);
    let (mut made, mut failures) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(release) => made.push(release),
            Err(error) => failures.push(failure(&error)),
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    // One failure ends the call; what else was made or failed is told with it.
    if failures.is_empty() { Ok(report(&made, seconds)) } else { Err(first(failures, &made)) }
}

/// The first failure, with the others behind it.
fn first(failures: Vec<Failure>, made: &[Release]) -> Failure {
    let mut failures = failures.into_iter();
    let Some(mut first) = failures.next() else { return Failure::usage("nothing failed") };
    first.messages.extend(failures.flat_map(|failure| failure.messages));
    if !made.is_empty() {
        let names: Vec<&str> = made.iter().map(|release| release.name.as_str()).collect();
        first.messages.push(format!("made meanwhile: {}", names.join(", ")));
    }
    first
}

fn failure(error: &ReleaseError) -> Failure {
    match error {
        ReleaseError::Stage { source, .. } => {
            let details = if let StageError::Compile(error) = source.as_ref() {
                compile::failure(error).details
            } else if let StageError::Failed { checks, .. } = source.as_ref() {
                json!({ "gates": checks })
            } else {
                Value::Null
            };
            Failure::new(exit_of_stage(source), error).with_details(details)
        }
        ReleaseError::Recipe(_) => Failure::new(Exit::BadInput, error),
        ReleaseError::NoRecipes { .. }
        | ReleaseError::Folder { .. }
        | ReleaseError::OneFolder { .. }
        | ReleaseError::Only { .. }
        | ReleaseError::Cache(_) => Failure::new(Exit::Usage, error),
        ReleaseError::Program { .. } | ReleaseError::Thread => Failure::new(Exit::Bug, error),
    }
}

/// The exit code of what ended a release.
pub(super) fn exit_of_stage(error: &StageError) -> Exit {
    match error {
        StageError::Source(error) => match error {
            ReleaseSourceError::Open(error) => converted::exit_of(error),
            ReleaseSourceError::Unpinned { .. } => Exit::Usage,
            ReleaseSourceError::NotFound(_)
            | ReleaseSourceError::NoReader { .. }
            | ReleaseSourceError::License { .. }
            | ReleaseSourceError::Digest { .. }
            | ReleaseSourceError::NotRead { .. }
            | ReleaseSourceError::Revision { .. } => Exit::BadInput,
        },
        StageError::NoSerializer => Exit::Tool,
        StageError::Author(error) => converted::exit_of(error),
        StageError::SourceChanged { .. }
        | StageError::GateFile { .. }
        | StageError::GateArtefact { .. }
        | StageError::Clips(_) => Exit::BadInput,
        StageError::Strip(error) => strip::failure(error).exit,
        StageError::Compile(error) => compile::failure(error).exit,
        StageError::Gate(error) => gate::failure(error).exit,
        StageError::Inputs(error) => run::exit_of(error),
        StageError::Changed { .. } | StageError::Paths { .. } | StageError::Failed { .. } => Exit::CheckFailed,
        StageError::Cache(_) | StageError::Tree(_) | StageError::Publish(_) | StageError::Io { .. } => Exit::Usage,
        StageError::Json(_) => Exit::Bug,
        StageError::Interrupted => Exit::Interrupted,
    }
}

fn report(made: &[Release], seconds: f64) -> Report {
    let mut table = Table::default();
    for release in made {
        rows(release, &mut table);
    }
    table.row("seconds", format!("{seconds:.1}"));
    let left_out = made.iter().any(|release| !release.record.not_run.is_empty());
    let checks = if left_out { Checks::NotRun } else { Checks::Passed };
    Report { text: table.wrapped(), json: json!({ "releases": made, "seconds": seconds }), checks }
}

fn rows(release: &Release, table: &mut Table) {
    let Release { path, outcome, no_work, kit, stages, record, .. } = release;
    let outcome = if *no_work { format!("{outcome}: no work was needed") } else { outcome.to_string() };
    table.row("release", path.display()).row("outcome", outcome);
    if record.synthetic {
        table.row("synthetic", "its weights are random");
    }
    if !record.pinned {
        table.row("unpinned", "the recipe has not the sha256 of every source file");
    }
    for bundle in &record.artefacts {
        bundle_rows(bundle, table);
    }
    if let Some(kit) = kit {
        match (&kit.path, kit.reason) {
            (Some(path), _) => table.row("kit", format!("{}, {}", path.display(), kit.outcome)),
            (None, reason) => table.row("kit", format!("not made ({})", reason.unwrap_or(""))),
        };
    }
    for stage in stages {
        let of = stage.artefact.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
        let reused = match (stage.reused, stage.stage) {
            (_, "source") => ", hashed",
            (true, "publish") => ", unchanged",
            (true, _) => ", from the cache",
            (false, _) => "",
        };
        table.row(format!("  {}", stage.stage), format!("{:.2} s{reused}{of}", stage.seconds));
    }
}

fn bundle_rows(bundle: &Released, table: &mut Table) {
    let said = |outcome: Outcome, reason: &Option<String>| match outcome {
        Outcome::Pass => "passed".to_string(),
        Outcome::Fail => "FAILED".to_string(),
        Outcome::NotRun => format!("not run ({})", reason.as_deref().unwrap_or("")),
    };
    table.row("bundle", &bundle.name).row("  digest root", bundle.digest_root);
    table.row("  strip", said(bundle.strip.outcome, &bundle.strip.reason));
    for (name, count) in &bundle.regions.architectures {
        let expected = count.expected.map_or_else(String::new, |n| format!(", {n} expected"));
        table.row("  regions", format!("{name}: {} found{expected}", count.found));
    }
    if bundle.regions.outcome == Outcome::NotRun {
        table.row("  regions", said(bundle.regions.outcome, &bundle.regions.reason));
    }
    table.row("  gate", said(bundle.gate.outcome, &bundle.gate.reason));
    for check in bundle.gate.judged.iter().flat_map(|judged| &judged.checks) {
        if check.outcome == Outcome::NotRun {
            table.row("", format!("{}: {}", check.name, said(check.outcome, &check.reason)));
        }
    }
    table.row("  loads on device", said(bundle.loads_on_device.outcome, &bundle.loads_on_device.reason));
    table.row("  placed on ANE", said(bundle.placed_on_ane.outcome, &bundle.placed_on_ane.reason));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards() {
        assert_eq!(shard("2/4"), Ok(Shard { index: 2, of: 4 }));
        for text in ["", "1", "0/1", "2/1", "1/0", "+1/2", "1/2/3", "a/b", "-1/2", "99999999999999999999/2"] {
            assert!(shard(text).is_err(), "{text}");
        }
        let [a, b] = [Shard { index: 1, of: 2 }, Shard { index: 2, of: 2 }];
        assert!((0..9).all(|at| a.has(at) != b.has(at)));
    }
}
