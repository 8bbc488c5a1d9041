//! Python environments made once under `target/`: one with the pinned packages of scripts/requirements-test.txt, one
//! with Apple's serializer.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The interpreter of the environment. Makes it on first use; every later call, of this or another process, waits.
///
/// # Panics
/// There is no Python, or a package cannot be installed: a check that needs it has not been run and must not pass.
pub fn interpreter() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wanted = fs_err::read_to_string(root.join("scripts/requirements-test.txt")).unwrap();
    let venv = root.join("target/test-venv");
    fs_err::create_dir_all(root.join("target")).unwrap();
    let lock = fs_err::File::create(root.join("target/test-venv.lock")).unwrap();
    lock.lock().unwrap();
    let (python, stamp) = (venv.join("bin/python"), venv.join("requirements.txt"));
    if fs_err::read_to_string(&stamp).is_ok_and(|have| have == wanted) {
        return python;
    }
    let run = |program: &Path, args: &[&str]| {
        let status = Command::new(program).args(args).current_dir(root).status();
        assert!(status.is_ok_and(|s| s.success()), "{} {args:?} failed", program.display());
    };
    let host = ["python3.11", "python3.12", "python3.13", "python3"]
        .into_iter()
        .find(|p| Command::new(p).arg("--version").output().is_ok_and(|o| o.status.success()))
        .expect("the tests need Python 3.11 or newer on PATH");
    run(Path::new(host), &["-m", "venv", "--clear", "target/test-venv"]);
    run(
        &python,
        &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "scripts/requirements-test.txt"],
    );
    fs_err::write(&stamp, wanted).unwrap();
    python
}

/// The interpreter with Apple's serializer, for `EG2_COREAI_PYTHON`. Made by `tools install`, which waits for another
/// that is at it and leaves alone what is ready.
///
/// # Panics
/// It cannot be installed: a check that needs it has not been run and must not pass.
pub fn coreai_python() -> PathBuf {
    static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
        let mut install = Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"));
        install.args(["tools", "install", "--yes", "--json"]).env_remove("EG2_COREAI_PYTHON");
        install.env("XDG_CACHE_HOME", Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-cache"));
        let output = install.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "tools install:\n{out}\n{err}");
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        report["python"].as_str().unwrap().into()
    });
    PYTHON.clone()
}

/// Runs a script of `scripts/` and gives its stdout; both streams are in the message where it fails.
pub fn script(name: &str, args: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(interpreter()).arg(root.join("scripts").join(name)).args(args).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} {args:?}:\n{out}\n{err}");
    out.into_owned()
}
