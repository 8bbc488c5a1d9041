//! `compile` and `doctor` with a stand-in for Apple's compiler, which does what the real one is known to do.

use crate::cli::command;
use crate::compiled_tree::Tree;
use crate::schema::holds;
use assert_cmd::Command;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the tool is told, and what it does in each mode. `$made` copies a bundle from beside the script.
const STAND_IN: &str = r#"#!/bin/sh
here=$(dirname "$0")/..
if [ "$1" = --version ]; then echo "coreai-build 3600.79.1"; exit 0; fi
[ "$1 $3 $5 $7 $9" = "compile --output --platform --preferred-compute --architecture" ] || { echo "usage: $*" >&2; exit 64; }
out=$4; shift 9; arch=$1
name=encoder.$arch.aimodelc
made() { cp -R "$here/made/$1.$arch" "$out/${2:-$name}"; }
noise() { yes 'loc("m.py":1:2): warning: Incompatible element type' | head -c 250000; printf '\377\376\n'; } >&2
ane_error() { cat >&2 <<'END'
2026-12-02 10:00:00.000 coreai-build[1:2] Error:

 ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=1, statusdict={
    CompiledInputSourceFileName = "/var/folders/ab/main_x_0_ANE_region_1_0.bc.mlir";
    ErrorList =     (
    );
}
END
}
case $MODE in
success) noise; made one ;;
gpu_only) noise; ane_error; noise; made none ;;
partly) ane_error; made one ;;
harmless) echo '_ANECompiler : ANECCompile() FAILED' >&2; made one ;;
two) made one; made one "other.aimodelc" ;;
nothing) echo "done" >&2 ;;
link) ln -s "$here/made/one.$arch" "$out/$name" ;;
segfault) echo "about to fall" >&2; kill -SEGV $$ ;;
killed) mkdir "$out/$name"; echo half > "$out/$name/main-$arch.mlirb"; kill -KILL $$ ;;
hang) sleep 600 & echo $$ $! > "$here/pids.part"; mv "$here/pids.part" "$here/pids"; echo "thinking" >&2; wait ;;
unknown) echo "Error: Unknown architecture '$arch'" >&2; exit 64 ;;
unsupported) echo "Error: Architecture '$arch' is not supported for the requested deployment target: macOS 27.0" >&2; exit 64 ;;
full) noise; echo "LLVM ERROR: No space left on device" >&2; kill -ABRT $$ ;;
metal) echo "error: Core AI requires the Metal Toolchain" >&2; exit 1 ;;
refused) echo "Input model is missing the source bytecode." >&2; exit 1 ;;
other) printf 'one\ntwo \033[31mred\n' >&2; exit 3 ;;
second_fails) if [ "$arch" = h16c ]; then made one; else exit 3; fi ;;
esac
"#;

/// `xcrun` with `coremlcompiler` behind it.
pub const XCRUN: &str = r#"#!/bin/sh
case "$1 $2" in
"--find coremlcompiler") echo /x/coremlcompiler ;;
"coremlcompiler version") echo 3404.16.1 ;;
"coremlcompiler compile") mkdir "$4/encoder.mlmodelc"; echo made > "$4/encoder.mlmodelc/model.mil" ;;
*) echo "xcrun: error: unable to find utility" >&2; exit 72 ;;
esac
"#;

