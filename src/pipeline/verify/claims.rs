//! What the record says, against its recipe, against itself, and against the texts that are made of it.

use super::fault::Fault;
use crate::digest::Digest;
use crate::files;
use crate::gate::{ENCODER_CHECKS, Limits, READER_CHECKS};
use crate::passes::Precision;
use crate::provenance::device::{before, merge};
use crate::provenance::release::{
    Gate, GateCheck, Judged, Left, Outcome, RECIPE_FILE, ReleaseRecord, Released, STATEMENT_FILE, Status,
};
use crate::provenance::texts::{APACHE, LICENSE_FILE, NOTICE_FILE, README_FILE, notice, readme};
use crate::provenance::{NEEDS_A_DEVICE, Tool};
use crate::recipe::{LICENSE, Recipe};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;

/// Holds the record against all that is beside it.
pub fn check(folder: &Path, record: &ReleaseRecord, faults: &mut Vec<Fault>, not_run: &mut Vec<Left>) {
    texts(folder, record, faults, not_run);
    let recipe = recipe(folder, record, faults);
    for bundle in &record.artefacts {
        let mut held = Held { bundle, record, faults };
        held.identity();
        held.gate(recipe.as_ref());
    }
    devices(record, faults);
    follows("not_run", &json!(record.not_run), &json!(record.left_out()), faults);
}

/// What is said of devices is what their records say, merged one after the other, and nothing else.
fn devices(record: &ReleaseRecord, faults: &mut Vec<Fault>) {
    let mut again = match before(record) {
        Ok(base) => base,
        Err(error) => return faults.push(Fault::Device { why: error.to_string() }),
    };
    for device in &record.devices {
        if let Err(error) = merge(&mut again, device.clone()) {
            return faults.push(Fault::Device { why: error.to_string() });
        }
    }
    let nothing = Status::not_run(NEEDS_A_DEVICE);
    for (bundle, again) in record.artefacts.iter().zip(&again.artefacts) {
        // Where no device was asked, the record was taken as it is, and must say so.
        let asked = !record.devices.is_empty();
        for (field, found, merged) in [
            ("loads_on_device", &bundle.loads_on_device, &again.loads_on_device),
            ("placed_on_ane", &bundle.placed_on_ane, &again.placed_on_ane),
        ] {
            let expected = if asked { merged } else { &nothing };
            follows(format!("{}: {field}", bundle.name), &json!(found), &json!(expected), faults);
        }
        follows(format!("{}: regions", bundle.name), &json!(bundle.regions), &json!(again.regions), faults);
    }
}

/// A fault where `found` is not what follows.
fn follows(field: impl Into<String>, found: &Value, expected: &Value, faults: &mut Vec<Fault>) {
    if found != expected {
        let short = |value: &Value| match value.to_string() {
            text if text.len() <= 200 => text,
            text => text.chars().take(200).chain("...".chars()).collect(),
        };
        faults.push(Fault::Field { field: field.into(), found: short(found), follows: short(expected) });
    }
}

fn texts(folder: &Path, record: &ReleaseRecord, faults: &mut Vec<Fault>, not_run: &mut Vec<Left>) {
    let tool = Tool::this();
    let differs = |name: &str, expected: &[u8]| {
        // One that is missing was told of with the files.
        files::read(&folder.join(name), files::TEXT_MAX).is_ok_and(|found| found != expected)
    };
    if record.source.license == LICENSE && differs(LICENSE_FILE, APACHE.as_bytes()) {
        faults.push(Fault::Text { file: LICENSE_FILE });
    }
    if record.tool.name != tool.name || record.tool.version != tool.version {
        let reason = format!("{} {} made them, and this is {}", record.tool.name, record.tool.version, tool.version);
        not_run.push(Left { artefact: record.name.clone(), name: "texts".into(), reason });
        return;
    }
    if record.statement().is_ok_and(|expected| differs(STATEMENT_FILE, &expected)) {
        faults.push(Fault::Text { file: STATEMENT_FILE });
    }
    for (name, expected) in [(NOTICE_FILE, notice(record)), (README_FILE, readme(record))] {
        if differs(name, expected.as_bytes()) {
            faults.push(Fault::Text { file: name });
        }
    }
}

