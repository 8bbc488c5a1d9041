//! The host rule: what the graph gives for each token becomes words with their times.
//!
//! A token reads blank where its blank logit is above that of its best word, so that a tie reads the word. A run of
//! tokens that read the same word is one word; a blank between them makes two of it. Words are joined by spaces.

use serde::Serialize;
use std::ops::Range;

/// Milliseconds of one token: four feature frames of 10 ms.
pub const TOKEN_MS: u64 = 40;

/// The mask of a clip of `tokens` in a reader of `length`: 1 for each token of the clip, 0 past it.
pub fn token_mask(tokens: usize, length: usize) -> Vec<f32> {
    (0..length).map(|token| if token < tokens { 1.0 } else { 0.0 }).collect()
}

/// The graph's outputs for one clip, one value a token. What stands past `valid` is never looked at.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Row of the best word in the table.
    pub top1_index: &'a [i32],
    /// Logit of that word.
    pub top1_logit: &'a [f32],
    /// Logit of the blank.
    pub blank_logit: &'a [f32],
    /// Tokens that belong to the clip; those after them are padding.
    pub valid: usize,
}

impl Reading<'_> {
    /// Whether `token` reads blank; none where there is no such token.
    pub fn is_blank(&self, token: usize) -> Option<bool> {
        Some(self.blank_logit.get(token)? > self.top1_logit.get(token)?)
    }
}

/// A word and the tokens that read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WordSpan {
    /// Its row in the table.
    pub index: usize,
    /// First token, and one past the last.
    pub tokens: Range<usize>,
}

impl WordSpan {
    /// Milliseconds from the clip's start to the word's.
    pub fn start_ms(&self) -> u64 {
        self.tokens.start as u64 * TOKEN_MS
    }

    /// Milliseconds from the clip's start to the word's end.
    pub fn end_ms(&self) -> u64 {
        self.tokens.end as u64 * TOKEN_MS
    }
}

/// Why outputs are no reading.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HostRuleError {
    /// Outputs of unlike lengths.
    #[error("top1_index has {index} tokens, top1_logit {top1} and blank_logit {blank}, expected as many of each")]
    Lengths {
        /// Tokens of `top1_index`.
        index: usize,
        /// Tokens of `top1_logit`.
        top1: usize,
        /// Tokens of `blank_logit`.
        blank: usize,
    },
    /// More valid tokens than there are.
    #[error("{valid} tokens are said to be valid, and there are {tokens}")]
    Valid {
        /// Tokens said to be valid.
        valid: usize,
        /// Tokens there are.
        tokens: usize,
    },
    /// A logit that cannot be compared.
    #[error("{output} of token {token} is NaN, expected a number")]
    NotANumber {
        /// `top1_logit` or `blank_logit`.
        output: &'static str,
        /// The token.
        token: usize,
    },
    /// A word the table does not have.
    #[error("token {token} reads word {index}, expected one of {words} words")]
    Index {
        /// The token.
        token: usize,
        /// Its `top1_index`.
        index: i64,
        /// How many words there are.
        words: usize,
    },
    /// A row that nothing is written for.
    #[error("there is no word for row {index} of the table")]
    NoWord {
        /// The row.
        index: usize,
    },
}

/// The words of a clip, in order. `words` is how many the table has.
///
/// # Errors
/// Lengths differ, or a valid token has a logit that is NaN or a word that is not in the table.
pub fn spans(reading: &Reading<'_>, words: usize) -> Result<Vec<WordSpan>, HostRuleError> {
    let Reading { top1_index, top1_logit, blank_logit, valid } = *reading;
    let (index, top1, blank) = (top1_index.len(), top1_logit.len(), blank_logit.len());
    if index != top1 || index != blank {
        return Err(HostRuleError::Lengths { index, top1, blank });
    }
    if valid > index {
        return Err(HostRuleError::Valid { valid, tokens: index });
    }
    let mut found: Vec<WordSpan> = Vec::new();
    let mut run = None;
    for (token, ((index, top1), blank)) in top1_index.iter().zip(top1_logit).zip(blank_logit).take(valid).enumerate() {
        for (output, logit) in [("top1_logit", top1), ("blank_logit", blank)] {
            if logit.is_nan() {
                return Err(HostRuleError::NotANumber { output, token });
            }
        }
        let word = usize::try_from(*index).ok().filter(|index| *index < words);
        let word = word.ok_or(HostRuleError::Index { token, index: i64::from(*index), words })?;
        let read = (blank <= top1).then_some(word);
        match (read, found.last_mut()) {
            (Some(_), Some(last)) if read == run => last.tokens.end = token + 1,
            (Some(index), _) => found.push(WordSpan { index, tokens: token..token + 1 }),
            (None, _) => {}
        }
        run = read;
    }
    Ok(found)
}

