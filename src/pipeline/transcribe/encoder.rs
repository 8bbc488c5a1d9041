//! The encoder on windows of a clip: feature frames to soft tokens.

use super::TranscribeError;
use super::contract::{ByLength, Extent};
use crate::dsp::MEL_BINS;
use crate::eval::{HostTensor, Values};
use crate::models::gemma_audio::{FRAMES_PER_TOKEN, half_mask, tokens_of};
use crate::pipeline::run::Callable;
use crate::tensor::{DType, Fact};
use std::collections::BTreeMap;
use std::path::Path;

const FEATURES: &str = "features";
const HALF_MASK: &str = "half_mask";
const SOFT_TOKENS: &str = "soft_tokens";

/// An encoder that takes one window at a time.
pub struct Encoder<'a> {
    functions: ByLength<'a>,
    width: usize,
}

impl<'a> Encoder<'a> {
    /// The encoder whose functions, one for each bucket, are given.
    ///
    /// # Errors
    /// A feature is not what the contract of the encoder asks for.
    pub fn of(path: &Path, functions: Vec<Callable<'a>>) -> Result<Encoder<'a>, TranscribeError> {
        let functions = ByLength::of(path, functions, FEATURES)?;
        functions.hold(FEATURES, |bucket| vec![Extent::Is(1), Extent::Is(bucket), Extent::Is(MEL_BINS)])?;
        functions.hold(HALF_MASK, |bucket| vec![Extent::Is(1), Extent::Is(bucket / 2)])?;
        functions.hold(SOFT_TOKENS, |bucket| {
            vec![Extent::Is(1), Extent::Is(bucket / FRAMES_PER_TOKEN), Extent::Any("width")]
        })?;
        let width = functions.width(SOFT_TOKENS)?;
        Ok(Encoder { functions, width })
    }

    /// The artefact or checkpoint.
    pub fn path(&self) -> &Path {
        self.functions.path()
    }

    /// Numbers of a soft token.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Tokens of the longest window.
    pub fn longest(&self) -> usize {
        self.functions.longest() / FRAMES_PER_TOKEN
    }

    /// The soft tokens of a window whose feature rows are `frames`, by the shortest function that takes them: no rows
    /// past the window's last token.
    ///
    /// # Errors
    /// No function takes so many, the run failed, or what it gives is not finite.
    pub fn encode(&mut self, frames: &[f32]) -> Result<Vec<f32>, TranscribeError> {
        let path = self.functions.path().to_path_buf();
        let (count, width) = (frames.len() / MEL_BINS, self.width);
        let (bucket, function) = self.functions.holding(count, "frames")?;
        // Rows past the clip are exactly 0: log-silence there makes its last token wrong.
        let mut features = frames.to_vec();
        features.resize(bucket * MEL_BINS, 0.0);
        let inputs = BTreeMap::from([
            (FEATURES.into(), tensor(vec![1, bucket, MEL_BINS], features)?),
            (HALF_MASK.into(), tensor(vec![1, bucket / 2], half_mask(count, bucket))?),
        ]);
        let (mut outputs, _) = function.run.run(&inputs)?;
        let tokens = tokens_of(count);
        let soft = outputs.remove(SOFT_TOKENS).and_then(|t| t.floats().map(<[f32]>::to_vec)).unwrap_or_default();
        let valid = soft.get(..tokens * width).ok_or_else(|| TranscribeError::Values {
            path: path.clone(),
            output: SOFT_TOKENS,
            found: soft.len(),
            expected: tokens * width,
        })?;
        match valid.iter().position(|v| !v.is_finite()) {
            Some(at) => Err(TranscribeError::NotFinite { path, output: SOFT_TOKENS, token: at / width.max(1) }),
            None => Ok(valid.to_vec()),
        }
    }
}

/// A tensor of f32, which whoever runs it casts to the declared dtype.
pub fn tensor(dims: Vec<usize>, values: Vec<f32>) -> Result<HostTensor, TranscribeError> {
    Ok(HostTensor::new(Fact::new(DType::F32, dims), Values::F32(values))?)
}
