//! Two-column text for people, 80 columns wide.

use crate::provenance::{LOADS_ON_DEVICE, NotRun};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lines of `label  value`, aligned, in sections.
#[derive(Default)]
pub struct Table {
    rows: Vec<(String, String)>,
}

impl Table {
    /// Adds a row; an empty label continues the row above.
    pub fn row(&mut self, label: impl Into<String>, value: impl ToString) -> &mut Self {
        self.rows.push((label.into(), value.to_string()));
        self
    }

    /// Adds text that may be long, in lines of at most 60 characters where its words allow.
    pub fn prose(&mut self, label: impl Into<String>, text: &str) -> &mut Self {
        let mut label = label.into();
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 60 {
                self.row(std::mem::take(&mut label), std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.row(label, line)
    }

    /// Adds what was not run, and why: a row each, which nobody can take for a pass.
    pub fn not_run(&mut self, list: &[NotRun]) -> &mut Self {
        for NotRun { name, reason } in list {
            let label = if *name == LOADS_ON_DEVICE { "device load" } else { name };
            self.row(label, format!("not run ({reason})"));
        }
        self
    }

    /// The text, one line a row.
    pub fn render(&self) -> String {
        let width = self.rows.iter().map(|(l, _)| l.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (label, value) in &self.rows {
            let pad = width - label.chars().count();
            let _ = writeln!(text, "{label}{:pad$}  {value}", "");
        }
        text
    }

    /// The text with no line of more than [`WIDTH`] characters, as far as its words allow.
    pub fn wrapped(self) -> String {
        let width = self.rows.iter().map(|(l, _)| l.chars().count()).max().unwrap_or(0) + 2;
        let mut table = Table::default();
        for (label, value) in self.rows {
            let mut label = Some(label);
            for line in folded(&value, WIDTH.saturating_sub(width)) {
                table.row(label.take().unwrap_or_default(), line);
            }
        }
        table.render()
    }
}

/// Columns of a terminal that nobody made wider.
const WIDTH: usize = 80;

/// `text` in lines of at most `width` characters, cut after spaces and slashes; a longer word stays whole, so that it
/// can be copied.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', '/']) {
        match lines.last_mut() {
            Some(line) if line.is_empty() || line.chars().count() + word.trim_end().chars().count() <= width => {
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_string()).collect()
}

/// `name count` in lines of a comfortable width.
pub fn columns<N: Copy + TryInto<u64>>(counts: &BTreeMap<String, N>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (name, count) in counts {
        let item = format!("{name} {}", thousands((*count).try_into().unwrap_or(u64::MAX)));
        match lines.last_mut() {
            Some(line) if line.len() + item.len() < 62 => {
                line.push_str(", ");
                line.push_str(&item);
            }
            _ => lines.push(item),
        }
    }
    lines
}

/// `1234567` as `1.2 MB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["B", "kB", "MB", "GB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// `1234567` as `1,234,567`.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        assert_eq!([bytes(0), bytes(999), bytes(1000), bytes(611_195_392)], ["0 B", "999 B", "1.0 kB", "611.2 MB"]);
        assert_eq!([thousands(7), thousands(1000), thousands(304_824_608)], ["7", "1,000", "304,824,608"]);
    }

    #[test]
    fn lines_are_cut_at_words_and_slashes() {
        assert_eq!(folded("one two  three", 8), ["one two", "three"]);
        assert_eq!(folded("folder/inner/name.bin", 13), ["folder/inner/", "name.bin"]);
        assert_eq!(folded("  indented and longer", 10), ["  indented", "and longer"]);
        assert_eq!(folded("aaaaaaaaaaaa b", 4), ["aaaaaaaaaaaa", "b"]);
        assert_eq!(folded("", 4), [""]);
    }

    #[test]
    fn rows_align() {
        let mut table = Table::default();
        table.row("a", 1).row("long", "x").row("", "y");
        assert_eq!(table.render(), "a     1\nlong  x\n      y\n");
    }

    #[test]
    fn prose_is_cut_between_words() {
        let mut table = Table::default();
        let (long, word) = ("w".repeat(70), "w".repeat(30));
        table.prose("a", &format!("{word} {word} one {long}")).prose("", "");
        assert_eq!(table.render(), format!("a  {word}\n   {word} one\n   {long}\n   \n"));
    }
}
