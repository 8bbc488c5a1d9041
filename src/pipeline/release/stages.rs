//! The stages of one release, each from what is in the cache or, else, made and put there.

use super::cache::{Cache, Entry};
use super::error::StageError;
use super::source::{Job, Source};
use crate::bundle::compiled::Expectation;
use crate::bundle::{FileDigest, Format, Tree, path_like};
use crate::digest::Digest;
use crate::emit::coreai::Bridge;
use crate::files;
use crate::pipeline::compile::COMPILE_LIMIT;
use crate::pipeline::told::name_of;
use crate::pipeline::{
    CompileOptions, CoreAiTarget, Destination, Progress, StripOptions, Writer, compile, encoder, laya, reader, strip,
};
use crate::recipe::{Compile, Recipe};
use crate::toolchain::{COREAI_CORE, Found, Interrupt, Search, Tool, version};
use serde::Serialize;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Most path-like strings that are told.
const PATHS: usize = 20;

/// What a stage took.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// `source`, `author`, `strip`, `compile`, `gate`, `publish` or `kit`.
    pub stage: &'static str,
    /// The bundle it was for, where it was for one.
    pub artefact: Option<String>,
    /// Whether what it makes was there already.
    pub reused: bool,
    /// Wall time.
    pub seconds: f64,
}

/// What every stage of a release needs.
pub struct Stages<'a> {
    pub recipe: &'a Recipe,
    pub source: &'a Source,
    pub cache: &'a Cache,
    /// Digest of this program: another may make other things of the same.
    pub program: Digest,
    pub bridge: Option<&'a Bridge>,
    pub search: &'a Search,
    pub interrupt: &'a Interrupt,
    pub progress: &'a dyn Progress,
    /// What each stage took so far.
    pub reports: RefCell<Vec<StageReport>>,
}

/// A bundle that a stage made.
pub struct Bundle {
    /// Folder name.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// Where it is.
    pub path: PathBuf,
    /// Its files.
    pub tree: Tree,
    /// The record that its stage wrote of it.
    pub record: Value,
}

/// What a stage that makes bundles tells: their names, for [`Bundle::all`].
fn names<'p>(paths: impl Iterator<Item = &'p Path>) -> Value {
    json!(paths.map(name_of).collect::<Vec<_>>())
}

impl Bundle {
    /// The bundles that an entry's stage told of.
    fn all(entry: &Entry) -> Result<Vec<Bundle>, StageError> {
        let names: Vec<String> = serde_json::from_value(entry.told.clone())?;
        names.iter().map(|name| Bundle::of(entry, name)).collect()
    }

    /// The bundle `name` of an entry, and its record beside it.
    fn of(entry: &Entry, name: &str) -> Result<Bundle, StageError> {
        let path = entry.folder.join(name);
        let record = entry.folder.join(format!("{name}.record.json"));
        let io = |source| StageError::Io { path: PathBuf::from(record.file_name().unwrap_or_default()), source };
        let record = serde_json::from_slice(&files::read(&record, files::TEXT_MAX).map_err(io)?)?;
        let format = Format::of(Path::new(name)).unwrap_or(Format::MlPackage);
        // The entry's files were hashed just now.
        let prefix = format!("{name}/");
        let inside = |file: &FileDigest| {
            let path = file.path.strip_prefix(&prefix)?.to_string();
            Some(FileDigest { path, ..file.clone() })
        };
        let tree = Tree { files: entry.tree.files.iter().filter_map(inside).collect() };
        Ok(Bundle { name: name.into(), format, path, tree, record })
    }
}

/// A bundle as it ships, and the one it was before its debug locations were taken out.
pub struct Stripped {
    /// As it ships.
    pub bundle: Bundle,
    /// Digest root as it was authored.
    pub before: Digest,
    /// The record of the strip, where there was one.
    pub record: Option<Value>,
}

