//! `eg2-convert regions`.

use super::failure::{Exit, Failure};
use super::table::{Table, bytes};
use super::{Checks, Report};
use crate::bundle::compiled::{
    CompiledBundle, ComputePlan, Expectation, Fault, Found, PlanError, Region, Verdict, short_stem,
};
use crate::pipeline::{Host, Regions, RegionsError, regions};
use crate::provenance::{NotRun, needs_a_load, not_loaded};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Most stems that are listed for a function.
const STEMS: usize = 4;

/// Count the Neural Engine regions of a compiled bundle, and hold them against what is expected
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  eg2-convert regions build/encoder.h16c.aimodelc --expect 1\n  \
                        eg2-convert regions build/reader.aimodelc --expect h16c=2,h18p=0\n\n\
                        A count is necessary and not sufficient: a bundle with its regions can still be refused by the \
                        device, or run on the GPU.")]
pub struct Opts {
    /// The .aimodelc; of an .mlpackage or .mlmodelc, Core ML's plan is asked for on macOS
    artefact: PathBuf,
    /// Regions that each architecture must have, or ARCHITECTURE=REGIONS,..., or @FILE with the same
    #[arg(long, value_name = "COUNTS")]
    expect: Option<String>,
}

/// Counts and compares.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let expectation = opts.expect.as_deref().map(str::parse::<Expectation>).transpose();
    let expectation = expectation.map_err(|e| Failure::new(Exit::Usage, &e))?;
    let found = regions(&opts.artefact, expectation.as_ref(), &Host::this()).map_err(|e| failure(&e))?;
    Ok(match &found {
        Regions::Counted { bundle, faults, verdict } => counted(bundle, faults, verdict.as_ref()),
        Regions::Planned { artefact, plan, contradiction } => {
            planned(artefact, plan, expectation.as_ref(), contradiction.as_deref())
        }
        Regions::NotRun { artefact, reason } => not_run(artefact, reason, expectation.as_ref()),
    })
}

fn failure(error: &RegionsError) -> Failure {
    let exit = match error {
        RegionsError::Compiled(_) | RegionsError::NotCompiled { .. } | RegionsError::NotFolder { .. } => Exit::BadInput,
        RegionsError::Plan(error) => match error {
            PlanError::Cache { .. } => Exit::Usage,
            PlanError::NoXcrun
            | PlanError::Start { .. }
            | PlanError::Timeout { .. }
            | PlanError::Failed { .. }
            | PlanError::Output(_) => Exit::Tool,
        },
    };
    Failure::new(exit, error)
}

fn counted(bundle: &CompiledBundle, faults: &[Fault], verdict: Option<&Verdict>) -> Report {
    let mut table = Table::default();
    table.row("artefact", format!("{}, {} files, {}", bundle.name, bundle.files, bytes(bundle.bytes)));
    architectures(bundle, &mut table);
    table.row("main.hash", &bundle.hash);
    let faults = verdict.map_or(faults, |verdict| verdict.faults.as_slice());
    for fault in faults {
        table.row("fault", fault);
    }
    if let Some(verdict) = verdict {
        table.row("expected", expected(verdict));
        table.row("verdict", if verdict.passed() { "passed" } else { "FAILED" });
    }
    let failed = verdict.is_some_and(|verdict| !verdict.passed());
    let checks = if failed { Checks::Failed } else { Checks::NotRun };
    let not_run = needs_a_load();
    table.not_run(&not_run);
    let json = json!({
        "artefact": bundle.name,
        "format": "aimodelc",
        "bundle": bundle,
        "verdict": verdict,
        "passed": verdict.map(Verdict::passed),
        "faults": faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "not_run": not_run,
    });
    Report { text: table.wrapped(), json, checks }
}