/// Reads the recipe and holds the record against it.
fn recipe(folder: &Path, record: &ReleaseRecord, faults: &mut Vec<Fault>) -> Option<Recipe> {
    let text = files::read(&folder.join(RECIPE_FILE), files::TEXT_MAX).ok()?;
    let text = String::from_utf8(text).ok()?;
    follows("recipe_sha256", &json!(record.recipe_sha256), &json!(Digest::of(text.as_bytes())), faults);
    let recipe = match Recipe::parse(text, &record.name, Path::new("")) {
        Ok(recipe) => recipe,
        Err(why) => {
            faults.push(Fault::Recipe { why: why.to_string() });
            return None;
        }
    };
    let source = &record.source;
    for (field, found, expected) in [
        ("name", json!(record.name), json!(recipe.name)),
        ("model", json!(record.model), json!(recipe.model.name())),
        ("synthetic", json!(record.synthetic), json!(recipe.source.synthetic)),
        ("source.repository", json!(source.repository), json!(recipe.source.repository)),
        ("source.revision", json!(source.revision), json!(recipe.source.revision)),
        ("source.license", json!(source.license), json!(recipe.source.license)),
        ("source.seed", json!(source.seed), json!(recipe.source.seed)),
        ("pinned", json!(record.pinned), json!(source.files.iter().all(|file| file.pinned))),
    ] {
        follows(field, &found, &expected, faults);
    }
    for file in &source.files {
        let pinned = recipe.source.sha256.get(&file.name) == Some(&file.sha256);
        follows(format!("source.files: {}: pinned", file.name), &json!(file.pinned), &json!(pinned), faults);
    }
    let made: BTreeSet<&str> =
        record.artefacts.iter().filter(|b| b.compiled_from.is_none()).map(|b| b.format.ending()).collect();
    let asked: BTreeSet<&str> = recipe.formats.iter().map(|format| format.ending()).collect();
    follows("artefacts: formats", &json!(made), &json!(asked), faults);
    for bundle in record.artefacts.iter().filter(|bundle| bundle.compiled_from.is_some()) {
        for (name, count) in &bundle.regions.architectures {
            let target = recipe.compile.iter().find(|c| c.architectures.iter().any(|a| a.as_str() == name));
            let expected = target.and_then(|target| target.regions.as_ref()).and_then(|regions| regions.of(name));
            let field = format!("{}: regions.{name}.expected", bundle.name);
            follows(field, &json!(count.expected), &json!(expected), faults);
        }
    }
    Some(recipe)
}

/// One bundle of the record.
struct Held<'a> {
    bundle: &'a Released,
    record: &'a ReleaseRecord,
    faults: &'a mut Vec<Fault>,
}

impl Held<'_> {
    fn follows(&mut self, field: impl Display, found: &Value, expected: &Value) {
        follows(format!("{}: {field}", self.bundle.name), found, expected, self.faults);
    }

    /// The digest that was gated is the digest that ships, and so is the one that was compiled.
    fn identity(&mut self) {
        let bundle = self.bundle;
        let root = Digest::root(bundle.files.iter().map(|file| (file.path.as_str(), file.sha256)));
        self.follows("digest_root", &json!(bundle.digest_root), &json!(root));
        let bytes: u64 = bundle.files.iter().map(|file| file.size).fold(0, u64::saturating_add);
        self.follows("bytes", &json!(bundle.bytes), &json!(bytes));
        if bundle.strip.outcome == Outcome::Pass {
            self.follows("strip.after", &json!(bundle.strip.after), &json!(bundle.digest_root));
        }
        if let Some(parent) = &bundle.compiled_from {
            let known = self.record.artefacts.iter().find(|other| other.name == parent.name).map(|b| b.digest_root);
            self.follows("compiled_from.digest_root", &json!(parent.digest_root), &json!(known));
        }
    }

    fn gate(&mut self, recipe: Option<&Recipe>) {
        let gate = &self.bundle.gate;
        let Some(judged) = &gate.judged else {
            self.outcome("gate", gate.outcome, Outcome::NotRun);
            return;
        };
        self.follows("gate.judged.digest_root", &json!(judged.digest_root), &json!(self.bundle.digest_root));
        self.outcome("gate", gate.outcome, Gate::outcome_of(&judged.checks));
        let had: BTreeSet<&str> = judged.checks.iter().map(|check| check.name.as_str()).collect();
        let all: &[&str] = if self.record.model == "encoder" { &ENCODER_CHECKS } else { &READER_CHECKS };
        for name in all.iter().chain(&["source"]).filter(|name| !had.contains(*name)) {
            self.outcome(name, Outcome::Pass, Outcome::NotRun);
        }
        let limits = recipe.and_then(|recipe| self.limits(judged, recipe));
        if let Some(limits) = limits {
            self.follows("gate.judged.limits", &judged.limits, &json!(limits));
        }
        for check in &judged.checks {
            self.check(check, limits.as_ref());
        }
    }

    fn check(&mut self, check: &GateCheck, limits: Option<&Limits>) {
        self.outcome(&format!("gate.{}", check.name), check.outcome, GateCheck::outcome_of(&check.measures));
        for measure in &check.measures {
            let Some(limit) = limits.and_then(|limits| limits.of_measure(&check.name, &measure.name)) else { continue };
            self.follows(
                format_args!("gate.{}.{}.limit", check.name, measure.name),
                &json!(measure.limit),
                &json!(limit),
            );
        }
    }

    fn outcome(&mut self, check: &str, said: Outcome, follows: Outcome) {
        if said != follows {
            let artefact = self.bundle.name.clone();
            self.faults.push(Fault::Check { artefact, check: check.into(), said, follows });
        }
    }

    /// The limits that the recipe and the bundle's numbers lead to.
    fn limits(&self, judged: &Judged, recipe: &Recipe) -> Option<Limits> {
        let precision = Precision::ALL.into_iter().find(|precision| precision.name() == judged.precision)?;
        let limits = Limits::of(precision);
        let scale = self.bundle.made["stages"]["functions"][0]["author"]["scale"].as_f64();
        let limits = scale.map_or(limits, |scale| limits.at_scale(scale));
        limits.with(&recipe.gate.as_ref()?.limits).ok()
    }
}
