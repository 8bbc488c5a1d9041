//! The gate on recordings: words held against the reference's, and the arm that must change them.

use crate::cli::{command, fixture};
use crate::gate::Golden;
use crate::schema::holds;
use eg2_convert::digest::Digest;
use serde_json::{Value, json};
use std::path::Path;

const ENCODER: &str = "out/eg2_encoder_fp32_T200_T400.mlpackage";
const READER: &str = "out/eg2_reader_v0_fp32_T100.mlpackage";

fn artefacts(folder: &Path) {
    let checkpoint = fixture("encoder_eg2");
    let config = fixture("reader_plain/reader_config.json");
    for args in [
        ["encoder", "--bucket", "200,400", "--checkpoint", checkpoint.to_str().unwrap()],
        ["reader", "--tokens", "100", "--config", config.to_str().unwrap()],
    ] {
        let mut command = command(folder);
        command.args(args).args(["--precision", "fp32", "--format", "mlpackage", "--quiet"]).assert().success();
    }
    fs_err::create_dir(folder.join("clips")).unwrap();
    fs_err::copy(fixture("spoken.wav"), folder.join("clips/spoken.wav")).unwrap();
    fs_err::write(folder.join("clips/notes.txt"), "no recording").unwrap();
    fs_err::copy(fixture("reader_plain/words.txt"), folder.join("words.txt")).unwrap();
}

/// What the two make of the sentence.
fn text(folder: &Path) -> String {
    let args = ["transcribe", "clips/spoken.wav", "--encoder", ENCODER, "--reader", READER, "--words", "words.txt"];
    let output = command(folder).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().to_string()
}

/// Exit code, what each check says, and the whole.
fn gated(folder: &Path, args: &[&str]) -> (i32, String, Value) {
    let output = command(folder).arg("gate").args(args).arg("--json").output().unwrap();
    let json = holds("gate", &output.stdout);
    let checks = json["report"]["checks"].as_array().cloned().unwrap_or_default();
    let told = checks.iter().map(|check| {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
        let verdict = &check["verdict"];
        let says = if verdict["reason"].is_null() { text(&check["says"]) } else { text(&verdict["reason"]) };
        format!("{} {}: {says}", text(&check["name"]), text(&verdict["outcome"]))
    });
    (output.status.code().unwrap(), told.collect::<Vec<_>>().join("\n"), json)
}

#[test]
fn recordings_through_both_artefacts() {
    let dir = tempfile::tempdir().unwrap();
    artefacts(dir.path());
    let said = text(dir.path());
    assert!(said.split(' ').count() > 10, "{said}");
    fs_err::write(dir.path().join("right.tsv"), format!("spoken\t{said}\n")).unwrap();
    fs_err::write(dir.path().join("wrong.tsv"), format!("spoken\t{said} more\n")).unwrap();
    let audio = ["--audio", "clips", "--words", "words.txt", "--transcripts"];
    let of_encoder = [&[ENCODER, "--reader", READER], &audio[..]].concat();

    let (code, told, _) = gated(dir.path(), &[&of_encoder[..], &["right.tsv", "--wer", "right.tsv"]].concat());
    assert_eq!(code, 0, "{told}");
    insta::assert_snapshot!(told, @"
    source not_run: no golden is given, by --golden
    cosine not_run: no golden is given, by --golden
    finite not_run: no golden is given, by --golden
    repeats not_run: no golden is given, by --golden
    red arm half_mask not_run: no golden is given, by --golden
    red arm padding not_run: no golden is given, by --golden
    audio transcripts pass: 1 of 1 are the reference's (100.0 %), 46 words
    audio wer pass: 0.00 % of 46 words, the reference 0.00 %, +0.00 points
    audio red arm second half pass: broke 1 of 1 clips it applies to, least spoken: 46 words, 14 with the arm, 21 in the second half
    ");

    let (code, told, json) = gated(dir.path(), &[&of_encoder[..], &["wrong.tsv", "--wer", "wrong.tsv"]].concat());
    assert_eq!((code, &json["passed"]), (4, &Value::Bool(false)));
    insta::assert_snapshot!(told.lines().filter(|l| l.starts_with("audio")).collect::<Vec<_>>().join("\n"), @"
    audio transcripts fail: 0 of 1 are the reference's (0.0 %), 47 words
    audio wer fail: 2.13 % of 47 words, the reference 0.00 %, +2.13 points
    audio red arm second half pass: broke 1 of 1 clips it applies to, least spoken: 46 words, 14 with the arm, 21 in the second half
    ");

    let of_reader = [&[READER, "--encoder", ENCODER], &audio[..], &["right.tsv"]].concat();
    let (code, told, _) = gated(dir.path(), &of_reader);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("audio transcripts pass"), "{told}");

    // An encoder in two halves hears the same.
    let checkpoint = fixture("encoder_eg2");
    let mut halves = command(dir.path());
    halves.args(["encoder", "--bucket", "200,400", "--split-after", "1", "--precision", "fp32", "--quiet"]);
    halves.arg("--checkpoint").arg(checkpoint).assert().success();
    let [front, body] = ["front1", "body1"].map(|half| format!("out/eg2_encoder_{half}_fp32_T200_T400.mlpackage"));
    let of_halves = [&[&front, "--body", &body, "--reader", READER], &audio[..], &["right.tsv"]].concat();
    let (code, told, _) = gated(dir.path(), &of_halves);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("audio transcripts pass"), "{told}");

    // With a golden beside, its checks are run as well; transcripts are asked of both.
    fs_err::write(dir.path().join("both.tsv"), format!("spoken\t{said}\ngolden\t\n")).unwrap();
    let golden = Golden::of(198).write(&dir.path().join("golden.safetensors"));
    let with_truth = [&of_encoder[..], &["both.tsv", "--wer", "both.tsv", "--golden", &golden]].concat();
    let (code, told, json) = gated(dir.path(), &with_truth);
    assert_eq!(code, 4, "nothing is said in the golden, by its line: {told}");
    for check in ["cosine pass", "red arm half_mask pass", "transcripts fail", "audio transcripts pass"] {
        assert!(told.contains(check), "{check}: {told}");
    }
    let expected = [
        ("golden", "golden.safetensors"),
        ("words", "words.txt"),
        ("transcripts", "both.tsv"),
        ("truth", "both.tsv"),
        ("recording", "clips/spoken.wav"),
    ];
    let expected = expected.map(|(kind, file)| {
        let path = dir.path().join(file);
        let sha256 = Digest::of_file(&path).unwrap().0;
        json!({ "kind": kind, "name": path.file_name().unwrap().to_str(), "sha256": sha256 })
    });
    assert_eq!(json["evidence"], Value::from(expected.to_vec()));
}

