//! Why a compilation gave no artefact.

use crate::bundle::compiled::{CompiledError, Fault};
use crate::bundle::{PublishError, TreeError};
use crate::toolchain::{self, Class, Finished, Missing, RunError};
use std::io;
use std::time::Duration;

/// Why a compilation gave no artefact. What was there before is there still.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum CompileError {
    #[error("could not read {path}")]
    Model {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path} is no bundle that can be compiled; that would be a folder named .aimodel or .mlpackage")]
    Format { path: String },
    #[error("could not read the files of the model")]
    Source(#[source] TreeError),
    #[error("--platform, --arch and --prefer belong together: an .aimodel needs all three, an .mlpackage none")]
    NoTarget,
    #[error(
        "--platform, --arch, --prefer and --expect have no meaning for an .mlpackage: Core ML chooses when it loads it"
    )]
    NeedlessTarget,
    #[error("--expect names {architecture}, which --arch does not ask for")]
    NotAsked { architecture: String },
    #[error("{} is not installed; {}", .0.tool.name(), .0.how_to_install)]
    NotInstalled(Missing),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{} ended with {}: {class}{}{}", run.argv[0], run.end, hint(*class), quoted(run, *class))]
    Ended { class: Class, run: Box<Finished> },
    #[error(
        "{} was ended after {} s, the limit; --timeout sets another{}",
        run.argv[0], after.as_secs_f64(), last_lines(run)
    )]
    TimedOut { after: Duration, run: Box<Finished> },
    #[error("interrupted; nothing was written")]
    Interrupted,
    #[error(
        "{} exited with 0 and left {} where one .{ending} was expected{}",
        run.argv[0], counted(found), last_lines(run)
    )]
    Bundles { ending: &'static str, found: Vec<String>, run: Box<Finished> },
    #[error("{name}, which {} left, is no folder; a bundle is one, and behind a link it fails to load", run.argv[0])]
    NotFolder { name: String, run: Box<Finished> },
    #[error(
        "{architecture}: asked for the Neural Engine, found {found} {}, {}; {} exited with 0{}",
        if *found == 1 { "region" } else { "regions" }, wanted(*expected, *found), run.argv[0],
        quoted(run, Class::NeuralEngine)
    )]
    NeuralEngine { architecture: String, found: usize, expected: Option<usize>, run: Box<Finished> },
    #[error("the compiled bundle is not what was expected: {}{}", list(faults), complaint(run))]
    Regions { faults: Vec<Fault>, run: Box<Finished> },
    #[error("the compiled bundle cannot be read")]
    Compiled {
        #[source]
        source: CompiledError,
        run: Box<Finished>,
    },
    #[error("the files of the compiled bundle cannot be listed")]
    Made {
        #[source]
        source: TreeError,
        run: Box<Finished>,
    },
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("the record could not be written as JSON")]
    Record(#[from] serde_json::Error),
}

impl CompileError {
    /// The run that went wrong, if there was one.
    pub fn run(&self) -> Option<&Finished> {
        match self {
            CompileError::Ended { run, .. }
            | CompileError::TimedOut { run, .. }
            | CompileError::Bundles { run, .. }
            | CompileError::NotFolder { run, .. }
            | CompileError::NeuralEngine { run, .. }
            | CompileError::Regions { run, .. }
            | CompileError::Compiled { run, .. }
            | CompileError::Made { run, .. } => Some(run),
            CompileError::Model { .. }
            | CompileError::Format { .. }
            | CompileError::Source(_)
            | CompileError::NoTarget
            | CompileError::NeedlessTarget
            | CompileError::NotAsked { .. }
            | CompileError::NotInstalled(_)
            | CompileError::Run(_)
            | CompileError::Interrupted
            | CompileError::Publish(_)
            | CompileError::Record(_) => None,
        }
    }

    /// A name for programs, finer than the exit code.
    pub const fn class(&self) -> &'static str {
        match self {
            CompileError::Model { .. } | CompileError::Format { .. } | CompileError::Source(_) => "bad_model",
            CompileError::NoTarget | CompileError::NeedlessTarget | CompileError::NotAsked { .. } => "usage",
            CompileError::NotInstalled(_) => "not_installed",
            CompileError::Run(_) => "not_runnable",
            CompileError::Ended { class, .. } => match class {
                Class::DiskFull => "disk_full",
                Class::MetalToolchain => "metal_toolchain",
                Class::UnknownArchitecture => "unknown_architecture",
                Class::UnsupportedArchitecture => "unsupported_architecture",
                Class::ModelRefused => "model_refused",
                Class::Crash => "crash",
                Class::NeuralEngine => "neural_engine",
                Class::Unknown => "unknown",
            },
            CompileError::TimedOut { .. } => "timed_out",
            CompileError::Interrupted => "interrupted",
            CompileError::Bundles { .. } | CompileError::NotFolder { .. } => "not_one_bundle",
            CompileError::NeuralEngine { .. } => "neural_engine",
            CompileError::Regions { .. } => "regions",
            CompileError::Compiled { .. } | CompileError::Made { .. } => "unreadable_bundle",
            CompileError::Publish(_) => "publish",
            CompileError::Record(_) => "bug",
        }
    }
}

/// What to do about it, where that is known.
const fn hint(class: Class) -> &'static str {
    match class {
        Class::MetalToolchain => "; run `xcodebuild -downloadComponent MetalToolchain`",
        Class::DiskFull
        | Class::UnknownArchitecture
        | Class::UnsupportedArchitecture
        | Class::ModelRefused
        | Class::Crash
        | Class::NeuralEngine
        | Class::Unknown => "",
    }
}

/// The message that gave the class away, each line marked; the last lines where there is none.
fn quoted(run: &Finished, class: Class) -> String {
    run.finding(class).map_or_else(|| last_lines(run), |found| toolchain::quoted(&found.block))
}

/// The message of the Neural Engine's compiler, if it had one.
fn complaint(run: &Finished) -> String {
    run.finding(Class::NeuralEngine).map(|found| toolchain::quoted(&found.block)).unwrap_or_default()
}

fn last_lines(run: &Finished) -> String {
    toolchain::quoted(&run.stderr.last_lines)
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn counted(found: &[String]) -> String {
    match found {
        [] => "none".to_string(),
        found => format!("{} ({})", found.len(), found.join(", ")),
    }
}

fn wanted(expected: Option<usize>, found: usize) -> String {
    let text = match (expected, found) {
        (Some(0), 0) => "but such a bundle has at least one (with --prefer gpu it has none)",
        (None, 0) => "expected at least 1",
        (Some(expected), _) => return format!("expected {expected}"),
        (None, _) => "but its compiler failed, so --expect has to say how many there should be",
    };
    text.to_string()
}
