//! What tells bundles apart. `main.hash` does not: it is the digest of a stub that holds no weights, so two models of
//! one shape share it, and the runtime's cache, keyed by it, served the weights of the other. The digest root does.

use super::CompiledBundle;
use crate::bundle::{Tree, TreeError};
use crate::digest::Digest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Whether `main.hash` is the digest of one of the bundle's stubs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HashCheck {
    /// It is.
    Verified {
        /// The stub's file name.
        stub: String,
        /// The digest.
        sha256: Digest,
    },
    /// It is the digest of none of them.
    Mismatch {
        /// What it says.
        declared: Digest,
        /// Digest of each stub, by file name.
        stubs: BTreeMap<String, Digest>,
    },
    /// It has not 32 bytes.
    Malformed {
        /// How many it has.
        bytes: u64,
    },
    /// There is none.
    Absent,
}

impl HashCheck {
    /// Holds the content of `main.hash` against the stubs.
    pub(super) fn of(declared: Option<&[u8]>, stubs: BTreeMap<String, Digest>) -> HashCheck {
        let Some(declared) = declared else { return HashCheck::Absent };
        let Ok(bytes) = <[u8; 32]>::try_from(declared) else {
            return HashCheck::Malformed { bytes: declared.len() as u64 };
        };
        let declared = Digest::from_bytes(bytes);
        match stubs.iter().find(|(_, sha256)| **sha256 == declared) {
            Some((stub, sha256)) => HashCheck::Verified { stub: stub.clone(), sha256: *sha256 },
            None => HashCheck::Mismatch { declared, stubs },
        }
    }

    /// What `main.hash` says, right or wrong.
    pub fn declared(&self) -> Option<Digest> {
        match self {
            HashCheck::Verified { sha256, .. } => Some(*sha256),
            HashCheck::Mismatch { declared, .. } => Some(*declared),
            HashCheck::Malformed { .. } | HashCheck::Absent => None,
        }
    }

    /// Whether it is there and wrong.
    pub fn is_wrong(&self) -> bool {
        match self {
            HashCheck::Mismatch { .. } | HashCheck::Malformed { .. } => true,
            HashCheck::Verified { .. } | HashCheck::Absent => false,
        }
    }
}

impl fmt::Display for HashCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HashCheck::Verified { stub, .. } => write!(f, "verified, the digest of {stub}"),
            HashCheck::Mismatch { declared, stubs } => {
                write!(f, "{declared} is the digest of no stub")?;
                stubs.iter().try_for_each(|(stub, sha256)| write!(f, "; {stub} has {sha256}"))
            }
            HashCheck::Malformed { bytes } => write!(f, "{bytes} bytes long, expected 32"),
            HashCheck::Absent => f.write_str("unknown, there is none"),
        }
    }
}

/// What a bundle is, and what the runtime takes it for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Folder name.
    pub name: String,
    /// What `main.hash` says.
    pub main_hash: Option<Digest>,
    /// Digest of the sorted lines `sha256  path` of all files.
    pub digest_root: Digest,
}

impl CompiledBundle {
    /// The bundle's identity; reads every byte of it.
    ///
    /// # Errors
    /// A file cannot be read, or something is neither file nor folder.
    pub fn identity(&self) -> Result<Identity, TreeError> {
        let digest_root = Tree::of(&self.path)?.root();
        Ok(Identity { name: self.name.clone(), main_hash: self.hash.declared(), digest_root })
    }
}

/// Bundles that share `main.hash` and are not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Announcement {
    /// The hash they share.
    pub main_hash: Digest,
    /// Names of the bundles by their digest root.
    pub roots: BTreeMap<Digest, Vec<String>>,
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.roots.values().flatten().map(String::as_str).collect();
        write!(
            f,
            "{} have the same main.hash and different files: the runtime's cache is keyed by that hash and can run one \
             for the other; tell them apart by digest root",
            names.join(" and ")
        )
    }
}

/// The groups of `bundles` that share `main.hash` but not the digest root.
pub fn shared_hash(bundles: &[Identity]) -> Vec<Announcement> {
    let mut groups: BTreeMap<Digest, BTreeMap<Digest, Vec<String>>> = BTreeMap::new();
    for bundle in bundles {
        let Some(main_hash) = bundle.main_hash else { continue };
        groups.entry(main_hash).or_default().entry(bundle.digest_root).or_default().push(bundle.name.clone());
    }
    let announced = groups.into_iter().filter(|(_, roots)| roots.len() > 1);
    announced.map(|(main_hash, roots)| Announcement { main_hash, roots }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str, hash: Option<&str>, root: &str) -> Identity {
        let digest = |text: &str| Digest::of(text.as_bytes());
        Identity { name: name.into(), main_hash: hash.map(digest), digest_root: digest(root) }
    }

    #[test]
    fn only_a_shared_hash_of_different_files_is_announced() {
        let [a, b] = [identity("a", Some("h"), "1"), identity("b", Some("h"), "2")];
        let copy = identity("copy of a", Some("h"), "1");
        let found = shared_hash(&[a.clone(), b, copy.clone()]);
        assert_eq!(found.len(), 1);
        insta::assert_snapshot!(found[0], @"a and copy of a and b have the same main.hash and different files: the runtime's cache is keyed by that hash and can run one for the other; tell them apart by digest root");
        let none = [identity("x", None, "1"), identity("y", None, "2"), identity("z", Some("g"), "3")];
        assert!(shared_hash(&none).is_empty());
        assert!(shared_hash(&[a, copy]).is_empty());
    }

    #[test]
    fn hash_checks() {
        let stubs = || BTreeMap::from([("main-h18p.mlirb".to_string(), Digest::of(b"stub"))]);
        let right = Digest::of(b"stub");
        let check = |declared: Option<&[u8]>| HashCheck::of(declared, stubs());
        insta::assert_snapshot!(check(Some(right.bytes())), @"verified, the digest of main-h18p.mlirb");
        insta::assert_snapshot!(check(Some(Digest::of(b"x").bytes())), @"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 is the digest of no stub; main-h18p.mlirb has 725c546b990dd1b41f3d5791b37c3c0edcb1f08cf150bdae32a73dfd166e02d7");
        insta::assert_snapshot!(check(Some(b"short")), @"5 bytes long, expected 32");
        insta::assert_snapshot!(check(None), @"unknown, there is none");
    }
}
