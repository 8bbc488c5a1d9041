//! One release put together from what its stages made: a folder of bundles, judged in place, with the record and the
//! texts that are made of it.

use super::cache::{Workroom, link};
use super::error::StageError;
use super::judge::Subject;
use super::stages::{Bundle, Stages, Stripped};
use crate::bundle::compiled::CompiledBundle;
use crate::bundle::{AiModel, Format, Outcome as Published, Replace, Stage, Tree, commit};
use crate::digest::Digest;
use crate::provenance::device::merge;
use crate::provenance::release::{
    CommandLine, Gate, Outcome, Parent, Program, RECIPE_FILE, RELEASE_FILE, RELEASE_VERSION, RegionCount, Regions,
    ReleaseRecord, Released, STATEMENT_FILE, SUMS_FILE, Status, Strip,
};
use crate::provenance::texts::{LICENSE_FILE, NOTICE_FILE, README_FILE, notice, readme, sums};
use crate::provenance::{NEEDS_A_DEVICE, Tool};
use crate::recipe::Model;
use crate::toolchain::Tool as External;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A bundle on its way into the release.
struct Part {
    bundle: Bundle,
    strip: Strip,
    /// The record of its strip, for the gate.
    stripped: Option<Value>,
    parent: Option<Parent>,
    regions: Regions,
}

