//! Recordings through an encoder and a reader, for the gate's checks of the task.

use super::clip_files::by_name;
use super::evidence::{Evidence, EvidenceKind};
use super::speech::Texts;
use super::{GateFailure, GateOptions};
use crate::dsp::{Features, Wav};
use crate::gate::{self, Check, Heard, Options, audio, unheard};
use crate::models::reader::{TOKEN_MS, Words};
use crate::pipeline::run::Callable;
use crate::pipeline::told::chain;
use crate::pipeline::transcribe::{Encoder, Labels, Pair, Reader, Reads, TranscribeError, read_words};
use crate::pipeline::{Progress, Unit};
use crate::toolchain::Interrupt;
use std::path::Path;

/// An artefact of the pair: its path, and its functions to be called by the pair alone.
pub type Half<'a> = (&'a Path, Vec<Callable<'a>>);

/// What the recordings show.
pub struct Judged {
    pub checks: Vec<Check>,
    /// What was heard in each.
    pub heard: Vec<Heard>,
    /// Those that were heard.
    pub evidence: Vec<Evidence>,
}

/// The checks of the recordings that the user gave. `encoder` and `reader` are both there, or what is absent is told.
///
/// # Errors
/// A recording cannot be read, an artefact does not take it, or a line of the user's is missing.
pub fn checks(
    options: &GateOptions,
    judged: &Options<'_>,
    texts: &Texts,
    [encoder, reader]: [Option<Half<'_>>; 2],
    interrupt: &Interrupt,
) -> Result<Judged, GateFailure> {
    let clips = by_name(&options.audio, "wav")?;
    // A recording that is not there or is none is told before any is heard.
    for path in clips.values() {
        Wav::open(path).map_err(TranscribeError::from)?;
    }
    gate::cover(clips.keys().map(String::as_str), judged)
        .map_err(|source| GateFailure::Gate(gate::GateError::Transcripts(source)))?;
    let (encoder, reader, words) = match (encoder, reader, &texts.words) {
        (Some(encoder), Some(reader), Some(words)) => (encoder, reader, words),
        (None, _, _) => return Ok(Judged::none("needs an encoder, by --encoder")),
        (_, None, _) => return Ok(Judged::none("needs a reader, by --reader")),
        (_, _, None) => return Ok(Judged::none("needs the reader's words, by --words")),
    };
    let paths = [encoder.0, reader.0];
    let mut pair = Pair {
        encoder: Encoder::of(encoder.0, encoder.1)?,
        reader: Reader::of(reader.0, reader.1)?,
        overlap: options.overlap,
    };
    pair.hold(paths)?;
    let (mut heard, mut evidence) = (Vec::new(), Vec::new());
    for (clip, path) in clips {
        let hear = || hear(&mut pair, clip, &path, words, reader.0, interrupt);
        let (found, file) = Evidence::of(EvidenceKind::Recording, &path, hear)?;
        heard.push(found);
        evidence.push(file);
    }
    let checks = audio(&heard, judged).map_err(|source| GateFailure::Gate(gate::GateError::Transcripts(source)))?;
    Ok(Judged { checks, heard, evidence })
}

impl Judged {
    /// Where nothing was heard.
    fn none(reason: &str) -> Judged {
        Judged { checks: unheard(reason), heard: Vec::new(), evidence: Vec::new() }
    }
}

/// Hears a clip, and reads it again with the second half of its soft tokens zeroed.
fn hear(
    pair: &mut Pair<'_>,
    clip: String,
    path: &Path,
    words: &Words,
    reader: &Path,
    interrupt: &Interrupt,
) -> Result<Heard, GateFailure> {
    let features = Features::open(path).map_err(TranscribeError::from)?;
    let seconds = features.wav().seconds;
    let mut soft = Vec::new();
    let mut keep = |tokens: &[f32]| {
        soft.extend_from_slice(tokens);
        Ok(())
    };
    let text = |labels: &Labels| read_words(labels, words, reader);
    let found = pair.hear(features, path, &mut keep, &Until(interrupt));
    let (tokens, read) = match found {
        Ok(found) => (found.tokens, text(&found.labels)),
        // An artefact whose outputs cannot be read is found wanting; the clip is not at fault.
        Err(error @ TranscribeError::NotFinite { .. }) => (0, Err(error)),
        Err(error) => return Err(error.into()),
    };
    let half = tokens.div_ceil(2);
    let width = pair.reader.width();
    soft.iter_mut().skip(half * width).for_each(|v| *v = 0.0);
    let halved = match &read {
        Ok(_) => {
            let mut reads = Reads::new(&mut pair.reader, tokens, pair.overlap)
                .map_err(|source| TranscribeError::Overlap { path: reader.into(), source })?;
            reads.push(&soft)?;
            text(&reads.labels()).ok().map(|(text, _)| text)
        }
        Err(_) => None,
    };
    let (text, late_words, unread) = match read {
        Ok((text, spoken)) => {
            let late = spoken.iter().filter(|word| word.start_ms >= half as u64 * TOKEN_MS).count();
            (Some(text), late, None)
        }
        Err(error) => (None, 0, Some(chain(&error))),
    };
    Ok(Heard { clip, seconds, tokens, text, unread, halved, late_words })
}

/// Progress that nobody looks at, of a job that Ctrl-C ends.
struct Until<'a>(&'a Interrupt);

impl Progress for Until<'_> {
    fn stage(&self, _: &'static str, _: u64, _: Unit) {}
    fn advance(&self, _: u64) {}
    fn stopped(&self) -> bool {
        self.0.raised()
    }
}
