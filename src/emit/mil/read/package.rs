//! A package on disk: manifest, model, weight file; and its constants as a [`WeightSource`].

use super::blob::{BlobFile, Record, WeightScan};
use super::constant::{Constant, Content, constants};
use super::description::{ModelDescription, model_description};
use super::error::{ReadError, Violation, WireError};
use super::program::{Function, functions};
use super::wire::Message;
use super::{check, lift};
use crate::files;
use crate::ir::Graph;
use crate::tensor::{Fact, SourceError, WeightSource};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Largest model message that is read; protobuf itself ends at 2 GiB, and ours stay below 2 MB.
const MODEL_MAX: u64 = 1 << 30;

/// An opened package.
#[derive(Debug)]
pub struct Package {
    model_path: PathBuf,
    manifest_path: PathBuf,
    pub(super) version: u64,
    pub(super) description: ModelDescription,
    pub(super) functions: Vec<Function>,
    pub(super) weights: Option<BlobFile>,
    pub(super) records: BTreeMap<u64, Record>,
    pub(super) constants: BTreeMap<String, Constant>,
    violations: Vec<Violation>,
}

impl Package {
    /// Opens the package in the directory `dir`. Its weights are not read.
    ///
    /// # Errors
    /// A file is missing, the manifest is none, or the model is no ML program. What is merely wrong is in
    /// [`violations`](Self::violations).
    pub fn open(dir: &Path) -> Result<Package, ReadError> {
        let manifest_path = dir.join("Manifest.json");
        let Items { model: model_path, weights } = Items::read(&manifest_path, &dir.join("Data"))?;
        let bytes = files::read(&model_path, MODEL_MAX).map_err(io_at(&model_path))?;
        let wire = |source| ReadError::Wire { path: model_path.display().to_string(), source };
        let Model { version, description, functions } = Model::read(&bytes).map_err(wire)?;
        let path = || model_path.display().to_string();
        let functions = functions.ok_or_else(|| ReadError::NotProgram { path: path(), version })?;
        let weights = match weights {
            Some(path) => Some(BlobFile::open(&path).map_err(io_at(&path))?),
            None => None,
        };
        let (records, mut violations) = weights.as_ref().map(BlobFile::records).unwrap_or_default();
        let several = functions.len() > 1;
        let mut by_name = BTreeMap::new();
        for constant in functions.iter().flat_map(constants) {
            let name = if several { format!("{}/{}", constant.function, constant.name) } else { constant.name.clone() };
            by_name.entry(name).or_insert(constant);
        }
        let mut package = Package {
            model_path,
            manifest_path,
            version,
            description,
            functions,
            weights,
            records,
            constants: by_name,
            violations: Vec::new(),
        };
        violations.extend(check::violations(&package));
        package.violations = violations;
        Ok(package)
    }

    /// Specification version of the model.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Features and metadata.
    pub fn description(&self) -> &ModelDescription {
        &self.description
    }

    /// The functions, sorted by name.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Name of the function that runs when none is asked for.
    pub fn default_function(&self) -> &str {
        match (&self.functions[..], self.description.default_function.as_str()) {
            ([only], _) => &only.name,
            (_, "") => "main",
            (_, named) => named,
        }
    }

    /// The function of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn function(&self, name: &str) -> Result<&Function, ReadError> {
        self.functions.iter().find(|f| f.name == name).ok_or_else(|| ReadError::NoFunction {
            name: name.into(),
            have: self.functions.iter().map(|f| f.name.clone()).collect(),
        })
    }

    /// All constants by the name they have as a weight: their own, after `function/` where there are several.
    pub fn constants(&self) -> &BTreeMap<String, Constant> {
        &self.constants
    }

    /// Records of the weight file by their offset.
    pub fn records(&self) -> &BTreeMap<u64, Record> {
        &self.records
    }

    /// How many operations of each type there are in all functions.
    pub fn census(&self) -> BTreeMap<String, usize> {
        let mut census = BTreeMap::new();
        for op in self.functions.iter().flat_map(|f| &f.operations) {
            *census.entry(op.kind.clone()).or_default() += 1;
        }
        census
    }

    /// What a loader lets pass and no package should have. Values in the weight file are looked at by
    /// [`scan`](Self::scan) only.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Path of the manifest.
    pub fn manifest_path(&self) -> &Path {
        &self.manifest_path
    }

    /// Path of the model.
    pub fn model_path(&self) -> &Path {
        &self.model_path
    }

    /// Path of the weight file, where there is one.
    pub fn weights_path(&self) -> Option<&Path> {
        self.weights.as_ref().map(BlobFile::path)
    }

    /// Bytes of the weight file; 0 where there is none.
    pub fn weights_size(&self) -> u64 {
        self.weights.as_ref().map_or(0, BlobFile::length)
    }

    /// Reads the weight file once: digests of it and of each blob, and blobs that hold what is not finite. `None`
    /// where there is no weight file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn scan(&self) -> Result<Option<WeightScan>, ReadError> {
        let Some(weights) = &self.weights else { return Ok(None) };
        weights.scan(&self.records).map(Some).map_err(io_at(weights.path()))
    }

    /// The function of that name as a graph. Its weights are tensors of this package.
    ///
    /// # Errors
    /// The weight file lacks one of its constants; or it has an operation that our graphs lack, or declares a value
    /// otherwise than its operands make it.
    pub fn lift(&self, function: &str) -> Result<Graph, ReadError> {
        let known = self.function(function)?;
        if let Some(fault) = self.lacking(function) {
            let path = self.weights_path().unwrap_or(&self.model_path).display().to_string();
            return Err(ReadError::Weights { path, fault: fault.clone() });
        }
        lift::lift(self, known)
    }

    /// Why the weight file lacks a constant of `function`, where it does: a fault of the file before its consequence.
    fn lacking(&self, function: &str) -> Option<&Violation> {
        let of = |v: &&Violation| matches!(v, Violation::NoRecord { function: of, .. } if of == function);
        let missing = self.violations.iter().find(of)?;
        let whole = |v: &&Violation| matches!(v, Violation::Record { .. } | Violation::File { .. });
        self.violations.iter().find(whole).or(Some(missing))
    }

    /// The name of a function's constant as a weight.
    pub(super) fn weight_name(&self, function: &str, name: &str) -> String {
        if self.functions.len() > 1 { format!("{function}/{name}") } else { name.into() }
    }
}

