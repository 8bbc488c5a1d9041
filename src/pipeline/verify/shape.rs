//! What bundles a record may have, by its recipe and by how releases are made, and what each may say of itself.

use super::claims::follows;
use super::fault::Fault;
use super::files::files_of;
use crate::bundle::Format;
use crate::digest::Digest;
use crate::provenance::device::before;
use crate::provenance::release::{Outcome, Regions, ReleaseRecord, Released};
use crate::recipe::Recipe;
use crate::toolchain::Tool;
use serde_json::json;
use std::collections::BTreeMap;

/// Holds the lists of the record, and each of its bundles, against how releases are made.
pub fn check(record: &ReleaseRecord, recipe: Option<&Recipe>, faults: &mut Vec<Fault>) {
    once("artefacts", record.artefacts.iter().map(|bundle| bundle.name.clone()), faults);
    once("source.files", record.source.files.iter().map(|file| file.name.clone()), faults);
    once("files", files_of(record).map(|(path, _)| path), faults);
    if record.source.files.is_empty() && record.source.seed.is_none() {
        follows("source.files", &json!([]), &json!("the files of weights that no seed made"), faults);
    }
    // What a device counted is held against its own record.
    let base = before(record);
    let base = base.as_ref().unwrap_or(record);
    for bundle in &base.artefacts {
        named(bundle, faults);
        identity(bundle, base, faults);
        made(bundle, faults);
    }
    if let Some(recipe) = recipe {
        compiled(base, recipe, faults);
    }
}

fn once(field: &str, names: impl Iterator<Item = String>, faults: &mut Vec<Fault>) {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    names.for_each(|name| *times.entry(name).or_default() += 1);
    for (name, times) in times {
        follows(format!("{field}: {name}: times"), &json!(times), &json!(1), faults);
    }
}

/// A bundle is a folder beside the record, called by its format, with files in it.
fn named(bundle: &Released, faults: &mut Vec<Fault>) {
    let name = &bundle.name;
    let ending = bundle.format.ending();
    let stem = name.strip_suffix(ending).and_then(|name| name.strip_suffix('.'));
    if stem.is_none_or(|stem| stem.is_empty() || stem.starts_with('.')) || name.contains(['/', '\\']) {
        follows(
            "artefacts: name",
            &json!(name),
            &json!(format!("the name of a folder that ends with .{ending}")),
            faults,
        );
    }
    if bundle.files.is_empty() {
        follows(format!("{name}: files"), &json!([]), &json!("the files of a bundle"), faults);
    }
    let expected = match (bundle.format, bundle.compiled_from.is_some()) {
        (Format::MlPackage | Format::AiModel, false) | (Format::AiModelC, true) => return,
        (Format::MlModelC, _) => "a format that is released",
        (Format::AiModelC, false) => "compiled from an .aimodel of the release",
        (Format::MlPackage | Format::AiModel, true) => "compiled from nothing",
    };
    follows(format!("{name}: format"), &json!(bundle.format), &json!(expected), faults);
}

/// The digest that was compiled is one that ships, and figures of all files are made of each file's.
fn identity(bundle: &Released, record: &ReleaseRecord, faults: &mut Vec<Fault>) {
    let mut held =
        |field: &str, found, expected| follows(format!("{}: {field}", bundle.name), &found, &expected, faults);
    let root = Digest::root(bundle.files.iter().map(|file| (file.path.as_str(), file.sha256)));
    held("digest_root", json!(bundle.digest_root), json!(root));
    let bytes: u64 = bundle.files.iter().map(|file| file.size).fold(0, u64::saturating_add);
    held("bytes", json!(bundle.bytes), json!(bytes));
    if bundle.strip.outcome == Outcome::Pass {
        held("strip.after", json!(bundle.strip.after), json!(bundle.digest_root));
    }
    if let Some(parent) = &bundle.compiled_from {
        let mut models =
            record.artefacts.iter().filter(|other| other.format == Format::AiModel && other.compiled_from.is_none());
        let known = models.find(|other| other.name == parent.name).map(|model| model.digest_root);
        held("compiled_from.digest_root", json!(parent.digest_root), json!(known));
    }
}

/// What was done with it, by its format.
fn made(bundle: &Released, faults: &mut Vec<Fault>) {
    let authored = bundle.compiled_from.is_none();
    let strip = if authored { Outcome::Pass } else { Outcome::NotRun };
    follows(format!("{}: strip.outcome", bundle.name), &json!(bundle.strip.outcome), &json!(strip), faults);
    // Authored bundles have no regions before a device or the compiler made some.
    let regions = if authored { Outcome::NotRun } else { counted(&bundle.regions) };
    follows(format!("{}: regions.outcome", bundle.name), &json!(bundle.regions.outcome), &json!(regions), faults);
    if authored {
        let found = json!(bundle.regions.architectures);
        follows(format!("{}: regions.architectures", bundle.name), &found, &json!({}), faults);
    }
    if bundle.format == Format::MlPackage {
        follows(format!("{}: main_hash", bundle.name), &json!(bundle.main_hash), &json!(null), faults);
    }
}

/// What follows from the counts.
fn counted(regions: &Regions) -> Outcome {
    let mut counts = regions.architectures.values();
    if regions.architectures.is_empty() {
        Outcome::NotRun
    } else if counts.all(|count| count.expected.is_none_or(|expected| expected == count.found)) {
        Outcome::Pass
    } else {
        Outcome::Fail
    }
}

/// Every architecture of the recipe has its bundle, unless nothing could be compiled, and no other has one.
fn compiled(record: &ReleaseRecord, recipe: &Recipe, faults: &mut Vec<Fault>) {
    let architectures: Vec<&str> =
        recipe.compile.iter().flat_map(|target| &target.architectures).map(|a| a.as_str()).collect();
    let missing_tool = format!("{} is not installed", Tool::CoreAiBuild.name());
    for model in record.artefacts.iter().filter(|bundle| bundle.format == Format::AiModel) {
        let stem = model.name.strip_suffix(".aimodel").unwrap_or(&model.name);
        let mut found: Vec<&str> = record
            .artefacts
            .iter()
            .filter(|b| b.compiled_from.as_ref().is_some_and(|parent| parent.name == model.name))
            .map(|bundle| bundle.name.as_str())
            .collect();
        if found.is_empty() && model.regions.reason.as_deref() == Some(missing_tool.as_str()) {
            continue;
        }
        let mut expected: Vec<String> = architectures.iter().map(|name| format!("{stem}.{name}.aimodelc")).collect();
        found.sort_unstable();
        expected.sort_unstable();
        follows(format!("{}: compiled bundles", model.name), &json!(found), &json!(expected), faults);
    }
}
