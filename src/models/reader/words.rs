//! The words that the rows of the table stand for: a text file of one word a line, in row order.

use crate::files;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Longest word list that is read: 200,000 words are about 2 MB.
const MAX_BYTES: u64 = files::TEXT_MAX;

/// A word list that does not fit. Lines count from 1.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum WordsError {
    #[error("{} cannot be read", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{file} is not UTF-8 from byte {at} on")]
    NotUtf8 { file: String, at: usize },
    #[error("{file} starts with a byte order mark; save it as UTF-8 without one")]
    ByteOrderMark { file: String },
    #[error("{file} has {found} words, expected {expected}, one for each row of the table")]
    Count { file: String, found: usize, expected: usize },
    #[error("{file}: line {line} is empty, expected a word")]
    Empty { file: String, line: usize },
    #[error("{file}: line {line} is {word:?}, expected one word: words are joined by spaces and must hold none")]
    Space { file: String, line: usize, word: String },
    #[error("{file}: line {line} is {word:?}, which has a character that controls how text is shown; expected a word")]
    Control { file: String, line: usize, word: String },
    #[error("{file}: line {line} is {word:?}, which shows nothing, expected a word")]
    Blank { file: String, line: usize, word: String },
    #[error("{file}: word {word:?} is in both line {first} and line {line}")]
    Duplicate { file: String, word: String, first: usize, line: usize },
}