/// What was expected of each architecture.
fn expected(verdict: &Verdict) -> String {
    let of = |(name, held): (&String, &Found)| match held.expected {
        Some(expected) => format!("{name} {expected}"),
        None => format!("{name} any number"),
    };
    verdict.architectures.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// What a bundle holds for each architecture.
pub(super) fn architectures(bundle: &CompiledBundle, table: &mut Table) {
    if bundle.linked {
        table.row("link", "the bundle was named by a link, through which the runtime fails to load it");
    }
    if bundle.architectures.is_empty() {
        table.row("architecture", "none");
    }
    for (name, architecture) in &bundle.architectures {
        let (regions, ir) = (architecture.region_count(), bytes(architecture.ir_bytes()));
        table.row("architecture", format!("{name}: {}, {ir} of code", plural(regions)));
        let or_unknown = |list: &[String]| if list.is_empty() { "unknown".to_string() } else { list.join(", ") };
        table.row("  prefers", or_unknown(&architecture.preferred_devices));
        table.row("  delegates", or_unknown(&architecture.delegates));
        for (symbol, regions) in &architecture.functions {
            table.row("  function", format!("{}: {}", short_stem(symbol), plural(regions.len())));
            stems(symbol, regions, table);
        }
        for signal in &architecture.signals {
            let function = signal.function.as_deref().map(|f| format!("{}: ", short_stem(f))).unwrap_or_default();
            let (kind, agreement, says) =
                (signal.kind.name(), architecture.agreement(signal).name(), signal.says.text());
            table.row("  signal", format!("{function}{kind} {agreement} ({says})"));
        }
    }
}

/// The first regions of a function, without its symbol, which is told above them.
fn stems(symbol: &str, regions: &[Region], table: &mut Table) {
    for region in regions.iter().take(STEMS) {
        let name = region.stem.strip_prefix(symbol).unwrap_or(&region.stem).trim_start_matches('_');
        let weights = region.weights_bytes.map(|n| format!(", weights {}", bytes(n))).unwrap_or_default();
        table.row("", format!("  {name}  {}{weights}", bytes(region.ir_bytes)));
    }
    if regions.len() > STEMS {
        table.row("", format!("  and {} more", regions.len() - STEMS));
    }
}

fn plural(regions: usize) -> String {
    if regions == 1 { "1 region".to_string() } else { format!("{regions} regions") }
}

fn planned(artefact: &str, plan: &ComputePlan, expected: Option<&Expectation>, contradiction: Option<&str>) -> Report {
    const WHY: &str = "a compute plan tells devices by operation and no regions";
    let mut table = Table::default();
    table.row("artefact", artefact);
    for function in &plan.functions {
        let devices: Vec<String> = function.devices().iter().map(|(name, n)| format!("{name} {n}")).collect();
        table.row("function", format!("{}: {}", function.name, devices.join(", ")));
    }
    match (expected, contradiction) {
        (_, Some(why)) => table.row("verdict", format!("FAILED: {why}")),
        (Some(_), None) => table.row("verdict", "not run, which is no pass"),
        (None, None) => &mut table,
    };
    let mut not_run = vec![NotRun { name: "ane_regions", reason: WHY }];
    not_run.extend(not_loaded("a plan is no run"));
    table.not_run(&not_run);
    let json = json!({
        "artefact": artefact,
        "plan": plan,
        "passed": contradiction.map(|_| false),
        "faults": contradiction.into_iter().collect::<Vec<_>>(),
        "not_run": not_run,
    });
    let checks = if contradiction.is_some() { Checks::Failed } else { Checks::NotRun };
    Report { text: table.wrapped(), json, checks }
}

fn not_run(artefact: &str, reason: &'static str, expected: Option<&Expectation>) -> Report {
    let mut table = Table::default();
    table.row("artefact", artefact);
    if expected.is_some() {
        table.row("verdict", "not run, which is no pass");
    }
    let mut not_run = vec![NotRun { name: "compute_plan", reason }];
    not_run.extend(needs_a_load());
    table.not_run(&not_run);
    let json = json!({
        "artefact": artefact,
        "passed": Value::Null,
        "faults": [],
        "not_run": not_run,
    });
    Report { text: table.wrapped(), json, checks: Checks::NotRun }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan needs macOS, so the command shows none elsewhere.
    #[test]
    fn a_plan_is_told_as_its_schema_says() {
        let schema = jsonschema::draft202012::new(&crate::cli::schema::of("regions")).unwrap();
        let plan = r#"{"functions": [{"name": "main", "operations": [
            {"type": "ios18.conv", "device": "neural_engine"}, {"type": "const", "device": null}]}]}"#;
        let plan: ComputePlan = serde_json::from_str(plan).unwrap();
        let one = "1".parse::<Expectation>().unwrap();
        for (expected, contradiction, checks) in
            [(None, None, Checks::NotRun), (Some(&one), None, Checks::NotRun), (Some(&one), Some("no"), Checks::Failed)]
        {
            let mut report = planned("a.mlmodelc", &plan, expected, contradiction);
            assert_eq!(report.checks, checks);
            assert!(report.text.contains("neural_engine 1") && report.text.contains("device load"), "{}", report.text);
            assert!(schema.is_valid(&report.json), "{:#}", report.json);
            report.json["passed"] = true.into();
            assert!(!schema.is_valid(&report.json), "a plan passes nothing");
        }
    }
}
