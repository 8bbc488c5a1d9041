//! What encodes or reads: an artefact, or a checkpoint whose graph is authored and evaluated in fp32 as it is.

use super::TranscribeError;
use crate::bundle::{Format, Tree};
use crate::checkpoint::Ledger;
use crate::digest::Digest;
use crate::eval;
use crate::files;
use crate::models::gemma_audio::{self, Bucket};
use crate::models::reader::{self, Tokens, Words};
use crate::pipeline::encoder::EncoderWeights;
use crate::pipeline::model::Model;
use crate::pipeline::origin::SourceFiles;
use crate::pipeline::reader::ReaderWeights;
use crate::pipeline::run::{Artefact, Callable, Functions, runtime_of};
use crate::pipeline::{PipelineError, RunError};
use crate::provenance::{SourceRecord, StoredRecord};
use crate::toolchain::Interrupt;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Soft tokens of the shipped reader: 30 s.
const READER_TOKENS: usize = 750;

/// An open encoder or reader.
pub struct Source {
    path: PathBuf,
    artefact: Artefact,
    runtime: &'static str,
    /// Weights of a graph that was authored; none for an artefact.
    files: Option<SourceFiles>,
}

/// Which bytes encoded or read.
#[derive(Clone, Debug, Serialize)]
pub struct Identity {
    /// Name of the artefact, or of the checkpoint.
    pub name: String,
    /// `reference` or `coreai`.
    pub runtime: &'static str,
    /// Digest over all files of an artefact.
    pub digest_root: Option<Digest>,
    /// The files of a checkpoint.
    pub source: Option<SourceRecord>,
    /// Whether the word list was held against the artefact's record; another than the record's is refused.
    pub words_of_record: bool,
}

impl Source {
    fn artefact(path: &Path, interrupt: &Interrupt, expected: Model) -> Result<Source, TranscribeError> {
        let runtime = runtime_of(path, None)?;
        let of = |error| named(path, error);
        let artefact = Artefact::open(path, runtime, Functions::All, interrupt).map_err(of)?;
        let model = Model::of(path, &artefact.functions(eval::Options::default()).map_err(of)?)?;
        if model != expected {
            let (found, expected) = (model.name(), expected.name());
            return Err(TranscribeError::Model { path: path.into(), found, expected });
        }
        Ok(Source { path: path.into(), artefact, runtime: runtime.name(), files: None })
    }

    fn authored(path: &Path, artefact: Artefact, files: SourceFiles) -> Source {
        Source { path: path.into(), artefact, runtime: "reference", files: Some(files) }
    }

    /// The encoder at `path`; one that is a checkpoint is authored for `bucket`.
    ///
    /// # Errors
    /// It is neither an encoder nor a checkpoint of one, or cannot be read.
    pub fn encoder(path: &Path, bucket: Bucket, interrupt: &Interrupt) -> Result<Source, TranscribeError> {
        if Format::of(path).is_some() {
            return Self::artefact(path, interrupt, Model::Encoder);
        }
        let EncoderWeights { config, source, files, .. } = EncoderWeights::open(path, None)?;
        let (graph, _) = gemma_audio::author(&config, bucket, &Ledger::new(&*source)).map_err(PipelineError::from)?;
        Ok(Self::authored(path, Artefact::authored(path, source, vec![graph]), files))
    }

    /// The reader at `path` with its words. One that is a config is authored for the tokens of `bucket`, or the shipped
    /// reader's where those are fewer, and names its own words.
    ///
    /// # Errors
    /// It is neither a reader nor the config of one, or cannot be read; or the words are not as many as it has.
    pub fn reader(
        path: &Path,
        words: Option<&Path>,
        bucket: Bucket,
        interrupt: &Interrupt,
    ) -> Result<(Source, Words), TranscribeError> {
        if Format::of(path).is_none() && path.extension().is_some_and(|ending| ending == "json") {
            let ReaderWeights { config, source, words, files } = ReaderWeights::open(path, [None, None, words])?;
            let tokens = Tokens::new(bucket.tokens().min(READER_TOKENS))?;
            let (graph, _) =
                reader::author(&config, tokens, words.len(), &Ledger::new(&source)).map_err(PipelineError::from)?;
            let artefact = Artefact::authored(path, Box::new(source), vec![graph]);
            return Ok((Self::authored(path, artefact, files), words));
        }
        if Format::of(path).is_none() {
            return Err(TranscribeError::NoReader { path: path.into() });
        }
        let words = words.ok_or_else(|| TranscribeError::NoWords { reader: path.into() })?;
        let source = Self::artefact(path, interrupt, Model::Reader)?;
        let rows = source.artefact.metadata("words").and_then(|words| words.parse().ok());
        Ok((source, Words::read(words, rows)?))
    }

    /// Files and folders that it is read from.
    pub fn reads(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.path.as_path()).chain(self.files.iter().flat_map(SourceFiles::paths))
    }

    /// Its functions.
    ///
    /// # Errors
    /// A graph breaks a rule, or takes what cannot be handed over.
    pub fn functions(&self) -> Result<Vec<Callable<'_>>, TranscribeError> {
        Ok(self.artefact.functions(eval::Options::default())?)
    }

    /// Hashes it. `words` is the list that is used with it.
    ///
    /// # Errors
    /// A file cannot be read, or the record beside the artefact is of other bytes.
    pub fn identity(&self, words: Option<&Path>) -> Result<Identity, TranscribeError> {
        let name = self.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut identity = Identity {
            name: name.unwrap_or_else(|| self.path.display().to_string()),
            runtime: self.runtime,
            digest_root: None,
            source: None,
            words_of_record: false,
        };
        if let Some(files) = &self.files {
            identity.source = Some(files.record()?);
            return Ok(identity);
        }
        let root = Tree::of(&self.path)?.root();
        identity.digest_root = Some(root);
        let record = StoredRecord::beside(&self.path, root)?.filter(|record| record.source.kind == "checkpoint");
        if let (Some(record), Some(words)) = (record, words) {
            let forms = forms(words).map_err(PipelineError::Io)?;
            // Words in another order are as many and read as wrong as can be, and nothing else would tell.
            if record.source.files.iter().all(|file| !forms.contains(&file.sha256)) {
                return Err(TranscribeError::OtherWords { words: words.into(), reader: self.path.clone() });
            }
            identity.words_of_record = true;
        }
        Ok(identity)
    }
}

/// Digests of a word list as it is, and with the line ends that tools put in or take out: the same words.
fn forms(words: &Path) -> io::Result<[Digest; 4]> {
    let text = files::read(words, files::TEXT_MAX)?;
    let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    let open = lines.join(&b'\n');
    let open = open.strip_suffix(b"\n").unwrap_or(&open);
    let returns = open.split(|b| *b == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
    Ok([
        Digest::of(&text),
        Digest::of(open),
        Digest::of(&[open, b"\n"].concat()),
        Digest::of(&[&returns[..], b"\r\n"].concat()),
    ])
}

/// Faults within a bundle, which name no file of their own.
fn named(path: &Path, error: RunError) -> TranscribeError {
    if matches!(error, RunError::Package(_)) {
        TranscribeError::Artefact { path: path.into(), source: Box::new(error) }
    } else {
        error.into()
    }
}
