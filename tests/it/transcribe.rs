//! From a recording to words: both formats, windows, what may not run at once, and what does not belong together.

use crate::cli::{command, fixture, listed, run};
use crate::python::coreai_python;
use crate::schema::holds;
use eg2_convert::checkpoint::Checkpoint;
use eg2_convert::tensor::WeightSource;
use hound::{SampleFormat, WavSpec, WavWriter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A sentence of 2.5 s at 22,050 Hz, by a speech synthesizer (scripts/spoken_wav.py).
fn spoken() -> PathBuf {
    fixture("spoken.wav")
}

fn words() -> PathBuf {
    fixture("reader_plain/words.txt")
}

/// Writes a sound that is never the same for long: a tone that glides over noise, with pauses.
fn write_sound(path: &Path, samples: u64) {
    let spec = WavSpec { channels: 1, sample_rate: 16_000, bits_per_sample: 16, sample_format: SampleFormat::Int };
    let mut file = WavWriter::create(path, spec).unwrap();
    let mut noise = 1u32;
    for n in 0..samples {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let t = n as f64 / 16_000.0;
        let tone = (std::f64::consts::TAU * (200.0 + 90.0 * (t * 1.7).sin()) * t).sin() * (0.6 + 0.4 * (t * 3.1).sin());
        let pause = n / 8000 % 7 == 5;
        let value = if pause { 0.0 } else { 9000.0 * tone + f64::from(noise >> 20) - 2048.0 };
        file.write_sample(value as i16).unwrap();
    }
    file.finalize().unwrap();
}

/// Encoder and reader of the fixtures in `out/`, in that precision and those formats.
fn artefacts(folder: &Path, precision: &str, formats: &str, bucket: &str, tokens: &str) {
    let checkpoint = fixture("encoder_eg2");
    let config = fixture("reader_plain/reader_config.json");
    for args in [
        ["encoder", "--bucket", bucket, "--checkpoint", checkpoint.to_str().unwrap()],
        ["reader", "--tokens", tokens, "--config", config.to_str().unwrap()],
    ] {
        let mut command = command(folder);
        command.args(args).args(["--precision", precision, "--format", formats, "--quiet"]);
        command.env("EG2_COREAI_PYTHON", coreai_python());
        command.assert().success();
    }
}

/// `transcribe --json` with those artefacts.
fn transcribe(folder: &Path, clip: &Path, encoder: &str, reader: &str, more: &[&str]) -> Value {
    let mut command = command(folder);
    command.arg("transcribe").arg(clip).args(["--json", "--encoder", encoder, "--reader", reader]).args(more);
    if encoder.contains(".mlpackage") || encoder.contains(".aimodel") {
        command.arg("--words").arg(words());
    }
    command.env("EG2_COREAI_PYTHON", coreai_python());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    holds("transcribe", &output.stdout)
}

#[test]
fn a_spoken_sentence_is_the_same_words_by_both_formats_and_from_the_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    artefacts(dir.path(), "fp32", "mlpackage,aimodel", "400", "100");
    let by = |ending: &str| {
        let encoder = format!("out/eg2_encoder_fp32_T400.{ending}");
        transcribe(dir.path(), &spoken(), &encoder, &format!("out/eg2_reader_v0_fp32_T100.{ending}"), &[])
    };
    let (package, model) = (by("mlpackage"), by("aimodel"));
    let (encoder, reader) = (fixture("encoder_eg2"), fixture("reader_plain/reader_config.json"));
    let paths = [&encoder, &reader].map(|path| path.to_str().unwrap());
    let weights = transcribe(dir.path(), &spoken(), paths[0], paths[1], &["--bucket", "400"]);
    assert!(package["words"].as_array().unwrap().len() > 10, "{package}");
    for other in [&model, &weights] {
        // Both are fp32: a word could differ only where two are within rounding of each other.
        assert_eq!(package["words"], other["words"]);
        assert_eq!(package["text"], other["text"]);
    }
    let side = |told: &Value, half: &str| told[half]["identity"]["runtime"].as_str().unwrap().to_string();
    assert_eq!((side(&package, "encoder"), side(&model, "reader")), ("reference".into(), "coreai".into()));
    assert_eq!(package["reader"]["identity"]["words_of_record"], true);
    assert_eq!(weights["encoder"]["identity"]["source"]["kind"], "checkpoint");
    let mut shown = package.clone();
    for key in ["seconds", "real_time_factor"] {
        shown[key] = Value::Null;
    }
    for half in ["encoder", "reader"] {
        shown[half]["identity"]["digest_root"] = Value::Null;
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());

    let mut text = command(dir.path());
    text.arg("transcribe").arg(spoken()).args(["--encoder", paths[0], "--reader", paths[1], "--timestamps"]);
    let output = text.output().unwrap();
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
    insta::assert_snapshot!(String::from_utf8(output.stderr).unwrap(), @" WARN resampled from 22050 Hz to 16000 Hz");
}

