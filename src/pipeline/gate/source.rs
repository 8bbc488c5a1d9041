//! Whether the reference computed with the weights that the artefact was made of.

use crate::digest::Digest;
use crate::gate::{Check, Measure, SOURCE_CHECK};
use crate::plural::counted;
use crate::provenance::{StoredFile, StoredRecord};
use serde_json::json;
use std::path::{Path, PathBuf};

const NAME: &str = SOURCE_CHECK;

/// Endings of files with weights. A config or a word list is of many models.
const WEIGHTS: [&str; 6] = ["safetensors", "pt", "pth", "ckpt", "bin", "npy"];

/// A golden that is not known to be of the artefact's weights: no clip of it says anything of the artefact.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SourceMismatch {
    #[error(
        "{} is of source {golden_source}, and the artefact was made of {}",
        golden.display(), if made_of.is_empty() { "no file".into() } else { made_of.join(", ") }
    )]
    Other { golden: PathBuf, golden_source: Digest, made_of: Vec<String> },
    #[error(
        "{} is of source {}, which has no weights, expected one of {} too",
        golden.display(), named.join(", "), weights.join(", ")
    )]
    NoWeights { golden: PathBuf, named: Vec<String>, weights: Vec<String> },
}

/// Holds what each golden says of its weights against the artefact's record; a golden is a path and digests of files.
///
/// # Errors
/// A golden names a file that is not among those the artefact was made of, or none with weights.
pub fn check<'g>(
    record: Option<&StoredRecord>,
    goldens: impl IntoIterator<Item = (&'g Path, &'g [Digest])>,
) -> Result<Check, SourceMismatch> {
    let goldens: Vec<_> = goldens.into_iter().collect();
    let Some(record) = record else { return Ok(Check::not_run(NAME, "the artefact has no record beside it")) };
    let files = &record.source.files;
    if record.source.kind == "bundle" {
        return Ok(Check::not_run(NAME, "the artefact was made from a bundle, and its record names no weights"));
    }
    if goldens.is_empty() {
        return Ok(Check::not_run(NAME, "no golden is given, by --golden"));
    }
    // Weights may have any name; where none has a usual one, any file of the record counts.
    let weights: Vec<&StoredFile> = files.iter().filter(|f| has_weights(f)).collect();
    for (path, sources) in &goldens {
        let other = sources.iter().find(|hash| files.iter().all(|f| f.sha256 != **hash));
        if let Some(hash) = other {
            return Err(SourceMismatch::Other {
                golden: path.into(),
                golden_source: *hash,
                made_of: files.iter().map(|f| format!("{} {}", f.name, f.sha256)).collect(),
            });
        }
        let named: Vec<&StoredFile> = files.iter().filter(|f| sources.contains(&f.sha256)).collect();
        if !named.is_empty() && !weights.is_empty() && !named.iter().any(|f| has_weights(f)) {
            let names = |files: &[&StoredFile]| files.iter().map(|f| f.name.clone()).collect();
            let golden = path.into();
            return Err(SourceMismatch::NoWeights { golden, named: names(&named), weights: names(&weights) });
        }
    }
    let silent = goldens.iter().filter(|(_, sources)| sources.is_empty()).count();
    if silent > 0 {
        let reason = format!("no source_sha256 in {silent} of {}", counted(goldens.len(), "golden"));
        return Ok(Check::not_run(NAME, reason));
    }
    let says = format!("{}, of the weights in the record", counted(goldens.len(), "golden"));
    // One of others would have been refused above.
    let measure = Measure::none("of_others", 0);
    Ok(Check::run(NAME, [measure], says, json!({ "goldens": goldens.len() })))
}

fn has_weights(file: &StoredFile) -> bool {
    let ending = Path::new(&file.name).extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| WEIGHTS.iter().any(|weights| weights.eq_ignore_ascii_case(ending)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Verdict;

    /// Holds a golden that names the files `named` against a record of the files `made_of`.
    fn told(made_of: &[&str], named: &[&str]) -> Result<Verdict, String> {
        let digest = |name: &&str| Digest::of(name.as_bytes());
        let files: Vec<_> = made_of.iter().map(|name| json!({ "name": name, "sha256": digest(name) })).collect();
        let record: StoredRecord = serde_json::from_value(json!({
            "record_version": 1,
            "artefact": { "digest_root": Digest::of(b"") },
            "source": { "kind": "checkpoint", "files": files },
            "options": {},
        }))
        .unwrap();
        let sources: Vec<Digest> = named.iter().map(digest).collect();
        check(Some(&record), [(Path::new("clip"), sources.as_slice())])
            .map(|check| check.verdict)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_golden_is_of_the_weights_and_not_of_the_words_alone() {
        let made_of = ["r.pt", "table.NPY", "words.txt", "reader_config.json"];
        for named in [&["r.pt"][..], &["table.NPY"], &["r.pt", "words.txt"], &made_of] {
            assert_eq!(told(&made_of, named), Ok(Verdict::Pass), "{named:?}");
        }
        insta::assert_snapshot!(told(&made_of, &["words.txt", "reader_config.json"]).unwrap_err(), @"clip is of source words.txt, reader_config.json, which has no weights, expected one of r.pt, table.NPY too");
        assert!(told(&made_of, &["r.pt", "other.pt"]).unwrap_err().contains("and the artefact was made of r.pt"));
        assert_eq!(told(&["weights", "words"], &["weights"]), Ok(Verdict::Pass), "no ending tells");
        assert!(matches!(told(&made_of, &[]), Ok(Verdict::NotRun { .. })));
    }
}
