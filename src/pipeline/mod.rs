//! The only place that sequences stages. Level 8.
//!
//! A model's file here authors a graph; [`package`] takes any authored graph through precision, validation, writing,
//! reading back, record and publishing, while another thread hashes the source files.

mod compile;
mod encoder;
mod inspect;
mod origin;
mod package;
mod run;

pub use compile::{CompileError, CompileOptions, Compiled, CoreAiTarget, compile};
pub use encoder::{EncoderOptions, encoder};
pub use inspect::{BlockerView, FunctionView, InspectError, Inspection, WeightView, inspect};
pub use origin::Origin;
pub use package::{Bundle, Converted, Destination, Format, GraphFigures, PipelineError};
pub use run::{Ran, RunError, RunOptions, run, run_aimodel};

/// Told how far a job is; the command line draws it.
pub trait Progress: Sync {
    /// A stage begins that will handle about `total` bytes.
    fn stage(&self, name: &'static str, total: u64);
    /// So many bytes more were handled.
    fn advance(&self, bytes: u64);
}

/// Progress nobody looks at.
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _: &'static str, _: u64) {}
    fn advance(&self, _: u64) {}
}
