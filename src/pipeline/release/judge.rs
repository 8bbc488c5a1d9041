//! The gate of a release: every bundle that a machine without a device can run, by what the recipe names.

use super::error::StageError;
use super::stages::Stages;
use crate::bundle::{Format, Tree};
use crate::digest::Digest;
use crate::files;
use crate::models::windows::OVERLAP;
use crate::pipeline::gate::clip_files::by_name;
use crate::pipeline::told::name_of;
use crate::pipeline::{GateOptions, Gated, OtherArtefact, gate};
use crate::provenance::release::{Evidence, Gate, GateCheck, Judged, Outcome, Parent};
use crate::recipe::{self, Model};
use crate::toolchain::COREAI_CORE;
use serde_json::json;
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
}

impl Stages<'_> {
    /// Judges a bundle.
    pub fn gate(&self, subject: &Subject<'_>) -> Result<Gate, StageError> {
        let spec = match self.evidence(subject) {
            Ok(spec) => spec,
            Err(reason) => return Ok(Gate::not_run(reason)),
        };
        self.timed("gate", Some(subject.name), || {
            let key = json!({
                "program": self.program,
                "serializer": (subject.format == Format::AiModel).then_some(COREAI_CORE),
                "name": subject.name,
                "root": subject.root,
                "body": subject.body.map(|(_, root)| root),
                "source": self.source.files,
                "files": digests(spec)?,
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
        })
    }

    /// What the bundle is to be judged by, or why it is not.
    fn evidence(&self, subject: &Subject<'_>) -> Result<&recipe::Gate, String> {
        let spec = self.recipe.gate.as_ref().ok_or("the recipe has no gate")?;
        match subject.format {
            Format::AiModelC | Format::MlModelC => return Err("a compiled bundle runs on a device alone".into()),
            Format::AiModel | Format::MlPackage => {}
        }
        if !spec.formats.contains(&subject.format) {
            let judged: Vec<&str> = spec.formats.iter().map(|format| format.ending()).collect();
            return Err(format!("the recipe has {} judged alone", judged.join(" and ")));
        }
        if spec.goldens.is_empty() && spec.audio.is_empty() {
            return Err("the recipe names no golden and no recording".into());
        }
        let split = matches!(self.recipe.model, Model::Encoder { split_after: Some(_), .. });
        if split && subject.body.is_none() {
            return Err("a body is judged with its front".into());
        }
        match named(spec).find(|path| !path.exists()) {
            Some(missing) => Err(format!("{} is not there", name_of(missing))),
            None => Ok(spec),
        }
    }

    fn options(&self, subject: &Subject<'_>, spec: &recipe::Gate) -> GateOptions {
        GateOptions {
            artefact: subject.path.into(),
            body: subject.body.map(|(path, _)| path.into()),
            goldens: spec.goldens.clone(),
            questions: Vec::new(),
            checkpoint: None,
            config: None,
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
    pub fn gate_argv(&self, subject: &Subject<'_>) -> Vec<String> {
        let Some(spec) = &self.recipe.gate else { return Vec::new() };
        let mut argv = vec!["eg2-convert".to_string(), "gate".into(), subject.name.into()];
        let body = subject.body.map(|(path, _)| path);
        let named = [
            ("--body", body),
            ("--words", spec.words.as_deref()),
            ("--transcripts", spec.transcripts.as_deref()),
            ("--wer", spec.wer.as_deref()),
            ("--reader", spec.reader.as_deref()),
            ("--encoder", spec.encoder.as_deref()),
        ];
        let several = [("--golden", &spec.goldens), ("--audio", &spec.audio)];
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

/// Every file and folder that a gate reads.
fn named(spec: &recipe::Gate) -> impl Iterator<Item = &PathBuf> {
    let single = [&spec.words, &spec.transcripts, &spec.wer, &spec.reader, &spec.encoder];
    spec.goldens.iter().chain(&spec.audio).chain(single.into_iter().flatten())
}

/// Name and digest of all that a gate reads.
fn digests(spec: &recipe::Gate) -> Result<Vec<(String, Digest)>, StageError> {
    let clips = by_name(&spec.goldens, "safetensors")?.into_values().chain(by_name(&spec.audio, "wav")?.into_values());
    let texts = [&spec.words, &spec.transcripts, &spec.wer].into_iter().flatten().cloned();
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