impl Stages<'_> {
    /// Runs a stage and notes what it took.
    pub fn timed<T>(
        &self,
        stage: &'static str,
        artefact: Option<&str>,
        run: impl FnOnce() -> Result<(T, bool), StageError>,
    ) -> Result<T, StageError> {
        if self.progress.stopped() {
            return Err(StageError::Interrupted);
        }
        let started = Instant::now();
        let (made, reused) = run()?;
        let seconds = started.elapsed().as_secs_f64();
        tracing::info!(
            "{}: {stage} {}{}",
            self.recipe.name,
            artefact.unwrap_or(""),
            if reused { " reused" } else { "" }
        );
        let report = StageReport { stage, artefact: artefact.map(str::to_string), reused, seconds };
        self.reports.borrow_mut().push(report);
        Ok(made)
    }

    /// Authors and emits every bundle of every format.
    pub fn author(&self) -> Result<Vec<Bundle>, StageError> {
        self.timed("author", None, || {
            let writers =
                self.recipe.formats.iter().map(|format| self.writer(*format)).collect::<Result<Vec<_>, _>>()?;
            let serializer = self.recipe.formats.contains(&Format::AiModel).then_some(COREAI_CORE);
            let key = json!({ "program": self.program, "serializer": serializer, "job": self.source.key(self.recipe) });
            let entry = self.cache.entry("author", &key, |folder| {
                let to = Destination {
                    folder: folder.into(),
                    force: false,
                    dry_run: false,
                    writers,
                    left_out: None,
                    emit_mlir: false,
                };
                let made = match &self.source.job {
                    Job::Encoder(options) => encoder(options, &to, self.progress),
                    Job::Reader(options) => reader(options, &to, self.progress),
                    Job::Laya { options, .. } => laya(options, &to, self.progress),
                };
                self.unchanged(&made?)
            })?;
            Ok((Bundle::all(&entry)?, entry.reused))
        })
    }

    fn writer(&self, format: Format) -> Result<Writer, StageError> {
        match (format, self.bridge) {
            (Format::AiModel, Some(bridge)) => Ok(Writer::AiModel(bridge.clone())),
            (Format::AiModel, None) => Err(StageError::NoSerializer),
            (Format::MlPackage | Format::MlModelC | Format::AiModelC, _) => Ok(Writer::MlPackage),
        }
    }

    /// Names of what was made, if it was made of the files that were held against the recipe.
    fn unchanged(&self, made: &[crate::pipeline::Converted]) -> Result<Value, StageError> {
        // By what was hashed beside the job, and by whether a file was written to meanwhile, if only for a moment.
        if let Some(file) = self.source.changed() {
            return Err(StageError::SourceChanged { file });
        }
        for converted in made {
            let read = converted.record.iter().flat_map(|record| &record.source.files);
            for (read, hashed) in read.zip(&self.source.files.files) {
                if read.sha256 != hashed.sha256 {
                    return Err(StageError::SourceChanged { file: read.name.clone() });
                }
            }
        }
        Ok(names(made.iter().map(|converted| converted.path.as_path())))
    }

    /// Takes the debug locations out of a bundle, and proves that no path is left in it.
    pub fn strip(&self, bundle: Bundle) -> Result<Stripped, StageError> {
        let name = bundle.name.clone();
        self.timed("strip", Some(&name), || {
            let before = bundle.tree.root();
            let key = json!({ "program": self.program, "format": bundle.format, "root": before });
            match (bundle.format, self.bridge) {
                (Format::AiModel, Some(bridge)) => {
                    let entry = self.cache.entry("strip", &key, |folder| {
                        let options =
                            StripOptions { model: bundle.path.clone(), folder: Some(folder.into()), force: false };
                        strip(&options, bridge, self.progress)?;
                        Ok::<_, StageError>(Value::Null)
                    })?;
                    let stripped = Bundle::of(&entry, &name)?;
                    let record = Some(stripped.record.clone());
                    let bundle = Bundle { record: bundle.record.clone(), ..stripped };
                    Ok((Stripped { bundle, before, record }, entry.reused))
                }
                // This program writes no debug locations into a package; that there are none is looked at.
                (Format::AiModel | Format::MlPackage | Format::MlModelC | Format::AiModelC, _) => {
                    let entry = self.cache.entry("scan", &key, |_| match paths(&bundle)? {
                        found if found.is_empty() => Ok(Value::Null),
                        found => Err(StageError::Paths { artefact: name.clone(), found }),
                    })?;
                    Ok((Stripped { bundle, before, record: None }, entry.reused))
                }
            }
        })
    }

    /// Compiles an `.aimodel` for each architecture the recipe names; none where the compiler is not here.
    pub fn compile(&self, model: &Bundle) -> Result<Option<Vec<Bundle>>, StageError> {
        if model.format != Format::AiModel || self.recipe.compile.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let Ok(tool) = self.search.find(Tool::CoreAiBuild) else { return Ok(None) };
        let mut made = Vec::new();
        for target in &self.recipe.compile {
            made.extend(self.timed("compile", Some(&model.name), || self.compiled(model, target, &tool))?);
        }
        Ok(Some(made))
    }

    fn compiled(&self, model: &Bundle, target: &Compile, tool: &Found) -> Result<(Vec<Bundle>, bool), StageError> {
        let expect: Option<&Expectation> = target.regions.as_ref();
        let key = json!({
            "program": self.program,
            "root": model.tree.root(),
            "platform": target.platform,
            "architectures": target.architectures,
            "prefer": target.prefer,
            "regions": expect,
            "version": version(tool, self.interrupt),
            "tool": Digest::of_file(&tool.path).ok().map(|(sha256, _)| sha256),
        });
        let entry = self.cache.entry("compile", &key, |folder| {
            let options = CompileOptions {
                model: model.path.clone(),
                out: Some(folder.into()),
                target: Some(CoreAiTarget {
                    platform: target.platform,
                    architectures: target.architectures.clone(),
                    prefer: target.prefer,
                    expect: expect.cloned(),
                }),
                timeout: COMPILE_LIMIT,
                force: false,
            };
            let made = compile(&options, self.search, self.interrupt, self.progress)?;
            Ok::<_, StageError>(names(made.iter().map(|compiled| compiled.path.as_path())))
        })?;
        Ok((Bundle::all(&entry)?, entry.reused))
    }
}

/// Path-like strings of a bundle's files.
fn paths(bundle: &Bundle) -> Result<Vec<String>, StageError> {
    let mut found = Vec::new();
    for file in &bundle.tree.files {
        let path = bundle.path.join(&file.path);
        let io = |source| StageError::Io { path: PathBuf::from(&file.path), source };
        found.extend(path_like(files::open(&path).map_err(io)?, PATHS).map_err(io)?);
    }
    Ok(found)
}
