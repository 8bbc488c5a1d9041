//! `eg2-convert verify`.

use super::failure::{Exit, Failure};
use super::table::{Table, bytes, thousands};
use super::{Checks, Common, Report, release};
use crate::pipeline::{MergeFailure, Merged, Verification, Verified, VerifyError, merge_into, verify};
use crate::provenance::release::Left;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Most lines of a kind that are shown.
const LINES: usize = 30;

/// Verify releases: hash every file, open every bundle, and make every verdict of the record again
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  eg2-convert verify dist/encoder-fp16\n  eg2-convert verify dist/*\n  eg2-convert verify dist/encoder-fp16 --merge encoder-fp16.device.json\n\nA release that is \
                        whole may have been made by anyone: sign its SHA256SUMS to say by whom."
)]
pub struct Opts {
    /// Folders that `release` made
    #[arg(required = true, value_name = "RELEASE")]
    releases: Vec<PathBuf>,
    /// Device records, as `kit run` writes them, to take into the release that they are of before it is verified
    #[arg(long, value_name = "FILE", num_args = 1..)]
    merge: Vec<PathBuf>,
}

/// Verifies the releases and tells each fault.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let merged = match (opts.merge.as_slice(), opts.releases.as_slice()) {
        ([], _) => Vec::new(),
        (given, [release]) => merge_into(release, given).map_err(|e| merge_failure(&e))?,
        (_, _) => return Err(Failure::usage("--merge takes records into one release, and several are given")),
    };
    let found = verify(&opts.releases).map_err(|e| failure(&e))?;
    if !common.quiet {
        for announcement in &found.announcements {
            tracing::warn!("{announcement}");
        }
    }
    Ok(report(&found, &merged))
}

fn failure(error: &VerifyError) -> Failure {
    let exit = match error {
        VerifyError::Io { .. } | VerifyError::Kit { .. } | VerifyError::NotRelease { .. } => Exit::BadInput,
        // No fault of what was given.
        VerifyError::Exhausted { .. } => Exit::Usage,
    };
    Failure::new(exit, error)
}

fn merge_failure(error: &MergeFailure) -> Failure {
    let exit = match error {
        MergeFailure::Verify(error) => return failure(error),
        MergeFailure::NotWhole { .. } => Exit::CheckFailed,
        MergeFailure::Io { .. } | MergeFailure::Device { .. } | MergeFailure::Merge { .. } | MergeFailure::Tree(_) => {
            Exit::BadInput
        }
        MergeFailure::Link(_) | MergeFailure::Publish(_) => Exit::Usage,
        MergeFailure::Seal(error) => release::exit_of_stage(error),
        MergeFailure::Json(_) => Exit::Bug,
    };
    Failure::new(exit, error)
}

fn report(found: &Verification, merged: &[Merged]) -> Report {
    let mut table = Table::default();
    for Merged { file, machine } in merged {
        table.row("merged", format!("{file}, of {machine}"));
    }
    for release in &found.releases {
        rows(release, &mut table);
    }
    for announcement in &found.announcements {
        table.prose("ANNOUNCED", &announcement.to_string());
    }
    let left_out = found.releases.iter().any(|release| !release.not_run.is_empty());
    let checks = match (found.passed(), left_out) {
        (false, _) => Checks::Failed,
        (true, true) => Checks::NotRun,
        (true, false) => Checks::Passed,
    };
    let json = json!({
        "releases": found.releases,
        "announcements": found.announcements,
        "merged": merged,
        "passed": found.passed(),
    });
    Report { text: table.render(), json, checks }
}

/// The artefacts of which the same was not run for the same reason.
fn grouped(not_run: &[Left]) -> BTreeMap<String, Vec<&str>> {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for Left { artefact, name, reason } in not_run {
        groups.entry(format!("{name} ({reason})")).or_default().push(artefact);
    }
    groups
}

fn rows(release: &Verified, table: &mut Table) {
    let Verified { path, files, bytes: size, faults, not_run, .. } = release;
    table.row("release", path.display());
    table.row("hashed", format!("{} files, {}", thousands(*files as u64), bytes(*size)));
    for fault in faults.iter().take(LINES) {
        table.prose("fault", &fault.to_string());
    }
    if faults.len() > LINES {
        table.row("", format!("and {} more; --json lists them", faults.len() - LINES));
    }
    for (what, artefacts) in grouped(not_run) {
        table.prose("not run", &format!("{what}: {}", artefacts.join(", ")));
    }
    let verdict = match (faults.is_empty(), not_run.is_empty()) {
        (false, _) => "FAILED",
        (true, false) => "passed: nothing was changed since it was made; of what was not run, nothing is known",
        (true, true) => "passed: nothing was changed since it was made",
    };
    table.prose("verdict", verdict);
}
