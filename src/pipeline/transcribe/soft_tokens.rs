//! A clip's soft tokens, written as they come: `soft_tokens [1, N, D]`.

use super::TranscribeError;
use crate::checkpoint::write_safetensors_header;
use crate::files::Replacement;
use crate::pipeline::features::write;
use crate::tensor::{DType, Fact};
use std::collections::BTreeMap;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// The file being written; dropping it leaves none.
pub struct SoftTokens {
    path: PathBuf,
    out: BufWriter<Replacement>,
}

impl SoftTokens {
    /// Starts the file for `tokens` rows of `width`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn start(path: &Path, tokens: usize, width: usize) -> Result<SoftTokens, TranscribeError> {
        let fact = Fact::new(DType::F32, [1, tokens, width]);
        let start = || {
            let mut out = BufWriter::new(Replacement::new(path)?);
            write_safetensors_header(&BTreeMap::from([("soft_tokens", &fact)]), &mut out)?;
            Ok(out)
        };
        let out = start().map_err(|source| failed(path, source))?;
        Ok(SoftTokens { path: path.into(), out })
    }

    /// Writes the next rows.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn push(&mut self, soft: &[f32]) -> Result<(), TranscribeError> {
        write(soft, &mut self.out).map_err(|source| failed(&self.path, source))
    }

    /// Puts the file in place.
    ///
    /// # Errors
    /// It cannot be put there.
    pub fn finish(self) -> Result<(), TranscribeError> {
        let SoftTokens { path, out } = self;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(Replacement::persist).map_err(|source| failed(&path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> TranscribeError {
    TranscribeError::Output { path: path.into(), source }
}
