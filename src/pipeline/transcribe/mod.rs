//! From a WAV file to words: features, the encoder on windows of them, the reader on windows of its soft tokens, the
//! host rule over all that was read.
//!
//! The clip's features are made once and cut into windows, so each window is full up to its last token, and joined
//! windows give what one run over the whole clip would.

mod contract;
mod encoder;
mod reader;
mod side_by_side;
mod soft_tokens;
mod source;

pub(super) use encoder::Encoder;
pub(super) use reader::{Labels, Reader, Reads};
pub use source::Identity;
pub(super) use source::Source;

use super::model::UnknownModel;
use super::{PipelineError, Progress, RunError, Unit};
use crate::bundle::{Format, TreeError};
use crate::dsp::{AudioError, Features, MEL_BINS, WavFacts};
use crate::eval::HostError;
use crate::files;
use crate::models::gemma_audio::{Bucket, FRAMES_PER_TOKEN, tokens_of};
use crate::models::reader::{BadTokens, HostRuleError, Words, WordsError, spans, text};
use crate::models::windows::{BadOverlap, Windows};
use crate::provenance::StoredRecordError;
use crate::toolchain::Interrupt;
use serde::Serialize;
use side_by_side::side_by_side;
use soft_tokens::SoftTokens;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to transcribe, and by what.
#[derive(Clone, Debug)]
pub struct TranscribeOptions {
    /// The WAV file.
    pub clip: PathBuf,
    /// The encoder: an artefact or a checkpoint.
    pub encoder: PathBuf,
    /// The reader: an artefact or a `reader_config.json`.
    pub reader: PathBuf,
    /// The reader's words; a config names its own.
    pub words: Option<PathBuf>,
    /// Tokens that windows share.
    pub overlap: usize,
    /// The window of an encoder that is a checkpoint; none for the shipped one.
    pub bucket: Option<Bucket>,
    /// A safetensors file that gets the joined soft tokens.
    pub soft_tokens: Option<PathBuf>,
}

