//! Judging by the task: transcripts that are the reference's, and word errors that are no more.

use super::{Check, Limits, Measure, Options};
use crate::eval::{WordErrors, word_errors};
use crate::models::reader::{HostRuleError, Reading, Words, spans, text};
use crate::plural::counted;
use serde_json::json;
use std::collections::BTreeMap;

/// Why no text was made.
pub const NEEDS_WORDS: &str = "needs the reader's words, by --words";
/// Why transcripts were not compared.
pub const NEEDS_TRANSCRIPTS: &str = "needs the reference's transcripts, by --transcripts";
/// Why word errors were not counted.
pub const NEEDS_TRUTH: &str = "needs what was truly said, by --wer";

/// Most words of a line. Word errors take a step for each pair of words and cannot be interrupted; speech of 150 words a
/// minute has so many in over two hours.
const WORDS_MAX: usize = 20_000;

/// The reader's words.
pub trait Vocabulary {
    /// How many there are.
    fn count(&self) -> usize;
    /// The word of a row of the table.
    fn word(&self, row: usize) -> Option<&str>;
}

impl Vocabulary for Words {
    fn count(&self) -> usize {
        self.len()
    }

    fn word(&self, row: usize) -> Option<&str> {
        self.get(row)
    }
}

#[cfg(test)]
impl Vocabulary for Vec<String> {
    fn count(&self) -> usize {
        self.len()
    }

    fn word(&self, row: usize) -> Option<&str> {
        self.get(row).map(String::as_str)
    }
}

/// What is said in each clip, words between single spaces. Words are compared as they are, case included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcripts(BTreeMap<String, String>);

/// Why transcripts cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum TranscriptsError {
    #[error("a byte order mark is at its start; save it as UTF-8 without one")]
    ByteOrderMark,
    #[error("line {line} has no tab, expected CLIP<TAB>TEXT")]
    NoTab { line: usize },
    #[error("line {line} is of clip {clip}, which is on a line before")]
    Twice { line: usize, clip: String },
    #[error("line {line} of clip {clip} has {found} words, expected at most {WORDS_MAX}")]
    Long { line: usize, clip: String, found: usize },
    #[error("{flag} has no line for clip {clip}")]
    Absent { flag: &'static str, clip: String },
}

impl Transcripts {
    /// Reads lines of `CLIP<TAB>TEXT`; empty lines are left out, and an empty text is a clip in which nothing is said.
    ///
    /// # Errors
    /// A byte order mark is at the start; or a line has no tab, is too long, or is of a clip that stands twice.
    pub fn parse(lines: &str) -> Result<Transcripts, TranscriptsError> {
        if lines.starts_with('\u{feff}') {
            return Err(TranscriptsError::ByteOrderMark);
        }
        let mut found = BTreeMap::new();
        for (at, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let (clip, text) = line.split_once('\t').ok_or(TranscriptsError::NoTab { line: at + 1 })?;
            let clip = clip.trim().to_string();
            let words: Vec<&str> = text.split_whitespace().collect();
            if words.len() > WORDS_MAX {
                return Err(TranscriptsError::Long { line: at + 1, clip, found: words.len() });
            }
            let text = words.join(" ");
            if found.contains_key(&clip) {
                return Err(TranscriptsError::Twice { line: at + 1, clip });
            }
            found.insert(clip, text);
        }
        Ok(Transcripts(found))
    }

    /// What is said in `clip`; `flag` is where the user gave these.
    ///
    /// # Errors
    /// There is no such line.
    pub fn of(&self, clip: &str, flag: &'static str) -> Result<&str, TranscriptsError> {
        let absent = || TranscriptsError::Absent { flag, clip: clip.into() };
        self.0.get(clip).map(String::as_str).ok_or_else(absent)
    }
}

/// Sees that there is a line for each of `clips` wherever the user gave lines, before anything is run.
///
/// # Errors
/// A clip has none.
pub fn cover<'c>(clips: impl Iterator<Item = &'c str>, options: &Options<'_>) -> Result<(), TranscriptsError> {
    for clip in clips {
        options.transcripts.map(|lines| lines.of(clip, "--transcripts")).transpose()?;
        options.truth.map(|lines| lines.of(clip, "--wer")).transpose()?;
    }
    Ok(())
}

/// The text that `reading` makes.
pub fn read(reading: &Reading<'_>, words: &dyn Vocabulary) -> Result<String, HostRuleError> {
    text(&spans(reading, words.count())?, |row| words.word(row))
}

