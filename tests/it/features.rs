//! Features of recordings against the published extractor's, through files of every kind.

use crate::cli::{command, fixture, listed, run};
use eg2_convert::checkpoint::Checkpoint;
use eg2_convert::dsp::{Extractor, Features, InMemory, MEL_BINS};
use eg2_convert::tensor::WeightSource;
use hound::{SampleFormat, WavSpec, WavWriter};
use std::path::Path;

const LENGTHS: [u64; 13] = [0, 1, 160, 161, 320, 321, 479, 480, 481, 6123, 480_000, 480_001, 3_600_000];

/// The sound of scripts/features_goldens.py: 16-bit samples.
fn sound(samples: u64) -> impl Iterator<Item = i16> {
    (0..samples).map(|n| {
        let wave = ((n * n * 3 / 2048 + n * 40) % 1024).cast_signed() - 512;
        let mut mixed = n * 2_654_435_761 % (1 << 32);
        mixed ^= mixed >> 15;
        mixed = mixed * 2_246_822_519 % (1 << 32);
        mixed ^= mixed >> 13;
        let noise = (mixed >> 20).cast_signed() - 2048;
        if n / 4000 % 5 == 3 { 0 } else { (wave.abs() * 40 - 10_240 + noise) as i16 }
    })
}

/// What a sample of 16 bits is in each form that a file may have: the same sound in all of them.
#[derive(Clone, Copy, Debug)]
enum Form {
    Bits16,
    Bits24,
    Bits32,
    Float,
}

/// Writes a WAV by hound, which is not what reads it.
fn write(path: &Path, form: Form, channels: u16, rate: u32, samples: impl Iterator<Item = i16>) {
    let (bits_per_sample, sample_format) = match form {
        Form::Bits16 => (16, SampleFormat::Int),
        Form::Bits24 => (24, SampleFormat::Int),
        Form::Bits32 => (32, SampleFormat::Int),
        Form::Float => (32, SampleFormat::Float),
    };
    let spec = WavSpec { channels, sample_rate: rate, bits_per_sample, sample_format };
    let mut file = WavWriter::create(path, spec).unwrap();
    for sample in samples {
        match form {
            Form::Bits16 => file.write_sample(sample),
            Form::Bits24 => file.write_sample(i32::from(sample) << 8),
            Form::Bits32 => file.write_sample(i32::from(sample) << 16),
            Form::Float => file.write_sample(f32::from(sample) / 32_768.0),
        }
        .unwrap();
    }
    file.finalize().unwrap();
}

fn all(features: &mut Features) -> Vec<f32> {
    let mut rows = vec![f32::NAN; features.frames() as usize * MEL_BINS];
    let mut at = 0;
    // An odd number of rows at a time, so that blocks of frames do not line up with it.
    for part in rows.chunks_mut(1237 * MEL_BINS) {
        at += features.read(part).unwrap();
    }
    assert_eq!((at as u64, features.read(&mut [0.0; MEL_BINS]).unwrap()), (features.frames(), 0));
    rows
}

#[test]
fn every_length_is_the_published_extractors() {
    let dir = tempfile::tempdir().unwrap();
    let goldens = Checkpoint::open_file(&fixture("features.safetensors")).unwrap();
    for samples in LENGTHS {
        let fact = goldens.fact(&format!("frames_{samples}")).unwrap();
        let mut bytes = vec![0; fact.bytes()];
        goldens.read(&format!("frames_{samples}"), 0, &mut bytes).unwrap();
        let told: Vec<usize> = bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b) as usize).collect();
        let (count, frames) = told.split_first().unwrap();
        let mut rows = vec![0.0; frames.len() * MEL_BINS];
        goldens.read_f32(&format!("rows_{samples}"), 0, &mut rows).unwrap();
        let forms = if samples > 10_000 {
            &[Form::Bits16][..]
        } else {
            &[Form::Bits16, Form::Bits24, Form::Bits32, Form::Float]
        };
        for form in forms {
            let path = dir.path().join("clip.wav");
            write(&path, *form, 1, 16_000, sound(samples));
            let mut features = Features::open(&path).unwrap();
            assert_eq!((features.samples(), features.frames()), (samples, *count as u64), "{form:?}");
            let found = all(&mut features);
            for (frame, golden) in frames.iter().zip(rows.chunks(MEL_BINS)) {
                for (bin, golden) in golden.iter().enumerate() {
                    let apart = (found[frame * MEL_BINS + bin] - golden).abs();
                    assert!(apart <= 1e-6, "{samples} samples, {form:?}, frame {frame} bin {bin}: {apart:e}");
                }
            }
        }
    }
}

