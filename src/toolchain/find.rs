//! Where tools are. A tool is looked for on the PATH, then asked of `xcrun`, which knows the selected Xcode.

use super::{Command, Interrupt, Limits, ToolRun, run};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The tools this program can use. It needs none of them to read, write, check or evaluate a bundle of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// Compiles `.aimodel` bundles.
    CoreAiBuild,
    /// Finds the tools of the selected Xcode.
    Xcrun,
    /// Compiles `.mlpackage` bundles.
    CoreMlCompiler,
    /// Compiles kernels for the GPU, in the component that also brings `coreai-build`.
    Metal,
    /// Compiles the helper that reads Core ML's compute plan.
    Swiftc,
    /// What the environment of Apple's serializer is made with.
    Python,
    /// Installs Apple's serializer.
    Uv,
}

impl Tool {
    /// All of them, in the order they are shown.
    pub const ALL: [Tool; 7] =
        [Tool::CoreAiBuild, Tool::Metal, Tool::Xcrun, Tool::CoreMlCompiler, Tool::Swiftc, Tool::Python, Tool::Uv];

    /// The program's name.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::CoreAiBuild => "coreai-build",
            Tool::Xcrun => "xcrun",
            Tool::CoreMlCompiler => "coremlcompiler",
            Tool::Metal => "metal",
            Tool::Swiftc => "swiftc",
            Tool::Python => "python3",
            Tool::Uv => "uv",
        }
    }

    /// What to do where it is absent.
    pub const fn how_to_install(self) -> &'static str {
        match self {
            Tool::CoreAiBuild => {
                "on a Mac, install Xcode 27 or later, select it with `sudo xcode-select -s`, \
                 and run `xcodebuild -downloadComponent MetalToolchain`, which brings it"
            }
            Tool::Metal => {
                "on a Mac with Xcode, run `xcodebuild -downloadComponent MetalToolchain`; if it is there already, \
                 select the Xcode it belongs to with `sudo xcode-select -s`"
            }
            Tool::Xcrun => "on a Mac, run `xcode-select --install`",
            Tool::CoreMlCompiler => "on a Mac, install Xcode and select it with `sudo xcode-select -s`",
            Tool::Swiftc => "on a Mac, run `xcode-select --install`",
            Tool::Python => "install Python 3.11 or later",
            Tool::Uv => "see https://docs.astral.sh/uv",
        }
    }

    /// What is possible without it.
    pub const fn without(self) -> &'static str {
        match self {
            Tool::CoreAiBuild => "everything but `compile` of an .aimodel",
            Tool::Metal => "everything but `compile` of an .aimodel, which needs it too",
            Tool::Xcrun => "everything but `compile`, where its tools are not on the PATH",
            Tool::CoreMlCompiler => "everything but `compile` of an .mlpackage",
            Tool::Swiftc => "everything but the placement of Core ML bundles",
            Tool::Python => "everything; `tools install` needs it or uv",
            Tool::Uv => "everything; `tools install` then takes Python's pip",
        }
    }

    /// Whether `xcrun` can know it.
    const fn in_xcode(self) -> bool {
        match self {
            Tool::CoreAiBuild | Tool::CoreMlCompiler | Tool::Metal | Tool::Swiftc => true,
            Tool::Xcrun | Tool::Python | Tool::Uv => false,
        }
    }
}

/// A tool and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub tool: Tool,
    /// The program.
    pub path: PathBuf,
    /// The `xcrun` that knew it, where it is not on the PATH.
    pub xcrun: Option<PathBuf>,
}

impl Found {
    /// The command that runs it: through `xcrun` where that found it, which also sets what the tool needs around it.
    pub fn command(&self) -> Command {
        match &self.xcrun {
            Some(xcrun) => Command::new(xcrun).arg(self.tool.name()),
            None => Command::new(&self.path),
        }
    }
}

/// A tool that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Which.
    pub tool: Tool,
    /// What to do about it.
    pub how_to_install: &'static str,
}

/// Where to look.
#[derive(Clone, Debug)]
pub struct Search {
    path: OsString,
}

impl Search {
    /// The PATH of this process.
    pub fn from_process() -> Search {
        Search { path: std::env::var_os("PATH").unwrap_or_default() }
    }

    /// A PATH of one's own.
    pub fn of_path(path: impl Into<OsString>) -> Search {
        Search { path: path.into() }
    }

    /// Looks for a tool.
    ///
    /// # Errors
    /// It is neither on the PATH nor known to `xcrun`.
    pub fn find(&self, tool: Tool) -> Result<Found, Missing> {
        if let Some(path) = self.program(tool.name()) {
            return Ok(Found { tool, path, xcrun: None });
        }
        let missing = Missing { tool, how_to_install: tool.how_to_install() };
        if !tool.in_xcode() {
            return Err(missing);
        }
        let xcrun = self.program(Tool::Xcrun.name()).ok_or(missing)?;
        let ask = Command::new(&xcrun).args(["--find", tool.name()]);
        // Long, because the first question after an update makes xcrun rebuild its cache.
        let limits = Limits { timeout: Duration::from_secs(30) };
        let Ok(ToolRun::Finished(answer)) = run(tool, &ask, limits, &Interrupt::never()) else { return Err(missing) };
        let path = PathBuf::from(answer.stdout.first_line().unwrap_or_default());
        if answer.end.is_success() && path.is_absolute() {
            Ok(Found { tool, path, xcrun: Some(xcrun) })
        } else {
            Err(missing)
        }
    }

    /// The first program of that name on the PATH.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        // A relative entry would make what is run depend on where one stands.
        let folders = std::env::split_paths(&self.path).filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(name)).find(|file| is_program(file))
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs_err::write(&path, text).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_path_comes_first_then_xcrun() {
        let dir = tempfile::tempdir().unwrap();
        let search = Search::of_path(dir.path());
        let missing = search.find(Tool::CoreMlCompiler).unwrap_err();
        assert!(missing.how_to_install.contains("Xcode"), "{missing:?}");

        let xcrun = script(dir.path(), "xcrun", "#!/bin/sh\necho \"/x/$2\"\n");
        let found = search.find(Tool::CoreMlCompiler).unwrap();
        assert_eq!(found.path, Path::new("/x/coremlcompiler"));
        assert_eq!(found.command(), Command::new(xcrun).arg("coremlcompiler"));
        assert!(search.find(Tool::Python).is_err(), "xcrun is not asked for what is none of Xcode's");

        let direct = script(dir.path(), "coremlcompiler", "");
        assert_eq!(search.find(Tool::CoreMlCompiler).unwrap().command(), Command::new(direct));
    }

    #[test]
    fn what_is_no_program_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("uv")).unwrap();
        fs_err::write(dir.path().join("python3"), "not executable").unwrap();
        script(dir.path(), "xcrun", "#!/bin/sh\necho 'xcrun: error: unable to find utility' >&2; exit 72\n");
        let search = Search::of_path(dir.path());
        for tool in [Tool::Uv, Tool::Python, Tool::CoreAiBuild] {
            assert_eq!(search.find(tool).unwrap_err().tool, tool);
        }
        assert!(Search::of_path("").find(Tool::Xcrun).is_err());
        assert!(Search::of_path(".:bin").find(Tool::Xcrun).is_err());
    }
}
