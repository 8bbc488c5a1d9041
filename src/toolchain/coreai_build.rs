//! `coreai-build compile`: an `.aimodel` to one `.aimodelc` for each architecture.
//!
//! The options are those of `coreai-build help compile`, version 3600.79.1 of Xcode 27's Metal Toolchain.

use super::{Command, Found};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The system a bundle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(non_camel_case_types, reason = "Apple spells it so")]
pub enum Platform {
    /// Macs.
    macOS,
    /// Phones and tablets.
    iOS,
}

impl Platform {
    /// As the tool takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Platform::macOS => "macOS",
            Platform::iOS => "iOS",
        }
    }
}

/// The unit a bundle should run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// The GPU.
    Gpu,
    /// The Neural Engine.
    NeuralEngine,
}

impl Prefer {
    /// As the tool takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Prefer::Gpu => "gpu",
            Prefer::NeuralEngine => "neural-engine",
        }
    }
}

/// A device architecture, e.g. `h16c` (M4 Max) or `h18p` (iPhone 17 Pro).
///
/// Any code of the tool's form is taken: each new device brings one, and the tool knows which it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Architecture(String);

/// A word that cannot be an architecture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not an architecture; they read h16c or h18p: an h, two digits and a letter")]
pub struct ArchitectureError {
    /// The word.
    pub found: String,
}

impl FromStr for Architecture {
    type Err = ArchitectureError;

    fn from_str(word: &str) -> Result<Architecture, ArchitectureError> {
        // It becomes part of a file name, so nothing but the known form passes.
        match word.as_bytes() {
            [b'h', a, b, c] if a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_lowercase() => {
                Ok(Architecture(word.to_string()))
            }
            _ => Err(ArchitectureError { found: word.to_string() }),
        }
    }
}

impl Architecture {
    /// The code.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One compilation, for one architecture.
#[derive(Clone, Copy, Debug)]
pub struct CoreAiBuild<'a> {
    /// The `.aimodel`.
    pub model: &'a Path,
    /// An empty folder the tool puts the bundle in, under a name of its own.
    pub output: &'a Path,
    /// Target system.
    pub platform: Platform,
    /// Preferred unit.
    pub prefer: Prefer,
    /// Target architecture.
    pub architecture: &'a Architecture,
}

impl CoreAiBuild<'_> {
    /// The command, for the tool that was found.
    pub fn command(&self, tool: &Found) -> Command {
        tool.command()
            .arg("compile")
            .arg(self.model)
            .arg("--output")
            .arg(self.output)
            .args(["--platform", self.platform.name()])
            .args(["--preferred-compute", self.prefer.name()])
            .args(["--architecture", self.architecture.as_str()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures() {
        for good in ["h16c", "h18p", "h20g"] {
            assert_eq!(good.parse::<Architecture>().unwrap().as_str(), good);
        }
        for bad in ["", "h16", "H16c", "h16C", "h1ac", "h16cc", "../c", "h16/", "h1\u{e9}"] {
            assert_eq!(bad.parse::<Architecture>(), Err(ArchitectureError { found: bad.to_string() }));
        }
    }
}
