//! `tools install` with stand-ins for Python, pip and uv, and once for real.

use crate::cli::command;
use crate::python::coreai_python;
use crate::schema::holds;
use assert_cmd::Command;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A Python of the version $VERSION. The environment it makes holds a copy of itself, whose pip does as $MODE says.
const PYTHON: &str = r#"#!/bin/sh
case "$2 $3" in
"-m venv") [ "$MODE" = no_venv ] && { echo "ensurepip is not available"; exit 1; }
  mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
"-m pip")
  for last; do :; done
  echo "pip $*" >> "$LOG"; cp "$last" "$LOG.requirements"
  case $MODE in
  mismatch) printf 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n    Expected sha256 1\n         Got        2\n' >&2; exit 1 ;;
  hang) sleep 600 & echo $$ $! > "$LOG.part"; mv "$LOG.part" "$LOG.pids"; wait ;;
  slow) sleep 1 ;;
  esac
  echo 1.0.0b3 > "$0.wheel" ;;
"-c "*_compiler*) case $MODE in
  unsound) echo "ImportError: libCoreAI.so: no such file" >&2; exit 1 ;;
  other) echo 1.0.0b9 ;;
  *) cat "$0.wheel" ;;
  esac ;;
"-c "*coreai-core*) echo "${VERSION:-3.12} $(cat "$0.wheel" 2>/dev/null || echo "${WHEEL:-none}")" ;;
"-c "*) echo "${VERSION:-3.12}" ;;
*) echo "Python ${VERSION:-3.12}.0" ;;
esac
"#;

/// uv, which makes the environment with the Python it is given.
const UV: &str = r#"#!/bin/sh
[ "$1" = --version ] && { echo "uv 0.0.1"; exit; }
[ "$1 $3" = "--directory --no-progress" ] || exit 64
shift 3; echo "uv $*" >> "$LOG"
for last; do :; done
case $1 in
venv) mkdir -p "$last/bin"; cp "$(dirname "$0")/../python" "$last/bin/python" ;;
pip) [ "$MODE" = mismatch ] && { echo "error: Hash mismatch for coreai-core" >&2; exit 2; }
  echo 1.0.0b3 > "$4.wheel" ;;
esac
"#;

