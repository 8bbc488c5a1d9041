//! `verify`: whatever is changed in a release is named.

use crate::cli::{command, run};
use crate::python::coreai_python;
use crate::release::{compiled_recipe, compiler, contents, recipe, released};
use eg2_convert::digest::Digest;
use eg2_convert::provenance::release::ReleaseRecord;
use eg2_convert::provenance::texts::{notice, readme};
use serde_json::{Value, json};
use std::path::Path;

/// A copy of the release, changed by `change`, and what is told of it.
fn changed(release: &Path, change: impl FnOnce(&Path)) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    for (path, bytes) in contents(release) {
        fs_err::create_dir_all(copy.join(&path).parent().unwrap()).unwrap();
        fs_err::write(copy.join(&path), bytes).unwrap();
    }
    change(&copy);
    let (code, out, _) = run(dir.path(), &["verify", "copy", "--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(told["passed"], code == 0, "{out}");
    let (_, text, _) = run(dir.path(), &["verify", "copy"]);
    let faults = text
        .lines()
        .skip_while(|line| !line.starts_with("fault"))
        .take_while(|line| line.starts_with("fault") || line.starts_with(' '));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    (code, words(&faults.collect::<Vec<_>>().join(" ")))
}

/// Writes SHA256SUMS anew, as one would who hides a change.
fn sums(release: &Path) {
    let lines = contents(release).into_iter().filter(|(path, _)| path != "SHA256SUMS");
    let line = |(path, bytes): (String, Vec<u8>)| format!("{}  {path}\n", Digest::of(&bytes));
    let mut lines: Vec<(String, String)> = lines.map(|file| (file.0.clone(), line(file))).collect();
    lines.sort();
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    fs_err::write(release.join("SHA256SUMS"), text).unwrap();
}

#[test]
fn one_byte_of_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    assert_eq!(changed(&release, |_| {}), (0, String::new()));
    for (path, bytes) in contents(&release) {
        for at in [0, bytes.len() / 2, bytes.len() - 1] {
            for flip in [1, 0x20] {
                let (code, told) = changed(&release, |copy| {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= flip;
                    fs_err::write(copy.join(&path), bytes).unwrap();
                });
                assert_eq!(code, 4, "{path} at {at}: {told}");
                assert!(told.contains(&path), "{path} at {at}: {told}");
            }
        }
    }
}

#[test]
fn files_added_removed_and_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    for path in contents(&release).into_keys() {
        let (code, told) = changed(&release, |copy| fs_err::remove_file(copy.join(&path)).unwrap());
        assert!(code == 4 && told.contains(&path), "{path}: {told}");
        let (code, told) = changed(&release, |copy| {
            fs_err::rename(copy.join(&path), copy.join(format!("{path}.old"))).unwrap();
        });
        assert!(code == 4 && told.contains(&path), "{path}: {told}");
    }
    for path in ["more", "eg2_encoder_fp32_T200.mlpackage/more", ".hidden", "a/b/c"] {
        let (code, told) = changed(&release, |copy| {
            fs_err::create_dir_all(copy.join(path).parent().unwrap()).unwrap();
            fs_err::write(copy.join(path), "").unwrap();
        });
        assert_eq!((code, told), (4, format!("fault {path} was added: SHA256SUMS and release.json does not list it")));
    }
    // Nor where the list of digests is made to have it.
    let (code, told) = changed(&release, |copy| {
        fs_err::write(copy.join("more"), "").unwrap();
        sums(copy);
    });
    assert_eq!((code, told), (4, "fault more was added: release.json does not list it".into()));
    let (code, told) = changed(&release, |copy| std::os::unix::fs::symlink("README.md", copy.join("link")).unwrap());
    assert!(code == 4 && told.contains("link is neither file nor folder"), "{told}");
}

