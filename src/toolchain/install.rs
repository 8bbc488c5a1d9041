//! Installs Apple's serializer into the user's cache: an environment of its own, packages pinned by sha256.
//!
//! The environment is made in a folder beside its place, checked, and moved there in one rename, so whatever is in that
//! place is whole, and whoever looks for it needs no further mark. That works because an environment may be moved as
//! long as nothing but its `bin/python` is run: `pyvenv.cfg` names the Python it was made with and not itself, and only
//! the other scripts of `bin` hold its path. What a killed install leaves is swept away by the next one. Asking the
//! user is left to the caller.

use super::serializer::{COREAI_CORE, PYTHONS, PYTHONS_WORDS, Serializer, numbers};
use super::text::quoted;
use super::{Command, End, Finished, Health, Interrupt, Limits, Missing, RunError, Search, Tool, ToolRun, run};
use crate::files::FolderLock;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every package, its version and the sha256 of its files. Made by scripts/pin_serializer.py.
const REQUIREMENTS: &str = include_str!("serializer.txt");
/// Names under which Python is looked for.
const NAMES: [&str; 5] = ["python3.14", "python3.13", "python3.12", "python3.11", "python3"];
/// Beginning of the name of the folder in which an environment is made.
const STAGE: &str = ".coreai-";
/// What is fetched is under 100 MB, and some lines are slow.
const LIMITS: Limits = Limits { timeout: Duration::from_secs(3600) };

/// Imports all that the bridge does, and has one op parsed and verified.
const CHECK: &str = "\
from importlib.metadata import version
from coreai._compiler import ir
from coreai.authoring import AIModelAsset, AIProgram
from coreai.authoring.context import Context
from coreai.runtime import AIModelAssetMetadata, NDArray, _AIModelAsset
with Context()._mlir_context, ir.Location.unknown():
    ir.Module.parse('''
    coreai.graph @main(%0: tensor<2xf32>) -> tensor<2xf32> {
      %1 = coreai.relu %0 : (tensor<2xf32>) -> tensor<2xf32>
      coreai.output %1 : tensor<2xf32>
    }''').operation.verify()
print(version('coreai-core'))
";

