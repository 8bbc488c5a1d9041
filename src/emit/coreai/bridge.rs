//! Apple's serializer, run as a process of its own: it crashes on faults that its verifier lets pass.
//!
//! A request goes out and an answer comes back as a file each; no answer means that the process died.

use super::Program;
use crate::toolchain::{
    COREAI_CORE, Command, End, Interrupt, Limits, Origin, PYTHON_VARIABLE, RunError, Serializer, Tool, ToolRun, run,
    without_paths,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const SCRIPT: &str = include_str!("bridge.py");
/// The largest model takes seconds to save; the CPU runtime is slow, and an hour of it is no use to anybody.
const LIMITS: Limits = Limits { timeout: Duration::from_secs(3600) };

/// An interpreter that is said to have the serializer.
#[derive(Clone, Debug)]
pub struct Bridge {
    python: PathBuf,
    interrupt: Interrupt,
}

/// Text for people, written into the bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Metadata {
    /// What the model does, in a sentence.
    pub description: String,
    /// Who made the weights.
    pub author: String,
    /// License of the weights.
    pub license: String,
    /// Anything else, by key.
    pub custom: BTreeMap<String, String>,
}

/// A function as the serializer reads it from a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReadFunction {
    /// Its name.
    pub name: String,
    /// Whether only other functions of the bundle may call it.
    pub private: bool,
    /// Name and type of each input.
    pub inputs: Vec<(String, String)>,
    /// The same of each output.
    pub outputs: Vec<(String, String)>,
    /// Its operations.
    pub lines: Vec<ReadLine>,
}

/// One operation as the serializer reads it; as [`Line`](super::Line), with values where they stand.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReadLine {
    /// Its name.
    pub kind: String,
    /// The values it reads.
    pub operands: Vec<usize>,
    /// The types of its results.
    pub results: Vec<String>,
    /// The values of a constant.
    pub value: Option<ReadValue>,
}

/// Where the values of a constant are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadValue {
    /// With the operation: the bytes, little endian and row-major, in hexadecimal digits.
    Inline(String),
    /// Among the resources, under this name.
    Stored(String),
}

/// What was counted while a program was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Operations, the module and its functions included.
    pub operations: u64,
    /// Those among them that say where they come from.
    pub located: u64,
}

/// A tensor in a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawTensor {
    /// The file: values, little endian and row-major.
    pub file: PathBuf,
    /// `f32`, `f16` or `i32`.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<usize>,
}

