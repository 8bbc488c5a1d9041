//! A release packed for a Mac: the release itself, what to try and on what, and the command that does it.

use super::cache::{CacheError, Workroom, link};
use super::compose::{Known, listed, seal, write};
use super::error::StageError;
use super::stages::Stages;
use crate::bundle::{FileDigest, Format, Outcome as Published, Replace, Stage, Tree, commit};
use crate::checkpoint::{Checkpoint, Named, Synthetic, write_safetensors};
use crate::digest::Digest;
use crate::eval::{HostTensor, Options, Values, fit};
use crate::gate::Limits;
use crate::pipeline::gate::clip_files::by_name;
use crate::pipeline::kit::plan::{
    FunctionPlan, INPUTS_FOLDER, KIT_FILE, KIT_VERSION, KitPlan, PROTOCOL, RELEASE_FOLDER, RUN_FILE, Shipped, Subject,
};
use crate::pipeline::run::{Artefact, Callable, Functions, read_tensor};
use crate::pipeline::{RunError, Runtime, told};
use crate::provenance::Tool;
use crate::provenance::device::before;
use crate::provenance::release::{Program, ReleaseRecord, Released};
use crate::provenance::texts::README_FILE;
use crate::recipe::Compile;
use crate::tensor::{DType, Fact, WeightSource};
use crate::toolchain::COREAI_CORE;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Most golden clips of a function that are put in: more would add time on the device and tell no more of it.
const CLIPS: usize = 4;

/// Seed of inputs where the recipe has no golden clip.
const SEED: u64 = 7;

/// What became of the kit of a release.
#[derive(Clone, Debug, Serialize)]
pub struct KitReport {
    /// Its folder; none where none was made.
    #[serde(serialize_with = "told::shown_if")]
    pub path: Option<PathBuf>,
    /// `published`, `unchanged` or `not_made`.
    pub outcome: &'static str,
    /// Why none was made.
    pub reason: Option<&'static str>,
}

impl Stages<'_> {
    /// Packs the release that is in `out` and publishes the kit beside it.
    pub fn kit(
        &self,
        record: &ReleaseRecord,
        out: &Path,
        room: &Workroom,
        force: bool,
    ) -> Result<KitReport, StageError> {
        if self.recipe.compile.is_empty() {
            let reason = Some("the recipe compiles nothing");
            return Ok(KitReport { path: None, outcome: "not_made", reason });
        }
        let from = out.join(&record.name);
        let destination = out.join(kit_name(&record.name));
        let stage = Stage::within(&destination, room.path(), 0)?;
        let folder = &stage.path().to_path_buf();
        let mut subjects = Vec::new();
        let authored = |bundle: &&Released| bundle.format == Format::AiModel && bundle.compiled_from.is_none();
        for bundle in record.artefacts.iter().filter(authored) {
            let functions = self.inputs(bundle, &from, &folder.join(INPUTS_FOLDER))?;
            subjects.extend(self.subjects(bundle, record, &functions));
        }
        let outcome = self.timed("kit", None, || {
            // As it was before anything was merged, so that what devices find does not make another kit of it.
            let base = before(record)?;
            let release = folder.join(RELEASE_FOLDER);
            let mut known = packed(&base, &from, &release)?;
            let sealed = seal(&release, &base, &known)?;
            known.extend(sealed.files.into_iter().map(|file| (release.join(file.path), (file.sha256, file.size))));
            let this = Tool::this();
            let plan = KitPlan {
                kit_version: KIT_VERSION,
                release: record.name.clone(),
                release_sha256: Digest::of(&base.to_bytes()?),
                tool: Program { name: this.name.into(), version: this.version.into() },
                protocol: PROTOCOL,
                subjects,
            };
            texts(&plan, folder)?;
            let tree = listed(folder, &known)?;
            let replace = if force { Replace::Force } else { Replace::Never };
            let outcome = commit(vec![(stage, &tree)], replace)?;
            let unchanged = outcome.first() == Some(&Published::Unchanged);
            Ok((if unchanged { "unchanged" } else { "published" }, unchanged))
        })?;
        Ok(KitReport { path: Some(destination), outcome, reason: None })
    }

    /// What is tried of one `.aimodel`: each architecture of the recipe.
    fn subjects(&self, bundle: &Released, record: &ReleaseRecord, functions: &[FunctionPlan]) -> Vec<Subject> {
        let overrides = self.recipe.gate.as_ref().map(|gate| gate.limits).unwrap_or_default();
        let limits = Limits::of(self.recipe.precision);
        // Limits without sense were refused when the recipe was read.
        let cosine_limit = limits.with(&overrides).unwrap_or(limits).cosine_mean;
        let one = |target: &Compile, architecture: &str| Subject {
            model: bundle.name.clone(),
            model_root: bundle.digest_root,
            shipped: shipped(bundle, record, architecture),
            platform: target.platform.name().into(),
            architecture: architecture.into(),
            prefer: target.prefer.name().into(),
            regions: target.regions.as_ref().and_then(|regions| regions.of(architecture)),
            cosine_limit,
            functions: functions.to_vec(),
        };
        let targets = &self.recipe.compile;
        targets.iter().flat_map(|target| target.architectures.iter().map(move |a| one(target, a.as_str()))).collect()
    }

    /// Files of inputs for each function of a bundle, put into `folder`.
    fn inputs(&self, bundle: &Released, from: &Path, folder: &Path) -> Result<Vec<FunctionPlan>, StageError> {
        self.timed("kit", Some(&bundle.name), || {
            let clips = self.clips()?;
            let mut digests = Vec::new();
            for path in clips.values() {
                let (sha256, _) =
                    Digest::of_file(path).map_err(|source| CacheError::Io { path: path.clone(), source })?;
                digests.push(sha256);
            }
            let key = json!({
                "program": self.program,
                "serializer": COREAI_CORE,
                "name": bundle.name,
                "root": bundle.digest_root,
                "clips": digests,
            });
            let entry = self.cache.entry("kit", &key, |made| {
                let artefact =
                    Artefact::open(&from.join(&bundle.name), Runtime::CoreAi, Functions::All, self.interrupt)?;
                let stem = bundle.name.trim_end_matches(".aimodel");
                let functions = artefact.functions(Options::default())?;
                let plans = functions.iter().map(|function| inputs_of(function, stem, &clips, made));
                let plans = plans.collect::<Result<Vec<_>, StageError>>()?;
                Ok::<Value, StageError>(serde_json::to_value(plans)?)
            })?;
            link(&entry.folder, &entry.tree, folder)?;
            Ok((serde_json::from_value(entry.told)?, entry.reused))
        })
    }

    /// The recipe's golden clips that are here.
    fn clips(&self) -> Result<BTreeMap<String, PathBuf>, StageError> {
        let goldens = self.recipe.gate.as_ref().map(|gate| gate.goldens.clone()).unwrap_or_default();
        let here: Vec<PathBuf> = goldens.into_iter().filter(|path| path.exists()).collect();
        Ok(by_name(&here, "safetensors")?)
    }
}

