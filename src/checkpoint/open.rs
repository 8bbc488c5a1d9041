//! A checkpoint: one file, a folder of shards with their index, or a Hugging Face snapshot of either.

use super::file::Shard;
use super::{CheckpointError, format::Entry};
use crate::files;
use crate::json;
use crate::tensor::{Fact, SourceError, WeightSource};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Open weight files and the tensors in them.
#[derive(Debug)]
pub struct Checkpoint {
    shards: Vec<Shard>,
    tensors: BTreeMap<String, usize>,
    files: Vec<PathBuf>,
    folder: PathBuf,
    config: Option<PathBuf>,
    revision: Option<String>,
}

impl Checkpoint {
    /// Opens a weight file (safetensors, a state dict of `torch.save`, or an array of numpy), a folder that holds
    /// `model.safetensors` or an index of shards, or a Hugging Face repository folder.
    ///
    /// # Errors
    /// Nothing usable is there, or a file is malformed; the message names it.
    pub fn open(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let meta = std::fs::metadata(path).map_err(|source| CheckpointError::Io { path: path.into(), source })?;
        if !meta.is_dir() {
            return if path.file_name().is_some_and(|n| n.to_string_lossy().ends_with(".index.json")) {
                Self::sharded(path)
            } else {
                Self::open_file(path)
            };
        }
        let folder = if path.join("snapshots").is_dir() { snapshot(path)? } else { path.to_path_buf() };
        if folder.join(SINGLE).exists() {
            Self::open_file(&folder.join(SINGLE))
        } else if folder.join(INDEX).exists() {
            Self::sharded(&folder.join(INDEX))
        } else {
            Err(CheckpointError::NoModel { path: folder })
        }
    }

    /// Opens one weight file, whose first bytes tell its format.
    ///
    /// A state dict's nested dicts give dotted names. A tensor without a name, of a `.npy` or saved alone by
    /// `torch.save`, is called [`UNNAMED`](super::UNNAMED).
    ///
    /// # Errors
    /// It cannot be read or is malformed.
    pub fn open_file(path: &Path) -> Result<Checkpoint, CheckpointError> {
        Self::of(vec![Shard::open(path)?], Vec::new(), path)
    }

    fn sharded(index: &Path) -> Result<Checkpoint, CheckpointError> {
        let map = read_index(index)?;
        let name = file_name(index);
        let folder = index.parent().unwrap_or(Path::new(""));
        let mut names: Vec<&String> = map.values().collect();
        names.sort();
        names.dedup();
        let mut shards = Vec::new();
        for shard in names {
            let path = folder.join(inside(shard, &name)?);
            std::fs::metadata(&path).map_err(|source| CheckpointError::MissingShard {
                index: name.clone(),
                shard: shard.clone(),
                source,
            })?;
            shards.push(Shard::open(&path)?);
        }
        for (tensor, shard) in &map {
            if !shards.iter().any(|s| s.name == *shard && s.tensors.contains_key(tensor)) {
                let (shard, tensor) = (shard.clone(), tensor.clone());
                return Err(CheckpointError::Absent { index: name, shard, tensor });
            }
        }
        Self::of(shards, vec![index.to_path_buf()], index)
    }

    fn of(shards: Vec<Shard>, mut files: Vec<PathBuf>, at: &Path) -> Result<Checkpoint, CheckpointError> {
        let mut tensors: BTreeMap<String, usize> = BTreeMap::new();
        for (i, shard) in shards.iter().enumerate() {
            for tensor in shard.tensors.keys() {
                if let Some(first) = tensors.insert(tensor.clone(), i) {
                    return Err(CheckpointError::Twice {
                        tensor: tensor.clone(),
                        first: shards[first].name.clone(),
                        second: shard.name.clone(),
                    });
                }
            }
        }
        files.extend(shards.iter().map(|s| s.path.clone()));
        let folder = at.parent().unwrap_or(Path::new(""));
        let config = Some(folder.join("config.json")).filter(|c| c.is_file());
        let revision = revision(folder);
        Ok(Checkpoint { shards, tensors, files, folder: folder.into(), config, revision })
    }