/// Why the serializer was not installed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum InstallError {
    #[error("there is no cache to install into: neither XDG_CACHE_HOME nor HOME names an absolute path")]
    NoCache,
    #[error("{} {} has no wheel for this system; it has wheels for Linux on x86-64 and macOS on Apple silicon", COREAI_CORE.0, COREAI_CORE.1)]
    NoWheel,
    #[error("{}, expected {PYTHONS_WORDS}; install one of them, or uv, which brings one", found_python(found))]
    NoPython { found: Vec<(&'static str, String)> },
    #[error("{} is not installed; {}", .0.tool.name(), .0.how_to_install)]
    NotInstalled(Missing),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{task}: {} ended with {}{}", run.argv[0], run.end, words(run))]
    Ended { task: &'static str, run: Box<Finished> },
    #[error("{task}: {} was ended after {} s, the limit{}", run.argv[0], after.as_secs(), words(run))]
    TimedOut { task: &'static str, after: Duration, run: Box<Finished> },
    #[error("what was installed is {} {found}, expected {}", COREAI_CORE.0, COREAI_CORE.1)]
    Version { found: String },
    #[error("interrupted; nothing was installed")]
    Interrupted,
    #[error("cannot {action} {path}")]
    Cache {
        action: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
}

impl InstallError {
    /// The run that went wrong, if there was one.
    pub fn run(&self) -> Option<&Finished> {
        match self {
            InstallError::Ended { run, .. } | InstallError::TimedOut { run, .. } => Some(run),
            InstallError::NoCache
            | InstallError::NoWheel
            | InstallError::NoPython { .. }
            | InstallError::NotInstalled(_)
            | InstallError::Run(_)
            | InstallError::Version { .. }
            | InstallError::Interrupted
            | InstallError::Cache { .. } => None,
        }
    }
}

fn found_python(found: &[(&'static str, String)]) -> String {
    if found.is_empty() {
        return "no Python is on the PATH".to_string();
    }
    let found: Vec<String> = found.iter().map(|(name, version)| format!("{name} is Python {version}")).collect();
    found.join(", ")
}

/// The last lines of what a tool said; some say on standard output why they fail.
fn words(run: &Finished) -> String {
    quoted(if run.stderr.last_lines.is_empty() { &run.stdout.last_lines } else { &run.stderr.last_lines })
}

/// How an installation will be done, found out before anything is written or fetched.
#[derive(Clone, Debug)]
pub struct Plan {
    folder: PathBuf,
    uv: Option<PathBuf>,
    /// Program and version; uv can do without.
    python: Option<(PathBuf, String)>,
}

impl Plan {
    /// Looks for uv and for a Python.
    ///
    /// # Errors
    /// There is no cache, no wheel for this system, or no Python for it and no uv that could bring one.
    pub fn new(search: &Search, serializer: &Serializer, interrupt: &Interrupt) -> Result<Plan, InstallError> {
        let folder = serializer.folder().ok_or(InstallError::NoCache)?;
        let has_wheel = cfg!(any(
            all(target_os = "linux", target_arch = "x86_64"),
            all(target_os = "macos", target_arch = "aarch64")
        ));
        if !has_wheel {
            return Err(InstallError::NoWheel);
        }
        let uv = search.find(Tool::Uv).ok().map(|found| found.path);
        let python = match (python(search, interrupt), &uv) {
            (Ok(python), _) => Some(python),
            (Err(_), _) if interrupt.raised() => return Err(InstallError::Interrupted),
            (Err(_), Some(_)) => None,
            (Err(found), None) => return Err(InstallError::NoPython { found }),
        };
        Ok(Plan { folder, uv, python })
    }

    /// Where it will be.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What will be fetched.
    pub fn packages() -> impl Iterator<Item = &'static str> {
        REQUIREMENTS.lines().filter(|line| line.contains("==")).map(|line| line.trim_end_matches([' ', '\\']))
    }

    /// Who will do it.
    pub fn means(&self) -> String {
        match (&self.uv, &self.python) {
            (Some(_), Some((_, version))) => format!("uv, for Python {version}"),
            (Some(_), None) => format!("uv, which fetches one of {PYTHONS_WORDS} too"),
            (None, Some((_, version))) => format!("pip, for Python {version}"),
            (None, None) => "nothing".to_string(),
        }
    }
}

/// The first Python on the PATH that there is a wheel for, and its version.
///
/// # Errors
/// Name and version of those that there is none for.
fn python(search: &Search, interrupt: &Interrupt) -> Result<(PathBuf, String), Vec<(&'static str, String)>> {
    const ASK: &str = "import sys; print('%d.%d' % (sys.version_info[0], sys.version_info[1]))";
    let mut others = Vec::new();
    for name in NAMES {
        let Some(path) = search.program(name) else { continue };
        // One that does not answer is the stub of a version manager or of macOS.
        let said = super::probe::ask(Tool::Python, &Command::new(&path).args(["-I", "-c", ASK]), interrupt);
        let Health::Ready { version } = said else { continue };
        match numbers(&version) {
            Some(have) if PYTHONS.contains(&have) => return Ok((path, version)),
            Some(_) => others.push((name, version)),
            None => {}
        }
    }
    Err(others)
}

/// What became of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is there now.
    Fresh,
    /// It was there already.
    Already,
}

/// Installs the serializer as planned; `told` hears what is going on. Another installation is waited for. One that is
/// ready already is left alone, or made anew where `force` is set.
///
/// # Errors
/// A tool fails, the packages are not the pinned ones, the cache cannot be written, or the user interrupts. What was
/// there before is there still.
pub fn install(
    plan: &Plan,
    serializer: &Serializer,
    force: bool,
    interrupt: &Interrupt,
    told: &dyn Fn(&str),
) -> Result<Installed, InstallError> {
    let parent = plan.folder.parent().ok_or(InstallError::NoCache)?;
    fs_err::create_dir_all(parent).map_err(cache("make", parent))?;
    let waiting = || told("waiting for another installation");
    let _lock = FolderLock::wait(parent, || interrupt.raised(), waiting).ok_or(InstallError::Interrupted)?;
    if !force && is_ready(serializer, interrupt) {
        return Ok(Installed::Already);
    }
    sweep(parent)?;
    let stage = stage(parent)?;
    let made = stage.path().join("new");
    let requirements = stage.path().join("requirements.txt");
    fs_err::write(&requirements, REQUIREMENTS).map_err(cache("write in", parent))?;
    let python = made.join("bin/python");

    told(&format!("making an environment with {}", plan.means()));
    step("making the environment", plan.environment(stage.path(), &made), interrupt)?;
    told(&format!("installing {}", Plan::packages().collect::<Vec<_>>().join(", ")));
    step("installing the packages", plan.packages_into(stage.path(), &python, &requirements), interrupt)?;
    told("checking that it works");
    let check = (Tool::Python, Command::new(&python).args(["-I", "-c", CHECK]));
    let said = step("checking what was installed", check, interrupt)?.stdout.first_line().unwrap_or_default();
    if said != COREAI_CORE.1 {
        return Err(InstallError::Version { found: said });
    }
    replace(&plan.folder, &made, stage.path())?;
    Ok(Installed::Fresh)
}

/// Removes what [`install`] made. Tells whether there was anything.
///
/// # Errors
/// The cache cannot be written, or the user interrupts while another installation is waited for.
pub fn remove(serializer: &Serializer, interrupt: &Interrupt) -> Result<bool, InstallError> {
    let folder = serializer.folder().ok_or(InstallError::NoCache)?;
    let parent = folder.parent().ok_or(InstallError::NoCache)?;
    if !parent.exists() {
        return Ok(false);
    }
    let _lock = FolderLock::wait(parent, || interrupt.raised(), || {}).ok_or(InstallError::Interrupted)?;
    sweep(parent)?;
    let stage = stage(parent)?;
    set_aside(&folder, stage.path())
}

/// Whether the installed interpreter can be used as it is.
pub fn is_ready(serializer: &Serializer, interrupt: &Interrupt) -> bool {
    let health = serializer.installed().map(|python| python.health(interrupt));
    matches!(health, Some(Health::Ready { .. }))
}

impl Plan {
    fn environment(&self, stage: &Path, made: &Path) -> (Tool, Command) {
        match (&self.uv, &self.python) {
            (Some(uv), python) => {
                let (first, last) = (PYTHONS.start().1, PYTHONS.end().1 + 1);
                let any = || OsString::from(format!(">=3.{first},<3.{last}"));
                let python = python.as_ref().map_or_else(any, |(program, _)| program.clone().into());
                let command = of_uv(uv, stage).args(["venv", "--no-project", "--python"]).arg(python).arg(made);
                (Tool::Uv, command)
            }
            (None, python) => {
                let program = python.as_ref().map_or_else(|| PathBuf::from(Tool::Python.name()), |(p, _)| p.clone());
                (Tool::Python, Command::new(program).args(["-I", "-m", "venv"]).arg(made))
            }
        }
    }

    fn packages_into(&self, stage: &Path, python: &Path, requirements: &Path) -> (Tool, Command) {
        let (tool, command) = match &self.uv {
            Some(uv) => (Tool::Uv, of_uv(uv, stage).args(["pip", "install", "--python"]).arg(python)),
            None => {
                let quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"];
                (Tool::Python, Command::new(python).args(["-I", "-m", "pip", "install"]).args(quiet))
            }
        };
        let exact = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement"];
        (tool, command.args(exact).arg(requirements))
    }
}

/// uv, kept from the settings of a project it might be called in.
fn of_uv(uv: &Path, stage: &Path) -> Command {
    Command::new(uv).args(["--directory"]).arg(stage).args(["--no-progress"])
}

fn step(task: &'static str, command: (Tool, Command), interrupt: &Interrupt) -> Result<Finished, InstallError> {
    match run(command.0, &command.1, LIMITS, interrupt)? {
        ToolRun::Finished(run) if run.end == End::Code(0) => Ok(run),
        ToolRun::Finished(run) => Err(InstallError::Ended { task, run: Box::new(run) }),
        ToolRun::NotInstalled(missing) => Err(InstallError::NotInstalled(missing)),
        ToolRun::TimedOut { run, after } => Err(InstallError::TimedOut { task, after, run: Box::new(run) }),
        ToolRun::Interrupted => Err(InstallError::Interrupted),
    }
}

fn cache(action: &'static str, path: &Path) -> impl Fn(io::Error) -> InstallError {
    let path = path.display().to_string();
    move |source| InstallError::Cache { action, path: path.clone(), source }
}

/// A folder beside the environment's place; goes when dropped.
fn stage(parent: &Path) -> Result<tempfile::TempDir, InstallError> {
    tempfile::Builder::new().prefix(STAGE).tempdir_in(parent).map_err(cache("write in", parent))
}

/// Removes what killed installations left. The lock is held, so none of them is at work.
fn sweep(parent: &Path) -> Result<(), InstallError> {
    for entry in fs_err::read_dir(parent).map_err(cache("read", parent))? {
        let entry = entry.map_err(cache("read", parent))?;
        if entry.file_name().to_string_lossy().starts_with(STAGE) {
            fs_err::remove_dir_all(entry.path()).map_err(cache("write in", parent))?;
        }
    }
    Ok(())
}

/// Moves what is in `folder`'s place into the stage, whatever it is. Tells whether there was anything.
fn set_aside(folder: &Path, stage: &Path) -> Result<bool, InstallError> {
    match std::fs::rename(folder, stage.join("old")) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cache("remove", folder)(error)),
    }
}

fn replace(folder: &Path, made: &Path, stage: &Path) -> Result<(), InstallError> {
    let had = set_aside(folder, stage)?;
    std::fs::rename(made, folder).map_err(|error| {
        if had {
            // Nothing more can be done where this fails too.
            let _ = std::fs::rename(stage.join("old"), folder);
        }
        cache("make", folder)(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_a_version_and_hashes() {
        let packages: Vec<&str> = Plan::packages().collect();
        assert_eq!(packages[0], format!("{}=={}", COREAI_CORE.0, COREAI_CORE.1));
        assert_eq!(packages.len(), 7, "{packages:?}");
        let blocks: Vec<&str> =
            REQUIREMENTS.split("\n").filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        for (at, line) in blocks.iter().enumerate() {
            let hash = line.trim().trim_end_matches(" \\").strip_prefix("--hash=sha256:");
            match hash {
                Some(hash) => assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()), "{line}"),
                None => assert!(line.contains("==") && blocks[at + 1].contains("--hash"), "{line}"),
            }
        }
    }
}