/// The words of a clip, joined by spaces; `word` gives the one of a row.
///
/// # Errors
/// There is no word of a row.
pub fn text<'w>(spans: &[WordSpan], word: impl Fn(usize) -> Option<&'w str>) -> Result<String, HostRuleError> {
    let one = |span: &WordSpan| word(span.index).ok_or(HostRuleError::NoWord { index: span.index });
    Ok(spans.iter().map(one).collect::<Result<Vec<_>, _>>()?.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 3] = ["a", "b", "c"];

    /// A word, its logit, the blank's.
    type Token = (i32, f32, f32);
    /// What it is, its tokens, their text and its times.
    type Case = (&'static str, Vec<Token>, &'static str, &'static [[u64; 2]]);

    /// `valid` counts tokens that are no padding.
    fn read(tokens: &[Token], valid: usize) -> Result<(String, Vec<[u64; 2]>), HostRuleError> {
        let index: Vec<i32> = tokens.iter().map(|t| t.0).collect();
        let top1: Vec<f32> = tokens.iter().map(|t| t.1).collect();
        let blank: Vec<f32> = tokens.iter().map(|t| t.2).collect();
        let reading = Reading { top1_index: &index, top1_logit: &top1, blank_logit: &blank, valid };
        let found = spans(&reading, WORDS.len())?;
        let times = found.iter().map(|span| [span.start_ms(), span.end_ms()]).collect();
        Ok((text(&found, |i| WORDS.get(i).copied())?, times))
    }

    #[test]
    fn the_rule() {
        const BLANK: Token = (2, 1.0, 1.5);
        let word = |index| (index, 1.0, 0.5);
        let cases: [Case; 13] = [
            ("no token", vec![], "", &[]),
            ("one token", vec![word(1)], "b", &[[0, 40]]),
            ("one blank", vec![BLANK], "", &[]),
            ("a tie reads the word", vec![(1, 0.25, 0.25)], "b", &[[0, 40]]),
            ("zeros of either sign tie", vec![(1, -0.0, 0.0)], "b", &[[0, 40]]),
            ("the smallest step above is blank", vec![(1, 0.25, f32::from_bits(0.25f32.to_bits() + 1))], "", &[]),
            ("all blank", vec![BLANK; 5], "", &[]),
            ("a run is one word", vec![word(0), word(0), word(0)], "a", &[[0, 120]]),
            ("a repeat across a blank is two", vec![word(0), BLANK, word(0)], "a a", &[[0, 40], [80, 120]]),
            ("a repeat across two blanks", vec![word(0), BLANK, BLANK, word(0)], "a a", &[[0, 40], [120, 160]]),
            ("another word ends a run", vec![word(0), word(1), word(0)], "a b a", &[[0, 40], [40, 80], [80, 120]]),
            ("negative logits", vec![(0, -3.0, -4.0), (1, -5.0, -4.0)], "a", &[[0, 40]]),
            ("blanks around", vec![BLANK, word(2), word(2), BLANK], "c", &[[40, 120]]),
        ];
        for (name, tokens, words, times) in cases {
            assert_eq!(read(&tokens, tokens.len()), Ok((words.into(), times.to_vec())), "{name}");
        }
    }

    #[test]
    fn infinite_logits_compare() {
        assert_eq!(read(&[(0, f32::NEG_INFINITY, 0.0), (1, f32::INFINITY, 0.0)], 2).unwrap().0, "b");
    }

    #[test]
    fn padding_is_never_looked_at() {
        let tokens = [(0, 1.0, 0.0), (7, f32::NAN, f32::NAN), (-1, 1.0, 0.0)];
        assert_eq!(read(&tokens, 1).unwrap(), ("a".into(), vec![[0, 40]]));
        assert_eq!(read(&tokens, 0).unwrap(), (String::new(), vec![]));
    }

    #[test]
    fn outputs_that_are_no_reading() {
        let wrong = |token| read(&[(0, 1.0, 0.0), token], 2).unwrap_err();
        insta::assert_snapshot!(wrong((-1, 1.0, 0.0)), @"token 1 reads word -1, expected one of 3 words");
        insta::assert_snapshot!(wrong((3, 0.0, 1.0)), @"token 1 reads word 3, expected one of 3 words");
        insta::assert_snapshot!(wrong((0, f32::NAN, 0.0)), @"top1_logit of token 1 is NaN, expected a number");
        insta::assert_snapshot!(wrong((0, 0.0, f32::NAN)), @"blank_logit of token 1 is NaN, expected a number");
        insta::assert_snapshot!(read(&[], 1).unwrap_err(), @"1 tokens are said to be valid, and there are 0");
        let odd = Reading { top1_index: &[0], top1_logit: &[], blank_logit: &[0.0, 0.0], valid: 0 };
        insta::assert_snapshot!(spans(&odd, 1).unwrap_err(), @"top1_index has 1 tokens, top1_logit 0 and blank_logit 2, expected as many of each");
        assert_eq!(odd.is_blank(0), None);
    }

    #[test]
    fn a_row_without_a_word() {
        let found = [WordSpan { index: 9, tokens: 4..5 }];
        let err = text(&found, |i| WORDS.get(i).copied()).unwrap_err();
        insta::assert_snapshot!(err, @"there is no word for row 9 of the table");
    }
}
