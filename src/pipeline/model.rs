//! Which model an artefact is of, by what its functions take and give.

use super::run::Callable;
use std::path::{Path, PathBuf};

/// A model whose contract is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// `features` and `half_mask` to `soft_tokens`.
    Encoder,
    /// `soft_tokens` and `token_mask` to labels and logits.
    Reader,
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
    const KNOWN: &str = "encoders (features, half_mask -> soft_tokens) and readers (soft_tokens, token_mask -> \
                         top1_index, top1_logit, blank_logit)";

    const ALL: [Model; 2] = [Model::Encoder, Model::Reader];

    const fn features(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Model::Encoder => (&["features", "half_mask"], &["soft_tokens"]),
            Model::Reader => (&["soft_tokens", "token_mask"], &["top1_index", "top1_logit", "blank_logit"]),
        }
    }

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Model::Encoder => "an encoder",
            Model::Reader => "a reader",
        }
    }

    /// The input whose second axis is the length of a clip.
    pub const fn length_input(self) -> &'static str {
        match self {
            Model::Encoder => "features",
            Model::Reader => "soft_tokens",
        }
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
        let (inputs, outputs) = self.features();
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
}

fn unknown(path: &Path, function: &Callable<'_>) -> UnknownModel {
    let names =
        |features: &[(String, _)]| features.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    let found = format!("{} -> {}", names(&function.inputs), names(&function.outputs));
    UnknownModel { path: path.into(), function: function.name.clone(), found }
}