#[test]
fn the_goldens_would_tell_another_extractor() {
    // A sound whose samples are one late is another sound to every frame but those of silence.
    let goldens = Checkpoint::open_file(&fixture("features.safetensors")).unwrap();
    let late: Vec<f32> = std::iter::once(0).chain(sound(6122)).map(|s| f32::from(s) / 32_768.0).collect();
    let mut extractor = Extractor::new(InMemory::new(&late));
    let mut rows = vec![0.0; extractor.frames() as usize * MEL_BINS];
    extractor.read(&mut rows).unwrap();
    let mut golden = vec![0.0; MEL_BINS];
    goldens.read_f32("rows_6123", 2 * MEL_BINS, &mut golden).unwrap();
    let apart = rows[2 * MEL_BINS..].iter().zip(&golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart > 1e-2, "{apart}");
}

#[test]
fn features_do_not_depend_on_threads_or_on_what_is_asked_for() {
    let samples: Vec<f32> = sound(200_000).map(|s| f32::from(s) / 32_768.0).collect();
    let with = |threads, rows_at_a_time: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut extractor = Extractor::new(InMemory::new(&samples));
            let mut rows = vec![0.0; extractor.frames() as usize * MEL_BINS];
            rows.chunks_mut(rows_at_a_time * MEL_BINS).for_each(|part| {
                extractor.read(part).unwrap();
            });
            rows
        })
    };
    let one = with(1, 5000);
    for (threads, rows) in [(2, 5000), (5, 1), (3, 7), (2, 1000)] {
        assert_eq!(with(threads, rows), one, "{threads} threads, {rows} rows at a time");
    }
}

#[test]
fn channels_are_mixed_and_rates_brought_to_16_khz() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("clip.wav");
    let mono: Vec<i16> = sound(8000).collect();
    write(&path, Form::Bits16, 1, 16_000, mono.iter().copied());
    let alone = all(&mut Features::open(&path).unwrap());
    // Eight channels whose mean is the sound: pairs that are apart from it by as much in both directions.
    let eight = mono.iter().flat_map(|s| (0i16..8).map(move |c| s.saturating_add((2 * (c % 2) - 1) * 100 * (c / 2))));
    write(&path, Form::Bits24, 8, 16_000, eight);
    assert_eq!(all(&mut Features::open(&path).unwrap()), alone);
    for rate in [8_000u32, 44_100, 48_000, 192_000] {
        let tone = (0..rate)
            .map(|n| (12_000.0 * (std::f64::consts::TAU * 440.0 * f64::from(n) / f64::from(rate)).sin()) as i16);
        write(&path, Form::Bits16, 2, rate, tone.flat_map(|s| [s, s]));
        let mut features = Features::open(&path).unwrap();
        assert_eq!((features.samples(), features.frames()), (16_000, 99));
        let rows = all(&mut features);
        let loudest = |row: &[f32]| row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
        // 440 Hz is the 26th of 129 equal steps on the HTK scale up to 8 kHz.
        let bins: Vec<usize> = rows.chunks(MEL_BINS).skip(20).take(60).map(loudest).collect();
        assert!(bins.iter().all(|bin| (24..=25).contains(bin)), "{rate}: {bins:?}");
    }
}

/// `features` on `clip.wav` of the folder.
fn features(folder: &Path, more: &[&str]) -> (i32, String, String) {
    run(folder, &[&["features", "clip.wav", "-o", "out.safetensors"], more].concat())
}

