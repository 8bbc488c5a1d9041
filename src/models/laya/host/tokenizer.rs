//! The checkpoint's tokenizer, through the `tokenizers` crate: texts to ids, as they are, with nothing added.
//!
//! Padding and truncation that the file asks for are put aside. The crate panics on some files (a normalizer's table that
//! is none, for one) and on some texts; that is caught here and told as an error.

use crate::files;
use crate::models::section::{self, ConfigError};
use serde_json::Value;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Where a checkpoint keeps the vocabulary and its rules.
pub const TOKENIZER_FILE: &str = "tokenizer/tokenizer.json";

/// Where it keeps the names of the special tokens.
pub const TOKENIZER_CONFIG_FILE: &str = "tokenizer/tokenizer_config.json";

/// Longest text that is encoded, in bytes: some hundred times what the longest graph reads. An encoding takes about a
/// hundred bytes of memory for each of the text's.
pub const TEXT_MAX: usize = 1 << 20;

/// A special token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Special {
    text: String,
    id: u32,
}

/// A tokenizer with the special tokens of a sequence.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    cls: Special,
    sep: Special,
    pad: Special,
    mask: Special,
}

/// A tokenizer that cannot be used, or a text that it cannot encode.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum TokenizerError {
    #[error(
        "{} is not there; a checkpoint has its tokenizer in {TOKENIZER_FILE} and {TOKENIZER_CONFIG_FILE}. Copy the folder \
         `tokenizer` from where the checkpoint came from",
        .path.display()
    )]
    Missing { path: PathBuf },
    #[error("{} cannot be read", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{} is no tokenizer: {reason}", .path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("{} has {key} {found}, expected the text of a token in {TOKENIZER_FILE}", .path.display())]
    Special { path: PathBuf, key: &'static str, found: String },
    #[error("a text of {bytes} bytes is too long to encode, expected {TEXT_MAX} at most")]
    TooLong { bytes: usize },
    #[error("a text of {bytes} bytes cannot be encoded: {reason}")]
    Encode { bytes: usize, reason: String },
}

impl Tokenizer {
    /// The tokenizer of the checkpoint in folder `checkpoint`.
    ///
    /// # Errors
    /// A file is absent or unreadable, or a special token is not in the vocabulary.
    pub fn open(checkpoint: &Path) -> Result<Tokenizer, TokenizerError> {
        let path = checkpoint.join(TOKENIZER_FILE);
        let bytes = read(&path)?;
        let loaded = guarded(|| tokenizers::Tokenizer::from_bytes(&bytes));
        let mut inner = loaded.map_err(|reason| TokenizerError::Unusable { path: path.clone(), reason })?;
        inner.with_padding(None);
        guarded(|| inner.with_truncation(None).map(|_| ()))
            .map_err(|reason| TokenizerError::Unusable { path, reason })?;

        let path = checkpoint.join(TOKENIZER_CONFIG_FILE);
        let config = section::parse(&String::from_utf8_lossy(&read(&path)?), &path.display().to_string())?;
        let special = |key: &'static str| {
            special(&inner, &config, key).map_err(|found| TokenizerError::Special { path: path.clone(), key, found })
        };
        let (cls, sep, pad) = (special("cls_token")?, special("sep_token")?, special("pad_token")?);
        let mask = special("mask_token")?;
        Ok(Tokenizer { inner, cls, sep, pad, mask })
    }

    /// Id of the token that a sequence starts with.
    pub fn cls(&self) -> u32 {
        self.cls.id
    }

    /// Id of the token that ends each part.
    pub fn sep(&self) -> u32 {
        self.sep.id
    }

    /// Id of the token past the end.
    pub fn pad(&self) -> u32 {
        self.pad.id
    }

    /// Id of the token before each option.
    pub fn mask(&self) -> u32 {
        self.mask.id
    }

    /// `text` without markers of its own: an option's place is said by the host alone.
    pub fn without_mask(&self, text: &str) -> String {
        text.replace(&self.mask.text, " ")
    }

    /// The ids of `text`, which names of special tokens in it are part of.
    ///
    /// # Errors
    /// It is longer than [`TEXT_MAX`], or the tokenizer's rules fail on it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let bytes = text.len();
        if bytes > TEXT_MAX {
            return Err(TokenizerError::TooLong { bytes });
        }
        let encoding = guarded(|| self.inner.encode_fast(text, false));
        Ok(encoding.map_err(|reason| TokenizerError::Encode { bytes, reason })?.get_ids().to_vec())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    files::read(path, files::TEXT_MAX).map_err(|source| {
        let absent = matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let path = path.into();
        if absent { TokenizerError::Missing { path } } else { TokenizerError::Io { path, source } }
    })
}

/// The token of `key`, given as its text or as an object with that; else what stands there.
fn special(inner: &tokenizers::Tokenizer, config: &Value, key: &str) -> Result<Special, String> {
    let found = config.get(key).unwrap_or(&Value::Null);
    let text = found.get("content").unwrap_or(found).as_str().filter(|text| !text.is_empty());
    let token = text.and_then(|text| Some(Special { id: inner.token_to_id(text)?, text: text.into() }));
    token.ok_or_else(|| section::kind(found))
}

