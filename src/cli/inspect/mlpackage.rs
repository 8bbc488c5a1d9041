//! A `.mlpackage` for people.

use crate::cli::table::{Table, bytes, columns, thousands};
use crate::pipeline::PackageView;

/// What is in it.
pub(super) fn table(found: &PackageView) -> String {
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

fn findings(found: &PackageView, table: &mut Table) {
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
    if let Some(why) = &found.not_liftable {
        table.row("not runnable", why);
    }
    table.not_run(&found.not_run);
}
