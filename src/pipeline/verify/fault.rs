//! What can be wrong with a release.

use crate::digest::Digest;
use crate::provenance::release::{Outcome, RELEASE_FILE};
use serde::Serialize;
use std::fmt;

/// Something that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Fault {
    /// A file's bytes are not those that `by` has the digest of.
    Changed {
        path: String,
        found: Digest,
        recorded: Digest,
        by: String,
    },
    Missing {
        path: String,
        by: String,
    },
    Extra {
        path: String,
        by: String,
    },
    /// Something that is no regular file, or cannot be read.
    Unreadable {
        why: String,
    },
    /// A line of the list of digests.
    Line {
        file: &'static str,
        line: usize,
        found: String,
    },
    /// A file that is made of the record is not what it makes.
    Text {
        file: &'static str,
    },
    /// A file is not spelt as this program spells it.
    Form {
        file: &'static str,
    },
    Record {
        why: String,
    },
    Recipe {
        why: String,
    },
    /// A field of the record is not what follows from the rest.
    Field {
        field: String,
        found: String,
        follows: String,
    },
    /// What a check is said to have come to does not follow from its numbers.
    Check {
        artefact: String,
        check: String,
        said: Outcome,
        follows: Outcome,
    },
    /// A device record does not belong, or says what does not follow from its figures.
    Device {
        why: String,
    },
    /// A bundle is not one of its format.
    Bundle {
        artefact: String,
        why: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Changed { path, found, recorded, by } => {
                write!(f, "{path} was changed: it has sha256 {found}, {by} has {recorded}")
            }
            Fault::Missing { path, by } => write!(f, "{path} is missing, which {by} lists"),
            Fault::Extra { path, by } => write!(f, "{path} was added: {by} does not list it"),
            Fault::Unreadable { why } => f.write_str(why),
            Fault::Line { file, line, found } => {
                write!(f, "{file}, line {line}: {found:?} is no `sha256  path` of its own")
            }
            Fault::Text { file } => write!(f, "{file} is not what the record makes of it"),
            Fault::Form { file } => write!(f, "{file} is not spelt as this program spells it: it was edited"),
            Fault::Record { why } => write!(f, "{RELEASE_FILE} is no record: {why}"),
            Fault::Recipe { why } => write!(f, "the recipe cannot be used: {why}"),
            Fault::Field { field, found, follows } => {
                write!(f, "{RELEASE_FILE}: {field} is {found}, but {follows} follows from the rest")
            }
            Fault::Check { artefact, check, said, follows } => {
                let (said, follows) = (word(*said), word(*follows));
                write!(f, "{RELEASE_FILE}: {artefact}: {check} is said to have {said}, but its numbers say {follows}")
            }
            Fault::Device { why } => write!(f, "{RELEASE_FILE}: a device record cannot be there: {why}"),
            Fault::Bundle { artefact, why } => write!(f, "{artefact}: {why}"),
        }
    }
}

const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "passed",
        Outcome::Fail => "failed",
        Outcome::NotRun => "not run",
    }
}