/// Faults that are told of a record edited by `edit`, with all that is made of the record made again.
fn edited(release: &Path, edit: impl FnOnce(&mut Value)) -> String {
    let (code, told) = changed(release, |copy| {
        let path = copy.join("release.json");
        let mut record: Value = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
        edit(&mut record);
        match serde_json::from_value::<ReleaseRecord>(record.clone()) {
            Ok(mut record) => {
                for (name, text) in [("NOTICE", notice(&record)), ("README.md", readme(&record))] {
                    let file = record.files.iter_mut().find(|file| file.path == name).unwrap();
                    (file.sha256, file.size) = (Digest::of(text.as_bytes()), text.len() as u64);
                    fs_err::write(copy.join(name), text).unwrap();
                }
                fs_err::write(&path, record.to_bytes().unwrap()).unwrap();
                fs_err::write(copy.join("release.intoto.json"), record.statement().unwrap()).unwrap();
            }
            Err(_) => fs_err::write(&path, serde_json::to_vec_pretty(&record).unwrap()).unwrap(),
        }
        sums(copy);
    });
    assert_eq!(code, 4, "{told}");
    told
}

/// A check of the only bundle's gate.
fn check<'r>(record: &'r mut Value, name: &str) -> &'r mut Value {
    let checks = record["artefacts"][0]["gate"]["judged"]["checks"].as_array_mut().unwrap();
    checks.iter_mut().find(|check| check["name"] == name).unwrap()
}

