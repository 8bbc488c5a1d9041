//! From a folder to a [`CompiledBundle`].

use super::identity::HashCheck;
use super::manifest::{Manifest, ManifestError};
use super::stats::Stats;
use super::walk::Walk;
use super::{Architecture, CompiledBundle, regions, signals};
use crate::digest::Digest;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a folder was not read as a compiled bundle.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum CompiledError {
    #[error("could not read {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is a file; a compiled bundle is a folder")]
    NotFolder { path: String },
    #[error("{path} is an empty folder, no compiled bundle")]
    Empty { path: String },
    #[error("{path} is no compiled bundle: it has no main-ARCHITECTURE.mlirb and no main-ARCHITECTURE-delegates")]
    NotCompiled { path: String },
    #[error("{path} in the bundle is of the wrong kind; a {expected} was expected")]
    Kind { path: String, expected: &'static str },
    #[error("the file name {path:?} is not UTF-8")]
    Name { path: PathBuf },
}

/// What a bundle that loads does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Violation {
    #[error("{path} is a link, which was not followed; a bundle with a link in it fails to load")]
    Link { path: String },
    #[error("{path} is neither file nor folder")]
    Special { path: String },
    #[error("{architecture}: there is no main-{architecture}.mlirb")]
    NoStub { architecture: String },
    #[error("{architecture}: region {stem} holds no code")]
    NoCode { architecture: String, stem: String },
    #[error("region {stem} is in no architecture's folder and was not counted")]
    Homeless { stem: String },
}

/// Longest manifest, statistics or metadata that is read.
const LONGEST: u64 = 64 << 20;

/// `h18p` of `main-h18p-delegates`.
pub(super) fn delegates_of(name: &str) -> Option<&str> {
    name.strip_prefix("main-")?.strip_suffix("-delegates").filter(|name| !name.is_empty())
}

/// `h18p` of `main-h18p.mlirb`.
fn stub_of(name: &str) -> Option<&str> {
    name.strip_prefix("main-")?.strip_suffix(".mlirb").filter(|name| !name.is_empty())
}

fn stub_name(architecture: &str) -> String {
    format!("main-{architecture}.mlirb")
}

impl CompiledBundle {
    /// Reads the bundle at `path`; links in the path are resolved, those inside it are not followed.
    ///
    /// Its weights are not read, so this is quick for a bundle of any size.
    ///
    /// # Errors
    /// It is no compiled bundle, or one that cannot be read.
    pub fn open(path: &Path) -> Result<CompiledBundle, CompiledError> {
        let shown = path.display().to_string();
        let io = |source| CompiledError::Io { path: shown.clone(), source };
        // Without its trailing slash, with which a link would look like a folder.
        let named: PathBuf = path.components().collect();
        let linked = named.symlink_metadata().map_err(io)?.is_symlink();
        let root = named.canonicalize().map_err(io)?;
        if !root.is_dir() {
            return Err(CompiledError::NotFolder { path: shown });
        }
        let walk = Walk::of(&root)?;
        if walk.files.is_empty() && walk.folders.is_empty() && walk.links.is_empty() && walk.specials.is_empty() {
            return Err(CompiledError::Empty { path: shown });
        }
        check_kinds(&walk)?;
        let reader = Reader { root: &root, walk: &walk };
        let census = regions::count(&walk)?;
        let mut architectures = reader.architectures()?;
        for (name, functions) in census.by_architecture {
            let architecture: &mut Architecture = architectures.entry(name).or_default();
            for (symbol, regions) in functions {
                architecture.functions.entry(symbol).or_default().extend(regions);
            }
        }
        if architectures.is_empty() && named.extension() != Some("aimodelc".as_ref()) {
            return Err(CompiledError::NotCompiled { path: shown });
        }
        let stats = reader.stats()?;
        let signal = signals::of_stats(stats.as_ref().map(|s| s.as_ref().map(|_| ()).map_err(ToString::to_string)));
        for architecture in architectures.values_mut() {
            architecture.signals.push(signal.clone());
        }
        let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(CompiledBundle {
            name,
            linked,
            files: walk.files.len(),
            bytes: walk.files.values().sum(),
            hash: reader.hash(&architectures)?,
            metadata: reader.metadata()?,
            stats: stats.and_then(Result::ok),
            violations: violations(&walk, &architectures, census.homeless),
            architectures,
            path: root,
        })
    }
}

/// Fails where a file stands for a folder that a bundle has, or a folder for a file.
fn check_kinds(walk: &Walk) -> Result<(), CompiledError> {
    let wrong = |path: &str, expected| Err(CompiledError::Kind { path: path.to_string(), expected });
    for path in walk.files.keys() {
        if delegates_of(path).is_some() || path.ends_with(".llir.bundle") || path.ends_with(".mpsgraphpackage") {
            return wrong(path, "folder");
        }
    }
    for path in &walk.folders {
        let file = stub_of(path).is_some() || ["main.hash", "metadata.json", "stats.json"].contains(&path.as_str());
        if file || path.ends_with(".mpsgraphpackage/manifest.plist") {
            return wrong(path, "file");
        }
    }
    Ok(())
}

