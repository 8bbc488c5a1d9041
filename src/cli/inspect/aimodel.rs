//! A `.aimodel` for people.

use super::{files, listed};
use crate::cli::table::{Table, bytes, columns, thousands};
use crate::pipeline::AiModelView;

/// What is in it.
pub(super) fn table(found: &AiModelView) -> String {
    let mut table = Table::default();
    let model = &found.model;
    table.row("artefact", format!("{}, {}", found.artefact, bytes(found.tree.size())));
    for (key, text) in &model.metadata {
        table.row(key, text);
    }
    table.row("program", format!("bytecode version {} by {}", model.bytecode_version, model.producer));
    for dialect in &model.dialects {
        let version = dialect.version.map_or("without version".into(), |version| format!("version {version}"));
        table.row("dialect", format!("{}, {version}", dialect.name));
    }
    for function in &model.functions {
        table.row("function", &function.kind);
        table.row("  ops", thousands(function.ops.values().sum::<usize>() as u64));
        for line in columns(&function.ops) {
            table.row("", line);
        }
    }
    table.row("weights", format!("{} in {} blobs", bytes(model.blob_bytes), thousands(model.blobs as u64)));
    files(&found.tree, &mut table);
    table.row("main.hash", &model.hash).row("digest root", found.digest_root);
    listed("fault", &found.faults, &mut table);
    listed("path-like", &found.path_like, &mut table);
    table.not_run(&found.not_run);
    table.wrapped()
}
