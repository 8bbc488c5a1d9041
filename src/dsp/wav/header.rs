//! The header of a WAV file: chunks up to the samples, and what they promise held against what there is.

use super::{Stored, WavFacts};
use crate::dsp::AudioError;
use crate::dsp::resample::RATES;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Length of the samples where the writer could not go back and fill it in.
const OPEN_LENGTH: u32 = u32::MAX;

/// Format tags (mmreg.h): integers, floats, and the form that tells the tag later on.
pub(super) const PCM: u16 = 1;
pub(super) const FLOAT: u16 = 3;
pub(super) const EXTENSIBLE: u16 = 0xFFFE;

/// Most chunks up to the samples: a file of zeros is an endless row of empty ones.
const CHUNKS: usize = 1024;

/// Bytes of a format chunk, and of one that is extensible.
const FORMAT: usize = 16;
const EXTENDED: usize = 40;

/// What follows the tag in the subformat of an extensible file: KSDATAFORMAT_SUBTYPE_WAVEFORMATEX.
pub(super) const SUBTYPE: [u8; 14] = [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71];

/// Reads the header of `file` and leaves it at the first sample.
///
/// # Errors
/// It is no WAV file, or one whose samples are not read or not there.
pub fn read(path: &Path, file: File) -> Result<(File, WavFacts, Stored), AudioError> {
    let length = file.metadata().map_err(|source| AudioError::Io { path: path.into(), source })?.len();
    let mut header = Header { path, file, length, at: 0 };
    let riff = header.riff()?;
    let (facts, stored) = header.samples(riff)?;
    Ok((header.file, facts, stored))
}

/// A header being read, chunk after chunk.
struct Header<'a> {
    path: &'a Path,
    file: File,
    length: u64,
    /// Where the file stands.
    at: u64,
}

/// What the first bytes promise.
struct Riff {
    /// Where the file should end.
    end: u64,
    /// Whether lengths above 4 GiB stand in a chunk `ds64`.
    long: bool,
}

/// The format chunk.
#[derive(Clone, Copy)]
struct Format {
    channels: u16,
    rate: u32,
    stored: Stored,
}

impl Header<'_> {
    fn not_wav(&self, why: impl Into<String>) -> AudioError {
        AudioError::NotWav { path: self.path.into(), why: why.into() }
    }

    fn form(&self, found: impl Into<String>) -> AudioError {
        AudioError::Form { path: self.path.into(), found: found.into() }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], AudioError> {
        let mut bytes = [0; N];
        if self.length.saturating_sub(self.at) < N as u64 {
            return Err(self.not_wav(format!("it ends within its header, after {} bytes", self.length)));
        }
        self.file.read_exact(&mut bytes).map_err(|source| AudioError::Io { path: self.path.into(), source })?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn riff(&mut self) -> Result<Riff, AudioError> {
        if self.length == 0 {
            return Err(self.not_wav("it is empty"));
        }
        let mut start = [0; 12];
        let short = self.length.min(12) as usize;
        self.file
            .read_exact(&mut start[..short])
            .map_err(|source| AudioError::Io { path: self.path.into(), source })?;
        self.at = short as u64;
        let [magic @ .., s0, s1, s2, s3, k0, k1, k2, k3] = start;
        let long = &magic == b"RF64" || &magic == b"BW64";
        if (&magic != b"RIFF" && !long) || (short == 12 && [k0, k1, k2, k3] != *b"WAVE") {
            return Err(self.not_wav(told(&start[..short])));
        }
        if short < 12 {
            return Err(self.not_wav(format!("it ends within its header, after {short} bytes")));
        }
        Ok(Riff { end: u64::from(u32::from_le_bytes([s0, s1, s2, s3])) + 8, long })
    }

    /// Goes through the chunks up to the samples.
    fn samples(&mut self, riff: Riff) -> Result<(WavFacts, Stored), AudioError> {
        let (mut format, mut long) = (None, None);
        for _ in 0..CHUNKS {
            let [id @ .., a, b, c, d] = self.take::<8>()?;
            let size = u32::from_le_bytes([a, b, c, d]);
            let body = self.at;
            match &id {
                b"data" => {
                    let format = format.ok_or_else(|| self.not_wav("its samples come before their format"))?;
                    return self.hold(&riff, format, size, long);
                }
                b"fmt " => format = Some(self.format(size)?),
                b"ds64" if riff.long && size >= 16 => {
                    let [.., e0, e1, e2, e3, e4, e5, e6, e7] = self.take::<16>()?;
                    long = Some(u64::from_le_bytes([e0, e1, e2, e3, e4, e5, e6, e7]));
                }
                _ => {}
            }
            // Chunks start at even places.
            self.at = body + u64::from(size) + u64::from(size & 1);
            self.file
                .seek(SeekFrom::Start(self.at))
                .map_err(|source| AudioError::Io { path: self.path.into(), source })?;
        }
        Err(self.not_wav(format!("there are {CHUNKS} chunks and none has its samples")))
    }

    fn format(&mut self, size: u32) -> Result<Format, AudioError> {
        if (size as usize) < FORMAT {
            return Err(self.not_wav(format!("its format takes {size} bytes, expected {FORMAT} or more")));
        }
        let [t0, t1, c0, c1, r0, r1, r2, r3, .., k0, k1, b0, b1] = self.take::<FORMAT>()?;
        let two = |low, high| u16::from_le_bytes([low, high]);
        let (mut tag, channels, block, bits) = (two(t0, t1), two(c0, c1), two(k0, k1), two(b0, b1));
        if tag == EXTENSIBLE {
            if (size as usize) < EXTENDED {
                return Err(self.not_wav(format!("its extensible format takes {size} bytes, expected {EXTENDED}")));
            }
            // The size of the extension, valid bits and the places of the speakers come first.
            let [_, _, _, _, _, _, _, _, t0, t1, subtype @ ..] = self.take::<{ EXTENDED - FORMAT }>()?;
            if subtype != SUBTYPE {
                return Err(self.form("a format that is told by no known identifier"));
            }
            tag = two(t0, t1);
        }
        if let Some(codec) = codec(tag) {
            return Err(self.form(format!("samples compressed by {codec}")));
        }
        if channels == 0 {
            return Err(self.not_wav("its format tells of no channel"));
        }
        let kind = if tag == FLOAT { "floats" } else { "integers" };
        let stored = stored_as(tag, bits).ok_or_else(|| self.form(format!("{kind} of {bits} bits")))?;
        if usize::from(block) != stored.size() * usize::from(channels) {
            let found = format!("{kind} of {bits} bits, but {block} bytes for a sample of {channels} channels");
            return Err(self.form(found));
        }
        let rate = u32::from_le_bytes([r0, r1, r2, r3]);
        if !RATES.contains(&rate) {
            return Err(AudioError::Rate { path: self.path.into(), found: rate });
        }
        Ok(Format { channels, rate, stored })
    }

    /// Holds the length of the samples against what there is.
    fn hold(
        &self,
        riff: &Riff,
        format: Format,
        size: u32,
        long: Option<u64>,
    ) -> Result<(WavFacts, Stored), AudioError> {
        let left = self.length.saturating_sub(self.at);
        let block = format.stored.size() as u64 * u64::from(format.channels);
        let promised = match (size, long) {
            (OPEN_LENGTH, Some(long)) if riff.long => long,
            // As long as the file, but for a sample that was begun.
            (OPEN_LENGTH, _) => left - left % block,
            (size, _) => u64::from(size),
        };
        let path = || self.path.to_path_buf();
        // Who streams a WAV file writes the length last, and may not have come to that.
        if promised == 0 && left > 1 && (riff.long || riff.end <= self.at + 1) {
            return Err(AudioError::Unfinished { path: path(), left });
        }
        if promised > left {
            return Err(AudioError::Truncated { path: path(), promised: promised / block, found: left / block });
        }
        if promised % block != 0 {
            return Err(
                self.not_wav(format!("its {promised} bytes of sound are no whole number of samples of {block} bytes"))
            );
        }
        let samples = promised / block;
        let facts = WavFacts {
            channels: format.channels,
            sample_rate: format.rate,
            format: format.stored.name(),
            samples,
            seconds: samples as f64 / f64::from(format.rate),
        };
        Ok((facts, format.stored))
    }
}

