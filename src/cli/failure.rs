//! How the process ends, and how a failure is told.

use crate::emit::coreai::BridgeError;
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write;

/// Exit codes of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done; also when a check was `not run`.
    Done = 0,
    /// A fault of this program.
    Bug = 1,
    /// The call's words are off, or the destination cannot take the result.
    Usage = 2,
    /// A checkpoint, config or bundle that cannot be used.
    BadInput = 3,
    /// A check failed.
    CheckFailed = 4,
    /// A tool is missing, failed, crashed or timed out.
    Tool = 5,
    /// The target has no form for what was asked.
    Unsupported = 6,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The table printed below `--help`.
    pub const HELP: &str = "Exit codes: 0 done (also when a check is `not run`), 1 bug, 2 usage, 3 bad input, \
                            4 a check failed, 5 a tool is missing or failed, 6 unsupported for the target, \
                            130 interrupted";

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
            json!({ "kind": self.exit.name(), "exit_code": self.exit as u8, "message": message, "causes": causes });
        if !self.details.is_null() {
            error["details"] = self.details.clone();
        }
        json!({ "error": error })
    }
}