/// Why the serializer did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum BridgeError {
    #[error(
        "Apple's serializer is not here: {}, or set {PYTHON_VARIABLE} to a Python that has {} {}",
        Serializer::HOW_TO_INSTALL, COREAI_CORE.0, COREAI_CORE.1
    )]
    NotInstalled,
    #[error(
        "{} is no program: set {PYTHON_VARIABLE} to a Python that has {} {}, or unset it and {}",
        python.display(), COREAI_CORE.0, COREAI_CORE.1, Serializer::HOW_TO_INSTALL
    )]
    NoPython { python: PathBuf },
    #[error("Apple's serializer cannot be used: {message}; {PYTHON_VARIABLE} names the Python to use")]
    Version { message: String },
    #[error("Apple's verifier refuses {}: {message}", node.as_deref().map_or("the program".into(), |n| format!("node {n}")))]
    Verifier { node: Option<String>, message: String },
    #[error("Apple's serializer failed: {message}")]
    Failed { message: String },
    #[error("Apple's serializer ended with {end} and no answer{}", words(last))]
    Died { end: End, last: Vec<String> },
    #[error("Apple's serializer took longer than {} s", after.as_secs())]
    TimedOut { after: Duration },
    #[error("interrupted")]
    Interrupted,
    #[error("Apple's serializer could not be started")]
    Start(#[from] RunError),
    #[error("{what} could not be handed over")]
    Handover {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the answer of Apple's serializer makes no sense")]
    Answer(#[from] serde_json::Error),
}

fn words(last: &[String]) -> String {
    last.last().map_or_else(String::new, |line| format!("; its last words: {line}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer<T> {
    Ok(T),
    Error(Refusal),
}

#[derive(Deserialize)]
struct Refusal {
    kind: String,
    message: String,
    line: Option<usize>,
}

#[derive(Deserialize)]
struct Saved {
    bytes: u64,
}

#[derive(Deserialize)]
struct Functions {
    functions: Vec<ReadFunction>,
}

#[derive(Deserialize)]
struct Outputs {
    outputs: BTreeMap<String, RawTensor>,
}

impl Bridge {
    /// The interpreter that [`Serializer`] knows. One that is named and absent is used all the same, so that whoever
    /// named it hears of it.
    pub fn find(interrupt: &Interrupt) -> Option<Bridge> {
        let found = Serializer::from_process().interpreter()?;
        (found.origin == Origin::Variable || found.python.exists()).then(|| Bridge::at(found.python, interrupt))
    }

    /// That interpreter.
    pub fn at(python: impl Into<PathBuf>, interrupt: &Interrupt) -> Bridge {
        Bridge { python: python.into(), interrupt: interrupt.clone() }
    }

    /// A process that loads the serializer while what it will be asked for is still being made. `folder`, which is made
    /// where it is missing, is for what is handed over, and for this process alone.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn start(&self, folder: &Path) -> Result<Worker, BridgeError> {
        let handover = |source| BridgeError::Handover { what: "the request", source };
        fs_err::create_dir_all(folder).map_err(handover)?;
        let (request, answer) = (folder.join("request.json"), folder.join("answer.json"));
        // An answer to another request must not be taken for this one's, nor an old request for a new one.
        for old in [&request, &answer] {
            match fs_err::remove_file(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(handover(error)),
                Ok(()) | Err(_) => {}
            }
        }
        // What the runtime leaves when it is stopped goes with the folder.
        let command = Command::new(&self.python).args(["-I", "-c", SCRIPT]).arg(&request).env("TMPDIR", folder);
        // For the process to end by itself where this one is killed.
        let command = command.env("EG2_CONVERT_PID", std::process::id().to_string());
        let interrupt = self.interrupt.clone();
        let process = thread::spawn(move || run(Tool::Python, &command, LIMITS, &interrupt));
        Ok(Worker { python: self.python.clone(), request, answer, process: Some(process) })
    }

    /// Reads the functions of a bundle.
    ///
    /// # Errors
    /// The serializer is not there, cannot read the bundle, or dies.
    pub fn read(&self, bundle: &Path, scratch: &Path) -> Result<Vec<ReadFunction>, BridgeError> {
        self.start(scratch)?.read(bundle)
    }

    /// Writes the program of `bundle` without its debug locations as the file `program`. Gives its bytes.
    ///
    /// # Errors
    /// The serializer is not there, cannot read the bundle, or dies.
    pub fn strip(&self, bundle: &Path, program: &Path, scratch: &Path) -> Result<u64, BridgeError> {
        let request = json!({ "command": "strip", "path": bundle, "program": program });
        self.start(scratch)?.ask::<Saved>(request, &[]).map(|saved| saved.bytes)
    }

    /// Writes as the text file `listing` all that the program of `bundle` is, but for locations and the bytes of its
    /// resources, which are named: two programs of the same listing and the same resources compute the same.
    ///
    /// # Errors
    /// The serializer is not there, cannot read the bundle, or dies.
    pub fn listing(&self, bundle: &Path, listing: &Path, scratch: &Path) -> Result<Listed, BridgeError> {
        self.start(scratch)?.ask(json!({ "command": "listing", "path": bundle, "listing": listing }), &[])
    }

    /// Runs one function on Apple's CPU runtime; outputs go to files in `scratch`.
    ///
    /// # Errors
    /// The serializer is not there, the function takes other inputs, or the runtime dies.
    pub fn run(
        &self,
        bundle: &Path,
        function: &str,
        inputs: &BTreeMap<String, RawTensor>,
        scratch: &Path,
    ) -> Result<BTreeMap<String, RawTensor>, BridgeError> {
        let request = json!({
            "command": "run", "path": bundle, "function": function, "inputs": inputs, "folder": scratch,
        });
        self.start(scratch)?.ask::<Outputs>(request, &[]).map(|ran| ran.outputs)
    }
}

/// A process that has loaded the serializer, or is about to, and waits for its one request.
#[derive(Debug)]
pub struct Worker {
    python: PathBuf,
    request: PathBuf,
    answer: PathBuf,
    process: Option<thread::JoinHandle<Result<ToolRun, RunError>>>,
}

impl Worker {
    /// Saves `program`, whose weights are in the file `weights`, as the bundle `out`, without its `main.hash`: whoever
    /// reads it back has the digest. Gives the bytes of its program file.
    ///
    /// # Errors
    /// The serializer is not there, refuses the program, or dies.
    pub fn save(self, program: &Program, weights: &Path, metadata: &Metadata, out: &Path) -> Result<u64, BridgeError> {
        let text = self.request.with_file_name("program.mlir");
        fs_err::write(&text, &program.text).map_err(|source| BridgeError::Handover { what: "the text", source })?;
        let request = json!({
            "command": "write",
            "text": text,
            "weights": weights,
            "blobs": program.blobs,
            "out": out,
            "metadata": metadata,
            "producer": format!("{} {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")),
        });
        self.ask::<Saved>(request, &program.paths).map(|saved| saved.bytes)
    }

    /// Reads the functions of a bundle.
    ///
    /// # Errors
    /// The serializer is not there, cannot read the bundle, or dies.
    pub fn read(self, bundle: &Path) -> Result<Vec<ReadFunction>, BridgeError> {
        self.ask::<Functions>(json!({ "command": "read", "path": bundle }), &[]).map(|read| read.functions)
    }

    /// `paths` are those of the lines that the request's text has.
    fn ask<T: DeserializeOwned>(mut self, mut request: Value, paths: &[String]) -> Result<T, BridgeError> {
        request["answer"] = json!(self.answer);
        request["coreai_core"] = json!(COREAI_CORE.1);
        self.hand_over(&request).map_err(|source| BridgeError::Handover { what: "the request", source })?;
        let finished = match self.end().transpose()? {
            Some(ToolRun::Finished(finished)) => finished,
            Some(ToolRun::NotInstalled(_)) => return Err(BridgeError::NoPython { python: self.python.clone() }),
            Some(ToolRun::TimedOut { after, .. }) => return Err(BridgeError::TimedOut { after }),
            Some(ToolRun::Interrupted) | None => return Err(BridgeError::Interrupted),
        };
        // A process can die after it has answered; what it answered is then not to be relied on.
        let text = match fs_err::read_to_string(&self.answer) {
            Ok(text) if finished.end.is_success() => text,
            Ok(_) | Err(_) => {
                let last = finished.stderr.last_lines.iter().map(|line| without_paths(line)).collect();
                return Err(BridgeError::Died { end: finished.end, last });
            }
        };
        match serde_json::from_str(&text)? {
            Answer::Ok(answer) => Ok(answer),
            Answer::Error(Refusal { kind, message, line }) => Err(match kind.as_str() {
                "python" | "missing" | "version" => BridgeError::Version { message },
                "verifier" => {
                    let node = line.and_then(|l| paths.get(l.checked_sub(1)?)).filter(|p| !p.is_empty()).cloned();
                    BridgeError::Verifier { node, message }
                }
                _ => BridgeError::Failed { message: without_paths(&message) },
            }),
        }
    }

    /// The process looks for the whole request under its name, so it gets that name when it is whole.
    fn hand_over(&self, request: &Value) -> io::Result<()> {
        let part = self.request.with_extension("part");
        fs_err::write(&part, request.to_string())?;
        fs_err::rename(part, &self.request)
    }

    fn end(&mut self) -> Option<Result<ToolRun, RunError>> {
        // A thread that panicked has no run to tell of.
        self.process.take()?.join().ok()
    }
}

impl Drop for Worker {
    /// Sends the process home where nothing was asked of it.
    fn drop(&mut self) {
        if self.process.is_some() && self.hand_over(&json!({ "command": "none" })).is_ok() {
            let _ = self.end();
        }
    }
}
