//! How names, numbers and lists are spelt, in both directions.
//!
//! Reading allocates no more than the text is long: a number never sizes anything here.

use super::ParseError;
use crate::tensor::{DType, Fact, Shape};
use std::fmt::{self, Display, Write as _};
use std::str::FromStr;

/// Longest piece of a faulty text that a message quotes, in characters.
const QUOTED_MAX: usize = 40;

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

fn in_number(c: char) -> bool {
    in_word(c) || c == '-' || c == '+'
}

/// A path or function name: bare where it is a word, else quoted.
pub(super) struct Name<'a>(pub &'a str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() && self.0.chars().all(in_word) { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

/// Any string between quotes, on one line.
pub(super) struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// A float in the fewest digits that read back to the same bits.
pub(super) struct Float(pub f64);

impl Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Items between brackets.
pub(super) struct List<I>(pub I);

impl<T: Display, I: Iterator<Item = T> + Clone> Display for List<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (i, item) in self.0.clone().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            item.fmt(f)?;
        }
        f.write_char(']')
    }
}

/// What is left to read of one line. Spaces between tokens are free.
pub(super) struct Cursor<'t> {
    line: usize,
    rest: &'t str,
}

impl<'t> Cursor<'t> {
    /// A cursor at the start of `text`, which is line `line` (from 1).
    pub fn new(line: usize, text: &'t str) -> Self {
        Cursor { line, rest: text.trim_start() }
    }

    /// The line's number.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The error that here stands something else than `expected`.
    pub fn unexpected(&self, expected: &'static str) -> ParseError {
        ParseError::Syntax { line: self.line, found: excerpt(self.rest), expected }
    }