/// The folder of a release's kit.
pub fn kit_name(release: &str) -> String {
    format!("{release}.kit")
}

/// Puts all of a release into `to` but the texts that are made of its record. Gives what it put there, which publishing
/// has hashed just now.
fn packed(record: &ReleaseRecord, from: &Path, to: &Path) -> Result<Known, StageError> {
    let of_bundles = record.artefacts.iter().flat_map(|bundle| {
        let path = |file: &FileDigest| format!("{}/{}", bundle.name, file.path);
        bundle.files.iter().map(move |file| FileDigest { path: path(file), ..file.clone() })
    });
    let others = record.files.iter().filter(|file| file.path != README_FILE).cloned();
    let tree = Tree { files: of_bundles.chain(others).collect() };
    link(from, &tree, to)?;
    Ok(tree.files.into_iter().map(|file| (to.join(file.path), (file.sha256, file.size))).collect())
}

/// The bundle that the release itself has for that architecture.
fn shipped(model: &Released, record: &ReleaseRecord, architecture: &str) -> Option<Shipped> {
    let name = format!("{}.{architecture}.aimodelc", model.name.trim_end_matches(".aimodel"));
    let found = record.artefacts.iter().find(|bundle| {
        bundle.name == name && bundle.compiled_from.as_ref().is_some_and(|parent| parent.name == model.name)
    })?;
    Some(Shipped { name, digest_root: found.digest_root })
}

/// The inputs of the first clips that fit the function, else seeded ones.
fn inputs_of(
    function: &Callable<'_>,
    stem: &str,
    clips: &BTreeMap<String, PathBuf>,
    folder: &Path,
) -> Result<FunctionPlan, StageError> {
    let mut sets = Vec::new();
    for path in clips.values() {
        if sets.len() < CLIPS {
            sets.extend(clip(function, path)?);
        }
    }
    let random = sets.is_empty();
    if random {
        sets.push(
            function
                .inputs
                .iter()
                .map(|(name, fact)| Ok((name.clone(), seeded(name, fact)?)))
                .collect::<Result<_, StageError>>()?,
        );
    }
    let mut inputs = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        let file = format!("{stem}.{}.{number}.safetensors", function.name);
        save(function, set, &folder.join(&file))?;
        inputs.push(file);
    }
    Ok(FunctionPlan { name: function.name.clone(), inputs, random })
}

type Set = BTreeMap<String, HostTensor>;

