//! `release --kit` and `kit run`, with stand-ins for Apple's compiler and for the runtime of a Mac.

use crate::cli::{command, fixture, listed, run};
use crate::compiled_tree::Tree;
use crate::python::coreai_python;
use eg2_convert::provenance::device::{DeviceRecord, Thermal, merge};
use eg2_convert::provenance::release::{Outcome, ReleaseRecord};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A reader for the Macs' Neural Engine and for a phone's.
const RECIPE: &str = r#"
version = 1
model = "reader"
precision = "fp16"
formats = ["aimodel"]
tokens = 40
[source]
synthetic = true
config = "FIXTURES/reader_plain/reader_config.json"
[[compile]]
platform = "macOS"
architectures = ["h16c"]
prefer = "neural-engine"
regions = 1
[[compile]]
platform = "iOS"
architectures = ["h18p"]
prefer = "neural-engine"
regions = 1
[gate]
goldens = ["FIXTURES/reader_plain/golden_T40.safetensors"]
words = "FIXTURES/reader_plain/words.txt"
"#;

/// Apple's compiler: one region where the Neural Engine is asked for.
const COMPILER: &str = r#"#!/bin/sh
here=$(dirname "$0")/..
[ "$1" = --version ] && { echo "coreai-build 3600.79.1"; exit; }
out=$4; prefer=$8; shift 9; arch=$1
[ "$MODE" = no_regions ] && [ "$prefer" = neural-engine ] && prefer=gpu
[ "$MODE" = one_hash ] && { cp "$here/made/gpu.$arch/"main* "$here/made/neural-engine.$arch/" 2>/dev/null; }
cp -R "$here/made/$prefer.$arch" "$out/model.$arch.aimodelc"
"#;

/// The runtime: the Neural Engine rounds as $MODE says, the GPU in one way.
const RUNTIME: &str = r#"#!/bin/sh
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$4"; }
answer=$(field answer "" "" "$4"); prefer=$(field prefer "" "" "$4"); bundle=$(field bundle "" "" "$4")
if [ -z "$prefer" ]; then
  [ "$MODE" = old_mac ] && supported=false
  echo "{\"ok\":{\"model\":\"Mac16,5\",\"system\":\"macOS 27.0 (26A1)\",\"runtime\":\"1.0.0b3\",\"supported\":${supported:-true}}}" > "$answer"
  exit
fi
echo "$prefer $(basename "$bundle")" >> "$LOG"
out=$(dirname "$answer")/out; last='\200\077'
if [ "$prefer" = neural-engine ]; then
  case $MODE in
  crash) echo "ANE: request to /Library/Caches/x failed" >&2; kill -SEGV $$ ;;
  refuse) echo '{"error":"RuntimeError: no such architecture in /tmp/a/model.aimodelc"}' > "$answer"; exit ;;
  same|one_hash) ;;
  far) last='\200\277' ;;
  flaky) [ $(($(wc -l < "$LOG") % 4)) = 0 ] && last='\201\077' ;;
  esac
  case $MODE in same|one_hash|far|flaky) first='\000\000' ;; *) first='\107\003' ;; esac
else
  first='\000\000'
fi
printf "$first$last"'\000\000\200\077' > "$out"
cat > "$answer.part" <<END
{"ok":{"load_seconds":120.5,"warm_load_seconds":0.25,"thermal_before":"nominal","thermal_after":"fair","peak_rss_bytes":1048576,
"functions":[{"function":"main","input":0,"seconds":[0.003,0.001,0.002],"outputs":{"y":{"file":"$out","dtype":"f32","shape":[1,2]}}}]}}
END
mv "$answer.part" "$answer"
"#;

/// The release and its kit, made once, without a compiler.
static MADE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path(), "/usr/bin:/bin");
    dir
});

