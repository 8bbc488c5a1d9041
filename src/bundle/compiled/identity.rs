//! What tells bundles apart. `main.hash` does not: it is the digest of a stub that holds no weights, so two models of
//! one shape share it, and the runtime's cache, keyed by it, served the weights of the other. The digest root does.

use super::CompiledBundle;
use crate::bundle::{Tree, TreeError};
use crate::digest::Digest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

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
}
