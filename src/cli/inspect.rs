//! `eg2-convert inspect`.

use super::Report;
use super::failure::{Exit, Failure};
use super::table::{Table, bytes, thousands};
use crate::pipeline::{InspectError, Inspection, inspect};
use std::path::PathBuf;

/// Show what is in an artefact: features, ops, weights, digests, and what keeps it off the Neural Engine
#[derive(Debug, clap::Args)]
pub struct Opts {
    /// The .mlpackage, from any tool
    artefact: PathBuf,
}

/// Looks into the artefact.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let found = inspect(&opts.artefact).map_err(|e| failure(&e))?;
    let json = serde_json::to_value(&found).map_err(|e| Failure::new(Exit::Bug, &e))?;
    Ok(Report { text: table(&found), json })
}

fn failure(error: &InspectError) -> Failure {
    let exit = match error {
        InspectError::Package(_) | InspectError::Tree(_) | InspectError::Scan { .. } => Exit::BadInput,
        InspectError::Hashing => Exit::Bug,
    };
    Failure::new(exit, error)
}

fn table(found: &Inspection) -> String {
    let mut table = Table::default();
    table.row("artefact", format!("{}, specification {}", found.artefact, found.specification));
    for (key, text) in &found.metadata {
        table.row(key, text);
    }
    for function in &found.functions {
        table.row("function", format!("{} ({})", function.name, function.opset));
        for (label, features) in
            [("  in", &function.inputs), ("  out", &function.outputs), ("  state", &function.states)]
        {
            for feature in features {
                table.row(label, feature);
            }
        }
        let total: usize = function.ops.values().sum();
        table.row(
            "  ops",
            format!(
                "{} and {} constants, rank at most {}",
                thousands(total as u64),
                thousands(function.constants as u64),
                function.max_rank
            ),
        );
        for line in columns(&function.ops) {
            table.row("", line);
        }
    }
    let weights = &found.weights;
    let by_type: Vec<String> = weights.bytes.iter().map(|(kind, n)| format!("{kind} {}", bytes(*n))).collect();
    table.row("weights", format!("{} elements, {:.2} bits each", thousands(weights.elements), weights.bits_per_weight));
    table.row("", by_type.join(", "));
    for file in &found.tree.files {
        table.row("file", format!("{}  {}", file.path, bytes(file.size)));
        table.row("", file.sha256);
    }
    table.row("digest root", found.digest_root);
    findings(found, &mut table);
    table.render()
}

fn findings(found: &Inspection, table: &mut Table) {
    if found.placement_blockers.is_empty() {
        table.row("Neural Engine", "no known rule is broken, which is necessary and not sufficient");
    }
    for blocker in &found.placement_blockers {
        table.row("Neural Engine", format!("{} ({} times, first at {})", blocker.effect, blocker.count, blocker.first));
        table.row("", format!("source: {}", blocker.source));
    }
    for (what, list) in [("violation", &found.violations), ("path-like", &found.path_like)] {
        if list.is_empty() {
            table.row(what, "none");
        }
        for item in list {
            table.row(what, item);
        }
    }
    if let Err(why) = &found.liftable {
        table.row("not runnable", why);
    }
    for (what, why) in &found.not_run {
        table.row(*what, format!("not run ({why})"));
    }
}

/// `type count` in lines of a comfortable width.
fn columns(ops: &std::collections::BTreeMap<String, usize>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (kind, count) in ops {
        let item = format!("{kind} {}", thousands(*count as u64));
        match lines.last_mut() {
            Some(line) if line.len() + item.len() < 62 => {
                line.push_str(", ");
                line.push_str(&item);
            }
            _ => lines.push(item),
        }
    }
    lines
}