/// A clip as the artefact and the reference read it.
pub struct Read {
    /// The clip.
    pub clip: String,
    /// The artefact's transcript, or why its outputs make no words.
    pub found: Result<String, String>,
    /// The reference's.
    pub reference: String,
    /// What was truly said.
    pub truth: Option<String>,
}

impl Read {
    fn is_unlike(&self) -> bool {
        self.found.as_ref() != Ok(&self.reference)
    }

    /// A line for people of a clip that is not read as the reference does.
    fn unlike(&self) -> String {
        match &self.found {
            Ok(found) => format!("{}: {found:?}, the reference {:?}", self.clip, self.reference),
            Err(why) => format!("{}: no words, {why}", self.clip),
        }
    }
}

/// How many words a text has.
pub(super) fn words_of(text: &str) -> usize {
    text.split_whitespace().count()
}

/// Whether enough transcripts are the reference's; those that are not are listed. Clips in which nobody reads a word show
/// nothing.
pub fn transcripts_check(clips: &[Read], limits: &Limits) -> Check {
    const NAME: &str = "transcripts";
    let words: usize = clips.iter().map(|c| words_of(&c.reference)).sum();
    let silent = |c: &Read| c.found.as_ref().is_ok_and(|found| words_of(found) == 0);
    if words == 0 && clips.iter().all(silent) {
        return Check::not_run(NAME, "no clip has a word in it");
    }
    let unlike: Vec<&Read> = clips.iter().filter(|c| c.is_unlike()).collect();
    let equal = clips.len() - unlike.len();
    let percent = 100.0 * equal as f64 / clips.len().max(1) as f64;
    let says = format!("{equal} of {} are the reference's ({percent:.1} %), {}", clips.len(), counted(words, "word"));
    let listed: Vec<_> = unlike
        .iter()
        .map(|c| json!({ "clip": c.clip, "found": c.found.as_ref().ok(), "reference": c.reference }))
        .collect();
    let figures = json!({ "clips": clips.len(), "words": words, "equal": equal, "percent": percent, "unlike": listed });
    let lines = unlike.iter().map(|c| c.unlike()).collect();
    let measure = Measure::at_least("equal_percent", percent, limits.transcripts_percent);
    Check::run(NAME, [measure], says, figures).with_lines(lines)
}

