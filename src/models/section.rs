//! JSON configs, read one object at a time: every key of the expected kind, and the default of each that is absent
//! noted, so that a record can list what was taken for granted.

use crate::json;
use serde_json::{Map, Value};

/// Largest width, channel or layer count taken from a config: far above any model, far below what would exhaust memory.
const MAX_EXTENT: u64 = 1 << 17;

/// A config that cannot be used. `file` is the config's name, `key` the path of the entry.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "file, key, found and expected are what they say")]
pub enum ConfigError {
    #[error("{file} starts with a byte order mark; save it as UTF-8 without one")]
    ByteOrderMark { file: String },
    #[error("{file} cannot be read as JSON")]
    Json { file: String, source: serde_json::Error },
    #[error("{file} has no {section}, so {meaning}")]
    NoSection { file: String, section: &'static str, meaning: &'static str },
    #[error("{file}: {key} is {found}, expected {expected}")]
    Value { file: String, key: String, found: String, expected: String },
    #[error("{file}: {key} is {found}, which a static graph cannot honour; it takes {expected}")]
    Unsupported { file: String, key: String, found: String, expected: String },
}

/// The JSON in `text`, the content of `file`.
///
/// # Errors
/// It is none, starts with a byte order mark, or has a key twice in an object.
pub fn parse(text: &str, file: &str) -> Result<Value, ConfigError> {
    if text.starts_with('\u{feff}') {
        return Err(ConfigError::ByteOrderMark { file: file.into() });
    }
    json::read(text.as_bytes()).map_err(|source| ConfigError::Json { file: file.into(), source })
}

/// What kind of value it is, for messages: a whole list or object is too long for one.
pub fn kind(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("a list of {}", list.len()),
        Value::Object(map) => format!("an object of {}", map.len()),
        Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => value.to_string(),
    }
}

/// One object of a config.
pub struct Section<'a> {
    file: &'a str,
    name: &'a str,
    map: &'a Map<String, Value>,
    /// Paths of the keys that were absent, so that their default was taken.
    pub assumed: Vec<String>,
}

impl<'a> Section<'a> {
    /// The object `map`, called `name` in `file`; an empty name is that of the whole config.
    pub fn new(file: &'a str, name: &'a str, map: &'a Map<String, Value>) -> Section<'a> {
        Section { file, name, map, assumed: Vec::new() }
    }

    /// The value of `key` as it stands, `null` included.
    pub fn raw(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// Paths of the keys that are none of `known`.
    pub fn others(&self, known: &[&str]) -> Vec<String> {
        self.map.keys().filter(|key| !known.contains(&key.as_str())).map(|key| self.path(key)).collect()
    }

    /// The path of `key` in the config.
    pub fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.into() } else { format!("{}.{key}", self.name) }
    }

    /// The error of a value that is of another kind than `expected`.
    pub fn wrong(&self, key: &str, found: String, expected: &str) -> ConfigError {
        ConfigError::Value { file: self.file.into(), key: self.path(key), found, expected: expected.into() }
    }

    /// The error of a value that the graph has no form for.
    pub fn unsupported(&self, key: &str, found: String, expected: &str) -> ConfigError {
        ConfigError::Unsupported { file: self.file.into(), key: self.path(key), found, expected: expected.into() }
    }

    fn get(&mut self, key: &str) -> Option<&'a Value> {
        let value = self.map.get(key).filter(|v| !v.is_null());
        if value.is_none() {
            self.assumed.push(self.path(key));
        }
        value
    }

    /// A count of 1 or more.
    ///
    /// # Errors
    /// It is something else.
    pub fn count(&mut self, key: &str, default: usize) -> Result<usize, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.as_u64() {
            Some(n) if (1..=MAX_EXTENT).contains(&n) => Ok(n as usize),
            _ => Err(self.wrong(key, value.to_string(), &format!("a whole number from 1 to {MAX_EXTENT}"))),
        }
    }

    /// A positive number.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&mut self, key: &str, default: f64) -> Result<f64, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.as_f64() {
            Some(x) if x.is_finite() && x > 0.0 => Ok(x),
            _ => Err(self.wrong(key, value.to_string(), "a positive number")),
        }
    }

    /// True or false.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&mut self, key: &str, default: bool) -> Result<bool, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong(key, value.to_string(), "true or false"))
    }

    /// Two counts of 1 or more.
    ///
    /// # Errors
    /// It is something else.
    pub fn pair(&mut self, key: &str, default: [usize; 2]) -> Result<[usize; 2], ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let counts = value.as_array().map(|items| {
            items.iter().filter_map(Value::as_u64).filter(|n| (1..=MAX_EXTENT).contains(n)).collect::<Vec<_>>()
        });
        match (counts.as_deref(), value.as_array().map(Vec::len)) {
            (Some([a, b]), Some(2)) => Ok([*a as usize, *b as usize]),
            _ => Err(self.wrong(key, value.to_string(), &format!("two whole numbers from 1 to {MAX_EXTENT}"))),
        }
    }

    /// One of a few words, by what each stands for.
    ///
    /// # Errors
    /// It is none of them: a choice the graph has no form for.
    pub fn choice<T: Copy>(&mut self, key: &str, default: T, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let known = choices.iter().find(|(word, _)| value.as_str() == Some(word));
        known.map(|(_, choice)| *choice).ok_or_else(|| {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.unsupported(key, value.to_string(), &words.join(" or "))
        })
    }

    /// A text that is not empty, where there is one.
    ///
    /// # Errors
    /// It is empty or something else.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other.to_string(), "a text")),
        }
    }
}
