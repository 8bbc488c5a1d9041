//! How many regions a bundle should have, and whether it has them.

use super::{Agreement, CompiledBundle, HashCheck, Says, SignalKind, Violation, short_stem};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Counts to be found: `1`, `h16c=1,h18p=0`, or `@file` with the same in a file.
///
/// A plain count holds for each architecture of the bundle that has none of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    /// For each architecture not named.
    pub each: Option<usize>,
    /// For those that are.
    pub named: BTreeMap<String, usize>,
}

/// Why an expectation was not understood.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ExpectationError {
    #[error("expected regions {text:?}: {item:?} is neither a count nor ARCHITECTURE=COUNT")]
    Item { text: String, item: String },
    #[error("expected regions {text:?}: {key} is given twice")]
    Twice { text: String, key: String },
    #[error("expected regions {text:?}: there is no count")]
    Empty { text: String },
    #[error("expected regions: could not read {path}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
}

impl FromStr for Expectation {
    type Err = ExpectationError;

    fn from_str(text: &str) -> Result<Expectation, ExpectationError> {
        let Some(path) = text.strip_prefix('@') else { return Self::parse(text) };
        let file = |source| ExpectationError::File { path: path.to_string(), source };
        let content = std::fs::read_to_string(path).map_err(file)?;
        let lines: Vec<&str> = content.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
        Self::parse(&lines.join(","))
    }
}

impl Expectation {
    /// The same count for each architecture.
    pub fn each(count: usize) -> Expectation {
        Expectation { each: Some(count), named: BTreeMap::new() }
    }

    fn parse(text: &str) -> Result<Expectation, ExpectationError> {
        let mut expectation = Expectation { each: None, named: BTreeMap::new() };
        // Items are cut at commas; an empty one is a blank line of a file, or a comma too many.
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = || ExpectationError::Item { text: text.to_string(), item: item.to_string() };
            let twice = |key: &str| ExpectationError::Twice { text: text.to_string(), key: key.to_string() };
            match item.split_once('=') {
                None => {
                    if expectation.each.replace(count(item).ok_or_else(wrong)?).is_some() {
                        return Err(twice("the plain count"));
                    }
                }
                Some((name, number)) => {
                    let (name, number) = (name.trim(), count(number.trim()).ok_or_else(wrong)?);
                    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
                        return Err(wrong());
                    }
                    if expectation.named.insert(name.to_string(), number).is_some() {
                        return Err(twice(name));
                    }
                }
            }
        }
        if expectation.each.is_none() && expectation.named.is_empty() {
            return Err(ExpectationError::Empty { text: text.to_string() });
        }
        Ok(expectation)
    }

    /// The count for `architecture`; none if nothing is expected of it.
    pub fn of(&self, architecture: &str) -> Option<usize> {
        self.named.get(architecture).copied().or(self.each)
    }
}

