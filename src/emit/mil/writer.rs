//! The package: functions, description, manifest.

use super::blob::BlobWriter;
use super::function::{Package, write_function};
use super::names::is_legal;
use super::schema::{FunctionDescription, Model, ModelDescription, Program};
use super::{Description, MilError, MilReport};
use crate::digest::Digest;
use crate::ir::Materializer;
use crate::tensor::WeightSource;
use crate::validate::Checked;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// iOS 18 and macOS 15, the first whose opset is `CoreML8`.
const SPECIFICATION: i32 = 9;
/// The only version of the program message there is.
const PROGRAM: i64 = 1;
/// What the function of a model with one function is called.
const MAIN: &str = "main";
/// Blocks of weights are larger than this and go straight to the file; records and small constants are gathered.
const BUFFER: usize = 1 << 16;

/// Writes `functions` as one package into `package_dir`, an empty directory. The first is the default; a single one is
/// called `main`, several keep their graphs' names and share one weight file. Weights stream from `source`, so memory
/// does not grow with the model.
///
/// The bytes depend on the arguments alone.
///
/// # Errors
/// A graph asks for what an ML program cannot say, a weight cannot be made, or a file cannot be written.
pub fn write(
    functions: &[Checked<'_>],
    source: &dyn WeightSource,
    description: &Description,
    package_dir: &Path,
) -> Result<MilReport, MilError> {
    let names = function_names(functions)?;
    let paths = Paths::create(package_dir)?;
    let file = fs_err::File::create(&paths.weights).map_err(io_at(&paths.weights))?;
    let blobs = BlobWriter::new(BufWriter::with_capacity(BUFFER, file)).map_err(io_at(&paths.weights))?;
    let mut package = Package { blobs, weights: Materializer::new(source), report: empty_report(&names) };
    let mut program = Program { version: PROGRAM, functions: BTreeMap::new() };
    let mut described = Vec::new();
    for (name, checked) in names.iter().zip(functions) {
        let written = write_function(name, checked.graph(), description, &mut package)?;
        program.functions.insert(name.clone(), written.function);
        described.push(FunctionDescription { name: name.clone(), input: written.inputs, output: written.outputs });
    }
    let Package { blobs, mut report, .. } = package;
    report.blobs_stored = blobs.count();
    report.bytes_stored = blobs.stored;
    report.bytes_shared = blobs.shared;
    finish_weights(blobs, &paths)?;

    let model = Model {
        specification_version: SPECIFICATION,
        description: Some(model_description(described, description)),
        ml_program: Some(program),
    };
    let bytes = model.encode_to_vec();
    report.model = Digest::of(&bytes);
    fs_err::write(&paths.model, &bytes).map_err(io_at(&paths.model))?;

    let manifest = manifest(&report);
    report.manifest = Digest::of(manifest.as_bytes());
    fs_err::write(&paths.manifest, &manifest).map_err(io_at(&paths.manifest))?;
    Ok(report)
}

fn function_names(functions: &[Checked<'_>]) -> Result<Vec<String>, MilError> {
    match functions {
        [] => Err(MilError::NoFunction),
        [_] => Ok(vec![MAIN.into()]),
        several => {
            let mut seen = BTreeSet::new();
            for name in several.iter().map(|f| f.graph().name()) {
                if name != MAIN && !is_legal(name) {
                    return Err(MilError::IllegalName { what: "function", name: name.into() });
                }
                if !seen.insert(name) {
                    return Err(MilError::SameFunction { name: name.into() });
                }
            }
            Ok(several.iter().map(|f| f.graph().name().to_owned()).collect())
        }
    }
}

struct Paths {
    manifest: PathBuf,
    model: PathBuf,
    weights_dir: PathBuf,
    weights: PathBuf,
}

impl Paths {
    fn create(package_dir: &Path) -> Result<Paths, MilError> {
        let mut entries = fs_err::read_dir(package_dir).map_err(io_at(package_dir))?;
        if entries.next().is_some() {
            return Err(MilError::NotEmpty { path: package_dir.display().to_string() });
        }
        let data = package_dir.join("Data/com.apple.CoreML");
        let weights_dir = data.join("weights");
        fs_err::create_dir_all(&weights_dir).map_err(io_at(&weights_dir))?;
        let (manifest, model) = (package_dir.join("Manifest.json"), data.join("model.mlmodel"));
        Ok(Paths { manifest, model, weights: weights_dir.join("weight.bin"), weights_dir })
    }
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> MilError {
    let path = path.display().to_string();
    |source| MilError::Io { path, source }
}

/// Closes the weight file; without a blob there is none.
fn finish_weights(blobs: BlobWriter<BufWriter<fs_err::File>>, paths: &Paths) -> Result<(), MilError> {
    let empty = blobs.count() == 0;
    let (out, length) = blobs.finish().map_err(io_at(&paths.weights))?;
    out.get_ref().set_len(length).map_err(io_at(&paths.weights))?;
    drop(out);
    if empty {
        fs_err::remove_file(&paths.weights).map_err(io_at(&paths.weights))?;
        fs_err::remove_dir(&paths.weights_dir).map_err(io_at(&paths.weights_dir))?;
    }
    Ok(())
}

/// A model of one function describes its features at the top, one of several describes each function's.
fn model_description(mut functions: Vec<FunctionDescription>, description: &Description) -> ModelDescription {
    let metadata = Some(description.metadata());
    match functions.as_mut_slice() {
        [only] => ModelDescription {
            input: std::mem::take(&mut only.input),
            output: std::mem::take(&mut only.output),
            metadata,
            ..ModelDescription::default()
        },
        several => {
            let default_function_name = several.first().map(|f| f.name.clone()).unwrap_or_default();
            ModelDescription { functions, default_function_name, metadata, ..ModelDescription::default() }
        }
    }
}

fn empty_report(names: &[String]) -> MilReport {
    MilReport {
        functions: names.to_vec(),
        ops: BTreeMap::new(),
        immediates: 0,
        blobs: 0,
        blobs_stored: 0,
        bytes_stored: 0,
        bytes_shared: 0,
        model: Digest::of(b""),
        manifest: Digest::of(b""),
        values: BTreeMap::new(),
        nodes: Vec::new(),
    }
}

/// The manifest. Its identifiers come from the model and all values, so packages that differ in a weight alone have
/// different ones: a cache that goes by them cannot mix the two up.
fn manifest(report: &MilReport) -> String {
    let mut seed = report.model.bytes().to_vec();
    for digest in report.values.values() {
        seed.extend_from_slice(digest.bytes());
    }
    let item = |kind: &str, name: &str, path: &str| {
        let id = identifier(&[kind.as_bytes(), &seed].concat());
        let entry = serde_json::json!({
            "author": "com.apple.CoreML",
            "description": format!("CoreML Model {kind}"),
            "name": name,
            "path": format!("com.apple.CoreML/{path}"),
        });
        (id, entry)
    };
    let (root, model) = item("Specification", "model.mlmodel", "model.mlmodel");
    let mut items = BTreeMap::from([(root.clone(), model)]);
    if report.blobs_stored > 0 {
        items.extend([item("Weights", "weights", "weights")]);
    }
    let manifest = serde_json::json!({
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": items,
        "rootModelIdentifier": root,
    });
    indented(&manifest)
}

/// JSON indented by four, keys sorted: what Core ML's own package library writes. It rewrites the manifest of every
/// package it opens, so in any other form an artefact would change under the first tool that looks at it.
fn indented(value: &impl serde::Serialize) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    // Serializing JSON into memory cannot fail.
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter));
    String::from_utf8_lossy(&bytes).into_owned() + "\n"
}

/// The first 128 bits of a digest in the shape of a UUID.
fn identifier(content: &[u8]) -> String {
    let digest = Digest::of(content);
    digest.bytes()[..16].iter().enumerate().fold(String::new(), |mut id, (i, byte)| {
        let dash = if [4, 6, 8, 10].contains(&i) { "-" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(id, "{dash}{byte:02x}");
        id
    })
}