/// The result of a call into the crate, with what it panics with as an error.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    // The crate's only state that a panic could leave half done is a cache of words, which is behind a lock of its own.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(format!("the tokenizer's code failed: {}", text.unwrap_or("no reason given")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::FIXTURE;
    use super::*;
    use proptest::prelude::*;

    /// The fixture's tokenizer, its files changed.
    fn changed(tokenizer: impl Fn(&mut Value), config: impl Fn(&mut Value)) -> Result<Tokenizer, TokenizerError> {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("tokenizer")).unwrap();
        let copy = |file: &str, change: &dyn Fn(&mut Value)| {
            let mut json = crate::json::read(&fs_err::read(Path::new(FIXTURE).join(file)).unwrap()).unwrap();
            change(&mut json);
            fs_err::write(folder.path().join(file), json.to_string()).unwrap();
        };
        copy(TOKENIZER_FILE, &tokenizer);
        copy(TOKENIZER_CONFIG_FILE, &config);
        Tokenizer::open(folder.path())
    }

    fn refused(result: Result<Tokenizer, TokenizerError>) -> String {
        let text = result.err().unwrap().to_string();
        let at = text.find("tokenizer/tokenizer").unwrap();
        text[at..].to_string()
    }

    #[test]
    fn special_tokens_and_texts() {
        let tokenizer = Tokenizer::open(Path::new(FIXTURE)).unwrap();
        assert_eq!([tokenizer.pad(), tokenizer.sep(), tokenizer.cls(), tokenizer.mask()], [0, 1, 2, 4]);
        assert_eq!(tokenizer.encode("").unwrap(), Vec::<u32>::new(), "padding and truncation are off");
        assert!(tokenizer.encode("0123456789abcdef").unwrap().len() > 8);
        assert_eq!(tokenizer.encode("[SEP]").unwrap(), [1]);
        assert_eq!(tokenizer.without_mask("[MASK]a[MASK]"), " a ");
        let long = "a".repeat(TEXT_MAX);
        assert!(tokenizer.encode(&long).is_ok());
        // A rule looks ahead behind spaces: however many there are, they are split as elsewhere.
        assert_eq!(tokenizer.encode(&(" ".repeat(1_000_000) + "x y")).unwrap().len(), 1_000_003);
        let err = tokenizer.encode(&(long + "b")).unwrap_err();
        insta::assert_snapshot!(err, @"a text of 1048577 bytes is too long to encode, expected 1048576 at most");
    }

    #[test]
    fn other_spellings_are_read() {
        let config = |j: &mut Value| j["cls_token"] = serde_json::json!({"content": "[CLS]"});
        assert_eq!(changed(|_| {}, config).unwrap().cls(), 2);
    }

    #[test]
    fn what_is_no_tokenizer() {
        let none = |_: &mut Value| {};
        let precompiled = serde_json::json!({"type": "Precompiled", "precompiled_charsmap": 7});
        let all = [
            refused(changed(|j| *j = Value::Null, none)),
            refused(changed(|j| j["model"] = Value::Null, none)),
            refused(changed(|j| j["normalizer"] = precompiled.clone(), none)),
            refused(changed(none, |j| j["mask_token"] = Value::Null)),
            refused(changed(none, |j| j["sep_token"] = "[NONE]".into())),
            refused(changed(none, |j| j["pad_token"] = serde_json::json!({"content": 7}))),
            refused(changed(none, |j| j["cls_token"] = "".into())),
            refused(changed(none, |j| *j = Value::Null)),
        ];
        insta::assert_snapshot!(all.join("\n"), @r#"
        tokenizer/tokenizer.json is no tokenizer: invalid type: null, expected struct Tokenizer at line 1 column 4
        tokenizer/tokenizer.json is no tokenizer: data did not match any variant of untagged enum ModelUntagged at line 1 column 1049
        tokenizer/tokenizer.json is no tokenizer: the tokenizer's code failed: Precompiled: Error("invalid type: integer `7`, expected a borrowed string", line: 1, column: 25)
        tokenizer/tokenizer_config.json has mask_token null, expected the text of a token in tokenizer/tokenizer.json
        tokenizer/tokenizer_config.json has sep_token "[NONE]", expected the text of a token in tokenizer/tokenizer.json
        tokenizer/tokenizer_config.json has pad_token an object of 1, expected the text of a token in tokenizer/tokenizer.json
        tokenizer/tokenizer_config.json has cls_token "", expected the text of a token in tokenizer/tokenizer.json
        tokenizer/tokenizer_config.json has cls_token null, expected the text of a token in tokenizer/tokenizer.json
        "#);
    }

    #[test]
    fn files_that_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let whole = Tokenizer::open(folder.path()).err().unwrap().to_string();
        insta::assert_snapshot!(whole.replace(folder.path().to_str().unwrap(), "DIR"), @"DIR/tokenizer/tokenizer.json is not there; a checkpoint has its tokenizer in tokenizer/tokenizer.json and tokenizer/tokenizer_config.json. Copy the folder `tokenizer` from where the checkpoint came from");
        fs_err::create_dir_all(folder.path().join(TOKENIZER_FILE)).unwrap();
        assert!(matches!(Tokenizer::open(folder.path()), Err(TokenizerError::Io { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// A file with bytes of its rules changed is refused, or encodes, or fails to: it ends nothing else.
        #[test]
        fn damaged_files(at in 0usize..1200, byte in any::<u8>(), cut in 0usize..4000, text in ".{0,12}") {
            let folder = tempfile::tempdir().unwrap();
            fs_err::create_dir(folder.path().join("tokenizer")).unwrap();
            for file in [TOKENIZER_FILE, TOKENIZER_CONFIG_FILE] {
                fs_err::copy(Path::new(FIXTURE).join(file), folder.path().join(file)).unwrap();
            }
            let path = folder.path().join(TOKENIZER_FILE);
            let mut bytes = fs_err::read(&path).unwrap();
            bytes[at] = byte;
            if cut < 200 {
                bytes.truncate(cut * 100);
            }
            fs_err::write(&path, bytes).unwrap();
            if let Ok(tokenizer) = Tokenizer::open(folder.path()) {
                let _ = tokenizer.encode(&text);
            }
        }
    }
}
