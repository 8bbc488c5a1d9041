//! Where weights and config come from: a checkpoint on disk, or a seed.

use super::PipelineError;
use super::Progress;
use super::told::name_of;
use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::files;
use crate::provenance::{SourceFile, SourceRecord};
use crate::tensor::{Fact, SourceError, WeightSource};
use std::io;
use std::path::{Path, PathBuf};

/// Where weights come from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A safetensors file, a folder of shards, or a Hugging Face snapshot.
    Checkpoint(PathBuf),
    /// Seeded values of the shapes the config asks for.
    Synthetic(u64),
}

/// The text of a config, and its name for messages.
///
/// # Errors
/// It cannot be read, or is no UTF-8.
pub fn config_text(path: &Path) -> Result<(String, String), PipelineError> {
    let at = |source| PipelineError::ConfigFile { path: path.into(), source };
    let text = files::read(path, files::TEXT_MAX).map_err(at)?;
    let text = String::from_utf8(text).map_err(|e| at(io::Error::new(io::ErrorKind::InvalidData, e)))?;
    let name = name_of(path);
    Ok((text, name))
}

/// The source's record without its digests, and the files they belong to.
pub struct SourceFiles {
    kind: &'static str,
    revision: Option<String>,
    seed: Option<u64>,
    files: Vec<PathBuf>,
}

impl SourceFiles {
    /// What a checkpoint was read from, with the config that shaped the graph.
    pub fn checkpoint(checkpoint: &Checkpoint, config: &Path) -> SourceFiles {
        let files = checkpoint.files().iter().map(|f| f.to_path_buf()).chain(Some(config.to_path_buf())).collect();
        SourceFiles { kind: "checkpoint", revision: checkpoint.revision().map(Into::into), seed: None, files }
    }

    /// Several weight files, with the config and the texts beside them, in the record's order.
    pub fn of(files: Vec<PathBuf>) -> SourceFiles {
        SourceFiles { kind: "checkpoint", revision: None, seed: None, files }
    }

    /// The same, from a snapshot of that revision.
    pub fn at(self, revision: Option<String>) -> SourceFiles {
        SourceFiles { revision, ..self }
    }

    /// The same files beside seeded weights.
    pub fn seeded(self, seed: u64) -> SourceFiles {
        SourceFiles { kind: "synthetic", seed: Some(seed), ..self }
    }

    /// Seeded weights, and the config file if there was one.
    pub fn synthetic(seed: u64, config: Option<&Path>) -> SourceFiles {
        let files = config.map(Path::to_path_buf).into_iter().collect();
        SourceFiles { kind: "synthetic", revision: None, seed: Some(seed), files }
    }

    /// The files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Hashes the files; made to run beside the conversion.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn record(&self) -> Result<SourceRecord, PipelineError> {
        let file = |path: &PathBuf| {
            let (sha256, bytes) = Digest::of_file(path)?;
            let name = name_of(path);
            Ok(SourceFile { name, sha256, bytes })
        };
        let files = self.files.iter().map(file).collect::<io::Result<Vec<_>>>();
        Ok(SourceRecord {
            kind: self.kind,
            revision: self.revision.clone(),
            seed: self.seed,
            files: files.map_err(PipelineError::Io)?,
        })
    }
}

/// A weight source that tells how many bytes were read of it, and is read no further once the job is not wanted.
pub struct Counted<'a> {
    /// What is read.
    pub inner: &'a dyn WeightSource,
    /// Who is told.
    pub progress: &'a dyn Progress,
}

impl WeightSource for Counted<'_> {
    fn names(&self) -> Vec<&str> {
        self.inner.names()
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.inner.fact(name)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        if self.progress.stopped() {
            let source = io::ErrorKind::Interrupted.into();
            return Err(SourceError::Io { tensor: name.into(), place: self.place(name), source });
        }
        self.inner.read(name, offset, out)?;
        self.progress.advance(out.len() as u64);
        Ok(())
    }

    fn stretch(&self, name: &str) -> Option<(PathBuf, u64)> {
        self.inner.stretch(name)
    }

    fn place(&self, name: &str) -> String {
        self.inner.place(name)
    }
}
