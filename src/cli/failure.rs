//! How the process ends, and how a failure is told.

use crate::emit::coreai::BridgeError;
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write;

/// Exit codes of the command; [`Exit::meaning`] says what each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the meanings are told to users in the same words")]
pub enum Exit {
    Done = 0,
    Bug = 1,
    Usage = 2,
    BadInput = 3,
    CheckFailed = 4,
    Tool = 5,
    Unsupported = 6,
    Interrupted = 130,
}

impl Exit {
    /// Every one, by its number. `--help`, `schema` and README.md tell them in these words.
    pub const ALL: [Exit; 8] = [
        Exit::Done,
        Exit::Bug,
        Exit::Usage,
        Exit::BadInput,
        Exit::CheckFailed,
        Exit::Tool,
        Exit::Unsupported,
        Exit::Interrupted,
    ];

    /// The table printed below `--help`.
    pub fn help() -> String {
        let row = |exit: Exit| format!("  {:<3}  {}", exit.code(), exit.meaning());
        format!("Exit codes:\n{}", Exit::ALL.map(row).join("\n"))
    }

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The exit code of what Apple's serializer did not do.
    pub const fn of_serializer(error: &BridgeError) -> Exit {
        match error {
            BridgeError::Interrupted => Exit::Interrupted,
            BridgeError::Handover { .. } => Exit::Usage,
            BridgeError::NotInstalled
            | BridgeError::NoPython { .. }
            | BridgeError::Version { .. }
            | BridgeError::Verifier { .. }
            | BridgeError::Failed { .. }
            | BridgeError::Died { .. }
            | BridgeError::TimedOut { .. }
            | BridgeError::Start(_)
            | BridgeError::Answer(_) => Exit::Tool,
        }
    }

    /// When the command ends so.
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done; also when a check is `not run`",
            Exit::Bug => "a bug of this program",
            Exit::Usage => "usage: an option, a bucket, a destination that cannot take the result",
            Exit::BadInput => "bad input: checkpoint, config, inputs, bundle",
            Exit::CheckFailed => "a check failed",
            Exit::Tool => "a tool is missing, failed or timed out",
            Exit::Unsupported => "the target has no form for what was asked",
            Exit::Interrupted => "interrupted",
        }
    }

    /// Its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Exit::Done => "done",
            Exit::Bug => "bug",
            Exit::Usage => "usage",
            Exit::BadInput => "bad_input",
            Exit::CheckFailed => "check_failed",
            Exit::Tool => "tool",
            Exit::Unsupported => "unsupported",
            Exit::Interrupted => "interrupted",
        }
    }
}

/// Control characters of a stranger's names shown, not sent to the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() && c != '\n' { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

/// An error on its way to the user.
#[derive(Debug)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// The message, then each cause.
    pub messages: Vec<String>,
    /// More for programs; null where there is nothing to add.
    pub details: Value,
}

impl Failure {
    /// A failure told by `error` and its causes.
    pub fn new(exit: Exit, error: &(dyn Error + 'static)) -> Failure {
        let mut messages: Vec<String> = Vec::new();
        let mut next = Some(error);
        while let Some(error) = next {
            let message = printable(&error.to_string());
            // Transparent wrappers repeat their cause; the reader needs it once.
            if messages.last() != Some(&message) {
                messages.push(message);
            }
            next = error.source();
        }
        Failure { exit, messages, details: Value::Null }
    }

    /// A call that cannot be carried out as it was put.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, messages: vec![message.into()], details: Value::Null }
    }

    /// What was given cannot be used.
    pub fn bad_input(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::BadInput, messages: vec![printable(&message.into())], details: Value::Null }
    }

    /// The same failure with more for programs.
    #[must_use]
    pub fn with_details(self, details: Value) -> Failure {
        Failure { details, ..self }
    }

    /// For stderr: one line, and one for each cause.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (i, message) in self.messages.iter().enumerate() {
            let _ = writeln!(text, "{} {message}", if i == 0 { "error:" } else { "  caused by:" });
        }
        text
    }

    /// For `--json`.
    pub fn json(&self) -> Value {
        let (message, causes) = match self.messages.split_first() {
            Some((message, causes)) => (message.as_str(), causes),
            None => ("", &[][..]),
        };
        let mut error =
            json!({ "kind": self.exit.name(), "exit_code": self.exit.code(), "message": message, "causes": causes });
        if !self.details.is_null() {
            error["details"] = self.details.clone();
        }
        json!({ "error": error })
    }
}
