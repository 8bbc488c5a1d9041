//! The gate of a release: every bundle that a machine without a device can run, by what the recipe names.

use super::error::StageError;
use super::stages::Stages;
use crate::bundle::{Format, Tree};
use crate::checkpoint::Checkpoint;
use crate::digest::Digest;
use crate::files;
use crate::models::laya::{Lengths, names};
use crate::models::windows::OVERLAP;
use crate::pipeline::gate::clip_files::by_name;
use crate::pipeline::laya::tokenizer_files;
use crate::pipeline::told::name_of;
use crate::pipeline::{GateOptions, Gated, OtherArtefact, gate};
use crate::provenance::release::{Evidence, Gate, GateCheck, Judged, Outcome, Parent};
use crate::recipe::{self, Model};
use crate::tensor::WeightSource;
use crate::toolchain::COREAI_CORE;
use serde_json::json;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A bundle to be judged, in a folder that has its record.
pub struct Subject<'a> {
    /// Folder name.
    pub name: &'a str,
    /// Its format.
    pub format: Format,
    /// Where it is.
    pub path: &'a Path,
    /// Digest of its bytes.
    pub root: Digest,
    /// The body, where it is the front of an encoder.
    pub body: Option<(&'a Path, Digest)>,
    /// Tokens it takes, where it is one of several decision models.
    pub length: Option<usize>,
}

impl Stages<'_> {
    /// Judges a bundle. Gives what was found, and the call that judges it so.
    pub fn gate(&self, subject: &Subject<'_>) -> Result<(Gate, Vec<String>), StageError> {
        let spec = match self.evidence(subject) {
            Ok(spec) => spec,
            Err(reason) => return Ok((Gate::not_run(reason), Vec::new())),
        };
        let spec = spec.as_ref();
        let gate = self.timed("gate", Some(subject.name), || {
            let key = json!({
                "program": self.program,
                "serializer": (subject.format == Format::AiModel).then_some(COREAI_CORE),
                "name": subject.name,
                "root": subject.root,
                "body": subject.body.map(|(_, root)| root),
                "source": self.source.files,
                "files": digests(spec)?,
                "tokenizer": self.tokenizer(),
                "repeats": spec.repeats,
                "limits": spec.limits,
            });
            let entry = self.cache.entry("gate", &key, |_| {
                let gated = gate(&self.options(subject, spec), self.interrupt)?;
                Ok::<_, StageError>(serde_json::to_value(judged(&gated)?)?)
            })?;
            let judged: Judged = serde_json::from_value(entry.told)?;
            let outcome = Gate::outcome_of(&judged.checks);
            let reason = (outcome == Outcome::NotRun).then(|| "none of its checks could be run".to_string());
            Ok((Gate { outcome, reason, judged: Some(judged) }, entry.reused))
        })?;
        Ok((gate, self.gate_argv(subject, spec)))
    }

    /// What the bundle is to be judged by, or why it is not.
    fn evidence(&self, subject: &Subject<'_>) -> Result<Cow<'_, recipe::Gate>, String> {
        let spec = self.recipe.gate.as_ref().ok_or("the recipe has no gate")?;
        match subject.format {
            Format::AiModelC | Format::MlModelC => return Err("a compiled bundle runs on a device alone".into()),
            Format::AiModel | Format::MlPackage => {}
        }
        if !spec.formats.contains(&subject.format) {
            let judged: Vec<&str> = spec.formats.iter().map(|format| format.ending()).collect();
            return Err(format!("the recipe has {} judged alone", judged.join(" and ")));
        }
        if spec.goldens.is_empty() && spec.audio.is_empty() && spec.questions.is_empty() {
            return Err("the recipe names nothing to judge by".into());
        }
        let split = matches!(self.recipe.model, Model::Encoder { split_after: Some(_), .. });
        if split && subject.body.is_none() {
            return Err("a body is judged with its front".into());
        }
        if let Some(missing) = named(spec).find(|path| !path.exists()) {
            return Err(format!("{} is not there", name_of(missing)));
        }
        let spec = match (&self.recipe.model, subject.length) {
            (Model::Laya { lengths }, Some(length)) => Cow::Owned(of_length(spec, length, lengths)),
            _ => Cow::Borrowed(spec),
        };
        if spec.goldens.is_empty() && spec.audio.is_empty() && spec.questions.is_empty() {
            return Err("the recipe names no golden of its length".into());
        }
        Ok(spec)
    }

    /// Digests of the tokenizer's files, where the bundle is judged with its host.
    fn tokenizer(&self) -> Vec<(String, Digest)> {
        // One that cannot be read is told of by the gate.
        let files = self.source.job.host().and_then(|folder| tokenizer_files(folder).ok()).unwrap_or_default();
        files.into_iter().map(|file| (file.name, file.sha256)).collect()
    }

    fn options(&self, subject: &Subject<'_>, spec: &recipe::Gate) -> GateOptions {
        GateOptions {
            artefact: subject.path.into(),
            body: subject.body.map(|(path, _)| path.into()),
            goldens: spec.goldens.clone(),
            questions: spec.questions.clone(),
            checkpoint: self.source.job.host().map(Path::to_path_buf),
            config: self.source.job.host().and(self.recipe.source.config.clone()),
            function: None,
            words: spec.words.clone(),
            transcripts: spec.transcripts.clone(),
            truth: spec.wer.clone(),
            reader: spec.reader.clone(),
            encoder: spec.encoder.clone(),
            audio: spec.audio.clone(),
            overlap: OVERLAP,
            repeats: spec.repeats,
            limits: spec.limits,
        }
    }

    /// The call that judges the bundle so.
    fn gate_argv(&self, subject: &Subject<'_>, spec: &recipe::Gate) -> Vec<String> {
        let mut argv = vec!["eg2-convert".to_string(), "gate".into(), subject.name.into()];
        let body = subject.body.map(|(path, _)| path);
        let named = [
            ("--body", body),
            ("--words", spec.words.as_deref()),
            ("--transcripts", spec.transcripts.as_deref()),
            ("--wer", spec.wer.as_deref()),
            ("--reader", spec.reader.as_deref()),
            ("--encoder", spec.encoder.as_deref()),
            ("--checkpoint", self.source.job.host()),
            ("--config", self.source.job.host().and(self.recipe.source.config.as_deref())),
        ];
        let several = [("--golden", &spec.goldens), ("--audio", &spec.audio), ("--questions", &spec.questions)];
        let several =
            several.into_iter().flat_map(|(option, paths)| paths.iter().map(move |path| (option, path.as_path())));
        for (option, path) in several.chain(named.into_iter().filter_map(|(option, path)| Some((option, path?)))) {
            argv.extend([option.to_string(), name_of(path)]);
        }
        argv.extend(["--repeats".to_string(), spec.repeats.to_string()]);
        let recipe::LimitOverrides {
            cosine_mean,
            cosine_min,
            margin,
            flips_percent,
            transcripts_percent,
            wer_points,
            probability,
        } = spec.limits;
        for (option, value) in [
            ("--cosine-mean", cosine_mean),
            ("--cosine-min", cosine_min),
            ("--margin", margin),
            ("--flips", flips_percent),
            ("--transcripts-equal", transcripts_percent),
            ("--wer-points", wer_points),
            ("--probability", probability),
        ] {
            if let Some(value) = value {
                argv.extend([option.to_string(), value.to_string()]);
            }
        }
        argv
    }
}