    /// Every file that was opened, the index included.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The folder of the weights, where configs and a tokenizer are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The `config.json` beside the weights.
    pub fn config_path(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The commit of a Hugging Face snapshot, where the folder is one.
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// What the header of its only or first file says besides its tensors: safetensors' `__metadata__`.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.shards.first()?.metadata.get(key).map(String::as_str)
    }

    fn entry(&self, name: &str) -> Option<(&Shard, &Entry)> {
        let shard = &self.shards[*self.tensors.get(name)?];
        Some((shard, shard.tensors.get(name)?))
    }
}

impl WeightSource for Checkpoint {
    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.entry(name)?.1.fact.as_ref()
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let place = || self.place(name);
        let Some((shard, entry)) = self.entry(name) else {
            return Err(SourceError::Missing { tensor: name.into(), place: place() });
        };
        let (size, end) = (entry.end - entry.begin, offset.saturating_add(out.len() as u64));
        if end > size {
            return Err(SourceError::Range { tensor: name.into(), place: place(), offset, end, size });
        }
        let read = shard.read(entry.begin + offset, out);
        read.map_err(|source| SourceError::Io { tensor: name.into(), place: place(), source })
    }

    fn stretch(&self, name: &str) -> Option<(PathBuf, u64)> {
        let (shard, entry) = self.entry(name)?;
        Some((std::path::absolute(&shard.path).ok()?, entry.begin))
    }

    fn place(&self, name: &str) -> String {
        match (self.entry(name), &self.files[..]) {
            (Some((shard, _)), _) => shard.name.clone(),
            (None, [first, ..]) => file_name(first),
            (None, []) => String::new(),
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// A shard's name as a path that cannot leave the index's folder.
fn inside(shard: &str, index: &str) -> Result<PathBuf, CheckpointError> {
    let path = Path::new(shard);
    let mut parts = path.components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(_)), None) => Ok(path.into()),
        _ => Err(CheckpointError::Outside { index: index.into(), shard: shard.into() }),
    }
}

#[derive(Deserialize)]
struct RawIndex {
    weight_map: BTreeMap<String, String>,
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, CheckpointError> {
    let text =
        files::read(path, files::TEXT_MAX).map_err(|source| CheckpointError::Io { path: path.into(), source })?;
    // Read again for the places in messages, which a value has not.
    let index = json::read(&text).and_then(|_| serde_json::from_slice::<RawIndex>(&text));
    let index = index.map_err(|source| CheckpointError::Index { index: file_name(path), source })?;
    Ok(index.weight_map)
}

/// The snapshot of a Hugging Face repository folder that `refs/main` names, or its only one.
fn snapshot(repository: &Path) -> Result<PathBuf, CheckpointError> {
    let snapshots = repository.join("snapshots");
    if let Ok(main) = std::fs::read_to_string(repository.join("refs/main")) {
        let folder = snapshots.join(main.trim());
        if folder.is_dir() && !main.trim().contains(['/', '\\']) {
            return Ok(folder);
        }
    }
    let io = |source| CheckpointError::Io { path: snapshots.clone(), source };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&snapshots).map_err(io)? {
        found.push(entry.map_err(io)?.file_name().to_string_lossy().into_owned());
    }
    found.sort();
    match &found[..] {
        [one] => Ok(snapshots.join(one)),
        _ => Err(CheckpointError::Snapshots { path: repository.into(), found }),
    }
}

/// The commit that a snapshot folder is named after: `…/snapshots/<40 hexadecimal digits>`.
fn revision(folder: &Path) -> Option<String> {
    let folder = std::fs::canonicalize(folder).ok()?;
    let name = folder.file_name()?.to_str()?;
    let parent = folder.parent()?.file_name()?;
    (parent == "snapshots" && name.len() == 40 && name.bytes().all(|b| b.is_ascii_hexdigit())).then(|| name.into())
}
