//! Whether an artefact computes what its model computes: numbers against a reference, and the red arms that show that
//! the numbers would tell.
//!
//! A red arm is a run with an input spoilt on purpose: a gate that does not see the result break would not see a broken
//! artefact either, so it fails. The gate knows neither files nor runtimes: a [`Subject`] runs, a [`Golden`] is given,
//! and what is judged and how stands in one file for each model.
//!
//! Level 6: knows the models' contracts, tensors and metrics.

mod audio;
mod encoder;
mod error;
pub mod laya;
mod limits;
mod measure;
mod numbers;
mod reader;
mod red_arm;
#[cfg(test)]
mod tests;
mod transcripts;
mod verdict;

pub use audio::{Heard, audio, unheard};
pub use encoder::{CHECKS as ENCODER_CHECKS, encoder};
pub use error::{GateError, GoldenError};
pub use limits::{BadLimit, Held, LimitOverrides, Limits};
pub use measure::{Bound, Measure};
pub use reader::{CHECKS as READER_CHECKS, reader};
pub use transcripts::{Transcripts, TranscriptsError, Vocabulary, cover};
pub use verdict::{Check, Report, Verdict};

use crate::eval::HostTensor;
use crate::tensor::Fact;
use std::collections::BTreeMap;
use std::error::Error;

/// The check that the evidence is of the artefact's weights. It passes of an artefact that was never run.
pub const SOURCE_CHECK: &str = "source";

/// Tensors by name.
pub type Tensors = BTreeMap<String, HostTensor>;

/// Something that can be run: one function of an artefact.
pub trait Subject {
    /// Why it was not run.
    type Error: Error + 'static;

    /// Name and fact of each input.
    fn inputs(&self) -> &[(String, Fact)];

    /// The outputs for `inputs`, by name. Floats of another dtype than declared are cast.
    ///
    /// # Errors
    /// The inputs do not fit, or what runs it failed.
    fn run(&self, inputs: &Tensors) -> Result<Tensors, Self::Error>;

    /// The fact of an input.
    fn input(&self, name: &str) -> Option<&Fact> {
        self.inputs().iter().find(|(input, _)| input == name).map(|(_, fact)| fact)
    }
}

/// Inputs of one clip, and what the reference gives for them.
#[derive(Clone, Debug)]
pub struct Golden {
    /// The clip's name.
    pub name: String,
    /// Inputs and reference outputs, by the names the model gives them.
    pub tensors: Tensors,
}

/// A clip and what runs it.
pub struct Case<'a, E> {
    /// The clip.
    pub golden: &'a Golden,
    /// The artefact, in a form that takes the clip.
    pub subject: &'a dyn Subject<Error = E>,
    /// A reader for the soft tokens of an encoder.
    pub reader: Option<&'a dyn Subject<Error = E>>,
}

/// How clips are judged.
pub struct Options<'a> {
    /// What results must keep to.
    pub limits: Limits,
    /// Runs of each clip that must agree bit for bit.
    pub repeats: usize,
    /// Rows of the table of the reader that is judged, where it tells.
    pub rows: Option<usize>,
    /// The reader's words.
    pub words: Option<&'a dyn Vocabulary>,
    /// The reference's transcripts.
    pub transcripts: Option<&'a Transcripts>,
    /// What was truly said.
    pub truth: Option<&'a Transcripts>,
}