#[test]
fn recordings_that_are_not_heard() {
    let dir = tempfile::tempdir().unwrap();
    artefacts(dir.path());
    fs_err::write(dir.path().join("spoken.tsv"), "spoken\tword1\n").unwrap();
    fs_err::write(dir.path().join("other.tsv"), "unspoken\tword1\n").unwrap();
    fs_err::create_dir(dir.path().join("none")).unwrap();
    fs_err::write(dir.path().join("bad.wav"), "not a recording").unwrap();
    let mut told = String::new();
    let mut case = |name: &str, args: &[&str]| {
        let (code, checks, json) = gated(dir.path(), args);
        let said = json["error"]["message"].as_str().map(str::to_string);
        let checks = || checks.lines().filter(|l| l.starts_with("audio")).collect::<Vec<_>>().join("\n  ");
        told.push_str(&format!("{name} ({code}): {}\n", said.unwrap_or_else(checks)));
    };
    case("no reader", &[ENCODER, "--audio", "clips", "--words", "words.txt", "--transcripts", "spoken.tsv"]);
    case("no encoder", &[READER, "--audio", "clips", "--words", "words.txt", "--transcripts", "spoken.tsv"]);
    case("no words", &[ENCODER, "--reader", READER, "--audio", "clips", "--transcripts", "spoken.tsv"]);
    case("strict", &[ENCODER, "--audio", "clips", "--strict"]);
    case("no transcripts", &[ENCODER, "--reader", READER, "--audio", "clips", "--words", "words.txt"]);
    case(
        "no line",
        &[ENCODER, "--reader", READER, "--audio", "clips", "--words", "words.txt", "--transcripts", "other.tsv"],
    );
    case("no recording", &[ENCODER, "--reader", READER, "--audio", "none", "--words", "words.txt"]);
    case("bad recording", &[ENCODER, "--reader", READER, "--audio", "bad.wav", "--words", "words.txt"]);
    case("alike", &[ENCODER, "--reader", READER, "--audio", "clips", "clips/spoken.wav", "--words", "words.txt"]);
    case("encoder twice", &[ENCODER, "--encoder", ENCODER, "--audio", "clips", "--words", "words.txt"]);
    case("reader twice", &[READER, "--reader", READER, "--audio", "clips", "--words", "words.txt"]);
    case("no reader's", &[ENCODER, "--reader", ENCODER, "--audio", "clips", "--words", "words.txt"]);
    case("nothing", &[ENCODER]);
    insta::assert_snapshot!(told);
}