/// Why a clip was not transcribed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is the error of one stage, or its message says it")]
pub enum TranscribeError {
    #[error(transparent)]
    Audio(#[from] AudioError),
    #[error("{} holds no sound: it has 0 samples, expected 161 or more for a first feature frame", path.display())]
    Silent { path: PathBuf },
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Weights(#[from] PipelineError),
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error("{} is {found}, expected {expected}", path.display())]
    Model { path: PathBuf, found: &'static str, expected: &'static str },
    #[error("{feature} of function {function} of {} is {found}, expected {expected}", path.display())]
    Contract { path: PathBuf, function: String, feature: &'static str, found: String, expected: String },
    #[error(
        "encoder {} gives soft tokens of {gives} numbers, and reader {} takes {takes}: they are not of one model",
        encoder.display(), reader.display()
    )]
    Widths { encoder: PathBuf, gives: usize, reader: PathBuf, takes: usize },
    #[error("{} is no reader, expected an .mlpackage, an .aimodel or a reader_config.json", path.display())]
    NoReader { path: PathBuf },
    #[error("reader {} needs its words, by --words", reader.display())]
    NoWords { reader: PathBuf },
    #[error(transparent)]
    Words(#[from] WordsError),
    #[error(transparent)]
    Tokens(#[from] BadTokens),
    #[error("{} cannot take a recording of several windows; give a smaller --overlap, or a longer window", path.display())]
    Overlap { path: PathBuf, source: BadOverlap },
    #[error("{} has its own windows, and --bucket is for an encoder that is a checkpoint", encoder.display())]
    Bucket { encoder: PathBuf },
    #[error(
        "{} is not the word list that reader {} was made with, by the record beside the reader: the same words in another \
         order would be other words",
        words.display(), reader.display()
    )]
    OtherWords { words: PathBuf, reader: PathBuf },
    #[error("{} takes {longest} {unit} at most, and a window has {found}", path.display())]
    Window { path: PathBuf, found: usize, longest: usize, unit: &'static str },
    #[error("{output} of {} has {found} values, expected {expected}", path.display())]
    Values { path: PathBuf, output: &'static str, found: usize, expected: usize },
    #[error("{output} of {} is not finite at token {token} of a window", path.display())]
    NotFinite { path: PathBuf, output: &'static str, token: usize },
    #[error("the soft tokens could not be written to {}", path.display())]
    Output { path: PathBuf, source: io::Error },
    #[error("the soft tokens would replace {}, which is read", path.display())]
    Overwrites { path: PathBuf },
    #[error("{} cannot be used", path.display())]
    Artefact {
        path: PathBuf,
        #[source]
        source: Box<RunError>,
    },
    #[error("an input does not hold together")]
    Host(#[from] HostError),
    #[error("what {} gives makes no words", reader.display())]
    Reading { reader: PathBuf, source: HostRuleError },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Record(#[from] StoredRecordError),
    #[error("interrupted")]
    Interrupted,
}

/// What a clip says, and what heard it.
#[derive(Clone, Debug, Serialize)]
pub struct Transcript {
    /// The words between single spaces.
    pub text: String,
    /// The same with their times.
    pub words: Vec<SpokenWord>,
    /// The clip.
    pub audio: WavFacts,
    /// Samples of it at 16 kHz.
    pub samples: u64,
    /// Feature frames of 10 ms.
    pub frames: usize,
    /// Soft tokens of 40 ms.
    pub tokens: usize,
    /// Tokens that windows share.
    pub overlap: usize,
    /// What encoded.
    pub encoder: Part,
    /// What read.
    pub reader: Part,
    /// Wall seconds from the first sample to the last word, with the artefacts open.
    pub seconds: f64,
    /// The same by the seconds of the clip.
    pub real_time_factor: f64,
}

/// One of the two artefacts at work.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its bytes.
    pub identity: Identity,
    /// Tokens of its longest window.
    pub window: usize,
    /// Windows it took.
    pub windows: usize,
}

/// A word of a clip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpokenWord {
    /// The word.
    pub word: String,
    /// Its row in the table.
    pub index: usize,
    /// Milliseconds from the clip's start to the word's.
    pub start_ms: u64,
    /// Milliseconds from the clip's start to the word's end.
    pub end_ms: u64,
}

/// Transcribes one clip.
///
/// # Errors
/// The clip, an artefact or the words cannot be used, do not belong together, or a run failed.
pub fn transcribe(
    options: &TranscribeOptions,
    interrupt: &Interrupt,
    progress: &dyn Progress,
) -> Result<Transcript, TranscribeError> {
    // What is quick to refuse is refused first.
    let features = Features::open(&options.clip)?;
    let bucket = window(options)?;
    let (reader, words) = Source::reader(&options.reader, options.words.as_deref(), bucket, interrupt)?;
    let encoder = Source::encoder(&options.encoder, bucket, interrupt)?;
    keep_what_is_read(options, encoder.reads().chain(reader.reads()))?;
    let mut pair = Pair {
        encoder: Encoder::of(&options.encoder, encoder.functions()?)?,
        reader: Reader::of(&options.reader, reader.functions()?)?,
        overlap: options.overlap,
    };
    pair.hold([&options.encoder, &options.reader])?;
    let (of_encoder, of_reader) = rayon::join(|| encoder.identity(None), || reader.identity(options.words.as_deref()));
    let (of_encoder, of_reader) = (of_encoder?, of_reader?);
    let (audio, samples) = (features.wav().clone(), features.samples());
    let started = Instant::now();
    let tokens = tokens_of(usize::try_from(features.frames()).unwrap_or(usize::MAX));
    let start = |path: &PathBuf| SoftTokens::start(path, tokens, pair.encoder.width());
    let mut kept = options.soft_tokens.as_ref().map(start).transpose()?;
    let mut keep = |soft: &[f32]| kept.as_mut().map_or(Ok(()), |kept| kept.push(soft));
    let heard = pair.hear(features, &options.clip, &mut keep, progress)?;
    let seconds = started.elapsed().as_secs_f64();
    let (text, words) = read_words(&heard.labels, &words, &options.reader)?;
    // Last, so that a job that fails leaves what was there.
    kept.map_or(Ok(()), SoftTokens::finish)?;
    let side = |identity, window, windows| Part { identity, window, windows };
    Ok(Transcript {
        text,
        words,
        samples,
        frames: heard.frames,
        tokens: heard.tokens,
        overlap: options.overlap,
        encoder: side(of_encoder, pair.encoder.longest(), heard.windows[0]),
        reader: side(of_reader, pair.reader.longest(), heard.windows[1]),
        seconds,
        real_time_factor: seconds / audio.seconds,
        audio,
    })
}

/// Refuses soft tokens that would take the place of what is read: the clip, the words, or a part of `others`.
fn keep_what_is_read<'p>(
    options: &'p TranscribeOptions,
    others: impl Iterator<Item = &'p Path>,
) -> Result<(), TranscribeError> {
    let Some(path) = &options.soft_tokens else { return Ok(()) };
    let given = [Some(&options.clip), options.words.as_ref()].into_iter().flatten().map(PathBuf::as_path);
    if files::replaces(path, given.chain(others)) {
        return Err(TranscribeError::Overwrites { path: path.clone() });
    }
    Ok(())
}

/// The window of an encoder that is a checkpoint.
fn window(options: &TranscribeOptions) -> Result<Bucket, TranscribeError> {
    match options.bucket {
        Some(_) if Format::of(&options.encoder).is_some() => {
            Err(TranscribeError::Bucket { encoder: options.encoder.clone() })
        }
        Some(bucket) => Ok(bucket),
        None => Ok(Bucket::SHIPPED),
    }
}

/// What an artefact's labels say.
pub(super) fn read_words(
    labels: &Labels,
    words: &Words,
    reader: &Path,
) -> Result<(String, Vec<SpokenWord>), TranscribeError> {
    let wrong = |source| TranscribeError::Reading { reader: reader.into(), source };
    let spans = spans(&labels.reading(), words.len()).map_err(wrong)?;
    let text = text(&spans, |row| words.get(row)).map_err(wrong)?;
    let spoken = spans.iter().map(|span| SpokenWord {
        word: words.get(span.index).unwrap_or_default().into(),
        index: span.index,
        start_ms: span.start_ms(),
        end_ms: span.end_ms(),
    });
    Ok((text, spoken.collect()))
}

/// An encoder and the reader of its soft tokens.
pub(super) struct Pair<'a> {
    pub encoder: Encoder<'a>,
    pub reader: Reader<'a>,
    /// Tokens that windows share.
    pub overlap: usize,
}

/// What a pair made of a clip.
pub(super) struct Heard {
    pub frames: usize,
    pub tokens: usize,
    /// Windows of the encoder, and of the reader.
    pub windows: [usize; 2],
    pub labels: Labels,
}

impl Pair<'_> {
    /// Sees that what the one gives is what the other takes; `paths` are theirs.
    ///
    /// # Errors
    /// Their widths differ.
    pub fn hold(&self, [encoder, reader]: [&Path; 2]) -> Result<(), TranscribeError> {
        let (gives, takes) = (self.encoder.width(), self.reader.width());
        if gives == takes {
            return Ok(());
        }
        Err(TranscribeError::Widths { encoder: encoder.into(), gives, reader: reader.into(), takes })
    }

