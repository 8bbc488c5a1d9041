//! Where Core ML would run each operation of an `.mlmodelc` or `.mlpackage`: a Swift helper asks Core ML's compute
//! plan, on a Mac. The helper is compiled on first use and kept in the user's cache under the digest of its source.

use super::Expectation;
use crate::digest::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const SOURCE: &str = include_str!("compute_plan.swift");
/// A first Neural Engine load was seen to specialize for 240 s; five times that is no wait for a plan.
const LIMIT: Duration = Duration::from_secs(1200);
/// How much of a failed command's stderr is told.
const TOLD: u64 = 2000;

/// Where Core ML would run a model's operations on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputePlan {
    /// Each function, sorted by name.
    pub functions: Vec<PlannedFunction>,
}

/// The operations of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFunction {
    /// Its name.
    pub name: String,
    /// Its operations in program order.
    pub operations: Vec<PlannedOperation>,
}

/// One operation and its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedOperation {
    /// Its type, such as `ios18.conv`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `cpu`, `gpu` or `neural_engine`; none for one that runs nowhere, such as a constant.
    pub device: Option<String>,
}

impl PlannedFunction {
    /// Operations by device, those that run nowhere apart.
    pub fn devices(&self) -> BTreeMap<&str, usize> {
        let mut devices = BTreeMap::new();
        for device in self.operations.iter().filter_map(|op| op.device.as_deref()) {
            *devices.entry(device).or_default() += 1;
        }
        devices
    }
}

impl ComputePlan {
    /// Operations for the Neural Engine.
    pub fn on_neural_engine(&self) -> usize {
        self.functions.iter().filter_map(|f| f.devices().get("neural_engine").copied()).sum()
    }