/// Makes the release and its kit in `folder` with the programs of `path`.
fn make(folder: &Path, path: &str) {
    let fixtures = fixture("");
    let text = RECIPE.replace("FIXTURES/", fixtures.to_str().unwrap());
    fs_err::write(folder.join("reader.toml"), text).unwrap();
    let mut release = command(folder);
    release.env("EG2_COREAI_PYTHON", coreai_python()).env("PATH", path);
    release.args(["release", "reader.toml", "--kit", "--allow-unpinned", "--out", "dist"]);
    let output = release.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A Mac that got a copy of the kit.
pub struct Mac {
    dir: tempfile::TempDir,
}

impl Mac {
    pub fn new() -> Mac {
        let mac = Mac { dir: tempfile::tempdir().unwrap() };
        copy(&MADE.path().join("dist/reader.kit"), &mac.at("reader.kit"));
        mac.program("bin/coreai-build", COMPILER);
        mac.program("python", RUNTIME);
        for architecture in ["h16c", "h18p"] {
            for (prefer, regions) in [("gpu", 0), ("neural-engine", 1)] {
                let tree = Tree::new(&mac.at("made"), &format!("{prefer}.{architecture}"), &[architecture]);
                // Stubs of the two differ, as what they prefer does.
                let stub = format!("ML\u{ef}R\0{architecture}\0preferredDevice={prefer}\0main\0");
                tree.write(&format!("main-{architecture}.mlirb"), stub.as_bytes());
                tree.write("main.hash", eg2_convert::digest::Digest::of(stub.as_bytes()).bytes());
                if regions == 1 {
                    tree.region(architecture, "main_AAAAAAAAAAAAAAAAAAAAAA_0_ANE_region_0_0", None);
                }
            }
        }
        mac
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn program(&self, path: &str, text: &str) {
        fs_err::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs_err::write(self.at(path), text).unwrap();
        fs_err::set_permissions(self.at(path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `kit run` of the copy.
    pub fn command(&self, mode: &str, more: &[&str]) -> assert_cmd::Command {
        let mut run = command(self.dir.path());
        run.env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display())).env("MODE", mode);
        run.env("EG2_COREAI_PYTHON", self.at("python")).env("LOG", self.at("log"));
        run.args(["kit", "run", "reader.kit"]).args(more);
        run
    }

    /// Exit code, then both streams, names of folders replaced.
    fn run(&self, mode: &str, more: &[&str]) -> (i32, String) {
        let output = self.command(mode, more).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let real = self.dir.path().canonicalize().unwrap();
        (output.status.code().unwrap(), text.replace(real.to_str().unwrap(), "[dir]"))
    }

    fn record(&self) -> DeviceRecord {
        DeviceRecord::parse(&fs_err::read(self.at("reader.device.json")).unwrap()).unwrap()
    }

    fn log(&self) -> Vec<String> {
        let text = fs_err::read_to_string(self.at("log")).unwrap_or_default();
        text.lines().map(String::from).collect()
    }
}

fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    for entry in fs_err::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs_err::copy(entry.path(), target).unwrap();
        }
    }
}

fn release() -> ReleaseRecord {
    release_in(MADE.path())
}

fn release_in(folder: &Path) -> ReleaseRecord {
    serde_json::from_slice(&fs_err::read(folder.join("dist/reader/release.json")).unwrap()).unwrap()
}

/// Both verdicts of the Mac's bundle in a mode.
fn verdicts(mode: &str) -> String {
    let mac = Mac::new();
    let (code, told) = mac.run(mode, &["--rounds", "3"]);
    let result = &mac.record().results[0];
    let said = |s: &eg2_convert::provenance::release::Status| {
        format!("{:?} {}", s.outcome, s.reason.clone().unwrap_or_default())
    };
    assert!(!told.contains("error:"), "{told}");
    // What is recorded is what merges.
    merge(&mut release(), mac.record()).unwrap();
    format!("{code}: {} | {}", said(&result.loads_on_device), said(&result.placed_on_ane))
}

