//! What the record says, against its recipe, against itself, and against the texts that are made of it.

use super::fault::Fault;
use super::files::files_of;
use super::{gate, shape};
use crate::digest::Digest;
use crate::files;
use crate::provenance::device::{before, merge};
use crate::provenance::release::{Left, RECIPE_FILE, RELEASE_FILE, ReleaseRecord, STATEMENT_FILE, Status};
use crate::provenance::texts::{APACHE, LICENSE_FILE, NOTICE_FILE, README_FILE, notice, readme};
use crate::provenance::{NEEDS_A_DEVICE, Tool};
use crate::recipe::{LICENSE, Recipe};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Holds the record against all that is beside it.
pub fn check(folder: &Path, record: &ReleaseRecord, faults: &mut Vec<Fault>, not_run: &mut Vec<Left>) {
    texts(folder, record, faults, not_run);
    let recipe = recipe(folder, record, faults);
    shape::check(record, recipe.as_ref(), faults);
    for bundle in &record.artefacts {
        gate::check(bundle, record, recipe.as_ref(), faults);
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
pub fn follows(field: impl Into<String>, found: &Value, expected: &Value, faults: &mut Vec<Fault>) {
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
        if subjects(folder, record) == Some(false) {
            faults.push(Fault::Text { file: STATEMENT_FILE });
        }
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

/// Whether the statement is of the files that the record lists and of the record itself, by name and digest. Whatever
/// version made it, that much is in-toto's form and not this program's. None where there is no statement.
fn subjects(folder: &Path, record: &ReleaseRecord) -> Option<bool> {
    let read = |name: &str| files::read(&folder.join(name), files::TEXT_MAX).ok();
    let found = read(STATEMENT_FILE)?;
    let own = (RELEASE_FILE.to_string(), Digest::of(&read(RELEASE_FILE)?));
    let listed = files_of(record).map(|(path, file)| (path, file.sha256)).chain([own]);
    let mut expected: Vec<(String, String)> = listed.map(|(path, sha256)| (path, sha256.to_string())).collect();
    let Ok(found) = crate::json::read(&found) else { return Some(false) };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let subjects = found["subject"].as_array().into_iter().flatten();
    let mut found: Vec<(String, String)> =
        subjects.map(|subject| (text(&subject["name"]), text(&subject["digest"]["sha256"]))).collect();
    expected.sort_unstable();
    found.sort_unstable();
    Some(found == expected)
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
