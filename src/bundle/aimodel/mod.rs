//! Core AI bundles to be compiled (`.aimodel`): as far as they show without Apple's reader (hash, header, metadata),
//! and read back through it.

mod read_back;

pub use read_back::{AiModelReadBack, AiModelReadBackError, read_back_aimodel};

use super::bytecode::{Bytecode, BytecodeError, Dialect, Function};
use super::{HashCheck, metadata};
use crate::digest::Digest;
use crate::files;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The file that has the program, weights and all.
pub const PROGRAM: &str = "main.mlirb";
/// The file that has the digest of the program.
pub const HASH: &str = "main.hash";
/// Longest `main.hash` or metadata that is read.
const LONGEST: u64 = 64 << 20;

/// A `.aimodel`.
#[derive(Clone, Debug, Serialize)]
pub struct AiModel {
    /// Folder name.
    pub name: String,
    /// Where it is, free of links.
    #[serde(skip)]
    pub path: PathBuf,
    /// Version of the bytecode of `main.mlirb`.
    pub bytecode_version: u64,
    /// What wrote the bytecode, such as `MLIR22.0.0git`.
    pub producer: String,
    /// Bytes of `main.mlirb`, which has the weights in it.
    pub program_bytes: u64,
    /// Dialects of its operations.
    pub dialects: Vec<Dialect>,
    /// Its functions, by the operations they consist of; their names are the dialect's to tell.
    pub functions: Vec<Function>,
    /// Distinct blobs of weights.
    pub blobs: usize,
    /// Bytes of them.
    pub blob_bytes: u64,
    /// Whether `main.hash` is the digest of `main.mlirb`.
    pub hash: HashCheck,
    /// Entries of `metadata.json`.
    pub metadata: BTreeMap<String, String>,
}

/// Why a folder was not read as a `.aimodel`.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum AiModelError {
    #[error("could not read {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Bytecode(#[from] BytecodeError),
    #[error("{path} is no JSON object")]
    Metadata {
        path: String,
        #[source]
        source: serde_json::Error,
    },
}

impl AiModel {
    /// Reads the bundle at `path`: its program is hashed and taken apart down to operations and blobs.
    ///
    /// # Errors
    /// It lacks `main.mlirb` or `metadata.json`, or one of them has another form or is damaged.
    pub fn open(path: &Path) -> Result<AiModel, AiModelError> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |source| AiModelError::Io { path, source }
        };
        let root = path.canonicalize().map_err(io(path))?;
        let at = |name: &str| path.join(name);
        let bytecode = Bytecode::open(&at(PROGRAM))?;
        let (sha256, program_bytes) = Digest::of_file(&at(PROGRAM)).map_err(io(&at(PROGRAM)))?;
        let declared = match files::read(&at(HASH), LONGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.map_err(io(&at(HASH)))?),
        };
        let text = files::read(&at("metadata.json"), LONGEST).map_err(io(&at("metadata.json")))?;
        let wrong = |source| AiModelError::Metadata { path: at("metadata.json").display().to_string(), source };
        Ok(AiModel {
            name: root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            blobs: bytecode.blobs().count(),
            blob_bytes: bytecode.blobs().map(|blob| blob.range.end - blob.range.start).sum(),
            bytecode_version: bytecode.version,
            producer: bytecode.producer,
            dialects: bytecode.dialects,
            functions: bytecode.functions,
            program_bytes,
            hash: HashCheck::of(declared.as_deref(), BTreeMap::from([(PROGRAM.to_string(), sha256)])),
            metadata: metadata::entries(&text).map_err(wrong)?,
            path: root,
        })
    }

    /// An entry of the metadata that whoever made the bundle defined.
    pub fn custom(&self, key: &str) -> Option<String> {
        let entries: serde_json::Value = serde_json::from_str(self.metadata.get("creatorDefinedMetadata")?).ok()?;
        entries.get(key)?.as_str().map(String::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = include_bytes!("../../../tests/fixtures/two_functions.aimodel/main.mlirb");

    fn opened(program: &[u8], hash: Option<&[u8]>, metadata: &[u8]) -> Result<AiModel, String> {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs_err::write(dir.path().join(name), bytes).unwrap();
        write(PROGRAM, program);
        write("metadata.json", metadata);
        if let Some(hash) = hash {
            write("main.hash", hash);
        }
        AiModel::open(dir.path()).map_err(|e| e.to_string().replace(&dir.path().display().to_string(), "DIR"))
    }

    #[test]
    fn header_hash_and_metadata() {
        let model = opened(GOOD, Some(Digest::of(GOOD).bytes()), br#"{"b": {"y": 1, "x": 2}, "a": "1"}"#).unwrap();
        assert_eq!((model.bytecode_version, model.producer.as_str()), (6, "MLIR22.0.0git"));
        assert_eq!((model.functions.len(), model.blobs, model.blob_bytes), (2, 2, 60));
        assert!(matches!(model.hash, HashCheck::Verified { .. }));
        let metadata: Vec<String> = model.metadata.iter().map(|(key, value)| format!("{key} {value}")).collect();
        assert_eq!(metadata, ["a 1", r#"b {"x":2,"y":1}"#]);
        assert!(opened(GOOD, Some(&[0; 32]), b"{}").unwrap().hash.is_wrong());
        assert_eq!(opened(GOOD, None, b"{}").unwrap().hash, HashCheck::Absent);
    }

    #[test]
    fn what_is_no_aimodel() {
        let error = |program: &[u8], metadata: &[u8]| opened(program, None, metadata).unwrap_err();
        insta::assert_snapshot!(error(b"", b"{}"), @"DIR/main.mlirb at 0x0: found [], expected the start of MLIR bytecode, [4d, 4c, ef, 52]");
        insta::assert_snapshot!(error(b"MLIR text", b"{}"), @"DIR/main.mlirb at 0x0: found [4d, 4c, 49, 52], expected the start of MLIR bytecode, [4d, 4c, ef, 52]");
        insta::assert_snapshot!(error(b"ML\xefR\x0fMLIR\0", b"{}"), @"DIR/main.mlirb at 0x4: bytecode version is 7, expected 6");
        insta::assert_snapshot!(error(&GOOD[..GOOD.len() / 2], b"{}"), @"DIR/main.mlirb at 0x14b: operation section has 984 bytes, 659 are left of the file; it is cut short or damaged");
        insta::assert_snapshot!(error(GOOD, b"[]"), @"DIR/metadata.json is no JSON object");
    }
}