/// What one of several decision models is judged by: not by the goldens of another's length. One that is of none of the
/// `lengths`, or that cannot be read, is left for the gate to tell of.
fn of_length(spec: &recipe::Gate, length: usize, lengths: &Lengths) -> recipe::Gate {
    let mut spec = spec.clone();
    let Ok(files) = by_name(&spec.goldens, "safetensors") else { return spec };
    let other = |path: &PathBuf| {
        let file = Checkpoint::open_file(path).ok()?;
        let found = *file.fact(names::EMBEDDINGS)?.shape.dims().last()?;
        (found != length && lengths.iter().any(|other| other.get() == found)).then_some(())
    };
    spec.goldens = files.into_values().filter(|path| other(path).is_none()).collect();
    spec
}

/// Every file and folder that a gate reads.
fn named(spec: &recipe::Gate) -> impl Iterator<Item = &PathBuf> {
    let single = [&spec.words, &spec.transcripts, &spec.wer, &spec.reader, &spec.encoder];
    spec.goldens.iter().chain(&spec.audio).chain(&spec.questions).chain(single.into_iter().flatten())
}

/// Name and digest of all that a gate reads.
fn digests(spec: &recipe::Gate) -> Result<Vec<(String, Digest)>, StageError> {
    let clips = by_name(&spec.goldens, "safetensors")?.into_values().chain(by_name(&spec.audio, "wav")?.into_values());
    let texts = [&spec.words, &spec.transcripts, &spec.wer].into_iter().flatten().chain(&spec.questions).cloned();
    let mut found = Vec::new();
    for path in clips.chain(texts) {
        // A folder is none, though the system opens it.
        let hashed = files::open(&path).and_then(Digest::of_reader);
        let (sha256, _) = hashed.map_err(|source| StageError::GateFile { path: path.clone(), source })?;
        found.push((name_of(&path), sha256));
    }
    for path in [&spec.reader, &spec.encoder].into_iter().flatten() {
        let tree = Tree::of(path).map_err(|source| StageError::GateArtefact { path: path.clone(), source })?;
        found.push((name_of(path), tree.root()));
    }
    Ok(found)
}

fn parent(other: &OtherArtefact) -> Parent {
    Parent { name: other.artefact.clone(), digest_root: other.digest_root }
}

/// What was found, for the record.
fn judged(gated: &Gated) -> Result<Judged, serde_json::Error> {
    let evidence = gated.evidence.iter().map(|file| {
        let kind = serde_json::to_value(file.kind)?;
        let kind = kind.as_str().unwrap_or_default().to_string();
        Ok(Evidence { kind, name: file.name.clone(), sha256: file.sha256 })
    });
    Ok(Judged {
        digest_root: gated.digest_root,
        runtime: gated.runtime.into(),
        precision: gated.precision.name().into(),
        limits: serde_json::to_value(gated.report.limits)?,
        body: gated.body.as_ref().map(parent),
        together: gated.other.as_ref().map(parent),
        evidence: evidence.collect::<Result<_, serde_json::Error>>()?,
        checks: gated.report.checks.iter().map(GateCheck::from).collect(),
    })
}
