//! The word reader on windows of soft tokens.

use super::TranscribeError;
use super::contract::{ByLength, Extent};
use super::encoder::tensor;
use crate::eval::{HostTensor, Values};
use crate::models::reader::{Reading, token_mask};
use crate::models::windows::{BadOverlap, Window, Windows};
use crate::pipeline::run::Callable;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::Path;

const SOFT_TOKENS: &str = "soft_tokens";
const TOKEN_MASK: &str = "token_mask";
const TOP1_INDEX: &str = "top1_index";
const TOP1_LOGIT: &str = "top1_logit";
const BLANK_LOGIT: &str = "blank_logit";

/// What is read at each token of a clip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    /// Row of the best word.
    pub index: Vec<i32>,
    /// Its logit.
    pub top1: Vec<f32>,
    /// The blank's logit.
    pub blank: Vec<f32>,
}

impl Labels {
    /// The same as the host rule takes it.
    pub fn reading(&self) -> Reading<'_> {
        let Labels { index, top1, blank } = self;
        Reading { top1_index: index, top1_logit: top1, blank_logit: blank, valid: index.len() }
    }
}

/// A reader that takes one window at a time.
pub struct Reader<'a> {
    functions: ByLength<'a>,
    width: usize,
}

impl<'a> Reader<'a> {
    /// The reader whose functions, one for each length, are given.
    ///
    /// # Errors
    /// A feature is not what the contract of the reader asks for.
    pub fn of(path: &Path, functions: Vec<Callable<'a>>) -> Result<Reader<'a>, TranscribeError> {
        let functions = ByLength::of(path, functions, SOFT_TOKENS)?;
        functions.hold(SOFT_TOKENS, |tokens| vec![Extent::Is(1), Extent::Is(tokens), Extent::Any("width")])?;
        for row in [TOKEN_MASK, TOP1_INDEX, TOP1_LOGIT, BLANK_LOGIT] {
            functions.hold(row, |tokens| vec![Extent::Is(1), Extent::Is(tokens)])?;
        }
        let width = functions.width(SOFT_TOKENS)?;
        Ok(Reader { functions, width })
    }

    /// The artefact or checkpoint.
    pub fn path(&self) -> &Path {
        self.functions.path()
    }

    /// Numbers of a soft token.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Tokens of the longest window.
    pub fn longest(&self) -> usize {
        self.functions.longest()
    }

    /// Reads a window of soft tokens, by the shortest function that takes them.
    ///
    /// # Errors
    /// No function takes so many, or the run failed.
    pub fn read(&mut self, soft: &[f32]) -> Result<Labels, TranscribeError> {
        let path = self.functions.path().to_path_buf();
        let (tokens, width) = (soft.len() / self.width.max(1), self.width);
        let (length, function) = self.functions.holding(tokens, "tokens")?;
        let mut padded = soft.to_vec();
        padded.resize(length * width, 0.0);
        let inputs = BTreeMap::from([
            (SOFT_TOKENS.into(), tensor(vec![1, length, width], padded)?),
            (TOKEN_MASK.into(), tensor(vec![1, length], token_mask(tokens, length))?),
        ]);
        let (outputs, _) = function.run.run(&inputs)?;
        let wrong = |output, found| TranscribeError::Values { path: path.clone(), output, found, expected: length };
        let values = |output| outputs.get(output).map(HostTensor::values).ok_or_else(|| wrong(output, 0));
        let floats = |output| match values(output)? {
            Values::F32(v) if v.len() == length => Ok(v.iter().copied().take(tokens).collect()),
            other @ (Values::F32(_) | Values::I32(_)) => Err(wrong(output, other.len())),
        };
        let index = match values(TOP1_INDEX)? {
            Values::I32(v) if v.len() == length => v.iter().copied().take(tokens).collect(),
            other @ (Values::F32(_) | Values::I32(_)) => return Err(wrong(TOP1_INDEX, other.len())),
        };
        Ok(Labels { index, top1: floats(TOP1_LOGIT)?, blank: floats(BLANK_LOGIT)? })
    }
}

/// Reads a clip's soft tokens as they come, each window once it is full.
pub struct Reads<'r, 'a> {
    reader: &'r mut Reader<'a>,
    windows: Peekable<Windows>,
    /// Tokens that a window to come needs, and which one is the first of them.
    soft: Vec<f32>,
    first: usize,
    /// Windows that were read.
    pub read: usize,
    labels: Labels,
}

impl<'r, 'a> Reads<'r, 'a> {
    /// For a clip of `total` soft tokens.
    ///
    /// # Errors
    /// It takes several windows, and they cannot overlap so far.
    pub fn new(reader: &'r mut Reader<'a>, total: usize, overlap: usize) -> Result<Reads<'r, 'a>, BadOverlap> {
        let windows = Windows::new(total, reader.longest(), overlap)?.peekable();
        Ok(Reads { reader, windows, soft: Vec::new(), first: 0, read: 0, labels: Labels::default() })
    }

    /// Takes the next soft tokens, and reads what is complete with them.
    ///
    /// # Errors
    /// The reader failed.
    pub fn push(&mut self, soft: &[f32]) -> Result<(), TranscribeError> {
        self.soft.extend_from_slice(soft);
        let width = self.reader.width.max(1);
        while let Some(window) = self.windows.next_if(|w| w.range.end <= self.first + self.soft.len() / width) {
            let Window { range, .. } = &window;
            let at = |token: usize| (token - self.first) * width;
            let labels = self.reader.read(self.soft.get(at(range.start)..at(range.end)).unwrap_or_default())?;
            let stale = window.stale();
            self.labels.index.extend(labels.index.iter().skip(stale));
            self.labels.top1.extend(labels.top1.iter().skip(stale));
            self.labels.blank.extend(labels.blank.iter().skip(stale));
            self.read += 1;
            if let Some(next) = self.windows.peek() {
                self.soft.drain(..at(next.range.start));
                self.first = next.range.start;
            }
        }
        Ok(())
    }

    /// What was read.
    pub fn labels(self) -> Labels {
        self.labels
    }
}
