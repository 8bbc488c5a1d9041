//! The record as an in-toto statement, version 1, with a SLSA provenance predicate, version 1: what admission tools of
//! that kind read. It says nothing that the record does not.

use super::release::{RELEASE_FILE, ReleaseRecord};
use crate::digest::Digest;
use serde_json::{Value, json};

/// Whom the predicate's build type and builder belong to.
const HOME: &str = "urn:eg2-convert";

/// The statement. Its subjects are the files that ship, by their paths in the release.
pub fn statement(record: &ReleaseRecord) -> Result<Value, serde_json::Error> {
    let of_bundles = record.artefacts.iter().flat_map(|bundle| {
        bundle.files.iter().map(move |file| (format!("{}/{}", bundle.name, file.path), file.sha256))
    });
    let others = record.files.iter().map(|file| (file.path.clone(), file.sha256));
    let own = Digest::of(&record.to_bytes()?);
    let subject = |(name, sha256): (String, Digest)| json!({ "name": name, "digest": { "sha256": sha256 } });
    let subjects: Vec<Value> = of_bundles.chain(others).chain([(RELEASE_FILE.to_string(), own)]).map(subject).collect();
    let repository = record.source.repository.as_ref().map(|name| {
        let revision = record.source.revision.as_deref().unwrap_or("unknown");
        format!("pkg:huggingface/{name}@{revision}")
    });
    let sources: Vec<Value> = record
        .source
        .files
        .iter()
        .map(|file| json!({ "name": file.name, "digest": { "sha256": file.sha256 }, "uri": repository }))
        .collect();
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{HOME}:release:v{}", record.release_version),
                "externalParameters": {
                    "recipe": { "name": record.name, "digest": { "sha256": record.recipe_sha256 } },
                    "synthetic": record.synthetic,
                    "pinned": record.pinned,
                },
                "internalParameters": { "commands": record.commands },
                "resolvedDependencies": sources,
            },
            "runDetails": {
                "builder": {
                    "id": format!("{HOME}:{}", record.tool.name),
                    "version": { &record.tool.name: record.tool.version },
                },
                "byproducts": [{ "name": RELEASE_FILE, "digest": { "sha256": own } }],
            },
        },
    }))
}
