//! An `.aimodel` without its debug locations, which name source files by absolute path. That nothing else changed is
//! proven by reading both: the listing of Apple's reader, and every blob of weights.

use super::{Progress, Unit, told};
use crate::bundle::aimodel::{HASH, PROGRAM};
use crate::bundle::bytecode::{Bytecode, BytecodeError};
use crate::bundle::{
    self, AiModel, AiModelError, Expected, Format, HashCheck, Leaks, Outcome, PublishError, Replace, Stage,
    StoredError, Tree, TreeError, blobs, check_stored, leaks, path_like, people, words_in,
};
use crate::digest::Digest;
use crate::emit::coreai::{Bridge, BridgeError, Listed};
use crate::files::FolderLock;
use crate::provenance::{Artefact, Check, RECORD_VERSION, Record, SourceFile, SourceRecord, Tool, needs_a_device};
use serde::Serialize;
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Most path-like strings that are told.
const LEAKS: usize = 50;

/// What to strip, and where the result goes.
#[derive(Clone, Debug)]
pub struct StripOptions {
    /// The `.aimodel`.
    pub model: PathBuf,
    /// The folder that takes the stripped one under the same name; none to put it in the model's place.
    pub folder: Option<PathBuf>,
    /// Replace another bundle of that name.
    pub force: bool,
}

/// A bundle as far as stripping concerns it.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Digest of the sorted lines `sha256  path`.
    pub digest_root: Digest,
    /// Bytes of its program.
    pub program_bytes: u64,
    /// What was counted in it.
    #[serde(flatten)]
    pub listed: Listed,
    /// Path-like strings in it, and names of people that the ones in the bundle before tell.
    pub leaks: Leaks,
}

/// What stripping did.
#[derive(Debug, Serialize)]
pub struct Stripped {
    /// The bundle.
    #[serde(rename = "artefact", serialize_with = "told::shown")]
    pub path: PathBuf,
    /// `published` or `unchanged`.
    pub outcome: &'static str,
    /// The bundle as it was.
    pub before: Look,
    /// The bundle as it is.
    pub after: Look,
    /// Blobs that are the same in both.
    pub blobs: usize,
    /// What was written of it.
    pub record: Record,
}

