//! What a release is made of: found, hashed, and held against the recipe before anything is made.

use super::ReleaseOptions;
use super::error::SourceError;
use crate::checkpoint::{EMBEDDING_GEMMA2, LAYA, Published, locate};
use crate::files::{self, Stamp};
use crate::models::gemma_audio::Buckets;
use crate::models::laya::{Length, Lengths};
use crate::models::reader::Tokens;
use crate::pipeline::encoder::EncoderWeights;
use crate::pipeline::laya::{LayaWeights, config_files};
use crate::pipeline::origin::SourceFiles;
use crate::pipeline::reader::ReaderWeights;
use crate::pipeline::told::name_of;
use crate::pipeline::{EncoderOptions, LayaOptions, Origin, ReaderOptions, ReaderOrigin};
use crate::provenance::SourceRecord;
use crate::provenance::release::{Origin as OriginRecord, OriginFile};
use crate::provenance::texts::APACHE;
use crate::recipe::{Model, Recipe};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The config of a reader, where the recipe names none.
const READER_CONFIG: &str = "reader_config.json";

/// How the job is put.
pub enum Job {
    /// To the encoder.
    Encoder(EncoderOptions),
    /// To the reader.
    Reader(ReaderOptions),
    /// To the decision model.
    Laya {
        /// What is asked of it.
        options: LayaOptions,
        /// The checkpoint's folder; none of seeded weights.
        host: Option<PathBuf>,
    },
}

impl Job {
    /// The folder of the checkpoint with whose host the bundles are judged.
    pub fn host(&self) -> Option<&Path> {
        match self {
            Job::Laya { host, .. } => host.as_deref(),
            Job::Encoder(_) | Job::Reader(_) => None,
        }
    }
}

/// A source that is what the recipe says it is.
pub struct Source {
    /// The job that reads it.
    pub job: Job,
    /// Its files, as they were hashed.
    pub files: SourceRecord,
    /// The same for the record of the release.
    pub record: OriginRecord,
    /// Whether the recipe has every digest.
    pub pinned: bool,
    /// The licence's text.
    pub license: Vec<u8>,
    /// The files, and what tells whether one was written to since before it was hashed.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
}

impl Source {
    /// Finds and hashes what `recipe` is made of.
    ///
    /// # Errors
    /// A file is missing or other than the recipe says, or its digest is not in the recipe and that was not allowed.
    pub fn of(recipe: &Recipe, options: &ReleaseOptions) -> Result<Source, SourceError> {
        let (job, files) = match &recipe.model {
            Model::Encoder { buckets, split_after } => encoder(recipe, buckets, *split_after, options)?,
            Model::Reader { tokens, release_name } => reader(recipe, *tokens, release_name, options)?,
            Model::Laya { lengths } => laya(recipe, lengths, options)?,
        };
        let license = license(recipe)?;
        let stamps = files.paths().map(|path| (path.to_path_buf(), Stamp::of(path).ok())).collect();
        let files = files.record().map_err(Box::new)?;
        let record = held(recipe, &files)?;
        let unpinned: Vec<&OriginFile> = record.files.iter().filter(|file| !file.pinned).collect();
        let pinned = unpinned.is_empty();
        if !pinned && !options.allow_unpinned {
            let files = unpinned.iter().map(|file| (file.name.clone(), file.sha256)).collect();
            return Err(SourceError::Unpinned { files });
        }
        Ok(Source { job, files, record, pinned, license, stamps })
    }

    /// A file that was written to since before it was hashed: what is read of it need not be what was hashed.
    pub fn changed(&self) -> Option<String> {
        let changed = |(path, before): &&(PathBuf, Option<Stamp>)| before.is_none() || Stamp::of(path).ok() != *before;
        self.stamps.iter().find(changed).map(|(path, _)| name_of(path))
    }

    /// What decides what is authored of it.
    pub fn key(&self, recipe: &Recipe) -> Value {
        let model = match &recipe.model {
            Model::Encoder { buckets, split_after } => json!({
                "buckets": buckets.iter().map(|bucket| bucket.frames()).collect::<Vec<_>>(),
                "split_after": split_after,
            }),
            Model::Reader { tokens, release_name } => json!({ "tokens": tokens.get(), "release_name": release_name }),
            Model::Laya { lengths } => json!({ "lengths": lengths.iter().map(Length::get).collect::<Vec<_>>() }),
        };
        json!({
            "model": recipe.model.name(),
            "options": model,
            "precision": recipe.precision,
            "formats": recipe.formats,
            "source": self.files,
            "words": recipe.source.words,
        })
    }
}

