//! Core AI bundles to be compiled (`.aimodel`): as far as they show without Apple's reader (hash, header, metadata),
//! and read back through it.

mod read_back;

pub use read_back::{AiModelReadBack, AiModelReadBackError, read_back_aimodel};

use super::{HashCheck, metadata};
use crate::digest::Digest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Start of MLIR bytecode.
const MAGIC: &[u8; 4] = b"ML\xefR";
const PROGRAM: &str = "main.mlirb";
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
    #[error("{path} is no MLIR bytecode: it starts with {found:02x?}, expected {MAGIC:02x?}")]
    Magic { path: String, found: Vec<u8> },
    #[error("the header of {path} is not a version and a producer within {limit} bytes")]
    Header { path: String, limit: usize },
    #[error("{path} is no JSON object")]
    Metadata {
        path: String,
        #[source]
        source: serde_json::Error,
    },
}

impl AiModel {
    /// Reads the bundle at `path`, whose program is hashed but not taken apart.
    ///
    /// # Errors
    /// It lacks `main.mlirb` or `metadata.json`, or one of them has another form.
    pub fn open(path: &Path) -> Result<AiModel, AiModelError> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |source| AiModelError::Io { path, source }
        };
        let root = path.canonicalize().map_err(io(path))?;
        let at = |name: &str| path.join(name);
        let (bytecode_version, producer) = header(&at(PROGRAM))?;
        let (sha256, program_bytes) = Digest::of_file(&at(PROGRAM)).map_err(io(&at(PROGRAM)))?;
        let declared = match bytes(&at("main.hash")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.map_err(io(&at("main.hash")))?),
        };
        let text = bytes(&at("metadata.json")).map_err(io(&at("metadata.json")))?;
        let wrong = |source| AiModelError::Metadata { path: at("metadata.json").display().to_string(), source };
        Ok(AiModel {
            name: root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            bytecode_version,
            producer,
            program_bytes,
            hash: HashCheck::of(declared.as_deref(), BTreeMap::from([(PROGRAM.to_string(), sha256)])),
            metadata: metadata::entries(&text).map_err(wrong)?,
            path: root,
        })
    }
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Version and producer: the magic, the version as a prefix varint of one byte (twice it and one), a string ended by
/// a zero byte.
fn header(path: &Path) -> Result<(u64, String), AiModelError> {
    const LIMIT: usize = 256;
    let shown = path.display().to_string();
    let io = |source| AiModelError::Io { path: shown.clone(), source };
    let mut start = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(LIMIT as u64).read_to_end(&mut start)).map_err(io)?;
    let Some(rest) = start.strip_prefix(MAGIC) else {
        start.truncate(MAGIC.len());
        return Err(AiModelError::Magic { path: shown, found: start });
    };
    let end = rest.iter().skip(1).position(|b| *b == 0);
    match (rest.first(), end) {
        (Some(version), Some(end)) if version & 1 == 1 => {
            Ok((u64::from(version >> 1), String::from_utf8_lossy(&rest[1..=end]).into_owned()))
        }
        _ => Err(AiModelError::Header { path: shown, limit: LIMIT }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = b"ML\xefR\x0dMLIR22.0.0git\0and the rest";

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
        assert!(matches!(model.hash, HashCheck::Verified { .. }));
        let metadata: Vec<String> = model.metadata.iter().map(|(key, value)| format!("{key} {value}")).collect();
        assert_eq!(metadata, ["a 1", r#"b {"x":2,"y":1}"#]);
        assert!(opened(GOOD, Some(&[0; 32]), b"{}").unwrap().hash.is_wrong());
        assert_eq!(opened(GOOD, None, b"{}").unwrap().hash, HashCheck::Absent);
    }

    #[test]
    fn what_is_no_aimodel() {
        let error = |program: &[u8], metadata: &[u8]| opened(program, None, metadata).unwrap_err();
        insta::assert_snapshot!(error(b"", b"{}"), @"DIR/main.mlirb is no MLIR bytecode: it starts with [], expected [4d, 4c, ef, 52]");
        insta::assert_snapshot!(error(b"MLIR text", b"{}"), @"DIR/main.mlirb is no MLIR bytecode: it starts with [4d, 4c, 49, 52], expected [4d, 4c, ef, 52]");
        insta::assert_snapshot!(error(b"ML\xefR", b"{}"), @"the header of DIR/main.mlirb is not a version and a producer within 256 bytes");
        insta::assert_snapshot!(error(b"ML\xefR\x0dMLIR", b"{}"), @"the header of DIR/main.mlirb is not a version and a producer within 256 bytes");
        insta::assert_snapshot!(error(b"ML\xefR\x00MLIR\0", b"{}"), @"the header of DIR/main.mlirb is not a version and a producer within 256 bytes");
        insta::assert_snapshot!(error(GOOD, b"[]"), @"DIR/metadata.json is no JSON object");
    }
}
