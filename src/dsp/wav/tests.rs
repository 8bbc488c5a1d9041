//! Headers and samples of every kind, good and bad.

use super::header::{EXTENSIBLE, FLOAT, PCM, SUBTYPE};
use super::*;
use proptest::prelude::*;

fn chunk(id: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = [id, &(body.len() as u32).to_le_bytes()[..], body].concat();
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

fn riff(chunks: &[Vec<u8>]) -> Vec<u8> {
    let body = [&b"WAVE"[..], &chunks.concat()].concat();
    [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
}

fn format(tag: u16, channels: u16, rate: u32, bits: u16) -> Vec<u8> {
    let block = channels * bits.div_ceil(8);
    let [tag, channels, block, bits] = [tag, channels, block, bits].map(u16::to_le_bytes);
    chunk(b"fmt ", &[&tag[..], &channels, &rate.to_le_bytes(), &[0; 4], &block, &bits].concat())
}

fn extensible(tag: u16, channels: u16, bits: u16) -> Vec<u8> {
    let plain = format(EXTENSIBLE, channels, 16_000, bits);
    let extension = [&22u16.to_le_bytes()[..], &[0; 6], &tag.to_le_bytes(), &SUBTYPE].concat();
    chunk(b"fmt ", &[&plain[8..], &extension].concat())
}

/// All samples of a file of these bytes.
fn read(bytes: &[u8]) -> Result<Vec<f32>, AudioError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let mut wav = Wav::open(file.path())?;
    let mut samples = vec![0.0; wav.total() as usize];
    assert_eq!(wav.fill(&mut samples)?, samples.len());
    assert_eq!(wav.fill(&mut [0.0]).unwrap(), 0);
    Ok(samples)
}

/// What is said of a file of these bytes, but for its name.
fn refusal(bytes: &[u8]) -> String {
    let message = read(bytes).unwrap_err().to_string();
    message.split_once(['/', ' ', ':']).map(|_| message[message.find([' ', ':']).unwrap()..].trim().into()).unwrap()
}

#[test]
fn each_form_of_sample_is_brought_to_full_scale() {
    let data = |bytes: &[u8]| chunk(b"data", bytes);
    for (tag, bits, bytes) in [
        (PCM, 8, vec![0, 192]),
        (PCM, 16, vec![0, 0x80, 0, 0x40]),
        (PCM, 24, vec![0, 0, 0x80, 0, 0, 0x40]),
        (PCM, 32, vec![0, 0, 0, 0x80, 0, 0, 0, 0x40]),
        (FLOAT, 32, [-1f32, 0.5].map(f32::to_le_bytes).concat()),
        (FLOAT, 64, [-1f64, 0.5].map(f64::to_le_bytes).concat()),
    ] {
        for header in [format(tag, 1, 16_000, bits), extensible(tag, 1, bits)] {
            assert_eq!(read(&riff(&[header, data(&bytes)])).unwrap(), [-1.0, 0.5], "{tag} {bits}");
        }
        // One channel of each: the mean.
        assert_eq!(read(&riff(&[format(tag, 2, 16_000, bits), data(&bytes)])).unwrap(), [-0.25]);
    }
}

#[test]
fn chunks_around_the_samples_are_passed_over() {
    let (header, data) = (format(PCM, 1, 16_000, 16), chunk(b"data", &[0, 0x40]));
    let file = riff(&[chunk(b"LIST", b"odd"), header.clone(), chunk(b"fact", &[0; 4]), data, chunk(b"id3 ", b"odd")]);
    assert_eq!(read(&file).unwrap(), [0.5]);
    assert!(read(&riff(&[header.clone(), chunk(b"data", &[])])).unwrap().is_empty());
    // A pipe's lengths, and those of more than 4 GiB.
    let open = [&b"data"[..], &[0xFF; 4], &[0, 0x40, 7]].concat();
    assert_eq!(read(&riff(&[header.clone(), open.clone()])).unwrap(), [0.5]);
    let mut long = riff(&[chunk(b"ds64", &[[0; 8], 2u64.to_le_bytes(), [0; 8]].concat()), header, open]);
    long[..4].copy_from_slice(b"RF64");
    assert_eq!(read(&long).unwrap(), [0.5]);
}

#[test]
fn bad_files_are_told() {
    let good = riff(&[format(PCM, 1, 16_000, 16), chunk(b"data", &[1; 40])]);
    let with = |format: Vec<u8>| riff(&[format, chunk(b"data", &[1; 40])]);
    let nan = [0.0, f32::NAN].map(f32::to_le_bytes).concat();
    let bad: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![]),
        ("text", b"hello, world\n".to_vec()),
        ("mp3", b"ID3\x04 and more".to_vec()),
        ("rifx", [b"RIFX", &good[4..]].concat()),
        ("header", good[..30].to_vec()),
        ("no samples", good[..36].to_vec()),
        ("truncated", good[..good.len() - 7].to_vec()),
        ("a-law", with(format(6, 1, 16_000, 8))),
        ("12 bits", with(format(PCM, 1, 16_000, 12))),
        ("zero channels", with(format(PCM, 0, 16_000, 16))),
        ("zero rate", with(format(PCM, 1, 0, 16))),
        ("nan", riff(&[format(FLOAT, 2, 16_000, 32), chunk(b"data", &nan)])),
        ("before", riff(&[chunk(b"data", &[1; 40]), format(PCM, 1, 16_000, 16)])),
        ("ragged", riff(&[format(PCM, 1, 16_000, 16), chunk(b"data", &[1; 3])])),
    ];
    let told: Vec<String> = bad.iter().map(|(name, bytes)| format!("{name}: {}", refusal(bytes))).collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
    empty: is no WAV file: it is empty
    text: is no WAV file: it begins with "hell", expected RIFF
    mp3: is no WAV file: it begins like MP3
    rifx: is no WAV file: it is RIFX, WAV with the bytes of each number reversed
    header: is no WAV file: it ends within its header, after 30 bytes
    no samples: is no WAV file: it ends within its header, after 36 bytes
    truncated: is cut short: its header promises 20 samples, and there are 16
    a-law: has samples compressed by A-law, expected integers of 8, 16, 24 or 32 bits or floats of 32 or 64
    12 bits: has integers of 12 bits, expected integers of 8, 16, 24 or 32 bits or floats of 32 or 64
    zero channels: is no WAV file: its format tells of no channel
    zero rate: has 0 samples a second, expected 1000 to 384000
    nan: : sample 0 of channel 1 is NaN, expected a number of magnitude 100000 at most; full scale is 1
    before: is no WAV file: its samples come before their format
    ragged: is no WAV file: its 3 bytes of sound are no whole number of samples of 2 bytes
    "#);
}

proptest! {
    #[test]
    fn no_header_panics(edits in prop::collection::vec((0usize..64, any::<u8>()), 1..6), cut in 12usize..200) {
        let mut bytes = riff(&[extensible(FLOAT, 2, 32), chunk(b"data", &[0; 160])]);
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        let _ = read(&bytes);
    }
}