#[test]
fn fp16_artefacts_of_several_buckets() {
    let dir = tempfile::tempdir().unwrap();
    artefacts(dir.path(), "fp16", "mlpackage", "120,400", "100");
    let (encoder, reader) = ("out/eg2_encoder_fp16_T120_T400.mlpackage", "out/eg2_reader_v0_fp16_T100.mlpackage");
    let long = dir.path().join("long.wav");
    // 112 tokens: a window of 100 by T400, and one of 12 + 30 by T120, which is the same function of less padding.
    write_sound(&long, 112 * 640 + 161);
    let found = transcribe(dir.path(), &long, encoder, reader, &["--overlap", "10"]);
    assert_eq!((&found["encoder"]["windows"], &found["reader"]["windows"]), (&Value::from(2), &Value::from(2)));
    let weights = fixture("encoder_eg2");
    let config = fixture("reader_plain/reader_config.json");
    let paths = [&weights, &config].map(|path| path.to_str().unwrap());
    let whole = transcribe(dir.path(), &long, paths[0], paths[1], &[]);
    assert_eq!(whole["encoder"]["windows"], 1);
    assert_eq!((&found["tokens"], &found["frames"]), (&whole["tokens"], &whole["frames"]));
}

fn rows(path: &Path) -> (Vec<f32>, usize) {
    let file = Checkpoint::open_file(path).unwrap();
    let dims = file.fact("soft_tokens").unwrap().shape.dims().to_vec();
    let mut values = vec![0.0; dims.iter().product()];
    file.read_f32("soft_tokens", 0, &mut values).unwrap();
    (values, dims[2])
}

/// The cosine of each row to the same row of the other; as many as the shorter has.
fn cosines(a: &Path, b: &Path) -> Vec<f64> {
    let ((a, width), (b, _)) = (rows(a), rows(b));
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let cosine = |(a, b): (&[f32], &[f32])| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    a.chunks(width).zip(b.chunks(width)).map(cosine).collect()
}

fn least(cosines: &[f64]) -> f64 {
    cosines.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Three minutes of sound, in one run and in windows. The fixture has 2 layers, each of which looks back about 15 tokens.
#[test]
fn windows_join_to_what_one_run_gives() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write_sound(&at("clip.wav"), 180 * 16_000);
    let (weights, config) = (fixture("encoder_eg2"), fixture("reader_plain/reader_config.json"));
    let soft = |clip: &str, to: &str, more: &[&str]| {
        let more = [&["--soft-tokens", to], more].concat();
        transcribe(dir.path(), &at(clip), weights.to_str().unwrap(), config.to_str().unwrap(), &more)
    };
    let whole = soft("clip.wav", "whole", &["--bucket", "18000"]);
    let joined = soft("clip.wav", "joined", &[]);
    assert_eq!((&whole["encoder"]["windows"], &joined["encoder"]["windows"]), (&Value::from(1), &Value::from(7)));
    assert_eq!(whole["tokens"], 4500);
    assert_eq!(whole["text"], joined["text"]);
    let found = cosines(&at("whole"), &at("joined"));
    assert_eq!(found.len(), 4500);
    assert!(least(&found) >= 0.999_999, "{}", least(&found));

    // The arm: an overlap that is shorter than what the layers look back.
    soft("clip.wav", "short", &["--overlap", "8"]);
    let found = cosines(&at("whole"), &at("short"));
    assert!(least(&found) < 0.98, "{}", least(&found));

    // The other arm: sound cut at 30 s is one frame short, and its last token is not that of the clip. With 640 samples
    // past the cut every token of the 30 s is.
    let cut = |name: &str, samples: usize| {
        let mut reader = hound::WavReader::open(at("clip.wav")).unwrap();
        let mut file = WavWriter::create(at(name), reader.spec()).unwrap();
        reader.samples::<i16>().take(samples).for_each(|s| file.write_sample(s.unwrap()).unwrap());
        file.finalize().unwrap();
    };
    cut("cut.wav", 480_000);
    cut("past.wav", 480_640);
    for (clip, frames, tokens) in [("cut", 2999, 750), ("past", 3003, 751)] {
        let told = soft(&format!("{clip}.wav"), clip, &["--bucket", "3200"]);
        assert_eq!((&told["frames"], &told["tokens"]), (&Value::from(frames), &Value::from(tokens)));
    }
    let found = cosines(&at("whole"), &at("cut"));
    assert!(found[749] < 0.98, "{}", found[749]);
    assert!(least(&found[..749]) >= 0.999_999, "{}", least(&found[..749]));
    let found = cosines(&at("whole"), &at("past"));
    assert!(least(&found[..750]) >= 0.999_999, "{}", least(&found[..750]));
}

