//! `main.hash`: 32 raw bytes, the SHA-256 of the program beside it.

use crate::digest::Digest;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Whether `main.hash` is the digest of one of the bundle's programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HashCheck {
    /// It is.
    Verified {
        /// The file's name.
        file: String,
        /// The digest.
        sha256: Digest,
    },
    /// It is the digest of none of them.
    Mismatch {
        /// What it says.
        declared: Digest,
        /// Digest of each program, by file name.
        programs: BTreeMap<String, Digest>,
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
    /// Holds the content of `main.hash` against the programs.
    pub(super) fn of(declared: Option<&[u8]>, programs: BTreeMap<String, Digest>) -> HashCheck {
        let Some(declared) = declared else { return HashCheck::Absent };
        let Ok(bytes) = <[u8; 32]>::try_from(declared) else {
            return HashCheck::Malformed { bytes: declared.len() as u64 };
        };
        let declared = Digest::from_bytes(bytes);
        match programs.iter().find(|(_, sha256)| **sha256 == declared) {
            Some((file, sha256)) => HashCheck::Verified { file: file.clone(), sha256: *sha256 },
            None => HashCheck::Mismatch { declared, programs },
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
            HashCheck::Verified { file, .. } => write!(f, "verified, the digest of {file}"),
            HashCheck::Mismatch { declared, programs } => {
                let programs: Vec<String> =
                    programs.iter().map(|(file, sha256)| format!("{file} ({sha256})")).collect();
                match programs.is_empty() {
                    true => write!(f, "{declared} is the digest of nothing here"),
                    false => write!(f, "{declared} is not the digest of {}", programs.join(" or ")),
                }
            }
            HashCheck::Malformed { bytes } => write!(f, "{bytes} bytes long, expected 32"),
            HashCheck::Absent => f.write_str("unknown, there is none"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_checks() {
        let programs = || BTreeMap::from([("main-h18p.mlirb".to_string(), Digest::of(b"stub"))]);
        let right = Digest::of(b"stub");
        let check = |declared: Option<&[u8]>| HashCheck::of(declared, programs());
        insta::assert_snapshot!(check(Some(right.bytes())), @"verified, the digest of main-h18p.mlirb");
        insta::assert_snapshot!(check(Some(Digest::of(b"x").bytes())), @"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 is not the digest of main-h18p.mlirb (725c546b990dd1b41f3d5791b37c3c0edcb1f08cf150bdae32a73dfd166e02d7)");
        insta::assert_snapshot!(check(Some(b"short")), @"5 bytes long, expected 32");
        insta::assert_snapshot!(check(None), @"unknown, there is none");
    }
}
