//! `manifest.plist` of an `.mpsgraphpackage`: the few entries that bear on placement.

use plist::{Dictionary, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What a manifest says of regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// `ANERegionsHash`, by architecture.
    pub region_hashes: BTreeMap<String, String>,
    /// Attributes of each entry function, by its symbol.
    pub entries: BTreeMap<String, BTreeSet<String>>,
    /// Names of the `*.llir.bundle`s among its binary files.
    pub bundles: BTreeSet<String>,
}

/// Why a manifest was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    #[error("it is no XML property list: {0}")]
    Plist(#[from] plist::Error),
    #[error("it nests {0} containers, which is more than {MOST_CONTAINERS}")]
    Containers(usize),
    #[error("it has no \"Package Version\"")]
    NoVersion,
    #[error("no thread could be started to read it")]
    Thread,
}

/// Containers a manifest may have. A real one has 14, and a few more for each function and bucket.
const MOST_CONTAINERS: usize = 20_000;
/// Stack of the thread that reads it: values are dropped recursively, under 1 kB a level.
const STACK: usize = 64 << 20;

impl Manifest {
    /// Reads the file's bytes, which are XML: the other forms of a property list are never written here, and the
    /// binary one can name one object in many places, so that a small file unfolds without bound.
    ///
    /// # Errors
    /// It is no such list.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let starts = |tag: &[u8]| memchr::memmem::find_iter(bytes, tag).count();
        let containers = starts(b"<array") + starts(b"<dict");
        if containers > MOST_CONTAINERS {
            return Err(ManifestError::Containers(containers));
        }
        std::thread::scope(|threads| {
            let reader = std::thread::Builder::new().stack_size(STACK).spawn_scoped(threads, || Self::read(bytes));
            reader.map_err(|_| ManifestError::Thread)?.join().map_err(|_| ManifestError::Thread)?
        })
    }

    fn read(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let root = Value::from_reader_xml(bytes)?;
        let versions = root.as_dictionary().and_then(|root| dictionary(root, "Package Version"));
        let versions = versions.ok_or(ManifestError::NoVersion)?;
        let mut manifest = Manifest::default();
        for version in versions.values().filter_map(Value::as_dictionary) {
            manifest.add(version);
        }
        Ok(manifest)
    }

    fn add(&mut self, version: &Dictionary) {
        for (architecture, hash) in entries(version, "ANERegionsHash") {
            self.region_hashes.extend(hash.as_string().map(|hash| (architecture.clone(), hash.to_string())));
        }
        for (_, file) in entries(version, "Binary File Resources") {
            let name = file.as_dictionary().and_then(|file| file.get("File Name")).and_then(Value::as_string);
            self.bundles.extend(name.filter(|name| name.ends_with(".llir.bundle")).map(String::from));
        }
        for (_, module) in entries(version, "Optimized Modules") {
            let Some(module) = module.as_dictionary() else { continue };
            for (symbol, attributes) in entries(module, "Entry Function Attributes") {
                let attributes = attributes.as_array().into_iter().flatten().filter_map(Value::as_string);
                self.entries.entry(symbol.clone()).or_default().extend(attributes.map(String::from));
            }
        }
    }
}

fn dictionary<'a>(parent: &'a Dictionary, key: &str) -> Option<&'a Dictionary> {
    parent.get(key)?.as_dictionary()
}

fn entries<'a>(parent: &'a Dictionary, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    dictionary(parent, key).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Manifest::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_manifest() {
        insta::assert_snapshot!(error("<plist><array/></plist>"), @r#"it has no "Package Version""#);
        insta::assert_snapshot!(error(&"<array>".repeat(20_001)), @"it nests 20001 containers, which is more than 20000");
        for text in ["", "{", "bplist00", "<plist><dict>", "<plist><dict><key>Package Version</key></dict></plist>"] {
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_ones_do_not_overflow_the_stack() {
        let deep = |n| format!("<plist>{}{}</plist>", "<array>".repeat(n), "</array>".repeat(n));
        insta::assert_snapshot!(error(&deep(20_000)), @r#"it has no "Package Version""#);
    }

    #[test]
    fn entries_of_another_type_are_passed_over() {
        let text = "<plist><dict><key>Package Version</key><dict><key>7</key><dict>
            <key>ANERegionsHash</key><dict><key>h18p</key><integer>1</integer></dict>
            <key>Binary File Resources</key><array/>
            <key>Optimized Modules</key><dict><key>m</key><string/></dict></dict></dict></dict></plist>";
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), Manifest::default());
    }
}
