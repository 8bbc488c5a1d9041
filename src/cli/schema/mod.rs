//! `eg2-convert schema`: what the command takes, how it ends, and the form of everything it prints and writes as JSON.

mod commands;
mod documents;
mod ops;

use super::failure::{Exit, Failure};
use super::table::Table;
use super::{Checks, Cli, Report};
use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use commands::{Argument, Command};
use serde_json::json;

/// Print commands, exit codes, ops and JSON Schemas, for programs that use this one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  eg2-convert schema\n  eg2-convert schema encoder > encoder.schema.json\n  \
                        eg2-convert schema --json")]
pub struct Opts {
    /// Print the JSON Schema of that name alone: of what a command prints with --json, or of a file that is written
    #[arg(hide_possible_values = true, value_parser = PossibleValuesParser::new(documents::names()))]
    name: Option<String>,
}

/// Tells everything, or one schema.
pub fn run(opts: Opts) -> Result<Report, Failure> {
    let commands = Command::all(Cli::command());
    let schemas = documents::schemas(&commands).map_err(|e| Failure::new(Exit::Bug, &e))?;
    if let Some(schema) = opts.name.and_then(|name| schemas.get(&name)) {
        return Ok(Report { text: super::pretty(schema), json: schema.clone(), checks: Checks::Passed });
    }
    let ops = ops::ops().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let code = |exit: Exit| json!({ "code": exit.code(), "name": exit.name(), "meaning": exit.meaning() });
    let json = json!({
        "commands": commands,
        "exit_codes": Exit::ALL.map(code),
        "ops": ops,
        "schemas": schemas,
    });
    Ok(Report { text: table(&commands, &ops, schemas.keys()), json, checks: Checks::Passed })
}

fn table<'s>(commands: &[Command], ops: &[ops::Spelling], schemas: impl Iterator<Item = &'s String>) -> String {
    let mut table = Table::default();
    let shown = |args: Vec<&Argument>| args.iter().map(|arg| arg.shown()).collect::<Vec<_>>().join(" ");
    let mut pending: Vec<(&Command, &str)> = commands.iter().map(|command| (command, "")).rev().collect();
    while let Some((command, indent)) = pending.pop() {
        table.row(format!("{indent}{}", command.name), &command.about);
        let own = command.arguments.iter().chain(command.options.iter().filter(|option| !option.common));
        let own: Vec<&Argument> = own.collect();
        if !own.is_empty() {
            table.row("", shown(own));
        }
        pending.extend(command.commands.iter().map(|below| (below, "  ")).rev());
    }
    if let Some(any) = commands.first() {
        table.row("each of them", shown(any.options.iter().filter(|option| option.common).collect()));
    }
    for exit in Exit::ALL {
        table.row(format!("exit code {}", exit.code()), exit.meaning());
    }
    let or_none = |list: &[String]| if list.is_empty() { "none".to_string() } else { list.join(", ") };
    for op in ops {
        let spelt = format!("MIL {}; Core AI {}", or_none(&op.mil), or_none(&op.core_ai));
        table.row(format!("op {}", op.name), spelt);
    }
    let names: Vec<&str> = schemas.map(String::as_str).collect();
    table.row("schemas", names.join(" ")).row("", "eg2-convert schema NAME prints one");
    table.wrapped()
}

/// The schema of `name`, for tests of what a command does not print here.
#[cfg(test)]
pub(super) fn of(name: &str) -> serde_json::Value {
    documents::schemas(&Command::all(Cli::command())).unwrap()[name].clone()
}
