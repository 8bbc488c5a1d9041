//! `xcrun coremlcompiler compile`: an `.mlpackage` to an `.mlmodelc`. Architecture and unit are chosen by the system
//! that loads it, so there is nothing to ask for.

use super::{Command, Found};
use std::path::Path;

/// One compilation.
#[derive(Clone, Copy, Debug)]
pub struct CoreMlCompiler<'a> {
    /// The `.mlpackage`.
    pub model: &'a Path,
    /// An empty folder the tool puts the bundle in.
    pub output: &'a Path,
}

impl CoreMlCompiler<'_> {
    /// The command, for the tool that was found.
    pub fn command(&self, tool: &Found) -> Command {
        tool.command().arg("compile").arg(self.model).arg(self.output)
    }
}
