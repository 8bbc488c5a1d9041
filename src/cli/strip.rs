//! `eg2-convert strip`.

use super::failure::{Exit, Failure};
use super::progress::Bar;
use super::table::{Table, bytes, thousands};
use super::{Checks, Common, Report};
use crate::emit::coreai::{Bridge, BridgeError};
use crate::pipeline::{StripError, StripOptions, Stripped, strip};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// Remove the debug locations of an .aimodel, and prove that nothing else changed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert strip model.aimodel --out stripped\n  eg2-convert strip model.aimodel \
                        --in-place\n\nStrip before compiling: a compiled bundle cannot be stripped."
)]
pub struct Opts {
    /// The .aimodel
    model: PathBuf,
    /// Folder that takes the stripped bundle, of the same name, and its record
    #[arg(long, value_name = "DIR", required_unless_present = "in_place")]
    out: Option<PathBuf>,
    /// Put the stripped bundle in the place of the model
    #[arg(long, conflicts_with = "out")]
    in_place: bool,
    /// Replace another bundle of the same name
    #[arg(long)]
    force: bool,
}

/// Strips the bundle and tells what was removed.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let options = StripOptions { model: opts.model, folder: opts.out, force: opts.force };
    let started = Instant::now();
    let bar = Bar::interruptible(common).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let bridge = Bridge::find(bar.interrupt());
    let bridge = bridge.ok_or_else(|| Failure::new(Exit::Tool, &BridgeError::NotInstalled))?;
    let stripped = strip(&options, &bridge, &bar).map_err(|e| failure(&e))?;
    drop(bar);
    Ok(report(&stripped, started.elapsed().as_secs_f64()))
}

/// What ended it.
pub(super) fn failure(error: &StripError) -> Failure {
    let exit = match error {
        StripError::Compiled { .. }
        | StripError::Other { .. }
        | StripError::AiModel(_)
        | StripError::Hash { .. }
        | StripError::Tree(_) => Exit::BadInput,
        StripError::Itself { .. } | StripError::Publish(_) | StripError::Io { .. } => Exit::Usage,
        StripError::Bridge(error) => Exit::of_serializer(error),
        StripError::Bytecode(_)
        | StripError::Weights(_)
        | StripError::Program { .. }
        | StripError::Located { .. }
        | StripError::Left { .. } => Exit::CheckFailed,
        StripError::Interrupted => Exit::Interrupted,
        StripError::Record(_) => Exit::Bug,
    };
    Failure::new(exit, error)
}

fn report(stripped: &Stripped, seconds: f64) -> Report {
    let Stripped { path, outcome, before, after, blobs, record } = stripped;
    let mut table = Table::default();
    let change = |before: u64, after: u64| format!("{} -> {}", thousands(before), thousands(after));
    table
        .row("artefact", path.display())
        .row("outcome", outcome)
        .row("located operations", change(before.listed.located, after.listed.located))
        .row("path-like strings", change(before.leaks.paths.len() as u64, after.leaks.paths.len() as u64));
    for leak in &before.leaks.paths {
        table.row("  removed", leak);
    }
    for name in &after.leaks.names {
        table.row("still a word", format!("{name}, which was the name of a home folder; by chance?"));
    }
    let same = format!("{} operations, {} blobs", thousands(after.listed.operations), thousands(*blobs as u64));
    table
        .row("unchanged", same)
        .row("program", format!("{} -> {}", bytes(before.program_bytes), bytes(after.program_bytes)))
        .row("digest root", after.digest_root);
    table.not_run(&record.not_run).row("seconds", format!("{seconds:.1}"));
    let mut json = json!(stripped);
    json["seconds"] = json!(seconds);
    Report { text: table.render(), json, checks: Checks::NotRun }
}