/// Whether the word error rate is not above the reference's by more than allowed. Of no word there is no rate.
pub fn wer_check(clips: &[Read], limits: &Limits) -> Check {
    const NAME: &str = "wer";
    let errors = |text: &dyn Fn(&Read) -> String| -> WordErrors {
        let of = |c: &Read| {
            let (found, truth) = (text(c), c.truth.clone().unwrap_or_default());
            word_errors(&found.split_whitespace().collect::<Vec<_>>(), &truth.split_whitespace().collect::<Vec<_>>())
        };
        clips.iter().map(of).sum()
    };
    let found = errors(&|c| c.found.clone().unwrap_or_default());
    if found.reference == 0 {
        return Check::not_run(NAME, "no word was truly said in any clip");
    }
    let reference = errors(&|c| c.reference.clone());
    let points = 100.0 * (found.rate() - reference.rate());
    let says = format!(
        "{:.2} % of {}, the reference {:.2} %, {points:+.2} points",
        100.0 * found.rate(),
        counted(found.reference, "word"),
        100.0 * reference.rate(),
    );
    let figures = json!({ "found": found, "reference": reference, "points": points });
    Check::run(NAME, [Measure::at_most("points", points, limits.wer_points)], says, figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Verdict;
    use crate::passes::Precision;

    #[test]
    fn lines() {
        let read = Transcripts::parse("a\tone  two \r\n\nb\t\nc d\tx\ty\n").unwrap();
        for (clip, text) in [("a", "one two"), ("b", ""), ("c d", "x y")] {
            assert_eq!(read.of(clip, "--wer").unwrap(), text);
        }
        insta::assert_snapshot!(read.of("z", "--wer").unwrap_err(), @"--wer has no line for clip z");
        insta::assert_snapshot!(Transcripts::parse("a\tb\nc").unwrap_err(), @"line 2 has no tab, expected CLIP<TAB>TEXT");
        insta::assert_snapshot!(Transcripts::parse("a\tb\na\tb").unwrap_err(), @"line 2 is of clip a, which is on a line before");
    }

    #[test]
    fn lines_are_bounded() {
        let of = |words: usize| Transcripts::parse(&format!("a\tb\nlong\t{}\n", "w ".repeat(words)));
        assert_eq!(of(WORDS_MAX).unwrap().of("long", "--wer").unwrap().len(), 2 * WORDS_MAX - 1);
        insta::assert_snapshot!(of(WORDS_MAX + 1).unwrap_err(), @"line 2 of clip long has 20001 words, expected at most 20000");
    }

    #[test]
    fn a_byte_order_mark_is_named() {
        insta::assert_snapshot!(Transcripts::parse("\u{feff}a\tb").unwrap_err(), @"a byte order mark is at its start; save it as UTF-8 without one");
        assert!(Transcripts::parse("a\t\u{feff}b").is_ok());
    }

    fn clips(found: &[Option<&str>]) -> Vec<Read> {
        let read = |(at, found): (usize, &Option<&str>)| Read {
            clip: format!("clip{at}"),
            found: found.map(str::to_string).ok_or_else(|| "token 3 is not finite".into()),
            reference: "a b".into(),
            truth: Some("a b c d e".into()),
        };
        found.iter().enumerate().map(read).collect()
    }

    #[test]
    fn nineteen_of_twenty_are_enough() {
        let limits = Limits::of(Precision::Fp16);
        let with = |unlike: usize| {
            let found: Vec<Option<&str>> = (0..20).map(|i| Some(if i < unlike { "a" } else { "a b" })).collect();
            transcripts_check(&clips(&found), &limits)
        };
        assert_eq!([0, 1].map(|n| with(n).verdict), [Verdict::Pass, Verdict::Pass]);
        assert_eq!(with(1).measures, [Measure::at_least("equal_percent", 95.0, 95.0)]);
        assert_eq!(with(2).verdict, Verdict::Fail);
        insta::assert_snapshot!(with(2).says, @"18 of 20 are the reference's (90.0 %), 40 words");
        assert_eq!(transcripts_check(&clips(&[None]), &limits).verdict, Verdict::Fail);
        insta::assert_snapshot!(transcripts_check(&clips(&[Some("a b"), Some("a"), None]), &limits).lines.join("\n"), @r#"
        clip1: "a", the reference "a b"
        clip2: no words, token 3 is not finite
        "#);
    }

    #[test]
    fn clips_without_a_word_show_nothing() {
        let limits = Limits::of(Precision::Fp16);
        let quiet = |found: Option<&str>| {
            let silence = |read: Read| Read { reference: String::new(), truth: Some(String::new()), ..read };
            clips(&[Some(""), found]).into_iter().map(silence).collect::<Vec<Read>>()
        };
        assert_eq!(
            transcripts_check(&quiet(Some("")), &limits),
            Check::not_run("transcripts", "no clip has a word in it")
        );
        assert_eq!(transcripts_check(&[], &limits).verdict, transcripts_check(&quiet(Some("")), &limits).verdict);
        // A word that is heard in silence is wrong, and so is what cannot be read.
        for found in [Some("a"), None] {
            assert_eq!(transcripts_check(&quiet(found), &limits).verdict, Verdict::Fail, "{found:?}");
        }
        assert_eq!(wer_check(&quiet(Some("a")), &limits), Check::not_run("wer", "no word was truly said in any clip"));
        let mut said = quiet(Some(""));
        said[0].truth = Some("a".into());
        assert_eq!(wer_check(&said, &limits).verdict, Verdict::Pass, "the reference misses it too");
    }

    #[test]
    fn errors_against_those_of_the_reference() {
        let limits = Limits::of(Precision::Fp16);
        let check = wer_check(&clips(&[Some("a b"), Some("x b")]), &limits);
        assert_eq!(check.verdict, Verdict::Fail);
        insta::assert_snapshot!(check.says, @"70.00 % of 10 words, the reference 60.00 %, +10.00 points");
        assert_eq!(check.measures, [Measure::at_most("points", 10.0, 0.1)]);
        // One word in a thousand more is 0.1 points.
        let mut long = clips(&[Some("a b")]);
        long[0].truth = Some("w ".repeat(1000));
        long[0].reference = "w ".repeat(1000);
        for (right, verdict) in [(1000, Verdict::Pass), (999, Verdict::Pass), (998, Verdict::Fail)] {
            long[0].found = Ok("w ".repeat(right));
            assert_eq!(wer_check(&long, &limits).verdict, verdict, "{right}");
        }
        assert_eq!(wer_check(&clips(&[None]), &limits).verdict, Verdict::Fail, "no words is all of them missing");
    }
}