/// Why a bundle was not stripped.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StripError {
    #[error("{} is a compiled bundle, which cannot be stripped; strip the .aimodel it was compiled from", path.display())]
    Compiled { path: PathBuf },
    #[error("{} is no .aimodel", path.display())]
    Other { path: PathBuf },
    #[error(transparent)]
    AiModel(#[from] AiModelError),
    #[error("main.hash of {} is wrong: {found}; the bundle was damaged or changed after it was made", path.display())]
    Hash { path: PathBuf, found: HashCheck },
    #[error("the stripped bundle would take the place of {} itself; --in-place does that", path.display())]
    Itself { path: PathBuf },
    #[error(transparent)]
    Bytecode(#[from] BytecodeError),
    #[error(transparent)]
    Bridge(#[from] BridgeError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("{what} could not be read or written")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("stripping changed the weights")]
    Weights(#[source] StoredError),
    #[error("stripping changed line {line} of the program's listing: it was {before:?}, it is {after:?}")]
    Program { line: usize, before: String, after: String },
    #[error("{located} operations still say where they come from")]
    Located { located: u64 },
    #[error("{file} still has {found:?}: it is no debug location, and has to be changed where the model is made")]
    Left { file: String, found: Vec<String> },
    #[error("interrupted; nothing was published")]
    Interrupted,
    #[error("the record could not be written as JSON")]
    Record(#[from] serde_json::Error),
}

/// Writes the bundle without its debug locations and publishes it with a record.
///
/// # Errors
/// The bundle cannot be used, Apple's serializer is not there or fails, anything but locations would change, or a
/// path-like string is left; nothing is published then.
pub fn strip(options: &StripOptions, bridge: &Bridge, progress: &dyn Progress) -> Result<Stripped, StripError> {
    let stopped = |error| if progress.stopped() { StripError::Interrupted } else { error };
    let (source, sha256) = open(&options.model)?;
    let name = source.path.file_name().map(PathBuf::from).unwrap_or_default();
    let destination = match &options.folder {
        Some(folder) => folder.join(&name),
        None => source.path.clone(),
    };
    if options.folder.is_some() && destination.canonicalize().is_ok_and(|there| there == source.path) {
        return Err(StripError::Itself { path: source.path });
    }
    let stage = Stage::new(&destination, source.program_bytes.saturating_mul(2))?;
    let scratch = stage.workshop()?;
    progress.stage("reading", 0, Unit::Bytes);
    let before =
        Survey::of(&source.path, sha256, bridge, &scratch.join("before"), &BTreeSet::new()).map_err(stopped)?;
    let original = source.path.join(PROGRAM);
    let weights = blobs(&original, &Bytecode::open(&original)?).map_err(io(PROGRAM))?;
    progress.stage("stripping", 0, Unit::Bytes);
    copy_rest(&source.path, &before.tree, stage.path())?;
    let program = stage.path().join(PROGRAM);
    bridge.strip(&source.path, &program, &scratch).map_err(|error| stopped(error.into()))?;
    progress.stage("reading back", 0, Unit::Bytes);
    let written = weights.iter().map(|(name, (bytes, hash))| (name.as_str(), Expected::Hash(*bytes, *hash))).collect();
    let digest = check_stored(&program, &Bytecode::open(&program)?, &written).map_err(|error| match error {
        StoredError::Path { found } => StripError::Left { file: PROGRAM.into(), found: vec![found] },
        changed @ (StoredError::Io(_)
        | StoredError::Names { .. }
        | StoredError::Length { .. }
        | StoredError::NotFinite { .. }
        | StoredError::Values { .. }) => StripError::Weights(changed),
    })?;
    fs_err::write(stage.path().join(HASH), digest.bytes()).map_err(io(HASH))?;
    let after = Survey::of(stage.path(), digest, bridge, &scratch.join("after"), &people(&before.look.leaks.paths))
        .map_err(stopped)?;
    same_listing(&before.listing, &after.listing)?;
    if after.look.listed.located > 0 {
        return Err(StripError::Located { located: after.look.listed.located });
    }
    if let Some((file, found)) = after.paths.into_iter().find(|(_, found)| !found.is_empty()) {
        return Err(StripError::Left { file, found });
    }
    if progress.stopped() {
        return Err(StripError::Interrupted);
    }
    let record = record(&name, &source, &before, &after.look, &after.tree, weights.len())?;
    let _lock = destination.parent().map(FolderLock::of);
    // In place, the record of how the model was made stays; this one names the digest it had.
    let file_name = match options.folder {
        Some(_) => record.file_name(),
        None => format!("{}.strip.record.json", record.artefact.name),
    };
    let file = bundle::prepare_file(&stage.destination().with_file_name(file_name), &record.to_bytes()?)?;
    let replace = if options.force || options.folder.is_none() { Replace::Force } else { Replace::Never };
    let outcomes = bundle::commit(vec![(stage, &after.tree)], replace)?;
    file.persist().map_err(io("the record"))?;
    let outcome = match outcomes.first() {
        Some(Outcome::Unchanged) => "unchanged",
        Some(Outcome::Published) | None => "published",
    };
    Ok(Stripped { path: destination, outcome, before: before.look, after: after.look, blobs: weights.len(), record })
}

fn io(what: &'static str) -> impl Fn(io::Error) -> StripError {
    move |source| StripError::Io { what, source }
}

/// The model, whose hash has to be right: what is damaged must not be published as if it were whole.
fn open(path: &Path) -> Result<(AiModel, Digest), StripError> {
    match Format::of(path) {
        Some(Format::AiModel) => {}
        Some(Format::AiModelC | Format::MlModelC) => return Err(StripError::Compiled { path: path.into() }),
        Some(Format::MlPackage) | None => return Err(StripError::Other { path: path.into() }),
    }
    let model = AiModel::open(path)?;
    match model.hash {
        HashCheck::Verified { sha256, .. } => Ok((model, sha256)),
        found @ (HashCheck::Mismatch { .. } | HashCheck::Malformed { .. } | HashCheck::Absent) => {
            Err(StripError::Hash { path: path.into(), found })
        }
    }
}

/// All that is compared and told of a bundle.
struct Survey {
    look: Look,
    tree: Tree,
    listing: PathBuf,
    /// Path-like strings by file.
    paths: Vec<(String, Vec<String>)>,
}

impl Survey {
    /// `sha256` is its program's; `names` are those of people who are not to be named in it.
    fn of(
        path: &Path,
        sha256: Digest,
        bridge: &Bridge,
        scratch: &Path,
        names: &BTreeSet<String>,
    ) -> Result<Survey, StripError> {
        let program = path.join(PROGRAM);
        let bytecode = Bytecode::open(&program)?;
        let listing = scratch.join("listing");
        let listed = bridge.listing(path, &listing, scratch)?;
        let tree = Tree::with(path, &BTreeMap::from([(program.clone(), (sha256, bytecode.bytes))]))?;
        let (mut all, mut paths) = (Leaks::default(), Vec::new());
        for file in &tree.files {
            let found = match file.path.as_str() {
                PROGRAM => leaks(&program, &bytecode, LEAKS, names),
                _ => leaks_of_file(&path.join(&file.path), names),
            };
            let found = found.map_err(io("the bundle"))?;
            paths.push((file.path.clone(), found.paths.clone()));
            all.add(found, LEAKS);
        }
        let look = Look { digest_root: tree.root(), program_bytes: bytecode.bytes, listed, leaks: all };
        Ok(Survey { look, tree, listing, paths })
    }
}

fn leaks_of_file(path: &Path, names: &BTreeSet<String>) -> std::io::Result<Leaks> {
    let open = || crate::files::open(path);
    Ok(Leaks { paths: path_like(open()?, LEAKS)?, names: words_in(open()?, names)? })
}

/// Copies what is neither program nor hash.
fn copy_rest(from: &Path, tree: &Tree, to: &Path) -> Result<(), StripError> {
    for file in tree.files.iter().filter(|file| file.path != PROGRAM && file.path != HASH) {
        let target = to.join(&file.path);
        if let Some(folder) = target.parent() {
            fs_err::create_dir_all(folder).map_err(io("the bundle"))?;
        }
        fs_err::copy(from.join(&file.path), target).map_err(io("the bundle"))?;
    }
    Ok(())
}

fn same_listing(before: &Path, after: &Path) -> Result<(), StripError> {
    use std::io::BufRead;
    let lines = |path: &Path| Ok(io::BufReader::new(fs_err::File::open(path)?).lines());
    let (mut before, mut after) =
        lines(before).and_then(|before| Ok((before, lines(after)?))).map_err(io("the listing"))?;
    let mut line = 0;
    loop {
        line += 1;
        let (old, new) = (before.next().transpose(), after.next().transpose());
        match (old.map_err(io("the listing"))?, new.map_err(io("the listing"))?) {
            (None, None) => return Ok(()),
            (old, new) if old == new => {}
            (old, new) => {
                let (before, after) = (old.unwrap_or_default(), new.unwrap_or_default());
                return Err(StripError::Program { line, before, after });
            }
        }
    }
}

fn record(
    name: &Path,
    source: &AiModel,
    before: &Survey,
    after: &Look,
    tree: &Tree,
    blobs: usize,
) -> Result<Record, serde_json::Error> {
    let file =
        |file: &bundle::FileDigest| SourceFile { name: file.path.clone(), sha256: file.sha256, bytes: file.size };
    // What was found may not travel on in the record of what was made clean of it.
    let look = |look: &Look| {
        json!({
            "digest_root": look.digest_root,
            "program_bytes": look.program_bytes,
            "operations": look.listed.operations,
            "located": look.listed.located,
            "path_like": look.leaks.paths.len(),
            "names": look.leaks.names.len(),
        })
    };
    let mut stages = Map::new();
    stages.insert("strip".into(), json!({ "before": look(&before.look), "after": look(after), "hash": source.hash }));
    Ok(Record {
        record_version: RECORD_VERSION,
        tool: Tool::this(),
        artefact: Artefact {
            name: name.to_string_lossy().into_owned(),
            format: Format::AiModel.ending(),
            digest_root: after.digest_root,
            files: tree.files.clone(),
        },
        source: SourceRecord {
            kind: "bundle",
            revision: None,
            seed: None,
            files: before.tree.files.iter().map(file).collect(),
        },
        options: json!({}),
        stages,
        checks: vec![
            Check { name: "unchanged", figures: json!({ "operations": after.listed.operations, "blobs": blobs }) },
            Check { name: "no_paths", figures: json!({ "files": tree.files.len() }) },
        ],
        not_run: needs_a_device(),
    })
}
