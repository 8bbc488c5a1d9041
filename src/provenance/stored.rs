//! The record beside an artefact, read back: only what others are held against.

use super::RECORD_VERSION;
use super::release::{RELEASE_FILE, ReleaseRecord};
use crate::digest::Digest;
use crate::files;
use crate::json;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// What a record says of an artefact, of these very bytes.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredRecord {
    record_version: u32,
    artefact: StoredArtefact,
    /// What it was made from.
    pub source: StoredSource,
    /// Options that shaped it.
    pub options: Value,
    #[serde(default)]
    stages: Value,
}

#[derive(Clone, Debug, Deserialize)]
struct StoredArtefact {
    digest_root: Digest,
}

/// Where the weights came from.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredSource {
    /// `checkpoint`, `synthetic` or `bundle`.
    pub kind: String,
    /// Seed of synthetic weights.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Every file that was read.
    pub files: Vec<StoredFile>,
}

/// A file an artefact was made from.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredFile {
    /// File name, without its folder.
    pub name: String,
    /// Digest of its content.
    pub sha256: Digest,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum StoredRecordError {
    #[error("record {} could not be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is no record of ours", path.display())]
    Form { path: PathBuf, source: serde_json::Error },
    #[error("record {} has version {found}, expected at most {RECORD_VERSION}", path.display())]
    Version { path: PathBuf, found: u32 },
    #[error(
        "record {} is of other bytes: it says digest root {recorded}, and the artefact has {found}",
        path.display()
    )]
    OtherBytes { path: PathBuf, recorded: Digest, found: Digest },
}

impl StoredRecord {
    /// The record beside `artefact`, whose digest root is `root`; none where there is none.
    ///
    /// A bundle that was stripped in place keeps the record of how it was made, and has one of the strip besides, which
    /// tells the root it had: the two together are of these bytes.
    ///
    /// # Errors
    /// It cannot be read, or is of other bytes.
    pub fn beside(artefact: &Path, root: Digest) -> Result<Option<StoredRecord>, StoredRecordError> {
        let Some(name) = artefact.file_name().map(|name| name.to_string_lossy().into_owned()) else { return Ok(None) };
        let at = |ending: &str| artefact.with_file_name(format!("{name}.{ending}"));
        let path = at("record.json");
        let Some(record) = Self::read(&path)? else { return Self::released(artefact, &name, root) };
        let recorded = record.artefact.digest_root;
        if recorded == root {
            return Ok(Some(record));
        }
        let stripped = Self::read(&at("strip.record.json"))?.filter(|strip| {
            let before = serde_json::from_value::<Digest>(strip.stages["strip"]["before"]["digest_root"].clone());
            strip.artefact.digest_root == root && before.is_ok_and(|before| before == recorded)
        });
        match stripped {
            Some(_) => Ok(Some(record)),
            None => Err(StoredRecordError::OtherBytes { path, recorded, found: root }),
        }
    }

    /// The artefact's part of the record of the release that it lies in; none where it lies in none.
    fn released(artefact: &Path, name: &str, root: Digest) -> Result<Option<StoredRecord>, StoredRecordError> {
        let path = artefact.with_file_name(RELEASE_FILE);
        let Some(value) = Self::json(&path)? else { return Ok(None) };
        let form = |source| StoredRecordError::Form { path: path.clone(), source };
        let release: ReleaseRecord = serde_json::from_value(value).map_err(form)?;
        let Some(bundle) = release.artefacts.into_iter().find(|bundle| bundle.name == name) else { return Ok(None) };
        if bundle.digest_root != root {
            return Err(StoredRecordError::OtherBytes { path, recorded: bundle.digest_root, found: root });
        }
        let mut made = bundle.made;
        // What is no object is refused below, as any other record of a wrong form.
        if let Some(made) = made.as_object_mut() {
            made.insert("artefact".into(), json!({ "digest_root": root }));
        }
        let record: StoredRecord = serde_json::from_value(made).map_err(form)?;
        Ok(Some(record))
    }

    /// What a reader multiplies its cosines by, where the record tells.
    pub fn scale(&self) -> Option<f64> {
        self.stages["functions"][0]["author"]["scale"].as_f64()
    }