/// A stand-in for the interpreter that notes when each process of the runtime begins and ends, and what it ran.
fn noting_python(folder: &Path) -> PathBuf {
    let script = format!(
        "#!/bin/sh\nfor request; do :; done\nbegun=$(date +%s%N)\n'{}' \"$@\"\ncode=$?\n\
         ran=$(grep -o '\"command\":\"run\"' \"$request\" | head -1)\n\
         what=$(grep -o '[a-z0-9_]*_T[0-9]*[.]aimodel' \"$request\" | head -1)\n\
         [ -n \"$ran\" ] && echo \"$what $begun $(date +%s%N)\" >> '{}'\nexit $code\n",
        coreai_python().display(),
        folder.join("calls").display()
    );
    let path = folder.join("python");
    fs_err::write(&path, script).unwrap();
    fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn apples_runtime_never_has_two_calls_of_one_function() {
    let dir = tempfile::tempdir().unwrap();
    artefacts(dir.path(), "fp32", "aimodel", "100", "30");
    let mut command = command(dir.path());
    command.args(["transcribe", "--overlap", "10", "--json", "--encoder", "out/eg2_encoder_fp32_T100.aimodel"]);
    command.args(["--reader", "out/eg2_reader_v0_fp32_T30.aimodel"]).arg("--words").arg(words()).arg(spoken());
    command.env("EG2_COREAI_PYTHON", noting_python(dir.path()));
    command.assert().success();
    let mut calls: BTreeMap<String, Vec<[u128; 2]>> = BTreeMap::new();
    for line in fs_err::read_to_string(dir.path().join("calls")).unwrap().lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        calls.entry(parts[0].into()).or_default().push([parts[1].parse().unwrap(), parts[2].parse().unwrap()]);
    }
    let counts: Vec<usize> = calls.values().map(Vec::len).collect();
    assert_eq!(counts, [4, 3], "{calls:?}");
    for (what, calls) in &mut calls {
        calls.sort_unstable();
        assert!(calls.windows(2).all(|pair| pair[0][1] <= pair[1][0]), "two calls of {what} at once: {calls:?}");
    }
    let [encoder, reader] = [0, 1].map(|half| calls.values().nth(half).unwrap());
    let beside = |a: &[u128; 2], b: &[u128; 2]| a[0] < b[1] && b[0] < a[1];
    assert!(encoder.iter().any(|e| reader.iter().any(|r| beside(e, r))), "nothing ran side by side: {calls:?}");
}

