//! One bundle of a plan, written beside its destination and read back; one function for each format.

use super::super::origin::Counted;
use super::super::{PipelineError, Progress, Unit};
use crate::bundle::{self, AiModelReadBackError, Format, PublishError, Stage, StoredError, Tree};
use crate::emit::coreai::{self, Bridge, Metadata};
use crate::emit::mil::{self, Description};
use crate::tensor::WeightSource;
use crate::toolchain::COREAI_CORE;
use crate::validate::Checked;
use serde_json::{Value, json};
use std::path::Path;

/// A format that artefacts are written in, with what that takes.
#[derive(Clone, Debug)]
pub enum Writer {
    /// Core ML's, by this program alone.
    MlPackage,
    /// Core AI's, through Apple's serializer.
    AiModel(Bridge),
}

impl Writer {
    /// What it writes.
    pub const fn format(&self) -> Format {
        match self {
            Writer::MlPackage => Format::MlPackage,
            Writer::AiModel(_) => Format::AiModel,
        }
    }

    /// Key of its report in a record.
    pub(super) const fn stage(&self) -> &'static str {
        match self {
            Writer::MlPackage => "mil",
            Writer::AiModel(_) => "coreai",
        }
    }

    /// How often the weights are on disk at most while a bundle is written.
    const fn copies(&self) -> u64 {
        match self {
            Writer::MlPackage => 1,
            // The file that is handed to the serializer, and what it writes.
            Writer::AiModel(_) => 2,
        }
    }
}

/// A bundle that was found the same when read back.
pub(super) struct Written {
    pub tree: Tree,
    /// The writer's report.
    pub report: Value,
    /// Figures of what was read back.
    pub read_back: Value,
}

/// What a bundle is made of.
pub(super) struct Content<'a> {
    /// Its functions, the default one first.
    pub functions: &'a [Checked<'a>],
    pub source: &'a dyn WeightSource,
    pub description: &'a Description,
    /// Bytes it will take.
    pub needed: u64,
    /// Bytes of weights that will be read.
    pub read: u64,
    /// Called when they have been, where much is still to be done that needs one core.
    pub weights_made: &'a dyn Fn(),
}

/// Writes `content` beside `path` and reads it back.
///
/// # Errors
/// The writer's, or what is read back differs.
pub(super) fn write(
    writer: &Writer,
    content: &Content<'_>,
    path: &Path,
    progress: &dyn Progress,
) -> Result<(Stage, Written), PipelineError> {
    let stage = Stage::new(path, content.needed.saturating_mul(writer.copies()))?;
    progress.stage("writing", content.read, Unit::Bytes);
    let written = match writer {
        Writer::MlPackage => mlpackage(content, &stage, progress),
        Writer::AiModel(bridge) => aimodel(content, bridge, &stage, progress),
    };
    // What a stage says of being stopped is beside the point.
    let written = written.map_err(|error| if progress.stopped() { PipelineError::Interrupted } else { error })?;
    Ok((stage, written))
}

fn mlpackage(content: &Content<'_>, stage: &Stage, progress: &dyn Progress) -> Result<Written, PipelineError> {
    let counted = Counted { inner: content.source, progress };
    let report = mil::write(content.functions, &counted, content.description, stage.path())?;
    progress.stage("reading back", 0, Unit::Bytes);
    let found = bundle::read_back(stage.path(), &report, content.functions)?;
    let read_back = json!({
        "functions": found.functions,
        "operations": found.operations,
        "constants": found.constants,
    });
    Ok(Written { tree: found.tree, report: serde_json::to_value(&report)?, read_back })
}

fn aimodel(
    content: &Content<'_>,
    bridge: &Bridge,
    stage: &Stage,
    progress: &dyn Progress,
) -> Result<Written, PipelineError> {
    let scratch = stage.workshop()?;
    let weights = scratch.join("weights");
    let saver = bridge.start(&scratch.join("save"))?;
    let counted = Counted { inner: content.source, progress };
    let unwritable = |source| PublishError::Unwritable { path: weights.display().to_string(), source };
    let file = fs_err::File::create(&weights).map_err(unwritable)?;
    let program = coreai::write(content.functions, &counted, file)?;
    (content.weights_made)();
    progress.stage("saving", 0, Unit::Bytes);
    let reader = bridge.start(&scratch.join("read"))?;
    saver.save(&program, &weights, &metadata(content.description), stage.path())?;
    progress.stage("reading back", 0, Unit::Bytes);
    let found = match bundle::read_back_aimodel(stage.path(), &program, reader) {
        // Weights that are copied were not looked at before; reading them all tells tensor and element.
        Err(AiModelReadBackError::Stored(StoredError::NotFinite { name })) => {
            coreai::text(content.functions, content.source)?;
            return Err(AiModelReadBackError::Stored(StoredError::NotFinite { name }).into());
        }
        found => found?,
    };
    let report = json!({
        "ops": program.census(),
        "blobs_stored": program.blobs.len(),
        "bytes_shared": program.bytes_shared,
        // The only one that the bridge takes.
        "serializer": { "name": COREAI_CORE.0, "version": COREAI_CORE.1 },
    });
    let read_back = json!({ "functions": found.functions, "ops": found.ops });
    Ok(Written { tree: found.tree, report, read_back })
}

fn metadata(description: &Description) -> Metadata {
    let features = description.features.iter().map(|(name, text)| (format!("feature.{name}"), text.clone()));
    let version = ("version".to_string(), description.version.clone());
    Metadata {
        description: description.short.clone(),
        author: description.author.clone(),
        license: description.license.clone(),
        custom: features.chain([version]).chain(description.user_defined.clone()).collect(),
    }
}
