//! Options of every command that writes bundles: where they go, and in which formats.

use super::failure::{Exit, Failure};
use crate::emit::coreai::{Bridge, BridgeError};
use crate::pipeline::{Destination, Writer};
use crate::provenance::NotRun;
use crate::toolchain::Interrupt;
use std::path::PathBuf;

/// Where bundles go.
#[derive(Debug, clap::Args)]
pub struct DestinationOpts {
    /// Folder that takes the artefact and its record
    #[arg(long, value_name = "DIR", default_value = "out")]
    out: PathBuf,
    /// Bundle formats, separated by commas [default: mlpackage, and aimodel where Apple's serializer is]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FORMATS")]
    format: Vec<FormatArg>,
    /// Write another form beside the artefact, for reading: `mlir`, Core AI dialect text as Apple's serializer gets it
    #[arg(long, value_enum, value_name = "FORM")]
    emit: Option<EmitArg>,
    /// Replace another artefact of the same name
    #[arg(long)]
    force: bool,
    /// Author, check and count, but write nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FormatArg {
    #[value(name = "mlpackage")]
    MlPackage,
    #[value(name = "aimodel")]
    AiModel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EmitArg {
    Mlir,
}

/// What a record says of the format that was not asked for by name.
const LEFT_OUT: NotRun = NotRun { name: "aimodel", reason: "Apple's serializer is not installed" };

impl DestinationOpts {
    /// The destination, with the tools its formats take; those end where `interrupt` is raised.
    pub fn destination(self, interrupt: &Interrupt) -> Result<Destination, Failure> {
        let (writers, left_out) = match (Bridge::find(interrupt), self.format.as_slice()) {
            (Some(bridge), []) => (vec![Writer::MlPackage, Writer::AiModel(bridge)], None),
            (None, []) => (vec![Writer::MlPackage], Some(LEFT_OUT)),
            (bridge, asked) => (writers(asked, bridge)?, None),
        };
        Ok(Destination {
            folder: self.out,
            force: self.force,
            dry_run: self.dry_run,
            writers,
            left_out,
            emit_mlir: self.emit == Some(EmitArg::Mlir),
        })
    }
}

fn writers(asked: &[FormatArg], bridge: Option<Bridge>) -> Result<Vec<Writer>, Failure> {
    let mut writers = Vec::new();
    for (at, format) in asked.iter().enumerate() {
        if asked.iter().take(at).any(|earlier| earlier == format) {
            continue;
        }
        writers.push(match (format, &bridge) {
            (FormatArg::MlPackage, _) => Writer::MlPackage,
            (FormatArg::AiModel, Some(bridge)) => Writer::AiModel(bridge.clone()),
            (FormatArg::AiModel, None) => return Err(Failure::new(Exit::Tool, &BridgeError::NotInstalled)),
        });
    }
    Ok(writers)
}