/// A golden's inputs, where it has all of them in the function's shapes.
fn clip(function: &Callable<'_>, path: &Path) -> Result<Option<Set>, StageError> {
    let file = Checkpoint::open_file(path).map_err(RunError::from)?;
    let mut set = Set::new();
    for (name, fact) in &function.inputs {
        let same = |found: &&Fact| found.shape == fact.shape && found.dtype.is_float() == fact.dtype.is_float();
        if file.fact(name).filter(same).is_none() {
            return Ok(None);
        }
        set.extend(read_tensor(&file, name, path)?.map(|tensor| (name.clone(), tensor)));
    }
    Ok(Some(set))
}

/// Numbers of mean 0 and variance 1; ones for a mask, so that nothing is masked; zeros where integers are wanted, which
/// every table has a row for.
fn seeded(name: &str, fact: &Fact) -> Result<HostTensor, StageError> {
    let count = fact.shape.elements();
    let values = if fact.dtype == DType::I32 {
        Values::I32(vec![0; count])
    } else if name.ends_with("_mask") {
        Values::F32(vec![1.0; count])
    } else {
        let mut values = vec![0f32; count];
        // One column, for which the spread of synthetic weights is 1.
        let shape = Fact::new(DType::F32, [count, 1]);
        let source = Synthetic::new(SEED, BTreeMap::from([(name.to_string(), shape)]));
        let read = |source| RunError::Input { name: name.into(), path: PathBuf::from("seeded inputs"), source };
        source.read_f32(name, 0, &mut values).map_err(read)?;
        Values::F32(values)
    };
    let host = |source| RunError::Host { name: name.into(), path: PathBuf::from("seeded inputs"), source };
    Ok(HostTensor::new(fact.clone(), values).map_err(host)?)
}

/// Writes a set in the dtypes that the function declares.
fn save(function: &Callable<'_>, set: &Set, path: &Path) -> Result<(), StageError> {
    let declared: Vec<(&str, &Fact)> = function.inputs.iter().map(|(name, fact)| (name.as_str(), fact)).collect();
    let (fitted, _) = fit(&declared, set).map_err(RunError::from)?;
    let bytes: Vec<Vec<u8>> = fitted.iter().map(|tensor| tensor.to_bytes().0).collect();
    let named = declared.iter().zip(&bytes).map(|((name, fact), bytes)| Named { name, fact, bytes }).collect();
    let io = |source| StageError::Io { path: PathBuf::from(path.file_name().unwrap_or_default()), source };
    write_safetensors(named, std::fs::File::create(path).map_err(io)?).map_err(io)
}

/// The plan, the command and the text for people.
fn texts(plan: &KitPlan, folder: &Path) -> Result<(), StageError> {
    let mut json = serde_json::to_vec_pretty(plan)?;
    json.push(b'\n');
    write(folder, KIT_FILE, &json)?;
    write(folder, RUN_FILE, RUN.as_bytes())?;
    let run = folder.join(RUN_FILE);
    let io = |source| StageError::Io { path: PathBuf::from(RUN_FILE), source };
    std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o755)).map_err(io)?;
    write(folder, README_FILE, readme(plan).as_bytes())
}

const RUN: &str = r#"#!/bin/sh
# Tries the release in this folder on this Mac; see README.md. More arguments go to `eg2-convert kit run`.
here=$(cd "$(dirname "$0")" && pwd -P) || exit 2
tool=${EG2_CONVERT:-$(command -v eg2-convert)}
if [ -z "$tool" ]; then
    echo "eg2-convert is not on the PATH: in its sources run \`cargo install --path .\`, or set EG2_CONVERT to the program" >&2
    exit 5
fi
exec "$tool" kit run "$here" "$@"
"#;

fn readme(plan: &KitPlan) -> String {
    let mut text = format!(
        "# {0}, for a Mac\n\nOn a Mac with macOS 27, Xcode 27 with its Metal Toolchain, and `eg2-convert tools install` \
         done:\n\n    ./run.sh\n\ncompiles what is in `{RELEASE_FOLDER}` for the unit the recipe asks for and for the GPU, \
         loads both in turns, times them,\ncompares their outputs, and writes `{0}.device.json` beside this folder. Send \
         that file back;\n\n    eg2-convert verify {0} --merge {0}.device.json\n\ntakes it into the release. Close \
         other programs and plug the machine in meanwhile. A first load on the\nNeural Engine takes minutes. Bundles for \
         iOS are compiled and counted, and never loaded.\n\n",
        plan.release
    );
    text.push_str("| bundle | for | asks for | regions | inputs |\n| --- | --- | --- | --- | --- |\n");
    for subject in &plan.subjects {
        let regions = subject.regions.map_or_else(|| "not said".to_string(), |n| n.to_string());
        let random = subject.functions.iter().any(|function| function.random);
        let inputs = if random { "seeded random numbers" } else { "golden clips" };
        let (name, _) = subject.artefact();
        text.push_str(&format!(
            "| {name} | {} {} | {} | {regions} | {inputs} |\n",
            subject.platform, subject.architecture, subject.prefer
        ));
    }
    text
}
