//! Where the Python with Apple's serializer is, and what state it is in: one answer for whoever runs it, shows it or
//! installs it.

use super::probe::ask;
use super::{Command, Health, Interrupt, Tool};
use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Apple's serializer: distribution and the version its output was compared with.
pub const COREAI_CORE: (&str, &str) = ("coreai-core", "1.0.0b3");
/// Names an interpreter to use instead of the installed one.
pub const PYTHON_VARIABLE: &str = "EG2_COREAI_PYTHON";
/// Pythons that the serializer has wheels for, and the same in words.
pub(super) const PYTHONS: RangeInclusive<(u32, u32)> = (3, 11)..=(3, 14);
pub(super) const PYTHONS_WORDS: &str = "Python 3.11 to 3.14";

/// Prints the interpreter's version and the wheel's, without importing the wheel. Old Pythons have to understand it.
const ASK: &str = "import sys\n\
                   try:\n    from importlib.metadata import version\n    found = version('coreai-core')\n\
                   except ImportError:\n    found = 'none'\n\
                   print('%d.%d %s' % (sys.version_info[0], sys.version_info[1], found))";

/// What led to an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `$EG2_COREAI_PYTHON`.
    Variable,
    /// The environment in the user's cache, which `eg2-convert tools install` makes.
    Cache,
}

/// The interpreter that is used for Apple's serializer, whether it is there or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interpreter {
    /// What led to it.
    pub origin: Origin,
    /// The program.
    #[serde(skip)]
    pub python: PathBuf,
}

impl Interpreter {
    /// Its state. Only the versions are asked for, so [`Health::Ready`] takes milliseconds and is no promise that the
    /// wheel can be imported.
    pub fn health(&self, interrupt: &Interrupt) -> Health {
        let said = match ask(Tool::Python, &Command::new(&self.python).args(["-I", "-c", ASK]), interrupt) {
            Health::Ready { version } => version,
            other @ (Health::OtherVersion { .. } | Health::Broken { .. } | Health::Missing) => return other,
        };
        let Some((python, wheel)) = said.split_once(' ') else {
            return Health::Broken { reason: format!("asked for its version, it said {said}") };
        };
        let old = numbers(python).is_none_or(|have| have < *PYTHONS.start());
        match wheel {
            _ if old => Health::OtherVersion { version: format!("Python {python}"), wanted: PYTHONS_WORDS },
            "none" => Health::Missing,
            wheel if wheel == COREAI_CORE.1 => Health::Ready { version: wheel.to_string() },
            wheel => Health::OtherVersion { version: wheel.to_string(), wanted: COREAI_CORE.1 },
        }
    }

    /// What to do where it is not ready.
    pub const fn how_to_install(&self) -> &'static str {
        match self.origin {
            Origin::Variable => "unset EG2_COREAI_PYTHON and run `eg2-convert tools install`",
            Origin::Cache => Serializer::HOW_TO_INSTALL,
        }
    }
}

/// `3.11` as numbers.
pub(super) fn numbers(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where to look for the interpreter: `$EG2_COREAI_PYTHON`, then the user's cache.
#[derive(Clone, Debug, Default)]
pub struct Serializer {
    named: Option<PathBuf>,
    cache: Option<PathBuf>,
}

impl Serializer {
    /// What to do where there is none.
    pub const HOW_TO_INSTALL: &str = "run `eg2-convert tools install`";

    /// As the environment of this process has it.
    pub fn from_process() -> Serializer {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // The XDG specification wants relative paths to be ignored.
        let home = || set("HOME").filter(|p| p.is_absolute()).map(|home| home.join(".cache"));
        let cache = set("XDG_CACHE_HOME").filter(|p| p.is_absolute()).or_else(home);
        Serializer { named: set(PYTHON_VARIABLE), cache }
    }

    /// Nothing but that cache, which holds the caches of other programs too.
    pub fn in_cache(cache: impl Into<PathBuf>) -> Serializer {
        Serializer { named: None, cache: Some(cache.into()) }
    }

    /// Whether `$EG2_COREAI_PYTHON` is set, so that the installed interpreter is not used.
    pub const fn is_named(&self) -> bool {
        self.named.is_some()
    }

    /// Folder of the environment that is installed. None where the user has no cache.
    pub fn folder(&self) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(env!("CARGO_PKG_NAME")).join(format!("coreai-{}", COREAI_CORE.1)))
    }

    /// The interpreter of the environment that is installed, or would be.
    pub fn installed(&self) -> Option<Interpreter> {
        Some(Interpreter { origin: Origin::Cache, python: self.folder()?.join("bin/python") })
    }

    /// The interpreter to use. It need not be there. None where none is named and the user has no cache.
    pub fn interpreter(&self) -> Option<Interpreter> {
        let named = |python| Interpreter { origin: Origin::Variable, python };
        self.named.clone().map(named).or_else(|| self.installed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn each_state() {
        let dir = tempfile::tempdir().unwrap();
        let python = dir.path().join("python");
        let interpreter = Interpreter { origin: Origin::Variable, python: python.clone() };
        let health = || format!("{:?}", interpreter.health(&Interrupt::never()));
        let mut states = vec![health()];
        for script in
            ["echo 3.11 1.0.0b3", "echo 3.9 1.0.0b3", "echo 3.14 none", "echo 3.12 1.0.0b2", "echo hello", "exit 3"]
        {
            fs_err::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs_err::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
            states.push(health());
        }
        insta::assert_snapshot!(states.join("\n"), @r#"
        Missing
        Ready { version: "1.0.0b3" }
        OtherVersion { version: "Python 3.9", wanted: "Python 3.11 to 3.14" }
        Missing
        OtherVersion { version: "1.0.0b2", wanted: "1.0.0b3" }
        Broken { reason: "asked for its version, it said hello" }
        Broken { reason: "exit code 3" }
        "#);
    }

    #[test]
    fn a_named_interpreter_comes_first() {
        let cache = Serializer::in_cache("/c");
        let found = cache.interpreter().unwrap();
        assert_eq!((found.origin, found.python), (Origin::Cache, "/c/eg2-convert/coreai-1.0.0b3/bin/python".into()));
        let named = Serializer { named: Some("/p".into()), ..cache };
        let found = named.interpreter().unwrap();
        assert_eq!((found.origin, found.python), (Origin::Variable, "/p".into()));
        assert_eq!(Serializer::default().interpreter(), None);
    }
}
