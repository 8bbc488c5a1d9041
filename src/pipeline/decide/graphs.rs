//! The artefacts that questions are answered with: one for each length, all made of the checkpoint that the host has.

use super::DecideError;
use crate::bundle::Tree;
use crate::digest::Digest;
use crate::eval::{self, HostTensor, Values};
use crate::models::laya::host::{Feature, Features, Prepared};
use crate::models::laya::{Length, Lengths, names};
use crate::pipeline::laya::made_of;
use crate::pipeline::model::Model;
use crate::pipeline::run::{Artefact, Callable, Functions, runtime_of};
use crate::pipeline::told::name_of;
use crate::provenance::{SourceRecord, StoredRecord};
use crate::toolchain::Interrupt;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Axis of the input that tells the length.
const TOKENS: usize = 3;

/// Which bytes answered.
#[derive(Clone, Debug, Serialize)]
pub struct GraphIdentity {
    /// Folder name.
    pub artefact: String,
    /// Digest over its files.
    pub digest_root: Digest,
    /// `reference` or `coreai`.
    pub runtime: &'static str,
    /// Whether its record says that it is these bytes, made of this checkpoint; false where it has none.
    pub of_record: bool,
}

/// An open artefact.
pub struct Opened {
    path: PathBuf,
    artefact: Artefact,
    pub identity: GraphIdentity,
}

impl Opened {
    /// Opens the artefact at `path`, unless its record is of other bytes or of another checkpoint than `source`.
    pub fn open(path: &Path, source: &SourceRecord, interrupt: &Interrupt) -> Result<Opened, DecideError> {
        let runtime = runtime_of(path, None)?;
        let digest_root = Tree::of(path)?.root();
        let record = StoredRecord::beside(path, digest_root)?;
        if let Some(record) = &record {
            made_of(path, record, source)?;
        }
        let artefact = Artefact::open(path, runtime, Functions::All, interrupt)?;
        let identity = GraphIdentity {
            artefact: name_of(path),
            digest_root,
            runtime: runtime.name(),
            of_record: record.is_some(),
        };
        Ok(Opened { path: path.into(), artefact, identity })
    }
}

/// Functions by length.
pub struct Graphs<'a>(BTreeMap<Length, Callable<'a>>);

impl<'a> Graphs<'a> {
    /// The functions of `opened`, for a model of so many `channels`.
    pub fn of(opened: &'a [Opened], channels: usize) -> Result<Graphs<'a>, DecideError> {
        let mut graphs = BTreeMap::new();
        for one in opened {
            let functions = one.artefact.functions(eval::Options::default())?;
            let model = Model::of(&one.path, &functions)?;
            if model != Model::Laya {
                return Err(DecideError::Model { path: one.path.clone(), found: model.name() });
            }
            for function in functions {
                let length = length(&one.path, &function, channels)?;
                if graphs.insert(length, function).is_some() {
                    return Err(DecideError::Twice { path: one.path.clone(), length: length.get() });
                }
            }
        }
        Ok(Graphs(graphs))
    }

    /// The lengths there are.
    pub fn lengths(&self) -> Result<Lengths, DecideError> {
        let lengths: Vec<usize> = self.0.keys().map(|length| length.get()).collect();
        Ok(Lengths::new(&lengths)?)
    }

    /// The graph's logits and cls for a question.
    pub fn run(&self, prepared: &Prepared) -> Result<[Vec<f32>; 2], DecideError> {
        let length = prepared.length;
        let function = self.0.get(&length).ok_or(DecideError::NoGraph { length: length.get() })?;
        let (outputs, _) = function.run.run(&tensors(&prepared.features)?)?;
        let output = |name: &'static str| {
            let values = outputs.get(name).and_then(|output| output.floats().map(<[f32]>::to_vec));
            values.ok_or(DecideError::Output { name })
        };
        Ok([output(names::LOGITS)?, output(names::CLS)?])
    }
}

/// The length of a function whose embeddings have that many channels.
fn length(path: &Path, function: &Callable<'_>, channels: usize) -> Result<Length, DecideError> {
    let embeddings = function.inputs.iter().find(|(name, _)| name == names::EMBEDDINGS).map(|(_, fact)| fact);
    let dims = embeddings.map(|fact| fact.shape.dims().to_vec()).unwrap_or_default();
    match dims.get(TOKENS).and_then(|tokens| Length::new(*tokens).ok()) {
        Some(length) if dims == [1, channels, 1, length.get()] => Ok(length),
        Some(_) | None => Err(DecideError::Shape { path: path.into(), found: dims, channels }),
    }
}

fn tensors(features: &Features) -> Result<BTreeMap<String, HostTensor>, DecideError> {
    let tensor = |feature: &Feature| {
        let made = HostTensor::new(feature.fact.clone(), Values::F32(feature.values.clone()));
        let name = feature.name;
        Ok((name.to_string(), made.map_err(|source| DecideError::Feature { name, source })?))
    };
    features.iter().map(tensor).collect()
}