fn violations(walk: &Walk, architectures: &BTreeMap<String, Architecture>, homeless: Vec<String>) -> Vec<Violation> {
    let mut found: Vec<Violation> = walk.links.iter().map(|path| Violation::Link { path: path.clone() }).collect();
    found.extend(walk.specials.iter().map(|path| Violation::Special { path: path.clone() }));
    for (name, architecture) in architectures {
        if !walk.files.contains_key(&stub_name(name)) {
            found.push(Violation::NoStub { architecture: name.clone() });
        }
        for region in architecture.functions.values().flatten().filter(|region| region.ir_bytes == 0) {
            found.push(Violation::NoCode { architecture: name.clone(), stem: region.stem.clone() });
        }
    }
    found.extend(homeless.into_iter().map(|stem| Violation::Homeless { stem }));
    found
}

/// Reads the few small files that matter.
struct Reader<'a> {
    root: &'a Path,
    walk: &'a Walk,
}

impl Reader<'_> {
    /// The file's content, or that much of it; none if it is not there.
    fn bytes(&self, path: &str) -> Result<Option<Vec<u8>>, CompiledError> {
        if !self.walk.files.contains_key(path) {
            return Ok(None);
        }
        let full = self.root.join(path);
        let mut bytes = Vec::new();
        std::fs::File::open(&full)
            .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes))
            .map_err(|source| CompiledError::Io { path: full.display().to_string(), source })?;
        Ok(Some(bytes))
    }

    /// Every architecture that a stub or delegates are for; regions are still to come.
    fn architectures(&self) -> Result<BTreeMap<String, Architecture>, CompiledError> {
        let mut found: BTreeMap<String, Architecture> = BTreeMap::new();
        for name in self.walk.files.keys().filter_map(|path| stub_of(path)) {
            let stub = self.bytes(&stub_name(name))?.unwrap_or_default();
            found.entry(name.to_string()).or_default().preferred_devices = preferred_devices(&stub);
        }
        for name in self.walk.folders.iter().filter_map(|path| delegates_of(path)) {
            found.entry(name.to_string()).or_default();
        }
        for (name, architecture) in &mut found {
            self.delegates(name, architecture)?;
        }
        Ok(found)
    }

    fn delegates(&self, name: &str, architecture: &mut Architecture) -> Result<(), CompiledError> {
        let folder = format!("main-{name}-delegates/");
        let inside = self.walk.folders.iter().filter_map(|path| path.strip_prefix(&folder));
        architecture.delegates = inside.filter(|path| !path.contains('/')).map(String::from).collect();
        let manifests: Vec<&String> = self
            .walk
            .files
            .keys()
            .filter(|path| path.starts_with(&folder) && path.ends_with("/manifest.plist"))
            .collect();
        if manifests.is_empty() {
            architecture.signals = signals::of_manifest(name, None);
        }
        for path in manifests {
            let manifest: Result<Manifest, ManifestError> = Manifest::parse(&self.bytes(path)?.unwrap_or_default());
            architecture.signals.extend(signals::of_manifest(name, Some(&manifest)));
            let symbols = manifest.into_iter().flat_map(|manifest| manifest.entries.into_keys());
            architecture.functions.extend(symbols.map(|symbol| (symbol, Vec::new())));
        }
        Ok(())
    }

    fn hash(&self, architectures: &BTreeMap<String, Architecture>) -> Result<HashCheck, CompiledError> {
        let mut stubs = BTreeMap::new();
        for name in architectures.keys().map(|name| stub_name(name)).filter(|name| self.walk.files.contains_key(name)) {
            let full = self.root.join(&name);
            let io = |source| CompiledError::Io { path: full.display().to_string(), source };
            stubs.insert(name, Digest::of_file(&full).map_err(io)?.0);
        }
        Ok(HashCheck::of(self.bytes("main.hash")?.as_deref(), stubs))
    }

    fn stats(&self) -> Result<Option<Result<Stats, serde_json::Error>>, CompiledError> {
        Ok(self.bytes("stats.json")?.map(|bytes| Stats::parse(&bytes)))
    }

    /// Entries of `metadata.json`; one that is no object has none, since nothing rests on it.
    fn metadata(&self) -> Result<BTreeMap<String, String>, CompiledError> {
        let bytes = self.bytes("metadata.json")?.unwrap_or_default();
        let entries: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |value: serde_json::Value| value.as_str().map(String::from).unwrap_or_else(|| value.to_string());
        Ok(entries.into_iter().map(|(key, value)| (key, text(value))).collect())
    }
}

/// Each `preferredDevice=NAME` in the stub's bytes.
fn preferred_devices(stub: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"preferredDevice=";
    let name = |at: usize| {
        let rest = &stub[at + KEY.len()..];
        let end = rest.iter().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    };
    let names: BTreeSet<String> = memchr::memmem::find_iter(stub, KEY).map(name).filter(|n| !n.is_empty()).collect();
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_devices_of_a_stub() {
        let found = |bytes: &[u8]| preferred_devices(bytes).join(" ");
        assert_eq!(found(b"\0preferredDevice=GPU\0"), "GPU");
        assert_eq!(found(b"preferredDevice=NeuralEngine"), "NeuralEngine");
        assert_eq!(found(b"preferredDevice=GPU\0preferredDevice=CPU\"preferredDevice=GPU"), "CPU GPU");
        assert_eq!(found(b"preferredDevice=\0preferredDevice"), "");
    }
}