#[test]
fn a_record_or_a_result_edited() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let zeros = || json!("0".repeat(64));
    type Edit = (&'static str, Box<dyn FnOnce(&mut Value)>, &'static str);
    let edits: Vec<Edit> = vec![
        (
            "a number below its limit",
            Box::new(|r| check(r, "cosine")["measures"][0]["number"] = json!(0.5)),
            "gate.cosine is said to have passed, but its numbers say failed",
        ),
        (
            "a number that was none",
            Box::new(|r| check(r, "cosine")["measures"][0]["number"] = Value::Null),
            "gate.cosine is said to have passed, but its numbers say failed",
        ),
        (
            "a limit",
            Box::new(|r| check(r, "cosine")["measures"][0]["limit"] = json!(0.1)),
            "gate.cosine.least_mean.limit is 0.1, but 0.999 follows",
        ),
        (
            "a count of faults that may be",
            Box::new(|r| check(r, "finite")["measures"][0]["limit"] = json!(9.0)),
            "gate.finite.not_finite.limit is 9.0, but 0.0 follows",
        ),
        (
            "the limits",
            Box::new(|r| r["artefacts"][0]["gate"]["judged"]["limits"]["cosine_mean"] = json!(0.1)),
            "gate.judged.limits",
        ),
        (
            "a check removed",
            Box::new(|r| {
                let checks = r["artefacts"][0]["gate"]["judged"]["checks"].as_array_mut().unwrap();
                checks.retain(|check| check["name"] != "cosine");
            }),
            "cosine is said to have passed, but its numbers say not run",
        ),
        (
            "an outcome",
            Box::new(|r| r["artefacts"][0]["gate"]["outcome"] = json!("not_run")),
            "gate is said to have not run, but its numbers say passed",
        ),
        (
            "a check that was not run",
            Box::new(|r| check(r, "wer")["outcome"] = json!("pass")),
            "gate.wer is said to have passed, but its numbers say not run",
        ),
        (
            "what was judged",
            Box::new(move |r| r["artefacts"][0]["gate"]["judged"]["digest_root"] = zeros()),
            "gate.judged.digest_root",
        ),
        ("the digest root", Box::new(move |r| r["artefacts"][0]["digest_root"] = zeros()), "digest_root is \"000"),
        ("the size", Box::new(|r| r["artefacts"][0]["bytes"] = json!(1)), "bytes is 1"),
        ("what was stripped", Box::new(move |r| r["artefacts"][0]["strip"]["after"] = zeros()), "strip.after is"),
        (
            "a device",
            Box::new(|r| {
                r["artefacts"][0]["loads_on_device"] = json!({ "outcome": "pass", "reason": null });
                r["not_run"].as_array_mut().unwrap().retain(|left| left["name"] != "loads_on_device");
            }),
            "loads_on_device is {\"outcome\":\"pass\"",
        ),
        ("what was not run", Box::new(|r| r["not_run"] = json!([])), "not_run is []"),
        ("synthetic", Box::new(|r| r["synthetic"] = json!(false)), "synthetic is false, but true follows"),
        (
            "the source",
            Box::new(move |r| r["source"]["files"][0]["sha256"] = zeros()),
            "model.safetensors: pinned is true, but false follows",
        ),
        (
            "the repository",
            Box::new(|r| r["source"]["repository"] = json!("google/embeddinggemma-2")),
            "source.repository",
        ),
        ("a file of none", Box::new(|r| r["files"][0]["path"] = json!("gone")), "gone is missing"),
        ("a field of none", Box::new(|r| r["more"] = json!(1)), "release.json is no record: unknown field `more`"),
        (
            "the version",
            Box::new(|r| r["release_version"] = json!(2)),
            "release.json is no record: release_version is 2, expected 1",
        ),
    ];
    let judged = |r: &mut Value, field: &str, value: Value| r["artefacts"][0]["gate"]["judged"][field] = value;
    let artefact = |r: &mut Value, field: &str, value: Value| r["artefacts"][0][field] = value;
    let more: Vec<Edit> = vec![
        ("no precision", Box::new(move |r| judged(r, "precision", json!("bf16"))), "gate.judged.precision is \"bf16\""),
        (
            "another precision",
            Box::new(move |r| judged(r, "precision", json!("fp16"))),
            "gate.judged.precision is \"fp16\"",
        ),
        (
            "the bundle's precision",
            Box::new(|r| r["artefacts"][0]["made"]["options"]["precision"] = json!("fp16")),
            "made.options.precision is \"fp16\"",
        ),
        (
            "a bound",
            Box::new(|r| check(r, "cosine")["measures"][0]["bound"] = json!("at_most")),
            "gate.cosine.least_mean.bound is \"at_most\", but \"at_least\" follows",
        ),
        (
            "a measure removed",
            Box::new(|r| drop(check(r, "cosine")["measures"].as_array_mut().unwrap().pop())),
            "gate.cosine.measures is [\"least_mean\"], but [\"least_mean\",\"min\"] follows",
        ),
        (
            "a measure of none",
            Box::new(|r| check(r, "cosine")["measures"][1]["name"] = json!("max")),
            "gate.cosine.measures is [\"least_mean\",\"max\"]",
        ),
        (
            "a check of none",
            Box::new(|r| {
                let mut more = check(r, "finite").clone();
                more["name"] = json!("beauty");
                r["artefacts"][0]["gate"]["judged"]["checks"].as_array_mut().unwrap().push(more);
            }),
            "gate.beauty is \"a check\"",
        ),
        (
            "a check twice",
            Box::new(|r| {
                let more = check(r, "finite").clone();
                r["artefacts"][0]["gate"]["judged"]["checks"].as_array_mut().unwrap().push(more);
            }),
            "gate.finite: times is 2, but 1 follows",
        ),
        ("no evidence", Box::new(move |r| judged(r, "evidence", json!([]))), "gate.judged.evidence is []"),
        (
            "a body",
            Box::new(move |r| judged(r, "body", json!({ "name": "x", "digest_root": "0".repeat(64) }))),
            "gate.judged.body is \"x\", but null follows",
        ),
        (
            "an artefact twice",
            Box::new(|r| {
                let more = r["artefacts"][0].clone();
                r["artefacts"].as_array_mut().unwrap().push(more);
            }),
            "artefacts: eg2_encoder_fp32_T200.mlpackage: times is 2",
        ),
        (
            "a source twice",
            Box::new(|r| {
                let more = r["source"]["files"][0].clone();
                r["source"]["files"].as_array_mut().unwrap().push(more);
            }),
            "times is 2, but 1 follows",
        ),
        ("no source", Box::new(|r| r["source"]["files"] = json!([])), "source.files is []"),
        (
            "a file twice",
            Box::new(|r| {
                let more = r["files"][0].clone();
                r["files"].as_array_mut().unwrap().push(more);
            }),
            "files: LICENSE: times is 2",
        ),
        (
            "no files",
            Box::new(move |r| artefact(r, "files", json!([]))),
            "eg2_encoder_fp32_T200.mlpackage: files is []",
        ),
        (
            "a name with a folder",
            Box::new(move |r| artefact(r, "name", json!("a/b.mlpackage"))),
            "artefacts: name is \"a/b",
        ),
        ("a name above", Box::new(move |r| artefact(r, "name", json!(".."))), "artefacts: name is \"..\""),
        (
            "another ending",
            Box::new(move |r| artefact(r, "name", json!("a.aimodel"))),
            "artefacts: name is \"a.aimodel\"",
        ),
        ("a file's size", Box::new(|r| r["files"][0]["size"] = json!(1)), "LICENSE: size is 1, but"),
        ("a size in a bundle", Box::new(|r| r["artefacts"][0]["files"][0]["size"] = json!(1)), "size is 1, but"),
        (
            "no strip",
            Box::new(move |r| {
                artefact(r, "strip", json!({ "outcome": "not_run", "reason": "x", "before": null, "after": null }))
            }),
            "strip.outcome is \"not_run\", but \"pass\" follows",
        ),
        (
            "regions",
            Box::new(move |r| {
                artefact(r, "regions", json!({ "outcome": "pass", "reason": null, "architectures": {} }))
            }),
            "regions.outcome is \"pass\", but \"not_run\" follows",
        ),
        ("main.hash", Box::new(move |r| artefact(r, "main_hash", json!("0".repeat(64)))), "main_hash is \"000"),
        ("a format of none", Box::new(move |r| artefact(r, "format", json!("mlmodelc"))), "format is \"mlmodelc\""),
        (
            "a parent",
            Box::new(move |r| artefact(r, "compiled_from", json!({ "name": "x", "digest_root": "0".repeat(64) }))),
            "compiled_from.digest_root is",
        ),
    ];
    for (what, edit, part) in edits.into_iter().chain(more) {
        let told = edited(&release, edit);
        assert!(told.contains(part), "{what}: {told}");
    }
}

