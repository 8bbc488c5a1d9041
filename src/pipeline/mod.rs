//! The only place that sequences stages. Level 8.
//!
//! A model's file here authors graphs and says which artefacts they make; [`package`] takes any such job through
//! precision, validation, writing, reading back, publishing and records, while another thread hashes the source files.

mod compile;
mod decide;
mod diff;
mod encoder;
mod features;
mod gate;
mod inspect;
mod kit;
mod laya;
mod model;
mod origin;
mod package;
mod reader;
mod regions;
mod release;
mod run;
mod strip;
mod told;
mod transcribe;
mod verify;

pub use compile::{CompileError, CompileOptions, Compiled, CoreAiTarget, compile};
pub use decide::{
    ByQuestion, DecideError, DecideOptions, Decided, GraphIdentity, QuestionRun, Request, RequestError, RequestResult,
    decide,
};
pub use diff::{Changes, DiffError, Difference, FileFact, Side, diff};
pub use encoder::{EncoderOptions, encoder};
pub use features::{Extracted, FeaturesError, FeaturesOptions, features};
pub use gate::{
    ClipFilesError, Evidence, EvidenceError, EvidenceKind, GateFailure, GateOptions, Gated, GoldenFileError,
    HalvesError, OtherArtefact, QuestionSetError, SourceMismatch, gate,
};
pub use inspect::{
    AiModelView, BlockerView, CompiledView, FunctionView, InspectError, Inspection, PackageView, WeightView, inspect,
};
pub use kit::{Differences, KitError, KitOptions, KitRan, PlanFault, RunnerError, run_kit};
pub use laya::{ForeignWeights, LayaOptions, laya};
pub use model::{Half, UnknownModel};
pub use origin::Origin;
pub use package::{Converted, Destination, FunctionReport, GraphFigures, PipelineError, Writer};
pub use reader::{ReaderOptions, ReaderOrigin, reader};
pub use regions::{Host, Regions, RegionsError, regions};
pub use release::{
    KitReport, Release, ReleaseError, ReleaseOptions, Shard, SourceError as ReleaseSourceError, StageError,
    StageReport, release,
};
pub use run::{Ran, RunError, RunOptions, Runtime, run};
pub use strip::{Look, StripError, StripOptions, Stripped, strip};
pub use transcribe::{Identity, Part, SpokenWord, TranscribeError, TranscribeOptions, Transcript, transcribe};
pub use verify::{Fault, MergeFailure, Merged, Verification, Verified, VerifyError, merge_into, verify};

/// Told how far a job is, and asked whether it is still wanted; the command line draws it.
pub trait Progress: Sync {
    /// A stage begins that will handle about `total` of those.
    fn stage(&self, name: &'static str, total: u64, unit: Unit);
    /// So many more were handled.
    fn advance(&self, more: u64);
    /// Whether the job should end where it is, leaving nothing behind.
    fn stopped(&self) -> bool {
        false
    }
}

/// What a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Feature frames of 10 ms.
    Frames,
    /// Soft tokens of 40 ms.
    Tokens,
}

/// Progress nobody looks at.
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _: &'static str, _: u64, _: Unit) {}
    fn advance(&self, _: u64) {}
}