    /// Hears the clip at `path` whose features are given: its windows are encoded, and those before are read meanwhile.
    /// `see` is shown each of the soft tokens once, in order.
    ///
    /// # Errors
    /// The clip cannot be read, a run failed, or the job is not wanted any more.
    pub fn hear(
        &mut self,
        features: Features,
        path: &Path,
        see: &mut dyn FnMut(&[f32]) -> Result<(), TranscribeError>,
        progress: &dyn Progress,
    ) -> Result<Heard, TranscribeError> {
        if features.samples() == 0 {
            return Err(TranscribeError::Silent { path: path.into() });
        }
        let frames = usize::try_from(features.frames()).unwrap_or(usize::MAX);
        let tokens = tokens_of(frames);
        let Pair { encoder, reader, overlap } = self;
        let of = |path: &Path| {
            let path = path.to_path_buf();
            move |source| TranscribeError::Overlap { path, source }
        };
        let mut windows = Windows::new(tokens, encoder.longest(), *overlap).map_err(of(encoder.path()))?;
        let at = reader.path().to_path_buf();
        let mut reads = Reads::new(reader, tokens, *overlap).map_err(of(&at))?;
        let (mut cut, width, mut encoded) = (Cut::of(features), encoder.width(), 0);
        progress.stage("transcribing", tokens as u64, Unit::Tokens);
        let encode = || {
            let Some(window) = windows.next() else { return Ok(None) };
            wanted(progress)?;
            let rows =
                cut.frames(window.range.start * FRAMES_PER_TOKEN..frames.min(window.range.end * FRAMES_PER_TOKEN))?;
            let mut soft = encoder.encode(rows)?;
            encoded += 1;
            Ok(Some(soft.split_off(window.stale() * width)))
        };
        let read = |soft: Vec<f32>| {
            wanted(progress)?;
            see(&soft)?;
            reads.push(&soft)?;
            progress.advance((soft.len() / width.max(1)) as u64);
            Ok(())
        };
        side_by_side::<_, TranscribeError>(encode, read)?;
        Ok(Heard { frames, tokens, windows: [encoded, reads.read], labels: reads.labels() })
    }
}

fn wanted(progress: &dyn Progress) -> Result<(), TranscribeError> {
    if progress.stopped() { Err(TranscribeError::Interrupted) } else { Ok(()) }
}

/// A clip's features by stretches that overlap and never go back.
struct Cut {
    features: Features,
    /// Rows that a stretch to come may need, and which frame is the first of them.
    rows: Vec<f32>,
    first: usize,
}

impl Cut {
    fn of(features: Features) -> Cut {
        Cut { features, rows: Vec::new(), first: 0 }
    }

    /// The rows of those frames; none before them can be asked for any more.
    fn frames(&mut self, range: Range<usize>) -> Result<&[f32], TranscribeError> {
        let old = range.start.saturating_sub(self.first) * MEL_BINS;
        self.rows.drain(..old.min(self.rows.len()));
        self.first = range.start;
        let mut filled = self.rows.len();
        self.rows.resize(range.len() * MEL_BINS, 0.0);
        while let Some(rest) = self.rows.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.features.read(rest)? {
                0 => break,
                read => filled += read * MEL_BINS,
            }
        }
        self.rows.truncate(filled);
        Ok(&self.rows)
    }
}
