//! The CTC word reader: soft tokens to the best word of each, over a table of word vectors.
//!
//! The published reader's code could not be read. What is not known of it is a guess in its config, with a default, and
//! every record lists which guesses were made and where each came from.

mod author;
mod config;
mod host;
mod words;

pub use author::{AuthorReport, TABLE, author};
pub use config::{
    BlankInput, ConfigFiles, Gelu, Guess, Guesses, Names, Qkv, RELEASE_NAME, ReaderConfig, RotaryLayout,
    is_release_name,
};
pub use host::{HostRuleError, Reading, TOKEN_MS, WordSpan, spans, text, token_mask};
pub use words::{Words, WordsError};

/// Longest reader in soft tokens: what the longest bucket of the encoder gives.
pub const MAX_TOKENS: usize = 4096;

/// A static length in soft tokens of 40 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens(usize);

/// A length the graph cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a number of tokens from 1 to {MAX_TOKENS} (750 is 30 s)")]
pub struct BadTokens(pub usize);

impl Tokens {
    /// So many tokens.
    ///
    /// # Errors
    /// Zero, or above [`MAX_TOKENS`].
    pub fn new(tokens: usize) -> Result<Tokens, BadTokens> {
        if (1..=MAX_TOKENS).contains(&tokens) { Ok(Tokens(tokens)) } else { Err(BadTokens(tokens)) }
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
        for good in [1, 250, 750, MAX_TOKENS] {
            assert_eq!(Tokens::new(good).unwrap().get(), good);
        }
        for bad in [0, MAX_TOKENS + 1, usize::MAX] {
            assert_eq!(Tokens::new(bad), Err(BadTokens(bad)));
        }
        insta::assert_snapshot!(BadTokens(0), @"0 is not a number of tokens from 1 to 4096 (750 is 30 s)");
    }
}