#[test]
fn a_kit_has_all_it_takes_and_is_made_once() {
    let kit = MADE.path().join("dist/reader.kit");
    assert_eq!(listed(&kit), ["README.md", "SHA256SUMS", "inputs", "kit.json", "release", "run.sh"]);
    assert!(listed(&MADE.path().join("dist")).contains(&"reader".to_string()));
    let sums = std::process::Command::new("sha256sum").args(["-c", "--quiet", "SHA256SUMS"]).current_dir(&kit).status();
    assert!(sums.unwrap().success());
    let text = |name: &str| fs_err::read_to_string(kit.join(name)).unwrap();
    assert!(!text("kit.json").contains(MADE.path().to_str().unwrap()) && !text("kit.json").contains("\"/"));
    assert_ne!(fs_err::metadata(kit.join("run.sh")).unwrap().permissions().mode() & 0o111, 0);
    let plan: Value = serde_json::from_str(&text("kit.json")).unwrap();
    assert_eq!(plan["subjects"][0]["functions"][0]["random"], false);
    insta::assert_snapshot!(text("README.md"));

    let mut again = command(MADE.path());
    again.env("EG2_COREAI_PYTHON", coreai_python()).env("PATH", "/usr/bin:/bin");
    again.args(["release", "reader.toml", "--kit", "--allow-unpinned", "--out", "dist", "--json"]);
    let again: Value = serde_json::from_slice(&again.output().unwrap().stdout).unwrap();
    assert_eq!(
        (&again["releases"][0]["no_work"], &again["releases"][0]["kit"]["outcome"]),
        (&true.into(), &"unchanged".into())
    );
}

#[test]
fn the_whole_way_there_and_back() {
    let mac = Mac::new();
    let (code, told) = mac.run("good", &[]);
    assert_eq!(code, 0, "{told}");
    insta::with_settings!({ filters => vec![(r"seconds .*", "seconds [n]")] }, { insta::assert_snapshot!(told) });
    // A B B A, and the phone's bundle never.
    let turn = |prefer: &str| format!("{prefer} eg2_reader_v0_fp16_T40.h16c.aimodelc");
    let (a, b) = (turn("neural-engine"), turn("gpu"));
    assert_eq!(mac.log(), [&a, &b, &b, &a, &a, &b, &b, &a].map(String::clone));
    assert_eq!(listed(mac.dir.path()), ["bin", "log", "made", "python", "reader.device.json", "reader.kit"]);

    let record = mac.record();
    assert_eq!(
        (record.machine.model.as_str(), record.programs[0].version.as_str()),
        ("Mac16,5", "coreai-build 3600.79.1")
    );
    let [mac_result, phone] = record.results.as_slice() else { panic!("{record:?}") };
    assert_eq!((phone.platform.as_str(), phone.arms.len(), phone.arms[0].regions), ("iOS", 1, Some(1)));
    let [ane, gpu] = mac_result.arms.as_slice() else { panic!("{mac_result:?}") };
    assert_eq!((ane.regions, gpu.regions), (Some(1), Some(0)));
    assert_eq!(ane.rounds.iter().map(|round| round.place).collect::<Vec<_>>(), [1, 4, 5, 8]);
    assert_eq!((ane.rounds[0].thermal_after, ane.functions[0].runs), (Thermal::Fair, 12));
    let text = fs_err::read_to_string(mac.at("reader.device.json")).unwrap();
    assert!(!text.contains(mac.dir.path().to_str().unwrap()), "{text}");

    let faults = crate::schema::faults("device_record", &serde_json::to_value(&record).unwrap());
    assert!(faults.is_empty(), "{faults:?}");
    let mut merged = release();
    let before = merged.to_bytes().unwrap();
    merge(&mut merged, record.clone()).unwrap();
    let bundle = &merged.artefacts[0];
    assert_eq!((bundle.loads_on_device.outcome, bundle.placed_on_ane.outcome), (Outcome::Pass, Outcome::Pass));
    assert_eq!(bundle.regions.architectures.len(), 2);
    let faults = crate::schema::faults("release_record", &serde_json::to_value(&merged).unwrap());
    assert!(faults.is_empty(), "{faults:?}");
    let taken_back = eg2_convert::provenance::device::before(&merged).unwrap();
    assert_eq!(taken_back.to_bytes().unwrap(), before);
    assert!(merge(&mut merged, record).is_err());

    // Into a release that was unpacked somewhere, beside which nothing may be left.
    let unpacked = tempfile::tempdir().unwrap();
    copy(&MADE.path().join("dist/reader"), &unpacked.path().join("reader"));
    let given = mac.at("reader.device.json");
    let (code, out, err) = run(unpacked.path(), &["verify", "reader", "--merge", given.to_str().unwrap()]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs_err::read(unpacked.path().join("reader/release.json")).unwrap(), merged.to_bytes().unwrap());
    assert_eq!(listed(unpacked.path()), ["reader"]);

    let (code, told) = mac.run("good", &[]);
    assert_eq!(code, 2);
    insta::assert_snapshot!(told, @"error: [dir]/reader.device.json is there already; --force replaces it");
    assert_eq!(mac.run("good", &["--force", "--strict"]).0, 4, "the phone's bundle was not loaded");
}

