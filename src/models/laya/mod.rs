//! The Laya decision model: a text and up to 32 options to a score of each, in one static channel-first graph, and what a
//! host does around it.
//!
//! The host looks up embeddings and lays out masks, so that the graph has no lookup and no shape that changes.

mod author;
mod config;
pub mod host;
mod stored;

pub use author::{AuthorReport, author, names};
pub use config::{AGENT_FILE, Agent, ENCODER_FILE, Encoder, LayaConfig, LayerKind};

use std::collections::BTreeSet;

/// Options that a graph has room for.
pub const SLOTS: usize = 32;

/// What a mask adds to the score of a key that is not to be seen. Not lower: -1e9 is -inf in fp16, and a row of those is
/// NaN.
pub const UNSEEN: f32 = -1e4;

/// Longest graph: twice what is published, and a mask of it is 8 MB in fp16.
pub const MAX_LENGTH: usize = 2048;

/// Shortest: [CLS], the question's shortest head, [SEP], two options and two more [SEP].
pub const MIN_LENGTH: usize = 16;

/// A static length in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Length(usize);

/// A length the graph cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a length from {MIN_LENGTH} to {MAX_LENGTH} tokens (96, 192 and 1024 are published)")]
pub struct BadLength(pub usize);

impl Length {
    /// So many tokens.
    ///
    /// # Errors
    /// Below [`MIN_LENGTH`] or above [`MAX_LENGTH`].
    pub fn new(tokens: usize) -> Result<Length, BadLength> {
        if (MIN_LENGTH..=MAX_LENGTH).contains(&tokens) { Ok(Length(tokens)) } else { Err(BadLength(tokens)) }
    }

    /// How many.
    pub fn get(self) -> usize {
        self.0
    }
}

/// One length or more, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths(BTreeSet<Length>);

/// Lengths that no job can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLengths {
    /// There is none.
    #[error("no length is given, expected a number of tokens such as 96")]
    Empty,
    /// One that no graph can have.
    #[error(transparent)]
    Bad(#[from] BadLength),
    /// One that is there twice.
    #[error("length {0} is given twice")]
    Twice(usize),
}

impl Lengths {
    /// Lengths of so many tokens each, in any order.
    ///
    /// # Errors
    /// There is none, one is no [`Length`], or one is there twice.
    pub fn new(tokens: &[usize]) -> Result<Lengths, BadLengths> {
        let mut lengths = BTreeSet::new();
        for tokens in tokens {
            if !lengths.insert(Length::new(*tokens)?) {
                return Err(BadLengths::Twice(*tokens));
            }
        }
        if lengths.is_empty() { Err(BadLengths::Empty) } else { Ok(Lengths(lengths)) }
    }

    /// The lengths, shortest first.
    pub fn iter(&self) -> impl Iterator<Item = Length> + '_ {
        self.0.iter().copied()
    }

    /// The longest.
    pub fn longest(&self) -> Length {
        self.0.last().copied().unwrap_or(Length(MAX_LENGTH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        for good in [MIN_LENGTH, 96, 192, 1024, MAX_LENGTH] {
            assert_eq!(Length::new(good).unwrap().get(), good);
        }
        for bad in [0, MIN_LENGTH - 1, MAX_LENGTH + 1, usize::MAX] {
            assert_eq!(Length::new(bad), Err(BadLength(bad)));
        }
        let sorted = |list: &[usize]| Lengths::new(list).map(|all| all.iter().map(Length::get).collect::<Vec<_>>());
        assert_eq!(sorted(&[1024, 96]), Ok(vec![96, 1024]));
        assert_eq!(sorted(&[]), Err(BadLengths::Empty));
        assert_eq!(sorted(&[96, 192, 96]), Err(BadLengths::Twice(96)));
        assert_eq!(sorted(&[96, 3]), Err(BadLengths::Bad(BadLength(3))));
        insta::assert_snapshot!(BadLength(0), @"0 is not a length from 16 to 2048 tokens (96, 192 and 1024 are published)");
    }
}
