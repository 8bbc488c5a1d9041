//! `eg2-convert inspect`: one file per format.

mod aimodel;
mod aimodelc;
mod mlpackage;

use super::failure::{Exit, Failure};
use super::table::{Table, bytes};
use super::{Checks, Report};
use crate::bundle::Tree;
use crate::pipeline::{InspectError, Inspection, inspect};
use std::path::PathBuf;

/// Show what is in an artefact: features, ops, weights, regions, digests, and what keeps it off the Neural Engine
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  eg2-convert inspect build/encoder.h16c.aimodelc")]
pub struct Opts {
    /// The .mlpackage, .aimodel or .aimodelc, from any tool
    artefact: PathBuf,
}

/// Looks into the artefact.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let found = inspect(&opts.artefact).map_err(|e| failure(&e))?;
    let json = serde_json::to_value(&found).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let text = match &found {
        Inspection::Package(view) => mlpackage::table(view),
        Inspection::AiModel(view) => aimodel::table(view),
        Inspection::Compiled(view) => aimodelc::table(view),
    };
    Ok(Report { text, json, checks: Checks::NotRun })
}

/// The exit code of each reader's error.
pub(super) fn failure(error: &InspectError) -> Failure {
    Failure::new(exit(error), error)
}

/// As [`failure`], for an error that has another around it.
pub(super) fn exit(error: &InspectError) -> Exit {
    match error {
        InspectError::Package(_)
        | InspectError::Compiled(_)
        | InspectError::AiModel(_)
        | InspectError::MlModelC { .. }
        | InspectError::Tree(_)
        | InspectError::Scan { .. } => Exit::BadInput,
        InspectError::Hashing => Exit::Bug,
    }
}

/// The files, folder by folder, those at the top first.
fn files(tree: &Tree, table: &mut Table) {
    let mut folder = "";
    let (top, below): (Vec<_>, Vec<_>) = tree.files.iter().partition(|file| !file.path.contains('/'));
    for file in top.into_iter().chain(below) {
        let (above, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        if above != folder {
            folder = above;
            table.row("files in", format!("{folder}/"));
        }
        table.row("file", format!("{name}  {}", bytes(file.size))).row("", file.sha256);
    }
}

/// Each of a list, or that there is none.
fn listed(label: &str, list: &[String], table: &mut Table) {
    if list.is_empty() {
        table.row(label, "none");
    }
    for item in list {
        table.row(label, item);
    }
}