#[test]
fn a_bundle_that_ships_compiled_is_loaded_as_it_is() {
    let mac = Mac::new();
    make(mac.dir.path(), &format!("{}:/usr/bin:/bin", mac.at("bin").display()));
    fs_err::remove_dir_all(mac.at("reader.kit")).unwrap();
    copy(&mac.at("dist/reader.kit"), &mac.at("reader.kit"));
    let (code, told) = mac.run("good", &[]);
    assert_eq!(code, 0, "{told}");
    let (record, mut merged) = (mac.record(), release_in(mac.dir.path()));
    let named = |name: &str| merged.artefacts.iter().find(|bundle| bundle.name == name).unwrap();
    for result in &record.results {
        let bundle = result.arms[0].bundle.as_ref().unwrap();
        let shipped = named(&format!("eg2_reader_v0_fp16_T40.{}.aimodelc", result.architecture));
        assert_eq!((bundle.shipped, bundle.digest_root), (true, shipped.digest_root));
        assert_eq!((&result.artefact, result.digest_root), (&shipped.name, shipped.digest_root));
    }
    assert!(!record.results[0].arms[1].bundle.as_ref().unwrap().shipped, "the GPU's is compiled there");
    // What was counted when it was released stands.
    let regions: Vec<_> = merged.artefacts.iter().map(|bundle| bundle.regions.clone()).collect();
    merge(&mut merged, record).unwrap();
    assert_eq!(merged.artefacts.iter().map(|bundle| bundle.regions.clone()).collect::<Vec<_>>(), regions);
    let loads = |name: &str| merged.artefacts.iter().find(|b| b.name == name).unwrap().loads_on_device.outcome;
    assert_eq!(loads("eg2_reader_v0_fp16_T40.h16c.aimodelc"), Outcome::Pass);
    assert_eq!(loads("eg2_reader_v0_fp16_T40.aimodel"), Outcome::NotRun);
}

#[test]
fn placement_is_judged_by_outputs() {
    insta::assert_snapshot!(verdicts("same"), @"4: Pass  | Fail outputs of main are bit-identical to the GPU's, so it ran there");
    insta::assert_snapshot!(verdicts("far"), @"4: Pass  | Fail outputs are apart from the GPU's: cosine 0, the limit is 0.999");
    insta::assert_snapshot!(verdicts("flaky"), @"0: Pass  | NotRun rounds of one arm did not give the same bits, so that bits tell nothing");
    insta::assert_snapshot!(verdicts("one_hash"), @"0: Pass  | NotRun outputs of main are bit-identical to the GPU's, but both bundles share main.hash, by which the runtime caches: they may be one bundle's");
}

#[test]
fn a_bundle_that_fails_is_recorded() {
    insta::assert_snapshot!(verdicts("crash"), @"4: Fail the process ended with signal 11 (SIGSEGV) and no answer; its last words: ANE: request to x failed | NotRun it was not loaded");
    insta::assert_snapshot!(verdicts("refuse"), @"4: Fail the runtime refused: RuntimeError: no such architecture in model.aimodelc | NotRun it was not loaded");
    insta::assert_snapshot!(verdicts("no_regions"), @"4: NotRun it was not compiled: h16c: asked for the Neural Engine, found 0 regions, expected 1; coreai-build exited with 0 | NotRun it was not compiled: h16c: asked for the Neural Engine, found 0 regions, expected 1; coreai-build exited with 0");
    // The GPU's arm went on.
    let mac = Mac::new();
    mac.run("crash", &["--rounds", "2"]);
    assert_eq!(mac.log().iter().filter(|line| line.starts_with("gpu")).count(), 2);
    assert_eq!(mac.log().len(), 3);
}