impl Stages<'_> {
    /// Makes the release and publishes it as a folder of `out`.
    pub fn release(
        &self,
        out: &Path,
        room: &Workroom,
        force: bool,
    ) -> Result<(ReleaseRecord, &'static str), StageError> {
        let mut parts = Vec::new();
        for bundle in self.author()? {
            parts.extend(self.parts(bundle)?);
        }
        let destination = out.join(&self.recipe.name);
        let stage = Stage::within(&destination, room.path(), 0)?;
        let folder = &stage.path().to_path_buf();
        for part in &parts {
            link(&part.bundle.path, &part.bundle.tree, &folder.join(&part.bundle.name))?;
        }
        let gates = self.gates(&parts, folder)?;
        let mut record = self.record(parts, gates, folder)?;
        carry_over(&mut record, &destination);
        let outcome = self.timed("publish", None, || {
            // The bundles' files were hashed when they were taken from where they lay.
            let hashed = record.artefacts.iter().flat_map(|bundle| {
                let folder = folder.join(&bundle.name);
                bundle.files.iter().map(move |file| (folder.join(&file.path), (file.sha256, file.size)))
            });
            let judged = seal(folder, &record, &hashed.collect())?;
            // What was gated is what ships: the bytes that are renamed into place are hashed once more.
            let tree = Tree::of(folder)?;
            if let Some(other) = tree.files.iter().find(|file| !judged.files.contains(file)) {
                return Err(StageError::Changed { file: other.path.clone() });
            }
            let replace = if force { Replace::Force } else { Replace::Never };
            let outcome = commit(vec![(stage, &tree)], replace)?;
            let unchanged = outcome.first() == Some(&Published::Unchanged);
            Ok((if unchanged { "unchanged" } else { "published" }, unchanged))
        })?;
        Ok((record, outcome))
    }

    /// An authored bundle as it ships, and what is compiled from it.
    fn parts(&self, bundle: Bundle) -> Result<Vec<Part>, StageError> {
        let Stripped { bundle, before, record } = self.strip(bundle)?;
        let strip =
            Strip { outcome: Outcome::Pass, reason: None, before: Some(before), after: Some(bundle.tree.root()) };
        let compiled = self.compile(&bundle)?;
        let reason = match (&compiled, bundle.format) {
            (None, _) => format!("{} is not installed", External::CoreAiBuild.name()),
            (Some(made), _) if !made.is_empty() => "its compiled bundles have them".into(),
            (Some(_), Format::AiModel) => "the recipe compiles nothing".into(),
            (Some(_), _) => "Core ML places ops when it loads the model".into(),
        };
        let parent = Parent { name: bundle.name.clone(), digest_root: bundle.tree.root() };
        let regions = Regions { outcome: Outcome::NotRun, reason: Some(reason), architectures: BTreeMap::new() };
        let mut parts = vec![Part { bundle, strip, stripped: record, parent: None, regions }];
        for bundle in compiled.into_iter().flatten() {
            let reason = "a compiled bundle cannot be stripped; what it was compiled from was";
            let strip = Strip { outcome: Outcome::NotRun, reason: Some(reason.into()), before: None, after: None };
            let regions = Regions { outcome: Outcome::Pass, reason: None, architectures: counted(&bundle.record) };
            parts.push(Part { bundle, strip, stripped: None, parent: Some(parent.clone()), regions });
        }
        Ok(parts)
    }

    /// Judges every bundle where it lies, with its records beside it meanwhile.
    fn gates(&self, parts: &[Part], folder: &Path) -> Result<Vec<(Gate, Vec<String>)>, StageError> {
        let records: Vec<(String, &Value)> = parts
            .iter()
            .flat_map(|part| {
                let own = (format!("{}.record.json", part.bundle.name), &part.bundle.record);
                let strip =
                    part.stripped.as_ref().map(|record| (format!("{}.strip.record.json", part.bundle.name), record));
                [Some(own), strip].into_iter().flatten()
            })
            .collect();
        for (name, record) in &records {
            write(folder, name, &serde_json::to_vec(record)?)?;
        }
        let mut gates = Vec::new();
        for part in parts {
            let path = folder.join(&part.bundle.name);
            let body = self.body(part, parts).map(|body| (folder.join(&body.bundle.name), body.bundle.tree.root()));
            let subject = Subject {
                name: &part.bundle.name,
                format: part.bundle.format,
                path: &path,
                root: part.bundle.tree.root(),
                body: body.as_ref().map(|(path, root)| (path.as_path(), *root)),
                length: part.bundle.record["options"]["length"].as_u64().and_then(|n| usize::try_from(n).ok()),
            };
            gates.push(self.gate(&subject)?);
        }
        for (name, _) in &records {
            let path = folder.join(name);
            std::fs::remove_file(&path).map_err(|source| StageError::Io { path: PathBuf::from(name), source })?;
        }
        failed(parts, &gates)?;
        Ok(gates)
    }

    /// The body behind a front, in the same format.
    fn body<'p>(&self, front: &Part, parts: &'p [Part]) -> Option<&'p Part> {
        let Model::Encoder { split_after: Some(_), .. } = &self.recipe.model else { return None };
        let authored: Vec<&Part> =
            parts.iter().filter(|part| part.parent.is_none() && part.bundle.format == front.bundle.format).collect();
        match authored.as_slice() {
            // In the order they are authored in.
            [first, body] if first.bundle.name == front.bundle.name => Some(body),
            _ => None,
        }
    }

    fn record(
        &self,
        parts: Vec<Part>,
        gates: Vec<(Gate, Vec<String>)>,
        folder: &Path,
    ) -> Result<ReleaseRecord, StageError> {
        let (recipe, source) = (self.recipe, self.source);
        let mut commands = vec![ours("author", self.author_argv())];
        let mut artefacts = Vec::new();
        let mut judged = Vec::new();
        for (part, (gate, argv)) in parts.into_iter().zip(gates) {
            if part.stripped.is_some() {
                let argv = ["eg2-convert", "strip", &part.bundle.name, "--out", "."].map(String::from);
                commands.push(ours("strip", argv.into()));
            }
            commands.extend(compiler(&part.bundle.record));
            judged.extend((!argv.is_empty()).then(|| ours("gate", argv)));
            artefacts.push(released(part, gate));
        }
        commands.extend(judged);
        let tool = Tool::this();
        let mut record = ReleaseRecord {
            release_version: RELEASE_VERSION,
            name: recipe.name.clone(),
            synthetic: recipe.source.synthetic,
            pinned: source.pinned,
            tool: Program { name: tool.name.into(), version: tool.version.into() },
            model: recipe.model.name().into(),
            recipe_sha256: recipe.sha256,
            source: source.record.clone(),
            commands,
            artefacts,
            files: Vec::new(),
            not_run: Vec::new(),
            devices: Vec::new(),
        };
        record.not_run = record.left_out();
        write(folder, RECIPE_FILE, recipe.text.as_bytes())?;
        write(folder, LICENSE_FILE, &source.license)?;
        write(folder, NOTICE_FILE, notice(&record).as_bytes())?;
        write(folder, README_FILE, readme(&record).as_bytes())?;
        for name in [LICENSE_FILE, NOTICE_FILE, README_FILE, RECIPE_FILE] {
            let io = |source| StageError::Io { path: PathBuf::from(name), source };
            let (sha256, size) = Digest::of_file(&folder.join(name)).map_err(io)?;
            record.files.push(crate::bundle::FileDigest { path: name.into(), sha256, size });
        }
        Ok(record)
    }

    /// The call that authors the same bundles.
    fn author_argv(&self) -> Vec<String> {
        let recipe = self.recipe;
        let mut argv = vec!["eg2-convert".to_string(), recipe.model.name().into()];
        let mut option = |name: &str, value: String| argv.extend([name.to_string(), value]);
        match &recipe.model {
            Model::Encoder { buckets, split_after } => {
                option("--bucket", buckets.iter().map(|b| b.frames().to_string()).collect::<Vec<_>>().join(","));
                if let Some(after) = split_after {
                    option("--split-after", after.to_string());
                }
            }
            Model::Reader { tokens, release_name } => {
                option("--tokens", tokens.get().to_string());
                if let Some(name) = release_name {
                    option("--release-name", name.clone());
                }
            }
            Model::Laya { lengths } => {
                option("--length", lengths.iter().map(|l| l.get().to_string()).collect::<Vec<_>>().join(","));
            }
        }
        option("--precision", recipe.precision.name().into());
        option("--format", recipe.formats.iter().map(|f| f.ending()).collect::<Vec<_>>().join(","));
        if let Some(seed) = recipe.source.seed {
            option("--synthetic", seed.to_string());
        }
        argv
    }
}