    fn json(path: &Path) -> Result<Option<Value>, StoredRecordError> {
        let bytes = match files::read(path, files::TEXT_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StoredRecordError::Io { path: path.into(), source }),
        };
        let form = |source| StoredRecordError::Form { path: path.into(), source };
        json::read(&bytes).map(Some).map_err(form)
    }

    fn read(path: &Path) -> Result<Option<StoredRecord>, StoredRecordError> {
        let Some(value) = Self::json(path)? else { return Ok(None) };
        let record: StoredRecord =
            serde_json::from_value(value).map_err(|source| StoredRecordError::Form { path: path.into(), source })?;
        if record.record_version > RECORD_VERSION {
            return Err(StoredRecordError::Version { path: path.into(), found: record.record_version });
        }
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(root: Digest, stages: Value) -> Value {
        json!({
            "record_version": RECORD_VERSION,
            "artefact": { "name": "x", "digest_root": root },
            "source": { "kind": "checkpoint", "files": [{ "name": "w", "sha256": Digest::of(b"w"), "bytes": 1 }] },
            "options": { "precision": "fp16" },
            "stages": stages,
        })
    }

    fn beside(files: &[(&str, String)], root: Digest) -> Result<Option<StoredRecord>, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs_err::write(dir.path().join(name), text).unwrap();
        }
        let hide = |e: StoredRecordError| e.to_string().replace(dir.path().to_str().unwrap(), "");
        StoredRecord::beside(&dir.path().join("x.aimodel"), root).map_err(hide)
    }

    #[test]
    fn a_record_of_these_bytes() {
        let [old, new] = [b"old", b"new"].map(|b| Digest::of(b));
        let own = |root| ("x.aimodel.record.json", record(root, json!({})).to_string());
        let strip = |before, root| {
            let stages = json!({ "strip": { "before": { "digest_root": before } } });
            ("x.aimodel.strip.record.json", record(root, stages).to_string())
        };
        assert!(beside(&[], new).unwrap().is_none());
        assert_eq!(beside(&[own(new)], new).unwrap().unwrap().source.files[0].sha256, Digest::of(b"w"));
        assert_eq!(beside(&[own(old), strip(old, new)], new).unwrap().unwrap().options["precision"], "fp16");
        for files in [vec![own(old)], vec![own(old), strip(new, new)], vec![own(old), strip(old, old)]] {
            assert!(beside(&files, new).unwrap_err().contains("is of other bytes"));
        }
    }

    #[test]
    fn a_record_in_a_release() {
        let root = Digest::of(b"bundle");
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/provenance/example.release.json"));
        let example: Value = serde_json::from_str(&text.unwrap()).unwrap();
        let with = |made: Option<Value>| {
            let mut release = example.clone();
            let bundle = &mut release["artefacts"][0];
            (bundle["name"], bundle["digest_root"]) = (json!("x.aimodel"), json!(root));
            if let Some(made) = made {
                bundle["made"] = made;
            }
            beside(&[(RELEASE_FILE, release.to_string())], root)
        };
        assert_eq!(with(None).unwrap().unwrap().source.kind, "checkpoint");
        for wrong in [json!("text"), json!([]), json!(null), json!({})] {
            assert!(with(Some(wrong.clone())).unwrap_err().contains("release.json is no record of ours"), "{wrong}");
        }
        let twice = example.to_string().replacen("\"name\"", "\"name\": \"x\", \"name\"", 1);
        assert!(beside(&[(RELEASE_FILE, twice)], root).unwrap_err().contains("is no record of ours"));
    }

    #[test]
    fn what_is_no_record() {
        let root = Digest::of(b"");
        let of = |text: &str| beside(&[("x.aimodel.record.json", text.into())], root).unwrap_err();
        insta::assert_snapshot!(of("{}"), @"/x.aimodel.record.json is no record of ours");
        let mut later = record(root, json!({}));
        later["record_version"] = json!(RECORD_VERSION + 1);
        insta::assert_snapshot!(of(&later.to_string()), @"record /x.aimodel.record.json has version 2, expected at most 1");
    }
}
