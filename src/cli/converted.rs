//! What every conversion tells: its artefacts, and which stage ended it.

use super::failure::{Exit, Failure};
use super::table::{Table, bytes, thousands};
use super::{Checks, Report};
use crate::bundle::{AiModelReadBackError, ReadBackError, StoredError, TreeError};
use crate::emit::coreai::CoreAiError;
use crate::emit::mil::MilError;
use crate::emit::mil::read::ReadError;
use crate::passes::Kept;
use crate::pipeline::{Converted, PipelineError};
use serde_json::json;

/// Most constants left in fp32 that the table names.
const KEPT_SHOWN: usize = 4;

/// What ended a conversion.
pub fn failure(error: &PipelineError) -> Failure {
    Failure::new(exit_of(error), error)
}

/// The exit code of each stage's error.
pub const fn exit_of(error: &PipelineError) -> Exit {
    match error {
        PipelineError::Checkpoint(_)
        | PipelineError::Config(_)
        | PipelineError::NoConfig { .. }
        | PipelineError::NoReaderFile { .. }
        | PipelineError::NoLayaConfig { .. }
        | PipelineError::Table { .. }
        | PipelineError::Words(_)
        | PipelineError::UnitRows(_)
        | PipelineError::ConfigFile { .. }
        | PipelineError::Author(_)
        | PipelineError::Precision(_)
        | PipelineError::Io(_) => Exit::BadInput,
        PipelineError::Mil(MilError::Weight { .. }) => Exit::BadInput,
        PipelineError::Mil(MilError::Io { .. } | MilError::WeightFile { .. })
        | PipelineError::Publish(_)
        | PipelineError::SplitRange { .. } => Exit::Usage,
        // What cannot be read was not found to differ.
        PipelineError::ReadBack(
            ReadBackError::Read(ReadError::Io { .. }) | ReadBackError::Tree(TreeError::Io { .. }),
        )
        | PipelineError::AiModelReadBack(
            AiModelReadBackError::Io { .. }
            | AiModelReadBackError::Tree(TreeError::Io { .. })
            | AiModelReadBackError::Stored(StoredError::Io(_)),
        ) => Exit::Usage,
        PipelineError::Interrupted => Exit::Interrupted,
        PipelineError::ReadBack(_) => Exit::CheckFailed,
        PipelineError::CoreAi(CoreAiError::Weight { .. }) => Exit::BadInput,
        PipelineError::CoreAi(CoreAiError::WeightFile(_)) => Exit::Usage,
        PipelineError::Bridge(error) | PipelineError::AiModelReadBack(AiModelReadBackError::Bridge(error)) => {
            Exit::of_serializer(error)
        }
        PipelineError::AiModelReadBack(_) => Exit::CheckFailed,
        PipelineError::Invalid(_) => Exit::Unsupported,
        PipelineError::Mil(_)
        | PipelineError::CoreAi(_)
        | PipelineError::Split(_)
        | PipelineError::Record(_)
        | PipelineError::Hashing => Exit::Bug,
    }
}

/// What was made, as a table and as JSON.
pub fn report(converted: &[Converted], seconds: f64) -> Report {
    let mut table = Table::default();
    for artefact in converted {
        rows(artefact, &mut table);
    }
    table.row("seconds", format!("{seconds:.1}"));
    let told = converted.iter().filter_map(|c| c.record.as_ref()).any(|record| !record.not_run.is_empty());
    let checks = if told { Checks::NotRun } else { Checks::Passed };
    Report { text: table.render(), json: json!({ "artefacts": converted, "seconds": seconds }), checks }
}

fn rows(converted: &Converted, table: &mut Table) {
    let Converted { path, outcome, no_region, functions, mlir, record } = converted;
    table.row("artefact", path.display()).row("outcome", outcome);
    for function in functions {
        let graph = &function.graph;
        let label = |what: &str| if functions.len() > 1 { format!("{what} {}", function.name) } else { what.into() };
        let (ops, constants) = (thousands(graph.census.total() as u64), thousands(graph.census.constants as u64));
        let shape = format!("{ops} ops, {constants} constants, rank at most {}", graph.census.max_rank);
        let weights = &graph.weights;
        let size = format!("{} parameters, {}", thousands(weights.parameters), bytes(weights.total_bytes));
        table.row(label("graph"), shape).row(label("weights"), size);
        let kept = &function.precision.kept_fp32;
        for (at, Kept { path, reason }) in kept.iter().enumerate().take(KEPT_SHOWN) {
            table.row(if at == 0 { label("kept fp32") } else { String::new() }, format!("{path}: {reason}"));
        }
        if kept.len() > KEPT_SHOWN {
            table.row("", format!("and {} more; the record lists them", kept.len() - KEPT_SHOWN));
        }
    }
    if let Some(reason) = no_region {
        table.row("neural engine", format!("none: {reason}"));
    }
    if let Some(mlir) = mlir {
        table.row("dialect text", mlir.display());
    }
    if let Some(record) = record {
        let size: u64 = record.artefact.files.iter().map(|f| f.size).sum();
        table.row("size", bytes(size)).row("digest root", record.artefact.digest_root);
        for check in &record.checks {
            table.row(check.name, "passed");
        }
        table.not_run(&record.not_run);
    }
}