/// A folder with the stand-ins and a cache.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new(tools: &[&str]) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        fs_err::create_dir(place.at("bin")).unwrap();
        place.tool("python", PYTHON);
        for tool in tools {
            place.tool(&format!("bin/{tool}"), if *tool == "uv" { UV } else { PYTHON });
        }
        place
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn tool(&self, path: &str, script: &str) {
        fs_err::write(self.at(path), script).unwrap();
        fs_err::set_permissions(self.at(path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The names of the cache's folder, hidden ones too.
    fn cached(&self) -> Vec<String> {
        let Ok(entries) = fs_err::read_dir(self.at("cache/eg2-convert")) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn path(&self) -> String {
        // Folders of programs the stand-ins need, without any Python of the machine.
        let tools = self.at("system");
        if !tools.exists() {
            fs_err::create_dir(&tools).unwrap();
            for name in ["sh", "cat", "cp", "mv", "mkdir", "sleep", "dirname"] {
                let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
                std::os::unix::fs::symlink(found.iter().find(|p| p.exists()).unwrap(), tools.join(name)).unwrap();
            }
        }
        format!("{}:{}", self.at("bin").display(), tools.display())
    }

    pub fn command(&self, env: &[(&str, &str)], args: &[&str]) -> Command {
        let mut command = command(self.dir.path());
        command.env("PATH", self.path()).env("XDG_CACHE_HOME", self.at("cache")).env("LOG", self.at("log"));
        command.env_remove("EG2_ALLOW_INSTALL").envs(env.iter().copied()).args(args);
        command
    }

    /// Exit code, then standard output and standard error, names of folders replaced.
    pub fn run(&self, env: &[(&str, &str)], args: &[&str]) -> (i32, String) {
        let output = self.command(env, args).output().unwrap();
        if args.contains(&"--json") {
            holds(args[0], &output.stdout);
        }
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), self.redacted(&text))
    }

    fn redacted(&self, text: &str) -> String {
        let text = text.replace(self.dir.path().to_str().unwrap(), "[dir]");
        let mut out = String::new();
        for (at, part) in text.split(".coreai-").enumerate() {
            // Six random letters follow.
            out.push_str(if at == 0 { part } else { part.get(6..).unwrap_or(part) });
            out.push_str(".coreai-x");
        }
        out.trim_end_matches(".coreai-x").to_string()
    }

    /// An installation that must fail with 5 and leave nothing; gives what it says.
    fn fails(&self, env: &[(&str, &str)]) -> String {
        let (code, said) = self.run(env, &["tools", "install", "--yes", "--quiet"]);
        assert_eq!((code, self.cached()), (5, vec![]), "{said}");
        said
    }
}

const INSTALL: [&str; 3] = ["tools", "install", "--yes"];

#[test]
fn pip_installs_exactly_what_is_pinned() {
    let place = Place::new(&["python3.12", "python3"]);
    let (code, said) = place.run(&[], &INSTALL);
    assert_eq!(code, 0, "{said}");
    insta::assert_snapshot!(said, @"
    coreai-core  1.0.0b3
    outcome      installed
    place        [dir]/cache/eg2-convert/coreai-1.0.0b3
    making an environment with pip, for Python 3.12
    installing coreai-core==1.0.0b3, ml-dtypes==0.6.0, numpy==2.4.6, pillow==13.0.0, psutil==7.2.2, typing-extensions==4.16.0, yuvio==1.6
    checking that it works
    ");
    insta::assert_snapshot!(place.redacted(&fs_err::read_to_string(place.at("log")).unwrap()), @"pip -I -m pip install --quiet --disable-pip-version-check --no-input --no-compile --require-hashes --no-deps --only-binary :all: --requirement [dir]/cache/eg2-convert/.coreai-x/requirements.txt");
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/toolchain/serializer.txt");
    assert_eq!(fs_err::read(place.at("log.requirements")).unwrap(), fs_err::read(pinned).unwrap());
    assert_eq!(place.cached(), ["coreai-1.0.0b3"]);

    // Found by doctor, and left alone by the next call, which needs no consent.
    let (_, said) = place.run(&[], &["doctor"]);
    assert!(
        said.contains("coreai-core     1.0.0b3\n                [dir]/cache/eg2-convert/coreai-1.0.0b3/bin/python"),
        "{said}"
    );
    let (code, said) = place.run(&[], &["tools", "install"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(said, @"
    coreai-core  1.0.0b3
    outcome      installed already
    place        [dir]/cache/eg2-convert/coreai-1.0.0b3
    ");
    assert_eq!(place.run(&[("MODE", "mismatch")], &INSTALL).0, 0);
    let (code, said) = place.run(&[("MODE", "mismatch")], &[&INSTALL[..], &["--force"]].concat());
    assert_eq!((code, place.cached()), (5, vec!["coreai-1.0.0b3".to_string()]), "{said}");
    assert_eq!(place.run(&[], &["tools", "install"]).0, 0, "a failed --force leaves the old one whole");
    assert_eq!(place.run(&[], &[&INSTALL[..], &["--force"]].concat()).0, 0);

    for outcome in ["removed", "not there"] {
        let (code, said) = place.run(&[], &["tools", "remove"]);
        assert_eq!((code, place.cached()), (0, vec![]));
        assert!(said.contains(&format!("outcome      {outcome}\n")), "{said}");
    }
}

#[test]
fn uv_comes_first_and_needs_no_python() {
    let place = Place::new(&["uv"]);
    let (code, said) = place.run(&[("EG2_ALLOW_INSTALL", "1")], &["tools", "install"]);
    assert_eq!(code, 0, "{said}");
    insta::assert_snapshot!(place.redacted(&fs_err::read_to_string(place.at("log")).unwrap()), @"
    uv venv --no-project --python >=3.11,<3.15 [dir]/cache/eg2-convert/.coreai-x/new
    uv pip install --python [dir]/cache/eg2-convert/.coreai-x/new/bin/python --require-hashes --no-deps --only-binary :all: --requirement [dir]/cache/eg2-convert/.coreai-x/requirements.txt
    ");
    let place = Place::new(&["uv", "python3.11"]);
    assert_eq!(place.run(&[], &INSTALL).0, 0);
    let log = fs_err::read_to_string(place.at("log")).unwrap();
    assert!(place.redacted(&log).starts_with("uv venv --no-project --python [dir]/bin/python3.11 "), "{log}");
    insta::assert_snapshot!(Place::new(&["uv"]).fails(&[("MODE", "mismatch")]), @"
    error: installing the packages: uv ended with exit code 2
      | error: Hash mismatch for coreai-core
    ");
}

#[test]
fn without_consent_nothing_is_fetched() {
    let place = Place::new(&["python3"]);
    for allow in ["", "0", "yes"] {
        let (code, said) = place.run(&[("EG2_ALLOW_INSTALL", allow)], &["tools", "install"]);
        assert_eq!((code, place.cached()), (5, vec![]));
        insta::allow_duplicates!(
            insta::assert_snapshot!(said, @"error: coreai-core is fetched from the package index only where that is allowed; run `eg2-convert tools install --yes`, or set EG2_ALLOW_INSTALL=1")
        );
        assert!(!place.at("log").exists() && !place.at("cache").exists());
    }
    let (code, said) = place.run(&[], &["tools", "install", "--json"]);
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &json["error"]["exit_code"]), (5, &Value::from(5)));
}

#[test]
fn pythons_that_will_not_do() {
    insta::assert_snapshot!(Place::new(&[]).fails(&[]), @"error: no Python is on the PATH, expected Python 3.11 to 3.14; install one of them, or uv, which brings one");
    insta::assert_snapshot!(Place::new(&["python3"]).fails(&[("VERSION", "3.9")]), @"error: python3 is Python 3.9, expected Python 3.11 to 3.14; install one of them, or uv, which brings one");
    insta::assert_snapshot!(Place::new(&["python3.14", "python3"]).fails(&[("VERSION", "3.15")]), @"error: python3.14 is Python 3.15, python3 is Python 3.15, expected Python 3.11 to 3.14; install one of them, or uv, which brings one");
    let place = Place::new(&["python3"]);
    place.tool("bin/python3.13", "#!/bin/sh\necho 'version not installed' >&2; exit 127\n");
    assert_eq!(place.run(&[], &INSTALL).0, 0, "a stub is passed over");
}

#[test]
fn installers_that_fail() {
    let mut all = String::new();
    for mode in ["mismatch", "no_venv", "unsound", "other"] {
        let place = Place::new(&["python3"]);
        all.push_str(&place.fails(&[("MODE", mode)]));
        assert_eq!(place.run(&[], &INSTALL).0, 0);
    }
    insta::assert_snapshot!(all, @"
    error: installing the packages: python ended with exit code 1
      | ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
      |     Expected sha256 1
      |          Got        2
    error: making the environment: python3 ended with exit code 1
      | ensurepip is not available
    error: checking what was installed: python ended with exit code 1
      | ImportError: libCoreAI.so: no such file
    error: what was installed is coreai-core 1.0.0b9, expected 1.0.0b3
    ");
    let place = Place::new(&["python3"]);
    fs_err::write(place.at("cache"), "a file").unwrap();
    let (code, said) = place.run(&[], &INSTALL);
    assert_eq!(code, 2);
    insta::assert_snapshot!(said, @"
    error: cannot make [dir]/cache/eg2-convert
      caused by: failed to create directory `[dir]/cache/eg2-convert`: Not a directory (os error 20)
    ");
    let (code, said) = place.run(&[("XDG_CACHE_HOME", "relative"), ("HOME", "")], &INSTALL);
    assert_eq!(code, 2);
    insta::assert_snapshot!(said, @"error: there is no cache to install into: neither XDG_CACHE_HOME nor HOME names an absolute path");
}

/// An installation that goes on until it is ended.
fn hanging(place: &Place) -> std::process::Child {
    let mut ours = std::process::Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"));
    ours.env("PATH", place.path()).env("XDG_CACHE_HOME", place.at("cache")).env("LOG", place.at("log"));
    ours.env("MODE", "hang").args(INSTALL).arg("--quiet").current_dir(place.dir.path());
    let ours = ours.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while !place.at("log.pids").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "the stand-in did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    ours
}

fn signal(name: &str, pid: &str) {
    std::process::Command::new("kill").args([name, pid]).status().unwrap();
}

#[test]
fn control_c_leaves_nothing() {
    for name in ["-INT", "-TERM"] {
        let place = Place::new(&["python3"]);
        let mut ours = hanging(&place);
        signal(name, &ours.id().to_string());
        assert_eq!(ours.wait().unwrap().code(), Some(130));
        let mut said = String::new();
        std::io::Read::read_to_string(&mut ours.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(said, "error: interrupted; nothing was installed\n");
        assert_eq!(place.cached(), Vec::<String>::new());
    }
}

#[test]
fn what_a_killed_installation_leaves_is_no_installation() {
    let place = Place::new(&["python3"]);
    let mut ours = hanging(&place);
    signal("-KILL", &ours.id().to_string());
    ours.wait().unwrap();
    for pid in fs_err::read_to_string(place.at("log.pids")).unwrap().split_whitespace() {
        signal("-KILL", pid);
    }
    let left = place.cached();
    assert!(left.len() == 1 && left[0].starts_with(".coreai-"), "{left:?}");
    let (_, said) = place.run(&[], &["doctor"]);
    assert!(said.contains("coreai-core     not found"), "{said}");
    assert_eq!(place.run(&[], &INSTALL).0, 0);
    assert_eq!(place.cached(), ["coreai-1.0.0b3"]);
    // Neither is an environment whose packages are gone, or of another version.
    for damage in ["", "1.0.0b2"] {
        let wheel = place.at("cache/eg2-convert/coreai-1.0.0b3/bin/python.wheel");
        fs_err::write(&wheel, damage).unwrap();
        assert_eq!(place.run(&[], &["tools", "install"]).0, 5, "consent is asked for anew");
        assert_eq!(place.run(&[], &INSTALL).0, 0);
        assert_eq!(fs_err::read_to_string(&wheel).unwrap(), "1.0.0b3\n");
    }
}

#[test]
fn of_two_at_once_one_waits() {
    let place = Place::new(&["python3"]);
    let said: Vec<String> = std::thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| place.run(&[("MODE", "slow")], &INSTALL)));
        both.map(|thread| thread.join().unwrap())
            .into_iter()
            .map(|(code, said)| {
                assert_eq!(code, 0, "{said}");
                said
            })
            .collect()
    });
    assert_eq!(said.iter().filter(|s| s.contains("installed already")).count(), 1, "{said:?}");
    assert_eq!(said.iter().filter(|s| s.contains("waiting for another installation")).count(), 1, "{said:?}");
    assert_eq!(fs_err::read_to_string(place.at("log")).unwrap().lines().count(), 1);
    assert_eq!(place.cached(), ["coreai-1.0.0b3"]);
}

#[test]
fn doctor_judges_the_python_that_would_be_used() {
    let place = Place::new(&["python3"]);
    let doctor = |env: &[(&str, &str)]| {
        let said = place.run(env, &["doctor"]).1;
        said[said.find("coreai-core ").unwrap()..].to_string()
    };
    insta::assert_snapshot!(doctor(&[]), @"
    coreai-core     not found
                    looked for: [dir]/cache/eg2-convert/coreai-1.0.0b3/bin/python
                    without it: everything but writing, reading and running an
                    .aimodel; .mlpackage still works
                    to get it: run `eg2-convert tools install`
    ");
    let python = place.at("python");
    let named = ("EG2_COREAI_PYTHON", python.to_str().unwrap());
    insta::assert_snapshot!(doctor(&[named, ("WHEEL", "1.0.0b2")]), @"
    coreai-core     1.0.0b2, but 1.0.0b3 is wanted
                    looked for: [dir]/python, of $EG2_COREAI_PYTHON
                    without it: everything but writing, reading and running an
                    .aimodel; .mlpackage still works
                    to get it: unset EG2_COREAI_PYTHON and run `eg2-convert
                    tools install`
    ");
    insta::assert_snapshot!(doctor(&[named, ("VERSION", "3.10")]), @"
    coreai-core     Python 3.10, but Python 3.11 to 3.14 is wanted
                    looked for: [dir]/python, of $EG2_COREAI_PYTHON
                    without it: everything but writing, reading and running an
                    .aimodel; .mlpackage still works
                    to get it: unset EG2_COREAI_PYTHON and run `eg2-convert
                    tools install`
    ");
    insta::assert_snapshot!(doctor(&[named, ("WHEEL", "1.0.0b3")]), @"
    coreai-core     1.0.0b3
                    [dir]/python, of $EG2_COREAI_PYTHON
    ");
    let (_, json) = place.run(&[named], &["doctor", "--json"]);
    assert!(!json.contains("[dir]"), "{json}");
    // An installation says that it is not the one in use.
    let (code, said) = place.run(&[named], &[&INSTALL[..], &["--quiet"]].concat());
    assert_eq!(code, 0);
    insta::assert_snapshot!(said, @"
    coreai-core  1.0.0b3
    outcome      installed
    place        [dir]/cache/eg2-convert/coreai-1.0.0b3
    note         EG2_COREAI_PYTHON is set, and the Python it names is used
                 instead
    ");
}

#[test]
fn the_real_one_is_installed_and_found() {
    let python = coreai_python();
    let cache = python.ancestors().nth(4).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (variable, value) in [("XDG_CACHE_HOME", cache), ("EG2_COREAI_PYTHON", &python)] {
        let output = command(dir.path()).args(["doctor", "--json"]).env(variable, value).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let serializer = report["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == "coreai-core").unwrap();
        assert_eq!(serializer["health"]["state"], "ready", "{variable}: {serializer}");
    }
}