#[test]
fn spelling_and_lists() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let (code, told) = changed(&release, |copy| {
        let text = fs_err::read_to_string(copy.join("release.json")).unwrap();
        fs_err::write(copy.join("release.json"), text.replacen("{\n", "{\n\n", 1)).unwrap();
        sums(copy);
    });
    assert!(code == 4 && told.contains("release.json is not spelt as this program spells it"), "{told}");
    let with_sums = |edit: fn(&str) -> String| {
        changed(&release, |copy| {
            let text = fs_err::read_to_string(copy.join("SHA256SUMS")).unwrap();
            fs_err::write(copy.join("SHA256SUMS"), edit(&text)).unwrap();
        })
    };
    let reversed = with_sums(|text| text.lines().rev().map(|line| format!("{line}\n")).collect());
    assert_eq!(reversed, (4, "fault SHA256SUMS is not spelt as this program spells it: it was edited".into()));
    let twice = with_sums(|text| format!("{text}{}\n", text.lines().next().unwrap()));
    assert!(twice.1.contains("SHA256SUMS, line"), "{}", twice.1);
    let upper = with_sums(str::to_uppercase);
    assert!(upper.0 == 4 && upper.1.contains("SHA256SUMS, line 1"), "{}", upper.1);
    let empty = with_sums(|_| String::new());
    assert!(empty.0 == 4 && empty.1.contains("README.md was added: SHA256SUMS does not list it"), "{}", empty.1);
}

#[test]
fn a_kit_beside_a_release_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    released(dir.path());
    fs_err::create_dir(dir.path().join("dist/enc.kit")).unwrap();
    fs_err::write(dir.path().join("dist/enc.kit/kit.json"), "{}").unwrap();
    let (code, out, err) = run(dir.path(), &["verify", "dist/enc", "dist/enc.kit"]);
    assert!(code == 0 && err.contains("dist/enc.kit is a kit"), "{out}{err}");
    let (code, _, err) = run(dir.path(), &["verify", "dist/enc.kit"]);
    assert!(code == 3 && err.contains("is a kit, which `kit run` verifies"), "{err}");
}