    /// Why the plan rules `expectation` out, if it does. A plan tells devices and no regions, so it proves no count:
    /// only that there is one where none should be, or none where one should.
    pub fn contradicts(&self, expectation: &Expectation) -> Option<String> {
        let (placed, expected) = (self.on_neural_engine(), expectation.each?);
        match (placed, expected) {
            (0, 0) => None,
            (0, _) => Some(format!("regions expected {expected}, but no operation is for the Neural Engine")),
            (_, 0) => Some(format!("regions expected 0, but {placed} operations are for the Neural Engine")),
            (_, _) => None,
        }
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PlanError {
    #[error("xcrun is not on PATH; it comes with Xcode or `xcode-select --install`")]
    NoXcrun,
    #[error("the helper that reads compute plans could not be put in {path}")]
    Cache {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{command} could not be run")]
    Start {
        command: String,
        #[source]
        source: io::Error,
    },
    #[error("{command} did not end within {seconds} s")]
    Timeout { command: String, seconds: u64 },
    #[error("{command} failed ({status}): {stderr}")]
    Failed { command: String, status: ExitStatus, stderr: String },
    #[error("the helper that reads compute plans printed something else")]
    Output(#[from] serde_json::Error),
}

/// Asks Core ML for plans.
#[derive(Clone, Debug)]
pub struct Planner {
    path: OsString,
    cache: PathBuf,
}

impl Planner {
    /// A planner with this machine's tools; none where there is no Core ML to ask.
    pub fn from_process() -> Option<Planner> {
        let home = std::env::var_os("HOME").unwrap_or_default();
        let cache = Path::new(&home).join("Library/Caches/eg2-convert");
        cfg!(target_os = "macos").then(|| Planner::new(std::env::var_os("PATH").unwrap_or_default(), cache))
    }

    /// A planner that looks for `xcrun` in `path`, a list as in `PATH`, and keeps its helper in `cache`.
    pub fn new(path: impl Into<OsString>, cache: impl Into<PathBuf>) -> Planner {
        Planner { path: path.into(), cache: cache.into() }
    }

    /// The plan of the model at `model`.
    ///
    /// # Errors
    /// The helper cannot be compiled, or it fails.
    pub fn plan(&self, model: &Path) -> Result<ComputePlan, PlanError> {
        let helper = self.helper()?;
        let printed = run("compute_plan", Command::new(helper).arg(model), LIMIT)?;
        let mut plan: ComputePlan = serde_json::from_slice(&printed)?;
        plan.functions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(plan)
    }

    /// The helper's path, after compiling it if it is not there.
    fn helper(&self) -> Result<PathBuf, PlanError> {
        let source = Digest::of(SOURCE.as_bytes()).to_string();
        let helper = self.cache.join(format!("compute_plan-{}", &source[..16]));
        if helper.is_file() {
            return Ok(helper);
        }
        let xcrun = self.xcrun().ok_or(PlanError::NoXcrun)?;
        let cache = |source| PlanError::Cache { path: self.cache.display().to_string(), source };
        std::fs::create_dir_all(&self.cache).map_err(cache)?;
        let folder = tempfile::tempdir_in(&self.cache).map_err(cache)?;
        let (text, program) = (folder.path().join("compute_plan.swift"), folder.path().join("compute_plan"));
        std::fs::write(&text, SOURCE).map_err(cache)?;
        let mut compile = Command::new(xcrun);
        compile.args(["swiftc", "-O", "-parse-as-library", "-o"]).args([&program, &text]);
        run("xcrun swiftc", &mut compile, LIMIT)?;
        // In one step, so that another process finds all of it or nothing.
        std::fs::rename(&program, &helper).map_err(cache)?;
        Ok(helper)
    }

    fn xcrun(&self) -> Option<PathBuf> {
        std::env::split_paths(&self.path).map(|folder| folder.join("xcrun")).find(|file| file.is_file())
    }
}

/// Runs `command`, called `name` in messages, and gives what it printed.
fn run(name: &str, command: &mut Command, limit: Duration) -> Result<Vec<u8>, PlanError> {
    let start = |source| PlanError::Start { command: name.to_string(), source };
    // Into files, which take any amount without anyone reading.
    let (mut stdout, mut stderr) = (tempfile::tempfile().map_err(start)?, tempfile::tempfile().map_err(start)?);
    command.stdin(Stdio::null());
    command.stdout(stdout.try_clone().map_err(start)?).stderr(stderr.try_clone().map_err(start)?);
    let mut child = command.spawn().map_err(start)?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(start)? {
            break status;
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Err(PlanError::Timeout { command: name.to_string(), seconds: limit.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        let stderr = last(&mut stderr).map_err(start)?;
        return Err(PlanError::Failed { command: name.to_string(), status, stderr });
    }
    let mut printed = Vec::new();
    stdout.seek(SeekFrom::Start(0)).and_then(|_| stdout.read_to_end(&mut printed)).map_err(start)?;
    Ok(printed)
}

/// The end of a file's text.
fn last(file: &mut std::fs::File) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TOLD)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const PLAN: &str = r#"{"functions":[
        {"name":"b","operations":[{"type":"ios18.conv","device":"neural_engine"},{"type":"const"}]},
        {"name":"a","operations":[{"type":"ios18.add","device":"gpu"},{"type":"ios18.mul","device":"gpu"}]}]}"#;

    /// A folder with a stand-in for `xcrun` that notes its arguments and "compiles" `helper`.
    fn stand_in(helper: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$1 $2 $3\" >> {0}/calls\ncp {0}/helper \"$5\" && chmod +x \"$5\" && test -s \"$6\"\n",
            dir.path().display()
        );
        fs_err::write(dir.path().join("helper"), helper).unwrap();
        fs_err::write(dir.path().join("xcrun"), script).unwrap();
        fs_err::set_permissions(dir.path().join("xcrun"), std::fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    /// The planner finds only the stand-in; what the stand-in calls is where it always is.
    fn planned(dir: &Path) -> Result<ComputePlan, PlanError> {
        Planner::new(dir, dir.join("cache")).plan(Path::new("a.mlmodelc"))
    }

    #[test]
    fn the_helper_is_compiled_once() {
        let dir = stand_in(&format!("#!/bin/sh\ntest \"$1\" = a.mlmodelc || exit 9\ncat <<'E'\n{PLAN}\nE\n"));
        let plan = planned(dir.path()).unwrap();
        assert_eq!(plan, planned(dir.path()).unwrap());
        assert_eq!(fs_err::read_to_string(dir.path().join("calls")).unwrap(), "swiftc -O -parse-as-library\n");
        let [a, b] = &plan.functions[..] else { panic!("{plan:?}") };
        assert_eq!((a.name.as_str(), a.devices()), ("a", BTreeMap::from([("gpu", 2)])));
        assert_eq!((b.name.as_str(), b.devices()), ("b", BTreeMap::from([("neural_engine", 1)])));
        assert_eq!(fs_err::read_dir(dir.path().join("cache")).unwrap().count(), 1, "nothing else stays behind");
    }

    #[test]
    fn a_plan_rules_out_but_never_proves() {
        let placed: ComputePlan = serde_json::from_str(PLAN).unwrap();
        let none = ComputePlan { functions: vec![] };
        let why = |plan: &ComputePlan, text: &str| plan.contradicts(&text.parse().unwrap()).unwrap_or_default();
        insta::assert_snapshot!(why(&placed, "0"), @"regions expected 0, but 1 operations are for the Neural Engine");
        insta::assert_snapshot!(why(&none, "2"), @"regions expected 2, but no operation is for the Neural Engine");
        for (plan, text) in [(&placed, "1"), (&placed, "7"), (&none, "0"), (&none, "h16c=1")] {
            assert_eq!(why(plan, text), "");
        }
    }

    #[test]
    fn each_way_to_fail() {
        let error = |dir: &Path| planned(dir).unwrap_err().to_string();
        let empty = tempfile::tempdir().unwrap();
        insta::assert_snapshot!(error(empty.path()), @"xcrun is not on PATH; it comes with Xcode or `xcode-select --install`");
        let broken = stand_in("#!/bin/sh\necho no such model >&2; exit 3\n");
        insta::assert_snapshot!(error(broken.path()), @"compute_plan failed (exit status: 3): no such model");
        let crashed = stand_in("#!/bin/sh\nkill -SEGV $$\n");
        assert!(error(crashed.path()).starts_with("compute_plan failed (signal: 11"));
        let silent = stand_in("#!/bin/sh\n");
        insta::assert_snapshot!(error(silent.path()), @"the helper that reads compute plans printed something else");
        fs_err::write(silent.path().join("xcrun"), "#!/bin/sh\necho swiftc: no SDK >&2\nexit 1\n").unwrap();
        fs_err::remove_dir_all(silent.path().join("cache")).unwrap();
        insta::assert_snapshot!(error(silent.path()), @"xcrun swiftc failed (exit status: 1): swiftc: no SDK");
    }

    #[test]
    fn a_hang_is_ended() {
        let error = run("sleep", Command::new("sleep").arg("60"), Duration::from_millis(50)).unwrap_err();
        insta::assert_snapshot!(error, @"sleep did not end within 0 s");
    }
}