#[test]
fn a_kit_that_is_not_as_it_was_made_is_refused() {
    let changed = |change: &dyn Fn(&Mac)| {
        let mac = Mac::new();
        change(&mac);
        let (code, told) = mac.run("good", &[]);
        assert_eq!(mac.log(), Vec::<String>::new());
        format!("{code} {told}")
    };
    let program = "reader.kit/release/eg2_reader_v0_fp16_T40.aimodel/main.mlirb";
    insta::assert_snapshot!(changed(&|mac| {
        let mut bytes = fs_err::read(mac.at(program)).unwrap();
        bytes[100] ^= 1;
        fs_err::write(mac.at(program), bytes).unwrap();
    }), @"4 error: the kit is not as it was made, by its SHA256SUMS: changed: release/eg2_reader_v0_fp16_T40.aimodel/main.mlirb");
    insta::assert_snapshot!(changed(&|mac| fs_err::remove_file(mac.at("reader.kit/run.sh")).unwrap()), @"4 error: the kit is not as it was made, by its SHA256SUMS: missing: run.sh");
    insta::assert_snapshot!(changed(&|mac| fs_err::write(mac.at("reader.kit/inputs/more"), "").unwrap()), @"4 error: the kit is not as it was made, by its SHA256SUMS: extra: inputs/more");
    insta::assert_snapshot!(changed(&|mac| fs_err::remove_file(mac.at("reader.kit/SHA256SUMS")).unwrap()), @"3 error: [dir]/reader.kit is no kit: it has no SHA256SUMS");
    // Its own list made anew does not help another release.
    insta::assert_snapshot!(changed(&|mac| {
        let path = mac.at("reader.kit/release/release.json");
        let text = fs_err::read_to_string(&path).unwrap().replace("\"pinned\": false", "\"pinned\": true");
        fs_err::write(&path, text).unwrap();
        let kit = mac.at("reader.kit");
        let mut tree = eg2_convert::bundle::Tree::of(&kit).unwrap();
        tree.files.retain(|file| file.path != "SHA256SUMS");
        fs_err::write(kit.join("SHA256SUMS"), eg2_convert::provenance::texts::sums(&tree.files)).unwrap();
    }).split(" has sha256").next().unwrap(), @"4 error: the kit's release.json");
}

#[test]
fn what_is_not_here_is_said() {
    let mac = Mac::new();
    insta::assert_snapshot!(mac.run("old_mac", &[]).1, @"error: Apple's runtime cannot be told which unit to prefer here; that takes a Mac with macOS 27 or later");
    fs_err::remove_file(mac.at("python")).unwrap();
    insta::assert_snapshot!(mac.run("good", &[]).1, @"error: Apple's runtime is not here: run `eg2-convert tools install`, or set EG2_COREAI_PYTHON to a Python that has it");
    fs_err::remove_file(mac.at("bin/coreai-build")).unwrap();
    let (code, told) = mac.run("good", &[]);
    assert!(code == 5 && told.contains("coreai-build is not installed"), "{told}");
}

#[test]
fn a_record_of_another_release_is_refused() {
    let mac = Mac::new();
    mac.run("good", &[]);
    let mut other = release();
    other.pinned = true;
    let told = merge(&mut other, mac.record()).unwrap_err().to_string();
    assert!(told.starts_with("it is of a release whose record has sha256"), "{told}");
}