/// Digits only: `parse` would take a sign.
fn count(text: &str) -> Option<usize> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A bundle held against an [`Expectation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Counts by architecture, of the bundle or of the expectation.
    pub architectures: BTreeMap<String, Found>,
    /// Everything that makes it fail.
    pub faults: Vec<Fault>,
}

/// Regions of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Counted; none if the bundle lacks the architecture.
    pub found: Option<usize>,
    /// Expected; none if nothing is.
    pub expected: Option<usize>,
}

impl Verdict {
    /// Whether the bundle has what was expected and no fault. Nothing follows for loading it on a device.
    pub fn passed(&self) -> bool {
        self.faults.is_empty()
    }
}

/// One reason to fail a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Fault {
    Count {
        architecture: String,
        found: usize,
        expected: usize,
    },
    NoSuchArchitecture {
        architecture: String,
        expected: usize,
    },
    NoArchitecture,
    Signal {
        architecture: String,
        function: Option<String>,
        kind: SignalKind,
        found: String,
        says: Says,
        counted: usize,
    },
    Hash(HashCheck),
    Violation(Violation),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Count { architecture, found, expected } => {
                write!(f, "{architecture}: {found} regions found, {expected} expected")
            }
            Fault::NoSuchArchitecture { architecture, expected } => {
                write!(f, "{architecture}: {expected} regions expected, but the bundle does not have this architecture")
            }
            Fault::NoArchitecture => f.write_str("regions are expected, but the bundle has no architecture"),
            Fault::Signal { architecture, function, kind, found, says, counted } => {
                write!(f, "{architecture}")?;
                if let Some(function) = function {
                    write!(f, " {}", short_stem(function))?;
                }
                match says {
                    Says::Unreadable(why) => write!(f, ": {why}"),
                    Says::Regions | Says::NoRegions | Says::Unknown(_) => {
                        let (kind, says) = (kind.name(), says.text());
                        write!(f, ": {kind} ({found}) says {says}, but {counted} were counted")
                    }
                }
            }
            Fault::Hash(check) => write!(f, "main.hash is wrong: {check}"),
            Fault::Violation(violation) => violation.fmt(f),
        }
    }
}

impl CompiledBundle {
    /// Holds the bundle against `expectation`: the counts, that no signal disagrees with them, the hash, and its form.
    pub fn check(&self, expectation: &Expectation) -> Verdict {
        let found = |name: &String| self.architectures.get(name).map(super::Architecture::region_count);
        let names = self.architectures.keys().chain(expectation.named.keys());
        let of = |name: &String| (name.clone(), Found { found: found(name), expected: expectation.of(name) });
        let architectures: BTreeMap<String, Found> = names.map(of).collect();
        let mut faults: Vec<Fault> = architectures.iter().filter_map(|(name, held)| fault(name, *held)).collect();
        if self.architectures.is_empty() {
            faults.insert(0, Fault::NoArchitecture);
        }
        faults.extend(self.faults());
        Verdict { architectures, faults }
    }

    /// What is wrong with the bundle whatever is expected of it.
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (name, architecture) in &self.architectures {
            for signal in &architecture.signals {
                if architecture.agreement(signal) == Agreement::Disagrees {
                    let counted = architecture.counted(signal);
                    let (function, found, says) = (signal.function.clone(), signal.found.clone(), signal.says.clone());
                    let architecture = name.clone();
                    faults.push(Fault::Signal { architecture, function, kind: signal.kind, found, says, counted });
                }
            }
        }
        if self.hash.is_wrong() {
            faults.push(Fault::Hash(self.hash.clone()));
        }
        faults.extend(self.violations.iter().cloned().map(Fault::Violation));
        faults
    }
}

fn fault(name: &str, held: Found) -> Option<Fault> {
    let (architecture, expected) = (name.to_string(), held.expected?);
    match held.found {
        None => Some(Fault::NoSuchArchitecture { architecture, expected }),
        Some(found) if found != expected => Some(Fault::Count { architecture, found, expected }),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        match text.parse::<Expectation>() {
            Ok(Expectation { each, named }) => format!("{each:?} {named:?}"),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn syntax() {
        insta::assert_snapshot!(parsed("1"), @"Some(1) {}");
        insta::assert_snapshot!(parsed("h16c=1,h18p=0"), @r#"None {"h16c": 1, "h18p": 0}"#);
        insta::assert_snapshot!(parsed(" h16c = 1 , 2,"), @r#"Some(2) {"h16c": 1}"#);
        insta::assert_snapshot!(parsed(""), @r#"error: expected regions "": there is no count"#);
        insta::assert_snapshot!(parsed("+1"), @r#"error: expected regions "+1": "+1" is neither a count nor ARCHITECTURE=COUNT"#);
        insta::assert_snapshot!(parsed("-1"), @r#"error: expected regions "-1": "-1" is neither a count nor ARCHITECTURE=COUNT"#);
        insta::assert_snapshot!(parsed("h16c"), @r#"error: expected regions "h16c": "h16c" is neither a count nor ARCHITECTURE=COUNT"#);
        insta::assert_snapshot!(parsed("=1"), @r#"error: expected regions "=1": "=1" is neither a count nor ARCHITECTURE=COUNT"#);
        insta::assert_snapshot!(parsed("h16c="), @r#"error: expected regions "h16c=": "h16c=" is neither a count nor ARCHITECTURE=COUNT"#);
        insta::assert_snapshot!(parsed("99999999999999999999"), @r#"error: expected regions "99999999999999999999": "99999999999999999999" is neither a count nor ARCHITECTURE=COUNT"#);
        insta::assert_snapshot!(parsed("1,1"), @r#"error: expected regions "1,1": the plain count is given twice"#);
        insta::assert_snapshot!(parsed("a=1,a=1"), @r#"error: expected regions "a=1,a=1": a is given twice"#);
        insta::assert_snapshot!(parsed("@/no/such"), @"error: expected regions: could not read /no/such");
    }

    #[test]
    fn files_have_lines_commas_and_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("regions.txt");
        fs_err::write(&path, "# what the h16c compiler gives\nh16c=1, h18p=0 # not on the phone\n\n0\n").unwrap();
        assert_eq!(parsed(&format!("@{}", path.display())), r#"Some(0) {"h16c": 1, "h18p": 0}"#);
    }
}