/// The checks that failed end the release: what is published passed.
fn failed(parts: &[Part], gates: &[(Gate, Vec<String>)]) -> Result<(), StageError> {
    let mut failed = Vec::new();
    for (part, (gate, _)) in parts.iter().zip(gates) {
        let checks = gate.judged.iter().flat_map(|judged| &judged.checks);
        for check in checks.filter(|check| check.outcome == Outcome::Fail) {
            failed.push(format!("{}: {}: {}", part.bundle.name, check.name, check.says));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let gates: Vec<&Gate> = gates.iter().map(|(gate, _)| gate).collect();
    Err(StageError::Failed { failed, checks: serde_json::to_value(gates)? })
}

fn ours(stage: &str, argv: Vec<String>) -> CommandLine {
    CommandLine { stage: stage.into(), argv, version: Some(Tool::this().version.into()) }
}

/// The compiler's call, of a compiled bundle's own record.
fn compiler(record: &Value) -> Option<CommandLine> {
    let stage = &record["stages"]["compile"];
    let argv = serde_json::from_value(stage["argv"].clone()).ok()?;
    Some(CommandLine { stage: "compile".into(), argv, version: stage["version"].as_str().map(str::to_string) })
}

/// Regions as the compile stage counted and checked them.
fn counted(record: &Value) -> BTreeMap<String, RegionCount> {
    let checks = record["checks"].as_array().into_iter().flatten();
    let figures =
        checks.filter(|check| check["name"] == "ane_regions").filter_map(|check| check["figures"].as_object());
    let number = |value: &Value| value.as_u64().and_then(|n| usize::try_from(n).ok());
    figures
        .flatten()
        .filter_map(|(name, held)| {
            let count = RegionCount { found: number(&held["found"])?, expected: number(&held["expected"]) };
            Some((name.clone(), count))
        })
        .collect()
}

fn released(part: Part, gate: Gate) -> Released {
    let Part { bundle, strip, parent, regions, .. } = part;
    let mut made = bundle.record;
    if let Some(made) = made.as_object_mut() {
        // Told of the bundle as it ships, in fields of its own.
        made.remove("artefact");
    }
    let main_hash = match bundle.format {
        Format::AiModel => AiModel::open(&bundle.path).ok().and_then(|model| model.hash.declared()),
        Format::AiModelC => CompiledBundle::open(&bundle.path).ok().and_then(|compiled| compiled.hash.declared()),
        Format::MlPackage | Format::MlModelC => None,
    };
    Released {
        name: bundle.name,
        format: bundle.format,
        digest_root: bundle.tree.root(),
        main_hash,
        bytes: bundle.tree.size(),
        files: bundle.tree.files,
        compiled_from: parent,
        strip,
        regions,
        gate,
        loads_on_device: Status::not_run(NEEDS_A_DEVICE),
        placed_on_ane: Status::not_run(NEEDS_A_DEVICE),
        made,
    }
}

/// Takes along what devices found of the release at `destination`, if it is this very one: to make it again is then no
/// change. What belongs to another stays behind, with the release it was found of.
fn carry_over(record: &mut ReleaseRecord, destination: &Path) {
    let Ok(bytes) = crate::files::read(&destination.join(RELEASE_FILE), crate::files::TEXT_MAX) else { return };
    let Ok(there) = serde_json::from_slice::<ReleaseRecord>(&bytes) else { return };
    for device in there.devices {
        if let Err(error) = merge(record, device) {
            tracing::warn!("{}: a device record is not taken along: {error}", record.name);
        }
    }
}

/// Digests and sizes of files that need not be read again, by their full paths.
pub type Known = BTreeMap<PathBuf, (Digest, u64)>;

/// Puts the texts that are made of a record into its folder, and the digests of all that is there. Gives the files.
pub fn seal(folder: &Path, record: &ReleaseRecord, known: &Known) -> Result<Tree, StageError> {
    write(folder, RELEASE_FILE, &record.to_bytes()?)?;
    write(folder, STATEMENT_FILE, &record.statement()?)?;
    write(folder, README_FILE, readme(record).as_bytes())?;
    listed(folder, known)
}

/// Puts the digests of all files of a folder into it. Gives the files.
pub fn listed(folder: &Path, known: &Known) -> Result<Tree, StageError> {
    write(folder, SUMS_FILE, sums(&Tree::with(folder, known)?.files).as_bytes())?;
    Ok(Tree::with(folder, known)?)
}

pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), StageError> {
    let io = |source| StageError::Io { path: PathBuf::from(name), source };
    std::fs::write(folder.join(name), bytes).map_err(io)
}
