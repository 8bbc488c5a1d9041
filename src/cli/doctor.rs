//! `eg2-convert doctor`.

use super::failure::{Exit, Failure};
use super::table::Table;
use super::{Checks, Report};
use crate::toolchain::{Health, Interpreter, Interrupt, Origin, PYTHON_VARIABLE, Probe, Search, Serializer, probe};
use serde_json::{Value, json};

/// Show which tools are here, their versions, and what works without each
#[derive(Debug, clap::Args)]
pub struct Opts {
    /// Fail (exit 4) unless every tool is ready
    #[arg(long)]
    strict: bool,
}

/// Asks every tool. A missing one is no failure: this program does most of its work without any.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let interrupt = Interrupt::listen().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let probes = probe(&Search::from_process(), &Serializer::from_process(), &interrupt);
    if interrupt.raised() {
        return Err(Failure {
            exit: Exit::Interrupted,
            messages: vec!["interrupted".to_string()],
            details: Value::Null,
        });
    }
    let unready: Vec<&Probe> = probes.iter().filter(|p| !p.is_ready()).collect();
    let json = json!({ "tools": probes });
    if opts.strict && !unready.is_empty() {
        let names: Vec<&str> = unready.iter().map(|p| p.name).collect();
        let message = format!("not ready: {}; `eg2-convert doctor` says more", names.join(", "));
        return Err(Failure { exit: Exit::CheckFailed, messages: vec![message], details: json });
    }
    Ok(Report { text: table(&probes), json, checks: Checks::Passed })
}

fn table(probes: &[Probe]) -> String {
    let mut table = Table::default();
    for probe in probes {
        match &probe.health {
            Health::Ready { version } => {
                table.row(probe.name, version);
                if let Some(interpreter) = &probe.interpreter {
                    table.row("", place(interpreter));
                }
                continue;
            }
            Health::OtherVersion { version, wanted } => {
                table.row(probe.name, format!("{version}, but {wanted} is wanted"));
            }
            Health::Broken { reason } => {
                table.row(probe.name, "found, but it does not run");
                table.prose("", &format!("it says: {reason}"));
            }
            Health::Missing => {
                table.row(probe.name, "not found");
            }
        }
        if let Some(interpreter) = &probe.interpreter {
            table.row("", format!("looked for: {}", place(interpreter)));
        }
        table.prose("", &format!("without it: {}", probe.without));
        table.prose("", &format!("to get it: {}", probe.how_to_install));
    }
    table.render()
}

fn place(interpreter: &Interpreter) -> String {
    let python = interpreter.python.display();
    match interpreter.origin {
        Origin::Variable => format!("{python}, of ${PYTHON_VARIABLE}"),
        Origin::Cache => python.to_string(),
    }
}
