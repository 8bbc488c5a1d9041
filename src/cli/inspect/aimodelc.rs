//! A `.aimodelc` for people.

use super::{files, listed};
use crate::cli::regions::architectures;
use crate::cli::table::{Table, bytes, columns, thousands};
use crate::pipeline::CompiledView;

/// What is in it.
pub(super) fn table(found: &CompiledView) -> String {
    let mut table = Table::default();
    let bundle = &found.bundle;
    table.row("artefact", format!("{}, {} files, {}", found.artefact, bundle.files, bytes(bundle.bytes)));
    for (key, text) in &bundle.metadata {
        table.row(key, text);
    }
    architectures(bundle, &mut table);
    if let Some(stats) = &bundle.stats {
        let total: u64 = stats.operations.values().sum();
        table.row("graph", format!("{} operations, before placement", thousands(total)));
        for line in columns(&stats.operations) {
            table.row("", line);
        }
        let types = stats.compute.iter().cloned().collect::<Vec<_>>().join(", ");
        for (label, list) in [("stored", columns(&stats.storage).join(", ")), ("computed in", types)] {
            if !list.is_empty() {
                table.row(label, list);
            }
        }
    }
    files(&found.tree, &mut table);
    table.row("main.hash", &bundle.hash).row("digest root", found.digest_root);
    listed("fault", &found.faults, &mut table);
    listed("path-like", &found.path_like, &mut table);
    table.not_run(&found.not_run);
    table.wrapped()
}