fn redacted(text: &str) -> String {
    let lines = text.lines().map(|l| if l.starts_with("seconds") { "seconds      [seconds]" } else { l });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_command_tells_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("clip.wav"), Form::Float, 8, 192_000, sound(8 * 192_000));
    let (code, out, err) = features(dir.path(), &[]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!(format!("{}\n{err}", redacted(&out)), @"
    clip         clip.wav
    audio        1.00 s, 192000 Hz, 8 channels, 32-bit float
    samples      16,000 at 16 kHz
    frames       99
    soft tokens  25
    written to   out.safetensors
    seconds      [seconds]
     WARN 8 channels were mixed to one
     WARN resampled from 192000 Hz to 16000 Hz
    ");
    write(&dir.path().join("clip.wav"), Form::Bits16, 1, 16_000, sound(160));
    let (code, out, err) = features(dir.path(), &[]);
    assert_eq!(code, 0, "{err}");
    insta::assert_snapshot!(format!("{}\n{err}", redacted(&out)), @"
    clip         clip.wav
    audio        0.01 s, 16000 Hz, 1 channel, 16-bit integer
    samples      160 at 16 kHz
    frames       0
    soft tokens  0
    written to   out.safetensors
    seconds      [seconds]
     WARN 160 samples at 16 kHz are fewer than the 161 of a first frame: there is none
    ");
    let file = Checkpoint::open_file(&dir.path().join("out.safetensors")).unwrap();
    assert_eq!(file.fact("features").unwrap().to_string(), "f32[0,128]");
}

#[test]
fn a_bucket_is_padded_with_zeros_and_is_what_run_takes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    write(&at("clip.wav"), Form::Bits16, 1, 16_000, sound(16_000));
    let (code, _, err) = features(dir.path(), &["--bucket", "200", "--json"]);
    assert_eq!(code, 0, "{err}");
    let file = Checkpoint::open_file(&at("out.safetensors")).unwrap();
    let told: Vec<String> = file.names().iter().map(|n| format!("{n} {}", file.fact(n).unwrap())).collect();
    assert_eq!(told, ["features f32[1,200,128]", "half_mask f32[1,100]", "n_tokens i32[1]"]);
    let (mut rows, mut mask, mut tokens) = (vec![0f32; 200 * MEL_BINS], vec![0f32; 100], [0u8; 4]);
    file.read_f32("features", 0, &mut rows).unwrap();
    file.read_f32("half_mask", 0, &mut mask).unwrap();
    file.read("n_tokens", 0, &mut tokens).unwrap();
    assert!(rows[99 * MEL_BINS..].iter().all(|v| v.to_bits() == 0), "padding is exactly 0");
    assert!(rows[..99 * MEL_BINS].iter().all(|v| *v != 0.0));
    assert_eq!(mask.iter().position(|v| *v == 0.0), Some(50));
    assert!(mask[..50].iter().all(|v| *v == 1.0) && mask[50..].iter().all(|v| *v == 0.0));
    assert_eq!(i32::from_le_bytes(tokens), 25);

    let checkpoint = fixture("encoder_eg2");
    let args =
        ["encoder", "--bucket", "200", "--checkpoint", checkpoint.to_str().unwrap(), "--precision", "fp32", "-q"];
    assert_eq!(run(dir.path(), &args).0, 0);
    let package = "out/eg2_encoder_fp32_T200.mlpackage";
    let (code, _, err) =
        run(dir.path(), &["run", package, "--inputs", "out.safetensors", "--outputs", "soft.safetensors"]);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn recordings_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let clip = dir.path().join("clip.wav");
    write(&clip, Form::Bits16, 1, 16_000, sound(16_000));
    let good = fs_err::read(&clip).unwrap();
    write(&clip, Form::Float, 2, 16_000, sound(400));
    let mut not_a_number = fs_err::read(&clip).unwrap();
    let last = not_a_number.len() - 4;
    not_a_number[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    let with_rate = |rate: u32| [&good[..24], &rate.to_le_bytes()[..], &good[28..]].concat();
    let mut unfinished = [&b"RF64\xff\xff\xff\xffWAVEds64\x1c\0\0\0"[..], &[0; 28], &good[12..40], &[0xff; 4]].concat();
    unfinished.extend(&good[44..]);
    let zeros = [&b"RIFF\xff\xff\xff\xffWAVE"[..], &[0; 100_000]].concat();
    let bad: [(&str, Vec<u8>, &[&str]); 12] = [
        ("no WAV", b"not a recording, but some text\n".to_vec(), &[]),
        ("MP3", b"ID3\x04\0\0\0\0\0\0 and so on".to_vec(), &[]),
        ("empty", vec![], &[]),
        ("truncated", good[..20_001].to_vec(), &[]),
        ("unfinished", unfinished, &[]),
        ("zeros", zeros, &[]),
        ("header", good[..30].to_vec(), &[]),
        ("NaN", not_a_number, &[]),
        ("rate 0", with_rate(0), &[]),
        ("rate", with_rate(1_000_000), &[]),
        ("bucket", good.clone(), &["--bucket", "96"]),
        ("no bucket", good.clone(), &["--bucket", "97"]),
    ];
    let mut told = String::new();
    for (name, bytes, more) in bad {
        fs_err::write(&clip, bytes).unwrap();
        let (code, out, err) = features(dir.path(), more);
        assert_eq!(out, "", "{name}");
        assert_eq!(listed(dir.path()), ["clip.wav"], "{name} leaves nothing behind");
        told.push_str(&format!("{name} ({code}): {err}"));
    }
    fs_err::write(&clip, &good).unwrap();
    for args in [["features", ".", "-o", "out.safetensors"], ["features", "gone.wav", "-o", "out.safetensors"]] {
        let (code, _, err) = run(dir.path(), &args);
        told.push_str(&format!("{} ({code}): {err}", args[1]));
    }
    let (code, _, err) = run(dir.path(), &["features", "clip.wav", "-o", "clip.wav"]);
    told.push_str(&format!("itself ({code}): {err}"));
    let (code, _, err) = run(dir.path(), &["features", "clip.wav", "-o", "gone/out.safetensors"]);
    told.push_str(&format!("no folder ({code}): {}\n", err.lines().next().unwrap()));
    assert_eq!(fs_err::read(&clip).unwrap(), good);
    insta::assert_snapshot!(told, @r#"
    no WAV (3): error: clip.wav is no WAV file: it begins with "not ", expected RIFF
    MP3 (3): error: clip.wav is no WAV file: it begins like MP3
    empty (3): error: clip.wav is no WAV file: it is empty
    truncated (3): error: clip.wav is cut short: its header promises 16000 samples, and there are 9978
    unfinished (3): error: clip.wav was never finished: its header promises no samples, and 32000 bytes follow
    zeros (3): error: clip.wav is no WAV file: there are 1024 chunks and none has its samples
    header (3): error: clip.wav is no WAV file: it ends within its header, after 30 bytes
    NaN (3): error: clip.wav: sample 199 of channel 1 is NaN, expected a number of magnitude 100000 at most; full scale is 1
    rate 0 (3): error: clip.wav has 0 samples a second, expected 1000 to 384000
    rate (3): error: clip.wav has 1000000 samples a second, expected 1000 to 384000
    bucket (3): error: clip.wav has 99 frames, and the bucket 96: give a longer --bucket, or none; `transcribe` takes recordings of any length in windows
    no bucket (2): error: bucket 97 is not a number of frames from 4 to 16384 that four divides (3000 is 30 s)
    . (3): error: . cannot be read
      caused by: is a folder, expected a regular file
    gone.wav (3): error: gone.wav cannot be read
      caused by: No such file or directory (os error 2)
    itself (2): error: the features would replace clip.wav, which is read
    no folder (2): error: the features could not be written to gone/out.safetensors
    "#);
}

#[test]
fn json_is_one_object() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("clip.wav"), Form::Bits16, 1, 16_000, sound(16_000));
    let mut command = command(dir.path());
    let output = command.args(["features", "clip.wav", "-o", "out.safetensors", "--json"]).output().unwrap();
    let mut json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    json["seconds"] = serde_json::Value::Null;
    insta::assert_snapshot!(json.to_string(), @r#"{"clip":"clip.wav","audio":{"channels":1,"sample_rate":16000,"format":"16-bit integer","samples":16000,"seconds":1.0},"samples":16000,"frames":99,"tokens":25,"bucket":null,"file":"out.safetensors","seconds":null}"#);
}