    fn advance(&mut self, bytes: usize) -> &'t str {
        let (token, rest) = self.rest.split_at(bytes);
        self.rest = rest.trim_start();
        token
    }

    /// Passes `token` where it stands here; not for words, whose end it does not look at.
    pub fn eat(&mut self, token: &str) -> bool {
        let here = self.rest.starts_with(token);
        if here {
            self.advance(token.len());
        }
        here
    }

    /// Passes `token`, which has to stand here.
    pub fn expect(&mut self, token: &'static str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(token)) }
    }

    fn run(&mut self, belongs: fn(char) -> bool, expected: &'static str) -> Result<&'t str, ParseError> {
        match self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len()) {
            0 => Err(self.unexpected(expected)),
            end => Ok(self.advance(end)),
        }
    }

    /// Letters, digits, `_` and `.`.
    pub fn word(&mut self, expected: &'static str) -> Result<&'t str, ParseError> {
        self.run(in_word, expected)
    }

    /// The word `keyword` and no other.
    pub fn keyword(&mut self, keyword: &'static str) -> Result<(), ParseError> {
        let here = self.unexpected(keyword);
        if self.word(keyword)? == keyword { Ok(()) } else { Err(here) }
    }

    /// See [`Name`].
    pub fn name(&mut self, expected: &'static str) -> Result<String, ParseError> {
        if self.rest.starts_with('"') { self.quoted(expected) } else { self.word(expected).map(str::to_owned) }
    }

    /// A value's name: `%` and a [`Name`].
    pub fn value(&mut self) -> Result<String, ParseError> {
        self.expect("%")?;
        self.name("the path of a value")
    }

    /// See [`Quoted`].
    pub fn quoted(&mut self, expected: &'static str) -> Result<String, ParseError> {
        let body = self.rest.strip_prefix('"').ok_or_else(|| self.unexpected(expected))?;
        let mut text = String::new();
        let mut chars = body.chars();
        loop {
            match chars.next() {
                None => return Err(self.unexpected("a string closed by \" on its line")),
                Some('"') => break,
                Some('\\') => {
                    let c = escape(&mut chars)
                        .ok_or_else(|| self.unexpected(r#"a string with no other escapes than \\ \" \n \u{hex}"#))?;
                    text.push(c);
                }
                Some(c) => text.push(c),
            }
        }
        self.rest = chars.as_str().trim_start();
        Ok(text)
    }

    fn number<T: FromStr>(&mut self, expected: &'static str) -> Result<T, ParseError> {
        let here = self.unexpected(expected);
        self.run(in_number, expected)?.parse().map_err(|_| here)
    }

    /// A count, extent or index.
    pub fn count(&mut self) -> Result<usize, ParseError> {
        self.number("a non-negative integer")
    }

    /// A signed integer.
    pub fn integer(&mut self) -> Result<i64, ParseError> {
        self.number("an integer")
    }

    /// A float. `inf` and `NaN` are read as such; digits that overflow are refused rather than read as infinite.
    pub fn float(&mut self) -> Result<f64, ParseError> {
        let overflow = self.unexpected("a number within the range of f64");
        let spelt = self.rest.trim_start_matches('-').starts_with("inf");
        let value: f64 = self.number("a number")?;
        if value.is_infinite() && !spelt { Err(overflow) } else { Ok(value) }
    }

    /// Items between brackets, each read by `item`.
    pub fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, ParseError>) -> Result<Vec<T>, ParseError> {
        self.between("[", "]", ", or ]", item)
    }

    /// Items between parentheses, each read by `item`.
    pub fn tuple<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, ParseError>) -> Result<Vec<T>, ParseError> {
        self.between("(", ")", ", or )", item)
    }

    fn between<T>(
        &mut self,
        open: &'static str,
        close: &'static str,
        expected: &'static str,
        item: impl Fn(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        self.expect(open)?;
        let mut items = Vec::new();
        if self.eat(close) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Ok(items);
            }
            if !self.eat(",") {
                return Err(self.unexpected(expected));
            }
        }
    }

    /// Extents or indices between brackets.
    pub fn counts(&mut self) -> Result<Vec<usize>, ParseError> {
        self.list(Self::count)
    }

    /// A list of `[before,after]`.
    pub fn pairs(&mut self) -> Result<Vec<[usize; 2]>, ParseError> {
        self.list(|line| {
            let here = line.unexpected("a pair of integers");
            line.counts()?.try_into().map_err(|_| here)
        })
    }

    /// A shape.
    pub fn shape(&mut self) -> Result<Shape, ParseError> {
        self.counts().map(Shape::new)
    }

    /// A dtype's name.
    pub fn dtype(&mut self) -> Result<DType, ParseError> {
        const EXPECTED: &str = "a dtype";
        let here = self.unexpected(EXPECTED);
        DType::parse(self.word(EXPECTED)?).ok_or(here)
    }

    /// A dtype and a shape.
    pub fn fact(&mut self) -> Result<Fact, ParseError> {
        Ok(Fact { dtype: self.dtype()?, shape: self.shape()? })
    }

    /// `key=` and what `value` reads.
    pub fn parameter<T>(
        &mut self,
        key: &'static str,
        value: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        self.keyword(key)?;
        self.expect("=")?;
        value(self)
    }

    /// Refuses anything left on the line.
    pub fn end(&self) -> Result<(), ParseError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.unexpected("the end of the line")) }
    }
}

/// The character an escape stands for; `None` where there is no such escape.
fn escape(chars: &mut std::str::Chars<'_>) -> Option<char> {
    match chars.next()? {
        c @ ('"' | '\\') => Some(c),
        'n' => Some('\n'),
        'u' => {
            let (digits, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
            *chars = rest.chars();
            u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)
        }
        _ => None,
    }
}

/// The start of `text`, for a message.
fn excerpt(text: &str) -> String {
    if text.is_empty() {
        return "the end of the line".into();
    }
    let mut chars = text.chars();
    let mut found: String = chars.by_ref().take(QUOTED_MAX).collect();
    if chars.next().is_some() {
        found.push_str("...");
    }
    found
}
