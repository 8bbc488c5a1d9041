//! The Laya decision model: a text and up to 32 options to a score of each, in one static channel-first graph, and what a
//! host does around it.
//!
//! The host looks up embeddings and lays out masks, so that the graph has no lookup and no shape that changes.

mod author;
mod config;

pub use author::{AuthorReport, author, names};
pub use config::{AGENT_FILE, Agent, ENCODER_FILE, Encoder, LayaConfig, LayerKind};

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
        insta::assert_snapshot!(BadLength(0), @"0 is not a length from 16 to 2048 tokens (96, 192 and 1024 are published)");
    }
}
