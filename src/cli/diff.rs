//! `eg2-convert diff`.

use super::failure::{Exit, Failure};
use super::table::{Table, bytes, thousands};
use super::{Checks, Report, inspect};
use crate::digest::Digest;
use crate::pipeline::{Changes, Difference, FileFact, Side, diff};
use std::path::PathBuf;

/// Show what differs between two artefacts: files, metadata, features, ops, weights, regions
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  eg2-convert diff old/encoder.h16c.aimodelc build/encoder.h16c.aimodelc")]
pub struct Opts {
    /// A .mlpackage, .aimodel or .aimodelc
    a: PathBuf,
    /// Another
    b: PathBuf,
    /// Exit 4 where they differ
    #[arg(long)]
    exit_code: bool,
}

/// Compares the artefacts.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let found = diff(&opts.a, &opts.b).map_err(|e| Failure::new(inspect::exit(&e.source), &e))?;
    let json = serde_json::to_value(&found).map_err(|e| Failure::new(Exit::Bug, &e))?;
    let checks = if opts.exit_code && !found.same { Checks::Failed } else { Checks::Passed };
    Ok(Report { text: table(&found), json, checks })
}

fn table(found: &Difference) -> String {
    let mut table = Table::default();
    for (label, side) in [("a", &found.a), ("b", &found.b)] {
        let Side { artefact, format, digest_root, main_hash } = side;
        table.row(label, format!("{artefact} ({format})")).row("", format!("root {}", short(digest_root)));
        if let Some(hash) = main_hash {
            table.row("", format!("main.hash {}", short(hash)));
        }
    }
    if found.same {
        table.row("same", "every file");
        return table.wrapped();
    }
    if let Some(announcement) = &found.shared_hash {
        table.row("WARNING", announcement);
    }
    let file = |f: &FileFact| format!("{} {}", short(&f.sha256), bytes(f.size));
    section("file", &found.files, file, &mut table);
    section("metadata", &found.metadata, |text| text.clone(), &mut table);
    section("feature", &found.features, |kind| kind.clone(), &mut table);
    section("ops", &found.operations, |n| thousands(*n), &mut table);
    section("weights", &found.weights, |n| thousands(*n), &mut table);
    section("regions", &found.region_counts, |n| thousands(*n), &mut table);
    section("region", &found.regions, |n| bytes(*n), &mut table);
    table.wrapped()
}

/// `+` for what only `b` has, `-` for what only `a` has, `~` for what both have with another value.
fn section<T>(label: &str, changes: &Changes<T>, shown: impl Fn(&T) -> String, table: &mut Table) {
    let Changes { added, removed, changed } = changes;
    for (sign, map) in [("-", removed), ("+", added)] {
        for (key, value) in map {
            table.row(label, format!("{sign} {key}: {}", shown(value)));
        }
    }
    for (key, [a, b]) in changed {
        table.row(label, format!("~ {key}: {} -> {}", shown(a), shown(b)));
    }
}

/// The first twelve digits.
fn short(digest: &Digest) -> String {
    digest.to_string().chars().take(12).collect()
}
