//! `eg2-convert tools`: Apple's serializer installed and removed.

use super::failure::{Exit, Failure};
use super::table::Table;
use super::{Checks, Common, Report};
use crate::toolchain::{
    COREAI_CORE, Finished, InstallError, Installed, Interrupt, PYTHON_VARIABLE, Plan, Search, Serializer, install,
    is_ready, remove,
};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Consents to an installation where it is `1`.
const ALLOW_VARIABLE: &str = "EG2_ALLOW_INSTALL";

/// Install or remove Apple's serializer, which writes, reads and runs .aimodel; `doctor` lists the tools
#[derive(Debug, clap::Args)]
pub struct Opts {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Install(Install),
    /// Remove what `tools install` put into the user's cache
    Remove,
}

/// Install coreai-core and what it needs, pinned by sha256, into the user's cache, with uv or else pip
#[derive(Debug, clap::Args)]
struct Install {
    /// Fetch without asking; EG2_ALLOW_INSTALL=1 does the same
    #[arg(long, short)]
    yes: bool,
    /// Make it anew where it is there already
    #[arg(long)]
    force: bool,
}

/// Does what was asked for.
pub fn run(opts: Opts, common: &Common) -> Result<Report, Failure> {
    let interrupt = Interrupt::listen().map_err(|e| Failure::new(Exit::Bug, &e))?;
    let serializer = Serializer::from_process();
    match opts.action {
        Action::Install(install) => provision(&install, common, &serializer, &interrupt),
        Action::Remove => {
            let removed = remove(&serializer, &interrupt).map_err(|e| failure(&e))?;
            Ok(report(&serializer, if removed { "removed" } else { "not there" }))
        }
    }
}

fn provision(
    opts: &Install,
    common: &Common,
    serializer: &Serializer,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    if !opts.force && is_ready(serializer, interrupt) {
        return Ok(report(serializer, "installed already"));
    }
    let plan = Plan::new(&Search::from_process(), serializer, interrupt).map_err(|e| failure(&e))?;
    if !(opts.yes || std::env::var_os(ALLOW_VARIABLE).is_some_and(|v| v == "1")) {
        consent(&plan, interrupt)?;
    }
    let told = |what: &str| {
        if !common.quiet {
            let _ = writeln!(std::io::stderr(), "{what}");
        }
    };
    let outcome = match install(&plan, serializer, opts.force, interrupt, &told).map_err(|e| failure(&e))? {
        Installed::Fresh => "installed",
        Installed::Already => "installed already",
    };
    Ok(report(serializer, outcome))
}

/// Asks on a terminal; refuses where there is none.
fn consent(plan: &Plan, interrupt: &Interrupt) -> Result<(), Failure> {
    let refused = |message: String| Failure { exit: Exit::Tool, messages: vec![message], details: Value::Null };
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(refused(format!(
            "{} is fetched from the package index only where that is allowed; run `eg2-convert tools install --yes`, \
             or set {ALLOW_VARIABLE}=1",
            COREAI_CORE.0
        )));
    }
    let _ = write!(
        std::io::stderr(),
        "This fetches up to 100 MB from the package index that pip and uv are set to:\n  {}\nand installs it into {}\n\
         by {}. Go ahead? [y/N] ",
        Plan::packages().collect::<Vec<_>>().join("\n  "),
        plan.folder().display(),
        plan.means(),
    );
    let answer = answer(interrupt).ok_or_else(|| failure(&InstallError::Interrupted))?;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(refused("not allowed; nothing was fetched".to_string()))
    }
}

/// A line from standard input; none where the user interrupts, which would not end the reading.
fn answer(interrupt: &Interrupt) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        let _ = sender.send(line);
    });
    loop {
        if interrupt.raised() {
            return None;
        }
        match receiver.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Some(String::new()),
        }
    }
}

fn failure(error: &InstallError) -> Failure {
    let exit = match error {
        InstallError::NoCache | InstallError::Cache { .. } => Exit::Usage,
        InstallError::NoWheel
        | InstallError::NoPython { .. }
        | InstallError::NotInstalled(_)
        | InstallError::Run(_)
        | InstallError::Ended { .. }
        | InstallError::TimedOut { .. }
        | InstallError::Version { .. } => Exit::Tool,
        InstallError::Interrupted => Exit::Interrupted,
    };
    let run: Option<&Finished> = error.run();
    let details = run.map_or(Value::Null, |run| json!({ "run": run }));
    Failure::new(exit, error).with_details(details)
}

fn report(serializer: &Serializer, outcome: &'static str) -> Report {
    let (name, version) = COREAI_CORE;
    let folder = serializer.folder().unwrap_or_default();
    let python = serializer.installed().map(|installed| installed.python.display().to_string());
    let mut table = Table::default();
    table.row(name, version).row("outcome", outcome).row("place", folder.display());
    if serializer.is_named() {
        table.prose("note", &format!("{PYTHON_VARIABLE} is set, and the Python it names is used instead"));
    }
    let json = json!({
        "tool": name,
        "version": version,
        "outcome": outcome.replace(' ', "_"),
        "python": python,
        "used": !serializer.is_named(),
    });
    Report { text: table.render(), json, checks: Checks::Passed }
}