#[test]
fn what_does_not_belong_together() {
    let dir = tempfile::tempdir().unwrap();
    artefacts(dir.path(), "fp32", "mlpackage", "200", "30");
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (encoder, reader) = ("out/eg2_encoder_fp32_T200.mlpackage", "out/eg2_reader_v0_fp32_T30.mlpackage");
    let all = fs_err::read_to_string(words()).unwrap();
    fs_err::write(at("few.txt"), all.lines().take(330).collect::<Vec<_>>().join("\n")).unwrap();
    let mut other: Vec<&str> = all.lines().collect();
    other.reverse();
    fs_err::write(at("other.txt"), other.join("\n")).unwrap();
    fs_err::copy(words(), at("words.txt")).unwrap();
    fs_err::copy(spoken(), at("spoken.wav")).unwrap();
    let sentence = fs_err::read(spoken()).unwrap();
    fs_err::write(at("empty.wav"), [&sentence[..40], &[0; 4]].concat()).unwrap();
    write_sound(&dir.path().join("short.wav"), 160);
    let config = fs_err::read_to_string(fixture("encoder_eg2/config.json")).unwrap();
    fs_err::write(at("wide.json"), config.replace("\"hidden_size\": 24", "\"hidden_size\": 20")).unwrap();
    let args = [
        "encoder",
        "--synthetic",
        "--config",
        "wide.json",
        "--bucket",
        "400",
        "--precision",
        "fp32",
        "--out",
        "wide",
        "-q",
    ];
    assert_eq!(run(dir.path(), &args).0, 0);
    let before = listed(dir.path());

    let (mut told, mut case_of) = (String::new(), String::new());
    let mut case = |name: &str, args: &[&str]| {
        let (code, out, err) = run(dir.path(), &[&["transcribe", "--soft-tokens", "soft"], args].concat());
        let lines: Vec<&str> = err.lines().filter(|l| !l.contains("resampled")).collect();
        told.push_str(&format!("{name} ({code}): {}{}\n", out.trim_end(), lines.join("\n")));
        if code != 0 {
            assert_eq!(listed(dir.path()), before, "{name} leaves nothing behind");
        }
    };
    let with = |clip, encoder, reader, words| {
        ["--overlap", "10", clip, "--encoder", encoder, "--reader", reader, "--words", words]
    };
    case("another width", &with("spoken.wav", "wide/eg2_encoder_fp32_T400.mlpackage", reader, "words.txt"));
    case("fewer words", &with("spoken.wav", encoder, reader, "few.txt"));
    case("no words", &["spoken.wav", "--encoder", encoder, "--reader", reader]);
    case("two encoders", &with("spoken.wav", encoder, encoder, "words.txt"));
    case("two readers", &with("spoken.wav", reader, reader, "words.txt"));
    case("no encoder", &with("spoken.wav", "gone.mlpackage", reader, "words.txt"));
    case("no artefact", &with("spoken.wav", "words.txt", reader, "words.txt"));
    case("no reader", &with("spoken.wav", encoder, "words.txt", "words.txt"));
    case("no sound", &with("empty.wav", encoder, reader, "words.txt"));
    case("no recording", &with("words.txt", encoder, reader, "words.txt"));
    case(
        "overlap",
        &["--overlap", "30", "spoken.wav", "--encoder", encoder, "--reader", reader, "--words", "words.txt"],
    );
    case("bucket", &["--bucket", "3", "spoken.wav", "--encoder", encoder, "--reader", reader, "--words", "words.txt"]);
    case(
        "bucket of an artefact",
        &["--bucket", "400", "spoken.wav", "--encoder", encoder, "--reader", reader, "--words", "words.txt"],
    );
    for (name, soft) in [
        ("the clip", "spoken.wav"),
        ("the words", "words.txt"),
        ("the encoder", "out/eg2_encoder_fp32_T200.mlpackage/Manifest.json"),
    ] {
        let args = [&["--soft-tokens", soft][..], &with("spoken.wav", encoder, reader, "words.txt")].concat();
        let before = fs_err::read(dir.path().join(soft)).unwrap();
        let (code, _, err) = run(dir.path(), &[&["transcribe"], &args[..]].concat());
        case_of.push_str(&format!("in the place of {name} ({code}): {err}"));
        assert_eq!(fs_err::read(dir.path().join(soft)).unwrap(), before);
    }
    case("below a frame", &with("short.wav", encoder, reader, "words.txt"));
    told.push_str(&case_of);
    fs_err::remove_file(at("soft")).unwrap();
    // The same words with other line ends are the same words.
    fs_err::write(at("crlf.txt"), all.trim_end().replace('\n', "\r\n")).unwrap();
    let (code, _, err) =
        run(dir.path(), &[&["transcribe"], &with("spoken.wav", encoder, reader, "crlf.txt")[..]].concat());
    assert_eq!(code, 0, "{err}");
    let (code, out, err) =
        run(dir.path(), &[&["transcribe"], &with("spoken.wav", encoder, reader, "other.txt")[..]].concat());
    assert_eq!((code, out.as_str()), (3, ""));
    told.push_str(&format!("other words ({code}): {err}"));
    insta::assert_snapshot!(told);
}
