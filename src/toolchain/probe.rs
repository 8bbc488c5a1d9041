//! What tools are here and which versions, asked of the tools themselves: one that is found may still not run.

use super::serializer::{COREAI_CORE, Interpreter, Serializer};
use super::{Command, End, Found, Interrupt, Limits, Search, Tool, ToolRun, run, without_paths};
use serde::Serialize;
use std::time::Duration;

/// State of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Health {
    /// It told its version.
    Ready {
        /// As it told it.
        version: String,
    },
    /// It, or the Python it needs, is another version than the wanted one.
    OtherVersion {
        /// The version that is here.
        version: String,
        /// The version wanted.
        wanted: &'static str,
    },
    /// It is there and does not run.
    Broken {
        /// What it said, or how it ended.
        reason: String,
    },
    /// It is not here.
    Missing,
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// The tool's name.
    pub name: &'static str,
    /// Whether it can be used.
    pub health: Health,
    /// The interpreter of Apple's serializer, here or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<Interpreter>,
    /// What is possible without it.
    pub without: &'static str,
    /// What to do where it is not ready.
    pub how_to_install: &'static str,
}

impl Probe {
    /// Whether it can be used as it is.
    pub const fn is_ready(&self) -> bool {
        matches!(self.health, Health::Ready { .. })
    }
}

/// Asks every tool, and last the Python that would be used for Apple's serializer.
pub fn probe(search: &Search, serializer: &Serializer, interrupt: &Interrupt) -> Vec<Probe> {
    let tools = Tool::ALL.into_iter().map(|tool| {
        let health = search.find(tool).map_or(Health::Missing, |found| ask(tool, &version_of(&found), interrupt));
        let (without, how_to_install) = (tool.without(), tool.how_to_install());
        Probe { name: tool.name(), health, interpreter: None, without, how_to_install }
    });
    let interpreter = serializer.interpreter();
    let last = Probe {
        name: COREAI_CORE.0,
        health: interpreter.as_ref().map_or(Health::Missing, |python| python.health(interrupt)),
        without: "everything but writing, reading and running an .aimodel; .mlpackage still works",
        how_to_install: interpreter.as_ref().map_or(Serializer::HOW_TO_INSTALL, Interpreter::how_to_install),
        interpreter,
    };
    tools.chain([last]).collect()
}

/// The version that `found` tells, for a record.
pub fn version(found: &Found, interrupt: &Interrupt) -> Option<String> {
    match ask(found.tool, &version_of(found), interrupt) {
        Health::Ready { version } => Some(version),
        Health::OtherVersion { .. } | Health::Broken { .. } | Health::Missing => None,
    }
}

fn version_of(found: &Found) -> Command {
    match (found.tool, &found.xcrun) {
        // xcrun finds the component's stub even where the component is absent, and wants an SDK to run it.
        (Tool::Metal, Some(xcrun)) => Command::new(xcrun).args(["-sdk", "macosx", "metal", "--version"]),
        (Tool::CoreMlCompiler, _) => found.command().arg("version"),
        (Tool::CoreAiBuild | Tool::Xcrun | Tool::Metal | Tool::Swiftc | Tool::Python | Tool::Uv, _) => {
            found.command().arg("--version")
        }
    }
}

/// The first line that `command` says.
pub(super) fn ask(tool: Tool, command: &Command, interrupt: &Interrupt) -> Health {
    let limits = Limits { timeout: Duration::from_secs(30) };
    let broken = |reason: String| Health::Broken { reason: without_paths(&reason) };
    match run(tool, command, limits, interrupt) {
        // Some print their version on standard error.
        Ok(ToolRun::Finished(run)) => match (run.end, run.stdout.first_line().or_else(|| run.stderr.first_line())) {
            (End::Code(0), Some(version)) => Health::Ready { version: without_paths(&version) },
            (_, said) => broken(said.unwrap_or_else(|| run.end.to_string())),
        },
        Ok(ToolRun::TimedOut { after, .. }) => broken(format!("it did not answer within {} s", after.as_secs())),
        Ok(ToolRun::Interrupted) => broken("interrupted".to_string()),
        Ok(ToolRun::NotInstalled(_)) => Health::Missing,
        Err(error) => broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn each_state() {
        let dir = tempfile::tempdir().unwrap();
        let tools = [
            ("coreai-build", "echo; echo 'coreai-build 3600.79.1'"),
            ("metal", "echo \"error: cannot execute tool 'metal' due to missing Metal Toolchain\" >&2; exit 1"),
            ("coremlcompiler", "test \"$1\" = version && echo 3404.16.1"),
            ("swiftc", "kill -ABRT $$"),
            ("python3", "echo Python 3.12.1 >&2"),
        ];
        for (name, text) in tools {
            let path = dir.path().join(name);
            fs_err::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let probes = probe(&Search::of_path(dir.path()), &Serializer::in_cache(dir.path()), &Interrupt::never());
        let states: Vec<String> = probes.iter().map(|p| format!("{}: {:?}", p.name, p.health)).collect();
        insta::assert_snapshot!(states.join("\n"), @r#"
        coreai-build: Ready { version: "coreai-build 3600.79.1" }
        metal: Broken { reason: "error: cannot execute tool 'metal' due to missing Metal Toolchain" }
        xcrun: Missing
        coremlcompiler: Ready { version: "3404.16.1" }
        swiftc: Broken { reason: "signal 6 (SIGABRT)" }
        python3: Ready { version: "Python 3.12.1" }
        uv: Missing
        coreai-core: Missing
        "#);
    }
}
