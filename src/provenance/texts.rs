//! The texts of a release for people, made of its record alone: whoever has the record can make them again, which is how
//! a changed one is found.

use super::release::{Outcome, RECIPE_FILE, RELEASE_FILE, ReleaseRecord, Released, STATEMENT_FILE, SUMS_FILE};
use crate::bundle::FileDigest;
use crate::digest::Digest;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The licence that most sources have, as it is put into a release.
pub const APACHE: &str = include_str!("../../LICENSE");

/// Names of the texts in a release.
pub const README_FILE: &str = "README.md";
/// The source, its licence, and that it was modified.
pub const NOTICE_FILE: &str = "NOTICE";
/// The licence.
pub const LICENSE_FILE: &str = "LICENSE";

/// `SHA256SUMS` over `files`: what `sha256sum -c` takes, sorted by path.
pub fn sums(files: &[FileDigest]) -> String {
    files.iter().fold(String::new(), |mut text, file| {
        let _ = writeln!(text, "{}  {}", file.sha256, file.path);
        text
    })
}

/// Digests by path of such a list, and its lines, by their numbers, that are none of it or name a path again.
pub fn listed(text: &str) -> (BTreeMap<&str, Digest>, Vec<(usize, &str)>) {
    let (mut list, mut wrong) = (BTreeMap::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let parsed = line.split_once("  ").and_then(|(sha256, path)| Some((digest(sha256)?, path)));
        match parsed.filter(|(_, path)| !list.contains_key(path)) {
            Some((sha256, path)) => drop(list.insert(path, sha256)),
            None => wrong.push((at + 1, line)),
        }
    }
    (list, wrong)
}

/// 64 digits, small ones, as they are written.
fn digest(text: &str) -> Option<Digest> {
    let read: Result<Digest, ValueError> = Digest::deserialize(text.into_deserializer());
    read.ok().filter(|digest| digest.to_string() == text)
}

/// What the source's licence asks for: whose work this is, and that it was changed.
pub fn notice(record: &ReleaseRecord) -> String {
    let source = &record.source;
    let mut text = format!("{}\n\n", record.name);
    match &source.repository {
        Some(repository) => {
            let revision = source.revision.as_deref().unwrap_or("not told");
            let _ = writeln!(
                text,
                "This is a modified form of {repository}, revision {revision}, which its authors license under\n{}; see \
                 {LICENSE_FILE}.",
                source.license
            );
        }
        None => {
            let _ = writeln!(
                text,
                "The source has no repository by its recipe. Its licence is {}; see {LICENSE_FILE}.",
                source.license
            );
        }
    }
    let _ = writeln!(
        text,
        "\nModified: {} {} re-authored its weights as static graphs. {RELEASE_FILE} says of which files, by\nwhich commands \
         and in which numbers.",
        record.tool.name, record.tool.version
    );
    if record.synthetic {
        text.push_str("\nThe weights are random: these are no weights of a published model.\n");
    }
    text
}

/// What the folder holds, what was checked and what was not.
pub fn readme(record: &ReleaseRecord) -> String {
    let mut text = format!("# {}\n\n", record.name);
    if record.synthetic {
        text.push_str("**Synthetic: the weights are random. For trying the tools, and for nothing else.**\n\n");
    }
    if !record.pinned {
        text.push_str("**Unpinned: the recipe does not say which source files are the right ones.**\n\n");
    }
    let source = &record.source;
    let of = match (&source.repository, source.seed) {
        (Some(repository), _) => {
            format!("{repository}, revision {}", source.revision.as_deref().unwrap_or("not told"))
        }
        (None, Some(seed)) => format!("weights of seed {seed}"),
        (None, None) => "files whose repository the recipe does not name".into(),
    };
    let _ = writeln!(
        text,
        "Made of {of} by {} {}; `{RECIPE_FILE}` is the recipe, `{RELEASE_FILE}` the record of all that was done,\n\
         `{STATEMENT_FILE}` the same as an in-toto statement.\n",
        record.tool.name, record.tool.version
    );
    text.push_str("| bundle | bytes | gate | regions | loads on device | placed on ANE |\n| --- | --- | --- | --- | --- | --- |\n");
    for bundle in &record.artefacts {
        row(bundle, &mut text);
    }
    text.push_str("\nDigest roots, of the sorted lines `sha256  path` of each bundle's files:\n\n");
    for bundle in &record.artefacts {
        let _ = writeln!(text, "    {}  {}", bundle.digest_root, bundle.name);
    }
    let _ = write!(
        text,
        "\n## To check it\n\n    sha256sum -c {SUMS_FILE}\n    eg2-convert verify .\n\nBoth say that nothing was changed since; \
         neither says who made it: for that, sign `{SUMS_FILE}`.\n\n## Not run\n\nNone of this is a pass.\n\n"
    );
    for left in &record.not_run {
        let _ = writeln!(text, "- {}: {}: {}", left.artefact, left.name, left.reason);
    }
    text.push_str(HOSTS);
    text
}

const HOSTS: &str = "
## For hosts

- One call of a function at a time: two in flight give wrong outputs.
- The runtime's cache goes by `main.hash`, which bundles of different weights may share: tell them apart by digest root.
- The first load on a Neural Engine takes minutes; give it no timeout below ten.
- An iOS bundle is not to be loaded on a Mac.
";

fn row(bundle: &Released, text: &mut String) {
    let said = |outcome: Outcome| match outcome {
        Outcome::Pass => "passed",
        Outcome::Fail => "FAILED",
        Outcome::NotRun => "not run",
    };
    let counts = bundle.regions.architectures.iter().map(|(name, count)| format!("{name} {}", count.found));
    let regions = match bundle.regions.outcome {
        Outcome::NotRun => "not run".to_string(),
        Outcome::Pass | Outcome::Fail => counts.collect::<Vec<_>>().join(", "),
    };
    let _ = writeln!(
        text,
        "| {} | {} | {} | {regions} | {} | {} |",
        bundle.name,
        bundle.bytes,
        said(bundle.gate.outcome),
        said(bundle.loads_on_device.outcome),
        said(bundle.placed_on_ane.outcome)
    );
}