impl WeightSource for Package {
    fn names(&self) -> Vec<&str> {
        self.constants.iter().filter(|(_, c)| c.fact.is_some()).map(|(name, _)| name.as_str()).collect()
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.constants.get(name)?.fact.as_ref()
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let (tensor, place) = (|| name.to_owned(), || self.place(name));
        let missing = || SourceError::Missing { tensor: tensor(), place: place() };
        let constant = self.constants.get(name).ok_or_else(missing)?;
        let end = offset.saturating_add(out.len() as u64);
        let range = |size| SourceError::Range { tensor: tensor(), place: place(), offset, end, size };
        match &constant.content {
            Content::Immediate(bytes) => {
                let part = usize::try_from(offset).ok().and_then(|o| bytes.get(o..)?.get(..out.len()));
                out.copy_from_slice(part.ok_or_else(|| range(bytes.len() as u64))?);
                Ok(())
            }
            Content::Blob(record) => {
                let record = self.records.get(record).ok_or_else(missing)?;
                let weights = self.weights.as_ref().ok_or_else(missing)?;
                if end > record.size {
                    return Err(range(record.size));
                }
                let io = |source| SourceError::Io { tensor: tensor(), place: place(), source };
                weights.read_at(record.data + offset, out).map_err(io)
            }
            Content::Strings(_) | Content::Misfit(_) => Err(missing()),
        }
    }

    fn place(&self, name: &str) -> String {
        let in_file = matches!(self.constants.get(name), Some(Constant { content: Content::Blob(_), .. }));
        let path = if in_file { self.weights_path() } else { None };
        path.unwrap_or(&self.model_path).display().to_string()
    }
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> ReadError {
    let path = path.display().to_string();
    |source| ReadError::Io { path, source }
}

/// Where the manifest says the parts are.
struct Items {
    model: PathBuf,
    weights: Option<PathBuf>,
}

impl Items {
    fn read(manifest: &Path, data: &Path) -> Result<Items, ReadError> {
        let bytes = files::read(manifest, files::TEXT_MAX).map_err(io_at(manifest))?;
        let bad = |reason: String| ReadError::Manifest { path: manifest.display().to_string(), reason };
        let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
        let version = json["fileFormatVersion"].as_str().unwrap_or_default();
        if version != "1.0.0" {
            return Err(bad(format!("its version is {version:?}, expected \"1.0.0\"")));
        }
        let root = json["rootModelIdentifier"].as_str().ok_or_else(|| bad("it names no root model".into()))?;
        let items = json["itemInfoEntries"].as_object().ok_or_else(|| bad("it lists no items".into()))?;
        let path = |item: &serde_json::Value| {
            let path = item["path"].as_str().ok_or_else(|| bad("an item has no path".into()))?;
            let plain = Path::new(path).components().all(|c| matches!(c, std::path::Component::Normal(_)));
            if plain { Ok(data.join(path)) } else { Err(bad(format!("item path {path:?} leaves the package"))) }
        };
        let model = items.get(root).ok_or_else(|| bad(format!("root model {root:?} is not among its items")))?;
        let weights = items.values().find(|item| item["name"] == "weights" && item["author"] == "com.apple.CoreML");
        let weights = weights.map(path).transpose()?.map(|folder| folder.join("weight.bin"));
        // Some tools list an empty weight folder. A link to nowhere is none.
        Ok(Items { model: path(model)?, weights: weights.filter(|file| file.symlink_metadata().is_ok()) })
    }
}

/// The model message.
struct Model {
    version: u64,
    description: ModelDescription,
    functions: Option<Vec<Function>>,
}

impl Model {
    fn read(bytes: &[u8]) -> Result<Model, WireError> {
        let mut model = Model { version: 0, description: ModelDescription::default(), functions: None };
        let mut message = Message::file(bytes);
        while let Some(field) = message.next()? {
            match field.number {
                1 => model.version = field.number()?,
                2 => model.description = model_description(field.message()?)?,
                502 => model.functions = Some(functions(field.message()?)?),
                _ => {}
            }
        }
        Ok(model)
    }
}