#[test]
fn what_is_no_release() {
    let dir = tempfile::tempdir().unwrap();
    let told = |name: &str| {
        let (code, out, err) = run(dir.path(), &["verify", name]);
        assert_eq!((code, out.as_str()), (3, ""));
        err
    };
    fs_err::create_dir(dir.path().join("empty")).unwrap();
    fs_err::write(dir.path().join("file"), "").unwrap();
    insta::assert_snapshot!(told("empty"), @"error: empty is no release: it has neither release.json nor SHA256SUMS");
    insta::assert_snapshot!(told("gone"), @"
    error: gone could not be read
      caused by: No such file or directory (os error 2)
    ");
    insta::assert_snapshot!(told("file"), @"
    error: file could not be read
      caused by: not a directory
    ");
    fs_err::write(dir.path().join("empty/release.json"), "{").unwrap();
    let (code, out, _) = run(dir.path(), &["verify", "empty"]);
    assert_eq!(code, 4);
    assert!(out.contains("release.json is no record: EOF"), "{out}");
}

#[test]
fn what_is_unusual_hides_nothing() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let (code, told) = changed(&release, |copy| {
        std::os::unix::fs::symlink("README.md", copy.join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(copy.join("socket")).unwrap();
        fs_err::write(copy.join(std::ffi::OsStr::from_bytes(b"n\xff")), "").unwrap();
        fs_err::create_dir_all(copy.join("a/b")).unwrap();
        fs_err::write(copy.join("LICENSE"), "other").unwrap();
        fs_err::write(copy.join("more"), "").unwrap();
        fs_err::remove_file(copy.join("NOTICE")).unwrap();
        std::os::unix::fs::symlink("README.md", copy.join("NOTICE")).unwrap();
    });
    assert_eq!(code, 4);
    for part in [
        "link is neither file nor folder",
        "socket is neither file nor folder",
        "is not UTF-8",
        "a/b/ was added",
        "LICENSE was changed",
        "more was added",
        "NOTICE is neither file nor folder",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("NOTICE is missing"), "{told}");
    let (code, told) = changed(&release, |copy| {
        for path in contents(copy).into_keys().filter(|path| path != "SHA256SUMS") {
            fs_err::remove_file(copy.join(path)).unwrap();
        }
    });
    assert!(code == 4 && told.contains("LICENSE is missing, which SHA256SUMS lists"), "{told}");
}

#[test]
fn a_folder_that_is_none_silences_no_other() {
    let dir = tempfile::tempdir().unwrap();
    released(dir.path());
    let (code, out, _) = run(dir.path(), &["verify", "gone", "dist/enc", "--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &told["releases"][0]["faults"][0]["kind"]), (4, &json!("unreadable")));
    assert_eq!(told["releases"][1]["faults"], json!([]));
    assert!(told["releases"][1]["files"].as_u64().unwrap() > 5);
}

#[test]
fn no_more_open_files_is_no_fault_of_a_release() {
    let dir = tempfile::tempdir().unwrap();
    released(dir.path());
    let script = format!("ulimit -n 4; exec {} verify dist/enc", env!("CARGO_BIN_EXE_eg2-convert"));
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("could not be hashed") && !String::from_utf8_lossy(&output.stdout).contains("FAILED"),
        "{told}"
    );
}

#[test]
fn another_versions_statement_is_of_these_files() {
    let dir = tempfile::tempdir().unwrap();
    let release = released(dir.path());
    let of_other = |subject: &str| {
        changed(&release, |copy| {
            let path = copy.join("release.json");
            let mut record: ReleaseRecord = serde_json::from_slice(&fs_err::read(&path).unwrap()).unwrap();
            record.tool.version = "0.0.1".into();
            fs_err::write(&path, record.to_bytes().unwrap()).unwrap();
            let statement = String::from_utf8(record.statement().unwrap()).unwrap();
            fs_err::write(copy.join("release.intoto.json"), statement.replace("\"name\": \"NOTICE\"", subject))
                .unwrap();
            sums(copy);
        })
    };
    assert_eq!(of_other("\"name\": \"NOTICE\""), (0, String::new()));
    let (code, told) = of_other("\"name\": \"OTHER\"");
    assert_eq!((code, told), (4, "fault release.intoto.json is not what the record makes of it".into()));
}

#[test]
fn regions_are_counted_again_and_shared_hashes_announced() {
    let dir = tempfile::tempdir().unwrap();
    let path = compiler(dir.path(), 1);
    let release = |name: &str, text: &str| {
        let recipe = recipe(dir.path(), name, text);
        let mut command = command(dir.path());
        command.env("EG2_COREAI_PYTHON", coreai_python()).env("PATH", &path).args(["release", &recipe]);
        assert_eq!(command.output().unwrap().status.code(), Some(0));
        dir.path().join("dist").join(name)
    };
    let one = release("one", &compiled_recipe(1));
    let bundle = "eg2_encoder_fp16_T200.h16c.aimodelc";
    let inside = format!("{bundle}/main-h16c-delegates/MPSGraph/mpsExecutable.mpsgraphpackage");
    let region = format!("{inside}/binary_0.llir.bundle/main_AAAAAAAAAAAAAAAAAAAAAA_0_ANE_region_0_0.bc");
    let (code, told) = changed(&one, |copy| {
        fs_err::remove_dir_all(copy.join(&region)).unwrap();
        sums(copy);
    });
    assert!(code == 4 && told.contains("h16c: regions found 0, the record has 1"), "{told}");
    let at = |r: &Value, format: &str| {
        r["artefacts"].as_array().unwrap().iter().position(|bundle| bundle["format"] == format).unwrap()
    };
    type Edit<'e> = (&'e dyn Fn(&mut Value), &'static str);
    let edits: [Edit; 4] = [
        (
            &|r| {
                let compiled = at(r, "aimodelc");
                r["artefacts"].as_array_mut().unwrap().remove(compiled);
            },
            "compiled bundles is []",
        ),
        (
            &|r| {
                let [model, compiled] = [at(r, "aimodel"), at(r, "aimodelc")];
                r["artefacts"][compiled]["strip"] = r["artefacts"][model]["strip"].clone();
            },
            "strip.outcome is \"pass\", but \"not_run\" follows",
        ),
        (
            &|r| {
                let compiled = at(r, "aimodelc");
                r["artefacts"][compiled]["regions"]["outcome"] = json!("fail");
            },
            "regions.outcome is \"fail\", but \"pass\" follows",
        ),
        (
            &|r| {
                let compiled = at(r, "aimodelc");
                r["artefacts"][compiled]["compiled_from"]["name"] = r["artefacts"][compiled]["name"].clone();
            },
            "compiled_from.digest_root is",
        ),
    ];
    for (edit, part) in edits {
        let told = edited(&one, edit);
        assert!(told.contains(part), "{part}: {told}");
    }
    // Another model of that shape: the stub is the same, and what is loaded is not.
    fs_err::write(
        dir.path().join("made/made/main-h16c-delegates/MPSGraph/mpsExecutable.mpsgraphpackage/resources.bin"),
        "others",
    )
    .unwrap();
    let other = compiled_recipe(1).replace("[200]", "[100]");
    release("other", &other);
    let (code, out, err) = run(dir.path(), &["verify", "dist/one", "dist/other"]);
    assert_eq!(code, 0, "{out}");
    assert!(err.contains("have the same main.hash and different files"), "{err}");
    assert!(out.contains("ANNOUNCED"), "{out}");
    let (_, out, err) = run(dir.path(), &["verify", "dist/one"]);
    assert!(!out.contains("ANNOUNCED") && err.is_empty(), "{out}{err}");
}