/// Control characters, and Unicode's marks that turn the direction of all text behind them (UAX #9).
fn controls(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Characters without width. Within a word they are letters of some scripts; a word of them alone is none.
fn shows_nothing(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// The words of the table, by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    text: String,
    places: Vec<Range<usize>>,
}

impl Words {
    /// Reads a word list, for a table of `rows` rows where that is known: UTF-8, lines end in LF or CRLF, the last may go without.
    ///
    /// # Errors
    /// The file cannot be read or is not such a list; a line is empty, shows nothing, or holds white space or what
    /// controls a terminal or the direction of text; a word comes twice; or there are more or fewer words than rows.
    pub fn read(path: &Path, rows: Option<usize>) -> Result<Words, WordsError> {
        let bytes =
            files::read(path, MAX_BYTES).map_err(|source| WordsError::Io { path: path.to_path_buf(), source })?;
        let file = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
        let text = String::from_utf8(bytes)
            .map_err(|e| WordsError::NotUtf8 { file: file.clone(), at: e.utf8_error().valid_up_to() })?;
        Self::parse(text, rows, &file)
    }

    fn parse(text: String, rows: Option<usize>, file: &str) -> Result<Words, WordsError> {
        let named = || file.to_string();
        if text.starts_with('\u{feff}') {
            return Err(WordsError::ByteOrderMark { file: named() });
        }
        let found = text.lines().count();
        // An empty line is named before the count it makes wrong.
        if let Some(line) = text.lines().position(str::is_empty) {
            return Err(WordsError::Empty { file: named(), line: line + 1 });
        }
        if let Some(expected) = rows.filter(|rows| *rows != found) {
            return Err(WordsError::Count { file: named(), found, expected });
        }
        let mut places = Vec::with_capacity(found);
        let mut seen = HashMap::with_capacity(found);
        let mut at = 0;
        for (i, with_end) in text.split_inclusive('\n').enumerate() {
            let (word, line) = (with_end.lines().next().unwrap_or_default(), i + 1);
            if word.contains(char::is_whitespace) {
                return Err(WordsError::Space { file: named(), line, word: word.into() });
            }
            if word.contains(controls) {
                return Err(WordsError::Control { file: named(), line, word: word.into() });
            }
            if word.chars().all(shows_nothing) {
                return Err(WordsError::Blank { file: named(), line, word: word.into() });
            }
            if let Some(first) = seen.insert(word, line) {
                return Err(WordsError::Duplicate { file: named(), word: word.into(), first, line });
            }
            places.push(at..at + word.len());
            at += with_end.len();
        }
        drop(seen);
        Ok(Words { text, places })
    }

    /// The word of row `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.text.get(self.places.get(index)?.clone())
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The words in row order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| &self.text[place.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8], rows: usize) -> Result<Words, WordsError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("words.txt");
        fs_err::write(&path, bytes).unwrap();
        Words::read(&path, Some(rows))
    }

    fn refusal(bytes: &[u8], rows: usize) -> String {
        read(bytes, rows).unwrap_err().to_string()
    }

    #[test]
    fn one_word_a_line() {
        for text in ["a\ncafé\nthird\n", "a\ncafé\nthird", "a\r\ncafé\r\nthird\r\n", "a\ncafé\r\nthird"] {
            let words = read(text.as_bytes(), 3).unwrap();
            assert_eq!(words.iter().collect::<Vec<_>>(), ["a", "café", "third"], "{text:?}");
            assert_eq!((words.len(), words.get(1), words.get(3)), (3, Some("café"), None));
        }
        assert!(read(b"", 0).unwrap().is_empty());
        // A joiner within a word is a letter of some scripts.
        assert_eq!(read("\u{645}\u{6cc}\u{200c}\u{62e}\n".as_bytes(), 1).unwrap().len(), 1);
    }

    #[test]
    fn lists_that_are_refused() {
        insta::assert_snapshot!(refusal(b"a\nb\n", 3), @"words.txt has 2 words, expected 3, one for each row of the table");
        insta::assert_snapshot!(refusal(b"a\nb\nc\nd\n", 3), @"words.txt has 4 words, expected 3, one for each row of the table");
        insta::assert_snapshot!(refusal(b"a\n\nc\n", 3), @"words.txt: line 2 is empty, expected a word");
        insta::assert_snapshot!(refusal(b"a\nb\nc\n\n", 3), @"words.txt: line 4 is empty, expected a word");
        insta::assert_snapshot!(refusal(b"a\r\n\r\nc\r\n", 3), @"words.txt: line 2 is empty, expected a word");
        insta::assert_snapshot!(refusal(b"a\nb\na\n", 3), @r#"words.txt: word "a" is in both line 1 and line 3"#);
        insta::assert_snapshot!(refusal(b"a\nb c\nd\n", 3), @r#"words.txt: line 2 is "b c", expected one word: words are joined by spaces and must hold none"#);
        insta::assert_snapshot!(refusal(b"a\nb\t\nd\n", 3), @r#"words.txt: line 2 is "b\t", expected one word: words are joined by spaces and must hold none"#);
        insta::assert_snapshot!(refusal("a\nb\u{a0}c\nd\n".as_bytes(), 3), @r#"words.txt: line 2 is "b\u{a0}c", expected one word: words are joined by spaces and must hold none"#);
        insta::assert_snapshot!(refusal("a\nb\u{1b}[2Jc\nd\n".as_bytes(), 3), @r#"words.txt: line 2 is "b\u{1b}[2Jc", which has a character that controls how text is shown; expected a word"#);
        insta::assert_snapshot!(refusal("a\nb\u{202e}c\nd\n".as_bytes(), 3), @r#"words.txt: line 2 is "b\u{202e}c", which has a character that controls how text is shown; expected a word"#);
        insta::assert_snapshot!(refusal("a\n\u{200b}\u{200d}\nd\n".as_bytes(), 3), @r#"words.txt: line 2 is "\u{200b}\u{200d}", which shows nothing, expected a word"#);
        insta::assert_snapshot!(refusal(b"a\nb\xff\nc\n", 3), @"words.txt is not UTF-8 from byte 3 on");
        insta::assert_snapshot!(refusal(b"\xef\xbb\xbfa\nb\nc\n", 3), @"words.txt starts with a byte order mark; save it as UTF-8 without one");
        let absent = Words::read(Path::new("absent/words.txt"), Some(1)).unwrap_err();
        insta::assert_snapshot!(absent, @"absent/words.txt cannot be read");
    }

    #[test]
    fn a_long_list_is_read_quickly() {
        let text: String = (0..200_000).map(|i| format!("word{i}\n")).collect();
        let start = std::time::Instant::now();
        let words = read(text.as_bytes(), 200_000).unwrap();
        assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
        assert_eq!((words.get(199_999), words.get(70_000)), (Some("word199999"), Some("word70000")));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(words in prop::collection::btree_set("[^\\s\\p{Cc}\u{ad}\u{200b}-\u{200f}\u{202a}-\u{202e}\u{2060}-\u{2069}\u{feff}]{1,6}", 0..9), crlf in any::<bool>()) {
            let end = if crlf { "\r\n" } else { "\n" };
            let text: String = words.iter().map(|w| format!("{w}{end}")).collect();
            let read = read(text.as_bytes(), words.len()).unwrap();
            prop_assert!(read.iter().eq(words.iter()));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[ab \r\n\u{feff}é]{0,12}", rows in 0usize..6) {
            if let Ok(words) = read(text.as_bytes(), rows) {
                prop_assert_eq!(words.iter().count(), rows);
            }
        }
    }
}
