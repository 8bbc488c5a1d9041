//! Apple's tools as data: what command to run, where the tool is, what came of the run, and what its words mean.
//!
//! A run never fails for want of a tool, nor because the tool failed: both are values of [`ToolRun`], and whoever
//! sequences the stages decides what they are worth. No shell is involved, output is held in bounded memory, and no
//! process of a run outlives it. [`Serializer`] knows where Apple's serializer is, [`install()`] puts it there. Level 1: knows digests and no model, graph or bundle.

mod classify;
mod command;
mod coreai_build;
mod coremlcompiler;
mod find;
mod install;
mod interrupt;
mod log;
mod probe;
mod run;
mod serializer;
mod text;

pub use classify::{Class, Finding, classify};
pub use command::Command;
pub use coreai_build::{Architecture, ArchitectureError, CoreAiBuild, Platform, Prefer};
pub use coremlcompiler::CoreMlCompiler;
pub use find::{Found, Missing, Search, Tool};
pub use install::{InstallError, Installed, Plan, install, is_ready, remove};
pub use interrupt::{Interrupt, InterruptError};
pub use log::LogReport;
pub use probe::{Health, Probe, probe, version};
pub use run::{End, Finished, Limits, RunError, ToolRun, run};
pub use serializer::{COREAI_CORE, Interpreter, Origin, PYTHON_VARIABLE, Serializer};
pub use text::{printable, quoted, without_paths};