#[test]
fn the_command_of_a_kit_finds_the_program() {
    let mac = Mac::new();
    let run = |variable: Option<&Path>| {
        let mut run = std::process::Command::new(mac.at("reader.kit/run.sh"));
        run.current_dir("/")
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", mac.at("bin").display()))
            .env("MODE", "good");
        run.env("EG2_COREAI_PYTHON", mac.at("python")).env("LOG", mac.at("log"));
        run.envs(variable.map(|path| ("EG2_CONVERT", path))).arg("--quiet");
        let output = run.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, told) = run(None);
    assert!(code == Some(5) && told.contains("cargo install"), "{told}");
    assert_eq!(run(Some(&assert_cmd::cargo::cargo_bin("eg2-convert"))), (Some(0), String::new()));
    assert!(mac.at("reader.device.json").is_file());
}

/// A package of that name with what the runner calls, by Apple's signatures.
const PACKAGE: &str = r#"
import json, os
import numpy as np

def note(word):
    with open(os.environ["LOG"], "a") as log:
        print(word, file=log)

class ComputeUnitKind:
    neural_engine = classmethod(lambda cls: "neural-engine")
    gpu = classmethod(lambda cls: "gpu")

class SpecializationOptions:
    @staticmethod
    def is_supported():
        return True

    @classmethod
    def from_preferred_compute_unit_kind(cls, kind):
        made = cls()
        made.kind = kind
        return made

class NDArray:
    def __init__(self, data):
        self.data = np.array(data)

    def numpy(self):
        return self.data

class Function:
    flying = False

    def __init__(self, kind):
        self.kind = kind

    async def __call__(self, inputs):
        assert not Function.flying
        Function.flying = True
        note("call")
        total = sum(float(value.numpy().sum()) for value in inputs.values())
        Function.flying = False
        one = 1.01 if self.kind == "neural-engine" else 1.0
        return {"y": NDArray(np.array([[total, one]], np.float16)), "n": NDArray(np.array([3], np.int32))}

class AIModel:
    @classmethod
    async def load(cls, path, specialization_options=None):
        assert os.path.isdir(path) and path.endswith(".aimodelc")
        note(f"load {specialization_options.kind}")
        made = cls()
        made.kind = specialization_options.kind
        return made

    def load_function(self, name):
        assert name == "main"
        return Function(self.kind)
"#;

#[test]
fn the_runner_itself_against_a_package_of_those_signatures() {
    let mac = Mac::new();
    mac.program("fake/coreai/__init__.py", "");
    mac.program("fake/coreai/runtime/__init__.py", PACKAGE);
    let real = coreai_python();
    let python = format!("#!/bin/sh\nshift\nPYTHONPATH={} exec {} \"$@\"\n", mac.at("fake").display(), real.display());
    mac.program("python", &python);
    mac.program("bin/sysctl", "#!/bin/sh\necho \"Mac of $*\"\n");
    mac.program("bin/sw_vers", "#!/bin/sh\n[ \"$1\" = -buildVersion ] && echo 26A1 || echo 27.0\n");
    mac.program("bin/pmset", "#!/bin/sh\necho 'Note: x'; printf ' \\tCPU_Speed_Limit \\t= 80\\n'\n");
    let (code, told) = mac.run("good", &["--rounds", "2"]);
    let record = mac.record();
    let result = &record.results[0];
    assert_eq!((code, result.placed_on_ane.outcome), (0, Outcome::Pass), "{told}");
    assert_eq!(
        (record.machine.model.as_str(), record.machine.system.as_str()),
        ("Mac of -n hw.model", "macOS 27.0 (26A1)")
    );
    let round = &result.arms[0].rounds[0];
    assert_eq!((round.thermal_before, round.thermal_after), (Thermal::Serious, Thermal::Serious));
    assert!(round.peak_rss_bytes > Some(1 << 20) && round.load_seconds > 0.0);
    let of = |output: &str| result.comparisons.iter().find(|c| c.output == output).unwrap();
    assert!(of("n").bit_identical && of("n").cosine.is_none() && !of("y").bit_identical);
    let log = mac.log();
    let loads: Vec<&str> = log.iter().filter_map(|line| line.strip_prefix("load ")).collect();
    let (a, b) = ("neural-engine", "gpu");
    assert_eq!(loads, [a, a, b, b, b, b, a, a]);
    assert_eq!(log.iter().filter(|line| *line == "call").count(), 4 * (3 + 20));
}
