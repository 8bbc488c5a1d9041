//! What became of each check, and of them all.

use super::{Limits, Measure, Options};
use serde::Serialize;
use serde_json::Value;

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Verdict {
    /// It held.
    Pass,
    /// It did not.
    Fail,
    /// It was not run, which is no pass.
    NotRun {
        /// Why not.
        reason: String,
    },
}

impl Verdict {
    /// Pass where every measure holds. Of none nothing is known, which is no pass.
    pub fn of(measures: &[Measure]) -> Verdict {
        let held = !measures.is_empty() && measures.iter().all(Measure::holds);
        if held { Verdict::Pass } else { Verdict::Fail }
    }
}

/// One check over all clips.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// What became of it.
    pub verdict: Verdict,
    /// What the verdict is made of; none where it was not run.
    pub measures: Vec<Measure>,
    /// Its figures in a sentence; empty where it was not run.
    pub says: String,
    /// More for people, a line each, such as every flip; the clips' figures have the same.
    #[serde(skip)]
    pub lines: Vec<String>,
    /// Figures besides.
    pub figures: Value,
}

impl Check {
    /// A check that was run, which passed where all its measures hold.
    pub fn run(name: &'static str, measures: impl Into<Vec<Measure>>, says: String, figures: Value) -> Check {
        let measures = measures.into();
        Check { name, verdict: Verdict::of(&measures), measures, says, lines: Vec::new(), figures }
    }

    /// A check that was not.
    pub fn not_run(name: &'static str, reason: impl Into<String>) -> Check {
        let verdict = Verdict::NotRun { reason: reason.into() };
        Check { name, verdict, measures: Vec::new(), says: String::new(), lines: Vec::new(), figures: Value::Null }
    }

    /// The same check with lines for people.
    #[must_use]
    pub fn with_lines(self, lines: Vec<String>) -> Check {
        Check { lines, ..self }
    }
}

/// All that a gate found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `encoder` or `reader`.
    pub model: &'static str,
    /// What the result had to keep to.
    pub limits: Limits,
    /// Runs of each clip that had to agree.
    pub repeats: usize,
    /// What was found of each clip.
    pub clips: Vec<Value>,
    /// The checks over all clips.
    pub checks: Vec<Check>,
}

impl Report {
    /// The report where no golden is given: none of those checks was run.
    pub fn without_goldens(model: &'static str, checks: &[&'static str], options: &Options<'_>) -> Report {
        let checks = checks.iter().map(|name| Check::not_run(name, "no golden is given, by --golden")).collect();
        Report { model, limits: options.limits, repeats: options.repeats, clips: Vec::new(), checks }
    }

    /// Fail where one check failed, else Pass, whatever was not run.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != Verdict::Fail)
    }

    /// Whether a check was not run.
    pub fn left_out(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.verdict, Verdict::NotRun { .. }))
    }
}
