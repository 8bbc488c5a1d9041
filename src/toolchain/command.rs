//! A command before it is run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A program, its arguments and what is added to its environment. Held as data so that it can be shown, recorded and
/// compared; there is no shell between it and the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Where the program is.
    pub program: PathBuf,
    /// Its arguments, each as the program will see it.
    pub args: Vec<OsString>,
    /// Variables added to the environment it inherits.
    pub env: Vec<(OsString, OsString)>,
}

impl Command {
    /// `program` with no arguments yet.
    pub fn new(program: impl Into<PathBuf>) -> Command {
        Command { program: program.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Command {
        self.args.push(arg.into());
        self
    }

    /// Adds several arguments.
    #[must_use]
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Command {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Command {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Program and arguments for a record: of an absolute path only the last part, which is the same on any machine.
    pub fn argv(&self) -> Vec<String> {
        let words = std::iter::once(self.program.as_os_str()).chain(self.args.iter().map(OsString::as_os_str));
        words
            .map(|word| {
                let path = Path::new(word);
                let shown = if path.is_absolute() { path.file_name().unwrap_or(word) } else { word };
                shown.to_string_lossy().into_owned()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argv_names_no_folder() {
        let command =
            Command::new("/opt/x/coreai-build").arg("compile").args(["/somewhere/a.aimodel", "--output", "/"]);
        assert_eq!(command.argv(), ["coreai-build", "compile", "a.aimodel", "--output", "/"]);
    }
}