fn encoder(
    recipe: &Recipe,
    buckets: &Buckets,
    split_after: Option<usize>,
    options: &ReleaseOptions,
) -> Result<(Job, SourceFiles), SourceError> {
    let config = recipe.source.config.clone();
    let (origin, files) = match recipe.source.seed {
        Some(seed) => (Origin::Synthetic(seed), SourceFiles::synthetic(seed, config.as_deref())),
        None => {
            let path = checkpoint(recipe, options, EMBEDDING_GEMMA2)?;
            let files = EncoderWeights::open(&path, config.as_deref()).map_err(Box::new)?.files;
            (Origin::Checkpoint(path), files)
        }
    };
    let (buckets, precision) = (buckets.clone(), recipe.precision);
    Ok((Job::Encoder(EncoderOptions { origin, config, buckets, precision, split_after }), files))
}

fn laya(recipe: &Recipe, lengths: &Lengths, options: &ReleaseOptions) -> Result<(Job, SourceFiles), SourceError> {
    let config = recipe.source.config.clone();
    let (origin, files, host) = match recipe.source.seed {
        Some(seed) => {
            let files = config.as_deref().map(|folder| config_files(folder).to_vec()).unwrap_or_default();
            (Origin::Synthetic(seed), SourceFiles::of(files).seeded(seed), None)
        }
        None => {
            let path = checkpoint(recipe, options, LAYA)?;
            let weights = LayaWeights::open(&path, config.as_deref()).map_err(Box::new)?;
            let host = weights.source.folder().to_path_buf();
            (Origin::Checkpoint(path), weights.files, Some(host))
        }
    };
    let options = LayaOptions { origin, config, lengths: lengths.clone(), precision: recipe.precision };
    Ok((Job::Laya { options, host }, files))
}

/// The checkpoint that the recipe names, else the call, else the one that is found where such are.
fn checkpoint(recipe: &Recipe, options: &ReleaseOptions, published: Published) -> Result<PathBuf, SourceError> {
    let named = recipe.source.checkpoint.as_deref().or(options.checkpoint.as_deref());
    Ok(locate(named, &options.surroundings, published, recipe.source.revision.as_deref())?)
}

fn reader(
    recipe: &Recipe,
    tokens: Tokens,
    release_name: &Option<String>,
    options: &ReleaseOptions,
) -> Result<(Job, SourceFiles), SourceError> {
    let named = recipe.source.config.clone();
    let (origin, files) = match recipe.source.seed {
        Some(seed) => {
            let files = SourceFiles::synthetic(seed, named.as_deref());
            (ReaderOrigin::Synthetic { seed, config: named, words: recipe.source.words }, files)
        }
        None => {
            let config =
                named.or_else(|| options.reader_config.clone()).unwrap_or_else(|| PathBuf::from(READER_CONFIG));
            if !config.exists() {
                return Err(SourceError::NoReader { looked: config });
            }
            let files = ReaderWeights::open(&config, [None; 3]).map_err(Box::new)?.files;
            (ReaderOrigin::Files { config, weights: None, table: None, words: None }, files)
        }
    };
    let (precision, release_name) = (recipe.precision, release_name.clone());
    Ok((Job::Reader(ReaderOptions { origin, tokens, precision, release_name }), files))
}

/// The licence's text: read before anything is made, for a release has to have it.
fn license(recipe: &Recipe) -> Result<Vec<u8>, SourceError> {
    match &recipe.source.license_file {
        None => Ok(APACHE.as_bytes().to_vec()),
        Some(path) => {
            files::read(path, files::TEXT_MAX).map_err(|source| SourceError::License { path: path.clone(), source })
        }
    }
}

/// Holds the files against the recipe's digests, and the revision of their folder against its revision.
fn held(recipe: &Recipe, found: &SourceRecord) -> Result<OriginRecord, SourceError> {
    let wanted = &recipe.source;
    if let (Some(expected), Some(found)) = (&wanted.revision, &found.revision)
        && !found.starts_with(expected.as_str())
        && !expected.starts_with(found.as_str())
    {
        return Err(SourceError::Revision { found: found.clone(), expected: expected.clone() });
    }
    let mut files = Vec::new();
    for file in &found.files {
        let expected = wanted.sha256.get(&file.name);
        if let Some(expected) = expected.filter(|expected| **expected != file.sha256) {
            return Err(SourceError::Digest { file: file.name.clone(), found: file.sha256, expected: *expected });
        }
        let pinned = expected.is_some();
        files.push(OriginFile { name: file.name.clone(), sha256: file.sha256, bytes: file.bytes, pinned });
    }
    let read: BTreeSet<&str> = found.files.iter().map(|file| file.name.as_str()).collect();
    if let Some(name) = wanted.sha256.keys().find(|name| !read.contains(name.as_str())) {
        let read = found.files.iter().map(|file| file.name.clone()).collect();
        return Err(SourceError::NotRead { file: name.clone(), read });
    }
    Ok(OriginRecord {
        kind: found.kind.into(),
        repository: wanted.repository.clone(),
        revision: wanted.revision.clone(),
        license: wanted.license.clone(),
        seed: found.seed,
        files,
    })
}
