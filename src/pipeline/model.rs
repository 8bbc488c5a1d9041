//! Which model an artefact is of, by what its functions take and give.

use super::encoder::HIDDEN;
use super::run::Callable;
use crate::models::laya::names;
use std::path::{Path, PathBuf};

/// A model whose contract is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `features` and `half_mask` to `soft_tokens`.
    Encoder,
    /// `soft_tokens` and `token_mask` to labels and logits.
    Reader,
    /// `embeddings`, masks, the type's vector and the options' places to `logits` and `cls`; see [`names`].
    Laya,
}

/// An artefact of no known model, or of several.
#[derive(Debug, thiserror::Error)]
#[error("{} has function {function} of {found}; known are {}", path.display(), Model::KNOWN)]
pub struct UnknownModel {
    /// The bundle.
    pub path: PathBuf,
    /// The function that fits none.
    pub function: String,
    /// What it takes and gives.
    pub found: String,
}

impl Model {
    /// What is told of a model that is none of these.
    const KNOWN: &str = "encoders (features, half_mask -> soft_tokens), readers (soft_tokens, token_mask -> \
                         top1_index, top1_logit, blank_logit) and decision models (embeddings, full_mask, local_mask, \
                         type_vectors, marker_map -> logits, cls)";

    const ALL: [Model; 3] = [Model::Encoder, Model::Reader, Model::Laya];

    const fn features(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Model::Encoder => (&["features", "half_mask"], &["soft_tokens"]),
            Model::Reader => (&["soft_tokens", "token_mask"], &["top1_index", "top1_logit", "blank_logit"]),
            Model::Laya => (&names::INPUTS, &names::OUTPUTS),
        }
    }

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Encoder => "an encoder",
            Model::Reader => "a reader",
            Model::Laya => "a decision model",
        }
    }

    /// The input that has the length of a clip or of a question, on axis [`length_axis`](Self::length_axis).
    pub const fn length_input(self) -> &'static str {
        match self {
            Model::Encoder => "features",
            Model::Reader => "soft_tokens",
            Model::Laya => names::EMBEDDINGS,
        }
    }

    /// The axis of [`length_input`](Self::length_input) that has the length.
    pub const fn length_axis(self) -> usize {
        match self {
            Model::Encoder | Model::Reader => 1,
            Model::Laya => 3,
        }
    }

    /// The length of a function of this model; none where its input has no such axis.
    pub fn length(self, function: &Callable<'_>) -> Option<usize> {
        let (_, fact) = function.inputs.iter().find(|(name, _)| name == self.length_input())?;
        fact.shape.dims().get(self.length_axis()).copied()
    }

    /// The model of the bundle at `path`, all of whose functions are of one.
    ///
    /// # Errors
    /// A function is of no known model, or of another than the one before.
    pub fn of<'c, 'a: 'c>(
        path: &Path,
        functions: impl IntoIterator<Item = &'c Callable<'a>>,
    ) -> Result<Model, UnknownModel> {
        let mut found = None;
        for function in functions {
            let model = Self::ALL.into_iter().find(|model| model.is(function));
            match model {
                Some(model) if found.is_none_or(|found| found == model) => found = Some(model),
                Some(_) | None => return Err(unknown(path, function)),
            }
        }
        found.ok_or_else(|| UnknownModel { path: path.into(), function: "none".into(), found: "nothing".into() })
    }

    fn is(self, function: &Callable<'_>) -> bool {
        has(function, self.features())
    }
}

/// One of the two artefacts that a cut makes of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// `features` and `half_mask` to `hidden`.
    Front,
    /// `hidden` to `soft_tokens`.
    Body,
}

impl Half {
    const fn features(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Half::Front => (&["features", "half_mask"], &[HIDDEN]),
            Half::Body => (&[HIDDEN], &["soft_tokens"]),
        }
    }

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Half::Front => "the front of an encoder",
            Half::Body => "the body of an encoder",
        }
    }

    /// The half that it is run with.
    pub const fn other(self) -> Half {
        match self {
            Half::Front => Half::Body,
            Half::Body => Half::Front,
        }
    }

    /// What it takes and gives.
    pub fn told(self) -> String {
        let (inputs, outputs) = self.features();
        format!("{} -> {}", inputs.join(", "), outputs.join(", "))
    }

    /// Whether the function is of this half.
    pub fn is(self, function: &Callable<'_>) -> bool {
        has(function, self.features())
    }

    /// The half that all functions are of; none where they are of no one.
    pub fn of(functions: &[Callable<'_>]) -> Option<Half> {
        let all = |half: &Half| !functions.is_empty() && functions.iter().all(|function| half.is(function));
        [Half::Front, Half::Body].into_iter().find(all)
    }
}

/// Whether a function takes and gives features of these names, and no others.
fn has(function: &Callable<'_>, (inputs, outputs): (&[&str], &[&str])) -> bool {
    let same = |wanted: &[&str], found: &mut dyn Iterator<Item = &str>| {
        let mut found: Vec<&str> = found.collect();
        let mut wanted = wanted.to_vec();
        found.sort_unstable();
        wanted.sort_unstable();
        found == wanted
    };
    same(inputs, &mut function.inputs.iter().map(|(name, _)| name.as_str()))
        && same(outputs, &mut function.outputs.iter().map(|(name, _)| name.as_str()))
}

/// What a function takes and gives: `a, b -> c`.
pub fn features_of(function: &Callable<'_>) -> String {
    let names =
        |features: &[(String, _)]| features.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    format!("{} -> {}", names(&function.inputs), names(&function.outputs))
}

fn unknown(path: &Path, function: &Callable<'_>) -> UnknownModel {
    UnknownModel { path: path.into(), function: function.name.clone(), found: features_of(function) }
}