/// What a file that is none begins like.
fn told(start: &[u8]) -> String {
    let kind = match start {
        [b'R', b'I', b'F', b'X', ..] => "it is RIFX, WAV with the bytes of each number reversed",
        [b'I', b'D', b'3', ..] | [0xFF, 0xE2..=0xFF, ..] => "it begins like MP3",
        [b'f', b'L', b'a', b'C', ..] => "it begins like FLAC",
        [b'O', b'g', b'g', b'S', ..] => "it begins like Ogg",
        [b'F', b'O', b'R', b'M', ..] => "it begins like AIFF",
        [b'c', b'a', b'f', b'f', ..] => "it begins like CAF",
        [_, _, _, _, b'f', b't', b'y', b'p', ..] => "it begins like MP4",
        [b'R', b'I', b'F', b'F', ..] => "it is RIFF, but of something else than WAVE",
        _ => {
            return format!(
                "it begins with {:?}, expected RIFF",
                String::from_utf8_lossy(&start[..start.len().min(4)])
            );
        }
    };
    kind.into()
}

/// The compression a format tag stands for; none for plain samples.
fn codec(tag: u16) -> Option<String> {
    let name = match tag {
        PCM | FLOAT => return None,
        0x0002 => "Microsoft ADPCM",
        0x0006 => "A-law",
        0x0007 => "mu-law",
        0x0011 => "IMA ADPCM",
        0x0031 => "GSM 6.10",
        0x0050 => "MPEG",
        0x0055 => "MP3",
        0x00FF => "AAC",
        0x0161 => "Windows Media Audio",
        0xF1AC => "FLAC",
        _ => return Some(format!("the codec {tag:#06x}")),
    };
    Some(name.into())
}

/// How samples of that tag and so many bits are stored; none for those that are not read.
fn stored_as(tag: u16, bits: u16) -> Option<Stored> {
    Some(match (tag, bits) {
        (PCM, 8) => Stored::U8,
        (PCM, 16) => Stored::I16,
        (PCM, 24) => Stored::I24,
        (PCM, 32) => Stored::I32,
        (FLOAT, 32) => Stored::F32,
        (FLOAT, 64) => Stored::F64,
        _ => return None,
    })
}