/// A folder with a model, an earlier result, and the tools.
pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir };
        place.tool("coreai-build", STAND_IN);
        for architecture in ["h16c", "h18p"] {
            Tree::new(&place.at("made"), &format!("none.{architecture}"), &[architecture]);
            let tree = Tree::new(&place.at("made"), &format!("one.{architecture}"), &[architecture]);
            tree.region(architecture, "main_AAAAAAAAAAAAAAAAAAAAAA_0_ANE_region_0_0", None);
        }
        place.write("encoder.aimodel/main.mlirb", "model");
        place.write("build/encoder.h16c.aimodelc/old", "whole");
        place.write("build/encoder.h16c.aimodelc.record.json", "old record");
        place
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        fs_err::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs_err::write(self.at(path), text).unwrap();
    }

    pub fn tool(&self, name: &str, script: &str) {
        let path = format!("bin/{name}");
        self.write(&path, script);
        fs_err::set_permissions(self.at(&path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The command with nothing but the stand-ins and the system's own programs.
    pub fn command(&self, mode: &str, args: &[&str]) -> Command {
        let mut command = command(self.dir.path());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display())).env("MODE", mode).args(args);
        command
    }

    /// Exit code, standard output and standard error, the folder's name replaced.
    pub fn run(&self, mode: &str, args: &[&str]) -> (i32, String, String) {
        let output = self.command(mode, args).output().unwrap();
        if args.contains(&"--json") {
            holds(args[0], &output.stdout);
        }
        let real = self.dir.path().canonicalize().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(real.to_str().unwrap(), "[dir]");
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Every path under `build`, with what files hold.
    fn built(&self) -> Vec<(String, Vec<u8>)> {
        fn walk(dir: &Path, found: &mut Vec<(String, Vec<u8>)>) {
            for entry in fs_err::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let bytes = if path.is_dir() { Vec::new() } else { fs_err::read(&path).unwrap() };
                found.push((path.display().to_string(), bytes));
                if path.is_dir() {
                    walk(&path, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.at("build"), &mut found);
        found.sort();
        found
    }

    fn names(&self) -> Vec<String> {
        let entries = fs_err::read_dir(self.at("build")).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Arguments of an ordinary call; `--force`, so that only failing keeps the earlier result.
pub const CALL: [&str; 11] = [
    "compile",
    "encoder.aimodel",
    "--platform",
    "macOS",
    "--arch",
    "h16c",
    "--prefer",
    "neural-engine",
    "--out",
    "build",
    "--force",
];

/// Runs a mode that must fail and leave everything as it was; gives exit code and class, then the message.
fn fails(mode: &str, more: &[&str]) -> String {
    let place = Place::new();
    let before = place.built();
    let args = [&CALL[..], more].concat();
    let (code, out, err) = place.run(mode, &args);
    assert_eq!(out, "", "{mode}");
    assert_eq!(place.built(), before, "{mode}: the earlier bundle is whole and nothing is left behind");
    let (json_code, out, _) = place.run(mode, &[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((json_code, &json["error"]["exit_code"]), (code, &Value::from(code)), "{mode}");
    assert_eq!(place.built(), before, "{mode}");
    format!("{code} {}\n{err}", json["error"]["details"]["class"].as_str().unwrap())
}

#[test]
fn success_is_published_with_its_record() {
    let place = Place::new();
    let (code, out, err) = place.run("success", &[&CALL[..], &["--expect", "1"]].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]"), (r"seconds .*", "seconds [n]")] }, {
        insta::assert_snapshot!(out, @r"
        artefact       [dir]/build/encoder.h16c.aimodelc
        outcome        published
        size           232 B
        digest root    [sha256]
        tool           coreai-build 3600.79.1, exit code 0
        command        coreai-build compile encoder.aimodel --output fresh
                       --platform macOS --preferred-compute neural-engine
                       --architecture h16c
        regions        h16c: 1 found, 1 expected
        device load    not run (needs Apple hardware)
        placed_on_ane  not run (needs Apple hardware)
        seconds [n]
        ");
    });
    assert_eq!(place.names(), ["encoder.h16c.aimodelc", "encoder.h16c.aimodelc.record.json"]);
    assert!(place.at("build/encoder.h16c.aimodelc/main-h16c.mlirb").is_file());
    assert!(!place.at("build/encoder.h16c.aimodelc/old").exists());

    let record = fs_err::read_to_string(place.at("build/encoder.h16c.aimodelc.record.json")).unwrap();
    let real = place.dir.path().canonicalize().unwrap();
    assert!(!record.contains(real.to_str().unwrap()) && !record.contains("\"/"), "{record}");
    let record: Value = serde_json::from_str(&record).unwrap();
    let argv: Vec<&str> =
        record["stages"]["compile"]["argv"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
    insta::assert_snapshot!(argv.join(" "), @"coreai-build compile encoder.aimodel --output fresh --platform macOS --preferred-compute neural-engine --architecture h16c");
    assert_eq!(record["stages"]["compile"]["version"], "coreai-build 3600.79.1");
    assert_eq!(record["checks"][1]["figures"]["h16c"]["found"], 1);
    let not_run: Vec<&str> =
        record["not_run"].as_array().unwrap().iter().map(|n| n["name"].as_str().unwrap()).collect();
    assert_eq!(not_run, ["loads_on_device", "placed_on_ane"]);

    let (code, out, _) = place.run("success", &CALL[..10]);
    assert_eq!(code, 0);
    assert!(out.contains("unchanged"), "{out}");
}

#[test]
fn a_neural_engine_compile_that_failed_is_found_out() {
    insta::assert_snapshot!(fails("gpu_only", &[]), @r#"
    4 neural_engine
    error: h16c: asked for the Neural Engine, found 0 regions, expected at least 1; coreai-build exited with 0
      | 2026-12-02 10:00:00.000 coreai-build[1:2] Error:
      |
      |  ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=1, statusdict={
      |     CompiledInputSourceFileName = "/var/folders/ab/main_x_0_ANE_region_1_0.bc.mlir";
      |     ErrorList =     (
      |     );
      | }
    "#);
    insta::assert_snapshot!(fails("gpu_only", &["--expect", "h16c=1"]), @r#"
    4 neural_engine
    error: h16c: asked for the Neural Engine, found 0 regions, expected 1; coreai-build exited with 0
      | 2026-12-02 10:00:00.000 coreai-build[1:2] Error:
      |
      |  ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=1, statusdict={
      |     CompiledInputSourceFileName = "/var/folders/ab/main_x_0_ANE_region_1_0.bc.mlir";
      |     ErrorList =     (
      |     );
      | }
    "#);
    insta::assert_snapshot!(fails("gpu_only", &["--expect", "0"]), @r#"
    4 neural_engine
    error: h16c: asked for the Neural Engine, found 0 regions, but such a bundle has at least one (with --prefer gpu it has none); coreai-build exited with 0
      | 2026-12-02 10:00:00.000 coreai-build[1:2] Error:
      |
      |  ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=1, statusdict={
      |     CompiledInputSourceFileName = "/var/folders/ab/main_x_0_ANE_region_1_0.bc.mlir";
      |     ErrorList =     (
      |     );
      | }
    "#);
    insta::assert_snapshot!(fails("partly", &[]), @r#"
    4 neural_engine
    error: h16c: asked for the Neural Engine, found 1 region, but its compiler failed, so --expect has to say how many there should be; coreai-build exited with 0
      | 2026-12-02 10:00:00.000 coreai-build[1:2] Error:
      |
      |  ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=1, statusdict={
      |     CompiledInputSourceFileName = "/var/folders/ab/main_x_0_ANE_region_1_0.bc.mlir";
      |     ErrorList =     (
      |     );
      | }
    "#);
    insta::assert_snapshot!(fails("success", &["--expect", "2"]), @r"
    4 regions
    error: the compiled bundle is not what was expected: h16c: regions found 1, expected 2
    ");
}

/// A path that is not UTF-8 has no form in JSON, and is no reason to fail once the bundle is there.
#[test]
fn a_folder_whose_name_is_not_utf8() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let args: Vec<&str> = CALL[..8].to_vec();
    let mut command = place.command("success", &args);
    let output = command.args(["--json", "--out"]).arg(std::ffi::OsStr::from_bytes(b"n\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let json = holds("compile", &output.stdout);
    assert!(json["artefacts"][0]["artefact"].as_str().unwrap().ends_with("n\u{fffd}/encoder.h16c.aimodelc"), "{json}");
}

#[test]
fn a_complaint_alone_is_no_failure() {
    for (mode, more, note) in [("harmless", &[][..], false), ("partly", &["--expect", "1"], true)] {
        let place = Place::new();
        let (code, out, err) = place.run(mode, &[&CALL[..], more].concat());
        assert_eq!(code, 0, "{mode}: {err}");
        assert_eq!(out.contains("aneCompileStatus=1"), note, "{out}");
    }
}

#[test]
fn the_gpu_needs_no_region() {
    let place = Place::new();
    let call: Vec<&str> = CALL.iter().map(|word| if *word == "neural-engine" { "gpu" } else { word }).collect();
    assert_eq!(place.run("gpu_only", &call).0, 0);
    let (code, _, err) = place.run("success", &[&call[..], &["--expect", "0"]].concat());
    assert_eq!(code, 4, "{err}");
}

#[test]
fn not_one_bundle() {
    insta::assert_snapshot!(fails("two", &[]), @r"
    5 not_one_bundle
    error: coreai-build exited with 0 and left 2 (encoder.h16c.aimodelc, other.aimodelc) where one .aimodelc was expected
    ");
    insta::assert_snapshot!(fails("nothing", &[]), @r"
    5 not_one_bundle
    error: coreai-build exited with 0 and left none where one .aimodelc was expected
      | done
    ");
    insta::assert_snapshot!(fails("link", &[]), @r"
    5 not_one_bundle
    error: encoder.h16c.aimodelc, which coreai-build left, is no folder; a bundle is one, and behind a link it fails to load
    ");
}

#[test]
fn tools_that_end_badly() {
    insta::assert_snapshot!(fails("segfault", &[]), @r"
    5 crash
    error: coreai-build ended with signal 11 (SIGSEGV): the tool crashed
      | about to fall
    ");
    insta::assert_snapshot!(fails("killed", &[]), @r"
    5 crash
    error: coreai-build ended with signal 9 (SIGKILL; the system does that when memory runs out): the tool crashed
    ");
    insta::assert_snapshot!(fails("unknown", &[]), @r"
    5 unknown_architecture
    error: coreai-build ended with exit code 64: the tool does not know the architecture
      | Error: Unknown architecture 'h16c'
    ");
    insta::assert_snapshot!(fails("unsupported", &[]), @r"
    5 unsupported_architecture
    error: coreai-build ended with exit code 64: the architecture does not belong to the platform
      | Error: Architecture 'h16c' is not supported for the requested deployment target: macOS 27.0
    ");
    insta::assert_snapshot!(fails("full", &[]), @r"
    5 disk_full
    error: coreai-build ended with signal 6 (SIGABRT): no space left on the disk
      | LLVM ERROR: No space left on device
    ");
    insta::assert_snapshot!(fails("metal", &[]), @r"
    5 metal_toolchain
    error: coreai-build ended with exit code 1: the Metal Toolchain is missing or of another Xcode; run `xcodebuild -downloadComponent MetalToolchain`
      | error: Core AI requires the Metal Toolchain
    ");
    insta::assert_snapshot!(fails("refused", &[]), @r"
    5 model_refused
    error: coreai-build ended with exit code 1: the tool cannot read the model
      | Input model is missing the source bytecode.
    ");
    insta::assert_snapshot!(fails("other", &[]), @r"
    5 unknown
    error: coreai-build ended with exit code 3: for a reason not known here
      | one
      | two �[31mred
    ");
}

/// Waits for the stand-in and its child to be up; gives their process numbers.
pub fn pids(place: &Place) -> Vec<String> {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if let Ok(pids) = fs_err::read_to_string(place.at("pids")) {
            return pids.split_whitespace().map(str::to_string).collect();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the stand-in did not start");
}

fn gone(pid: &str) -> bool {
    let state = || std::process::Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap().stdout;
    (0..250).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let state = state();
        state.is_empty() || state.starts_with(b"Z")
    })
}

#[test]
fn a_hang_is_ended_with_all_its_processes() {
    insta::assert_snapshot!(fails("hang", &["--timeout", "1s"]), @r"
    5 timed_out
    error: coreai-build was ended after 1 s, the limit; --timeout sets another
      | thinking
    ");
    let place = Place::new();
    assert_eq!(place.run("hang", &[&CALL[..], &["--timeout", "1s"]].concat()).0, 5);
    let pids = pids(&place);
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| gone(pid)), "{pids:?}");
}

/// Whether a closed terminal ends what is started from here: what runs the tests may ignore it, as `nohup` does, and what
/// they start inherits that.
fn hangs_up() -> bool {
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    mask.is_some_and(|mask| u64::from_str_radix(mask, 16).unwrap() & 1 == 0)
}

#[test]
fn control_c_ends_everything_and_leaves_nothing() {
    for signal in ["-INT", "-TERM"].into_iter().chain(hangs_up().then_some("-HUP")) {
        let place = Place::new();
        let before = place.built();
        let mut ours = std::process::Command::new(assert_cmd::cargo::cargo_bin("eg2-convert"));
        ours.current_dir(place.dir.path()).args(CALL).env("MODE", "hang");
        ours.env("PATH", format!("{}:/usr/bin:/bin", place.at("bin").display()));
        let mut ours = ours.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let pids = pids(&place);
        assert!(place.names().iter().any(|name| name.starts_with(".encoder.h16c.aimodelc.")), "it is staged here");
        let told = std::process::Command::new("kill").args([signal, &ours.id().to_string()]).status().unwrap();
        assert!(told.success());
        assert_eq!(ours.wait().unwrap().code(), Some(130), "{signal}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut ours.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(said, "error: interrupted; nothing was written\n");
        assert!(pids.iter().all(|pid| gone(pid)), "{pids:?}");
        assert_eq!(place.built(), before);
    }
}

/// Under `nohup` a closed terminal ends nothing.
#[test]
fn an_ignored_signal_stays_ignored() {
    let place = Place::new();
    let mut ours = std::process::Command::new("/bin/sh");
    ours.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(assert_cmd::cargo::cargo_bin("eg2-convert")).args(CALL);
    ours.current_dir(place.dir.path()).env("MODE", "hang").stderr(std::process::Stdio::null());
    ours.env("PATH", format!("{}:/usr/bin:/bin", place.at("bin").display()));
    let mut ours = ours.spawn().unwrap();
    let pids = pids(&place);
    let id = ours.id().to_string();
    let tell = |signal: &str| {
        let told = std::process::Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(told.success());
    };
    tell("-HUP");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(ours.try_wait().unwrap().is_none(), "it goes on");
    tell("-TERM");
    assert_eq!(ours.wait().unwrap().code(), Some(130));
    assert!(pids.iter().all(|pid| gone(pid)), "{pids:?}");
}

#[test]
fn no_tool_at_all() {
    let place = Place::new();
    let before = place.built();
    let output = place.command("", &CALL).env("PATH", place.at("made")).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @"error: coreai-build is not installed; on a Mac, install Xcode 27 or later, select it with `sudo xcode-select -s`, and run `xcodebuild -downloadComponent MetalToolchain`, which brings it");
    assert_eq!(place.built(), before);
}

#[test]
fn each_architecture_has_a_bundle_and_all_pass_or_none_is_published() {
    let place = Place::new();
    let both: Vec<&str> = CALL.iter().map(|word| if *word == "h16c" { "h18p,h16c" } else { word }).collect();
    let before = place.built();
    assert_eq!(place.run("second_fails", &both).0, 5);
    assert_eq!(place.built(), before);
    let (code, _, err) = place.run("success", &[&both[..], &["--expect", "h16c=1,h18p=1"]].concat());
    assert_eq!(code, 0, "{err}");
    let want = ["h16c.aimodelc", "h16c.aimodelc.record.json", "h18p.aimodelc", "h18p.aimodelc.record.json"];
    assert_eq!(place.names(), want.map(|name| format!("encoder.{name}")));
}

#[test]
fn another_bundle_is_not_replaced_without_force() {
    let place = Place::new();
    let before = place.built();
    let (code, _, err) = place.run("success", &CALL[..10]);
    assert_eq!(code, 2);
    assert!(err.contains("--force replaces it"), "{err}");
    assert_eq!(place.built(), before);
}

#[test]
fn a_model_behind_a_link_is_compiled_by_its_real_path() {
    let place = Place::new();
    std::os::unix::fs::symlink(place.at("encoder.aimodel"), place.at("named.aimodel")).unwrap();
    let call: Vec<&str> =
        CALL.iter().map(|word| if *word == "encoder.aimodel" { "named.aimodel" } else { word }).collect();
    let (code, out, err) = place.run("success", &call);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("build/named.h16c.aimodelc") && out.contains("coreai-build compile encoder.aimodel"), "{out}");
}

#[test]
fn a_package_goes_through_xcrun() {
    let place = Place::new();
    place.tool("xcrun", XCRUN);
    place.write("encoder.mlpackage/Manifest.json", "{}");
    let (code, out, err) = place.run("", &["compile", "encoder.mlpackage", "--out", "build"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::with_settings!({ filters => vec![(r"[0-9a-f]{64}", "[sha256]"), (r"seconds .*", "seconds [n]")] }, {
        insta::assert_snapshot!(out, @r"
        artefact       [dir]/build/encoder.mlmodelc
        outcome        published
        size           5 B
        digest root    [sha256]
        tool           3404.16.1, exit code 0
        command        xcrun coremlcompiler compile encoder.mlpackage fresh
        device load    not run (needs Apple hardware)
        placed_on_ane  not run (needs Apple hardware)
        ane_regions    not run (Core ML places ops when it loads the model)
        seconds [n]
        ");
    });
    let record = fs_err::read(place.at("build/encoder.mlmodelc.record.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["stages"]["compile"]["version"], "3404.16.1");
}

#[test]
fn calls_that_cannot_be() {
    let place = Place::new();
    place.write("encoder.mlpackage/Manifest.json", "{}");
    place.write("file.aimodel", "");
    place.write("plain/file", "");
    let (ane, cpu) = (["--prefer", "neural-engine"], ["--prefer", "cpu"]);
    let mac = ["--platform", "macOS", "--arch", "h16c"];
    let cases: [(i32, Vec<&str>); 11] = [
        (2, vec!["encoder.aimodel"]),
        (2, vec!["encoder.aimodel", "--platform", "macOS"]),
        (2, [&["encoder.aimodel"][..], &mac, &cpu].concat()),
        (2, [&["encoder.aimodel", "--platform", "macOS", "--arch", "../x"][..], &ane].concat()),
        (2, [&["encoder.aimodel", "--platform", "macOS", "--arch", "h16c,h16c"][..], &ane].concat()),
        (2, [&["encoder.aimodel"][..], &mac, &ane, &["--expect", "h18p=1"]].concat()),
        (2, [&["encoder.aimodel"][..], &mac, &ane, &["--timeout", "0s"]].concat()),
        (2, [&["encoder.mlpackage"][..], &mac, &ane].concat()),
        (3, [&["absent.aimodel"][..], &mac, &ane].concat()),
        (3, [&["file.aimodel"][..], &mac, &ane].concat()),
        (3, vec!["plain"]),
    ];
    let before = place.built();
    for (want, args) in cases {
        let (code, out, err) = place.run("success", &[&["compile"][..], &args].concat());
        assert_eq!((code, out.as_str()), (want, ""), "{args:?}: {err}");
        assert_eq!(place.built(), before, "{args:?}");
    }
}

#[test]
fn doctor_tells_what_is_here() {
    let place = Place::new();
    let run = |args: &[&str]| {
        let output = place.command("", args).env("PATH", place.at("bin")).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap().replace(place.dir.path().to_str().unwrap(), "[dir]");
        (output.status.code().unwrap(), out, output.stderr)
    };
    place.tool("coreai-build", "#!/bin/sh\necho 'coreai-build 3600.79.1'\n");
    place.tool("xcrun", "#!/bin/sh\n[ \"$1\" = --version ] && echo 'xcrun version 72.' || exit 72\n");
    let (code, out, err) = run(&["doctor"]);
    assert_eq!((code, err.as_slice()), (0, &b""[..]));
    insta::assert_snapshot!(out, @r"
    coreai-build    coreai-build 3600.79.1
    metal           not found
                    without it: everything but `compile` of an .aimodel, which
                    needs it too
                    to get it: on a Mac with Xcode, run `xcodebuild
                    -downloadComponent MetalToolchain`; if it is there already,
                    select the Xcode it belongs to with `sudo xcode-select -s`
    xcrun           xcrun version 72.
    coremlcompiler  not found
                    without it: everything but `compile` of an .mlpackage
                    to get it: on a Mac, install Xcode and select it with `sudo
                    xcode-select -s`
    swiftc          not found
                    without it: everything but the placement of Core ML bundles
                    to get it: on a Mac, run `xcode-select --install`
    python3         not found
                    without it: everything; `tools install` needs it or uv
                    to get it: install Python 3.11 or later
    uv              not found
                    without it: everything; `tools install` then takes Python's
                    pip
                    to get it: see https://docs.astral.sh/uv
    coreai-core     not found
                    looked for: [dir]/.cache/eg2-convert/coreai-1.0.0b3/bin/python
                    without it: everything but writing, reading and running an
                    .aimodel; .mlpackage still works
                    to get it: run `eg2-convert tools install`
    ");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let (code, out, _) = run(&["doctor", "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["tools"][0]["health"]["state"]), (0, &Value::from("ready")));
    assert_eq!(run(&["doctor", "--strict"]).0, 4);
}
