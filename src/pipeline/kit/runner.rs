//! The process that loads a bundle and times it, by Apple's runtime in the Python that `tools install` makes.
//!
//! A process of its own for each arm and round: a load that wedges or crashes takes nothing else with it, and each round
//! begins with nothing loaded.

use crate::emit::coreai::RawTensor;
use crate::provenance::device::Thermal;
use crate::toolchain::{
    Command, End, Interrupt, Limits, PYTHON_VARIABLE, RunError, Serializer, Tool, ToolRun, printable, run,
    without_paths,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCRIPT: &str = include_str!("runner.py");
/// A first load on the Neural Engine was seen to specialize for 240 s, and a round loads twice; no load is given less
/// than ten minutes.
const LIMIT: Duration = Duration::from_secs(3600);
const _: () = assert!(LIMIT.as_secs() >= 2 * 600);

/// An interpreter that is said to have the runtime.
#[derive(Clone, Debug)]
pub struct Runner {
    python: PathBuf,
    interrupt: Interrupt,
}

/// What the runtime says of the machine.
#[derive(Clone, Debug, Deserialize)]
pub struct Facts {
    /// `sysctl hw.model`.
    pub model: String,
    /// Version and build of macOS.
    pub system: String,
    /// Version of the runtime's package.
    pub runtime: String,
    /// Whether the runtime can be told which unit to prefer.
    pub supported: bool,
}

/// What one process did.
#[derive(Clone, Debug, Deserialize)]
pub struct RoundAnswer {
    /// First load.
    pub load_seconds: f64,
    /// Second load.
    pub warm_load_seconds: f64,
    /// Before the first load.
    pub thermal_before: Thermal,
    /// After the last call.
    pub thermal_after: Thermal,
    /// Most memory it held.
    pub peak_rss_bytes: Option<u64>,
    /// Each function and file of inputs, in the order asked for.
    pub functions: Vec<RanFunction>,
}

/// One function on one file of inputs.
#[derive(Clone, Debug, Deserialize)]
pub struct RanFunction {
    /// Its name.
    pub function: String,
    /// Which of its files.
    pub input: usize,
    /// Of each timed call.
    pub seconds: Vec<f64>,
    /// Outputs of the last one.
    pub outputs: BTreeMap<String, RawTensor>,
}

/// What a process is to do.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The compiled bundle.
    pub bundle: &'a Path,
    /// `neural-engine` or `gpu`.
    pub prefer: &'a str,
    /// Functions, and files of inputs of each.
    pub functions: &'a [(String, Vec<PathBuf>)],
    /// Calls that are not timed.
    pub warmups: u32,
    /// Calls that are.
    pub runs: u32,
}

/// Why a process did not do it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RunnerError {
    #[error(
        "Apple's runtime is not here: {}, or set {PYTHON_VARIABLE} to a Python that has it",
        Serializer::HOW_TO_INSTALL
    )]
    NotInstalled,
    #[error("the runtime refused: {message}")]
    Refused { message: String },
    #[error("the process ended with {end} and no answer{}", words(last))]
    Died { end: End, last: Vec<String> },
    #[error("the process took longer than {} s", after.as_secs())]
    TimedOut { after: Duration },
    #[error("the process answered what makes no sense: {message}")]
    Answer { message: String },
    #[error("interrupted")]
    Interrupted,
    #[error("the process could not be started")]
    Start(#[from] RunError),
    #[error("the request could not be handed over")]
    Handover(#[from] io::Error),
}

fn words(last: &[String]) -> String {
    last.last().map_or_else(String::new, |line| format!("; its last words: {line}"))
}

impl RunnerError {
    /// Whether the bundle is to blame, and other bundles may still run.
    pub const fn is_the_bundles(&self) -> bool {
        match self {
            RunnerError::Refused { .. }
            | RunnerError::Died { .. }
            | RunnerError::TimedOut { .. }
            | RunnerError::Answer { .. } => true,
            RunnerError::NotInstalled | RunnerError::Interrupted | RunnerError::Start(_) | RunnerError::Handover(_) => {
                false
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
    Ok(T),
    Error(String),
}

impl Runner {
    /// The interpreter that [`Serializer`] knows.
    ///
    /// # Errors
    /// There is none.
    pub fn find(interrupt: &Interrupt) -> Result<Runner, RunnerError> {
        let found = Serializer::from_process().interpreter().filter(|found| found.python.exists());
        let python = found.ok_or(RunnerError::NotInstalled)?.python;
        Ok(Runner { python, interrupt: interrupt.clone() })
    }

    /// What the runtime says of this machine.
    ///
    /// # Errors
    /// It does not answer.
    pub fn facts(&self, folder: &Path) -> Result<Facts, RunnerError> {
        let facts: Facts = self.ask(folder, json!({ "command": "machine" }))?;
        let clean = |text: String| printable(text.as_bytes());
        Ok(Facts { model: clean(facts.model), system: clean(facts.system), runtime: clean(facts.runtime), ..facts })
    }

    /// Loads a bundle, loads it again, and times its functions; outputs go to files of `folder`.
    ///
    /// # Errors
    /// The runtime refuses the bundle or an input, or the process dies.
    pub fn round(&self, folder: &Path, ask: &Ask<'_>) -> Result<RoundAnswer, RunnerError> {
        let functions: Vec<Value> =
            ask.functions.iter().map(|(name, inputs)| json!({ "name": name, "inputs": inputs })).collect();
        let request = json!({
            "command": "round",
            "bundle": ask.bundle,
            "prefer": ask.prefer,
            "functions": functions,
            "warmups": ask.warmups,
            "runs": ask.runs,
            "folder": folder,
        });
        self.ask(folder, request)
    }

    fn ask<T: DeserializeOwned>(&self, folder: &Path, mut request: Value) -> Result<T, RunnerError> {
        let (path, answer) = (folder.join("request.json"), folder.join("answer.json"));
        request["answer"] = json!(answer);
        std::fs::write(&path, request.to_string())?;
        // What the runtime leaves when it is stopped goes with the folder.
        let command = Command::new(&self.python).args(["-I", "-c", SCRIPT]).arg(&path).env("TMPDIR", folder);
        let finished = match run(Tool::Python, &command, Limits { timeout: LIMIT }, &self.interrupt)? {
            ToolRun::Finished(finished) => finished,
            ToolRun::NotInstalled(_) => return Err(RunnerError::NotInstalled),
            ToolRun::TimedOut { after, .. } => return Err(RunnerError::TimedOut { after }),
            ToolRun::Interrupted => return Err(RunnerError::Interrupted),
        };
        // A process can die after it has answered; what it answered is then not to be relied on.
        let text = match std::fs::read_to_string(&answer) {
            Ok(text) if finished.end.is_success() => text,
            Ok(_) | Err(_) => {
                let last = finished.stderr.last_lines.iter().map(|line| without_paths(line)).collect();
                return Err(RunnerError::Died { end: finished.end, last });
            }
        };
        match serde_json::from_str(&text) {
            Ok(Answer::Ok(answer)) => Ok(answer),
            Ok(Answer::Error(message)) => Err(RunnerError::Refused { message: without_paths(&message) }),
            Err(error) => Err(RunnerError::Answer { message: error.to_string() }),
        }
    }
}
