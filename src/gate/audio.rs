//! Judging by recordings: what an encoder and a reader make of sound, against what the reference wrote down of it.
//!
//! Recordings say nothing of numbers, so their checks are the task's, and one red arm: the second half of a clip's soft
//! tokens zeroed, which must change what is read of it.

use super::red_arm::{self, Arm, Outcome};
use super::transcripts::{self, Read, Transcripts, TranscriptsError, words_of};
use super::{Check, Limits, Options};
use crate::plural::counted;
use serde::Serialize;
use serde_json::json;

/// What was heard in a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Heard {
    /// The clip, called as its file without its ending.
    pub clip: String,
    /// Seconds of sound.
    pub seconds: f64,
    /// Soft tokens of it.
    pub tokens: usize,
    /// Its words between single spaces; none where the outputs make none.
    pub text: Option<String>,
    /// Why the outputs make no words.
    pub unread: Option<String>,
    /// The words with the second half of the soft tokens zeroed.
    pub halved: Option<String>,
    /// Words that begin in the second half.
    pub late_words: usize,
}

const ARM: &str = "audio red arm second half";

/// Judges what was heard.
///
/// # Errors
/// A clip has no line where the user gave lines.
pub fn audio(heard: &[Heard], options: &Options<'_>) -> Result<Vec<Check>, TranscriptsError> {
    let mut checks = task_checks(heard, options)?.to_vec();
    let arms: Vec<Arm> = heard.iter().map(arm).collect();
    let clips: Vec<(&str, &Arm)> = heard.iter().map(|h| h.clip.as_str()).zip(&arms).collect();
    checks.push(red_arm::check(ARM, "clips with a word in their second half", &clips));
    Ok(checks)
}

/// The checks of recordings that nobody heard.
pub fn unheard(reason: &str) -> Vec<Check> {
    ["audio transcripts", "audio wer", ARM].map(|name| Check::not_run(name, reason)).into()
}

fn task_checks(heard: &[Heard], options: &Options<'_>) -> Result<[Check; 2], TranscriptsError> {
    let Some(lines) = options.transcripts else {
        return Ok(["audio transcripts", "audio wer"].map(|name| Check::not_run(name, transcripts::NEEDS_TRANSCRIPTS)));
    };
    let read = |h: &Heard| {
        let truth = options.truth.map(|truth| truth.of(&h.clip, "--wer").map(str::to_string)).transpose()?;
        let reference = lines.of(&h.clip, "--transcripts")?.to_string();
        let why = || h.unread.clone().unwrap_or_else(|| "nothing was read".into());
        Ok(Read { clip: h.clip.clone(), found: h.text.clone().ok_or_else(why), reference, truth })
    };
    let clips = heard.iter().map(read).collect::<Result<Vec<Read>, TranscriptsError>>()?;
    Ok([
        Check { name: "audio transcripts", ..transcripts::transcripts_check(&clips, &options.limits) },
        wer(&clips, options.truth, &options.limits),
    ])
}

fn wer(clips: &[Read], truth: Option<&Transcripts>, limits: &Limits) -> Check {
    match truth {
        None => Check::not_run("audio wer", transcripts::NEEDS_TRUTH),
        Some(_) => Check { name: "audio wer", ..transcripts::wer_check(clips, limits) },
    }
}

/// The arm broke a clip that is read otherwise with it. One without a word in its second half has nothing to lose there.
fn arm(heard: &Heard) -> Arm {
    let Some(text) = heard.text.as_ref().filter(|_| heard.late_words > 0) else {
        return Arm::not_applicable(ARM);
    };
    let outcome = if heard.halved.as_ref() == Some(text) { Outcome::Held } else { Outcome::Broke };
    let (green, red) = (words_of(text), heard.halved.as_deref().map_or(0, words_of));
    let figures = json!({ "words": green, "words_with": red, "late_words": heard.late_words });
    let says = format!("{}, {red} with the arm, {} in the second half", counted(green, "word"), heard.late_words);
    Arm { name: ARM, outcome, figures, says, strength: heard.late_words as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Verdict;
    use crate::passes::Precision;

    fn heard(clip: &str, text: &str, halved: &str, late_words: usize) -> Heard {
        Heard {
            clip: clip.into(),
            seconds: 1.0,
            tokens: 25,
            text: Some(text.into()),
            unread: None,
            halved: Some(halved.into()),
            late_words,
        }
    }

    fn judged(heard: &[Heard], transcripts: Option<&str>, truth: Option<&str>) -> Vec<Check> {
        let lines = |text: Option<&str>| text.map(|text| Transcripts::parse(text).unwrap());
        let (transcripts, truth) = (lines(transcripts), lines(truth));
        let options = Options {
            limits: Limits::of(Precision::Fp16),
            repeats: 1,
            rows: None,
            words: None,
            transcripts: transcripts.as_ref(),
            truth: truth.as_ref(),
        };
        transcripts::cover(heard.iter().map(|h| h.clip.as_str()), &options).unwrap();
        audio(heard, &options).unwrap()
    }

    fn told(checks: &[Check]) -> String {
        let says = |check: &Check| match &check.verdict {
            Verdict::Pass => format!("{} passed: {}", check.name, check.says),
            Verdict::Fail => format!("{} FAILED: {}", check.name, check.says),
            Verdict::NotRun { reason } => format!("{} not run: {reason}", check.name),
        };
        let lines =
            checks.iter().flat_map(|c| std::iter::once(says(c)).chain(c.lines.iter().map(|l| format!("  {l}"))));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn clips_that_are_heard_right() {
        let clips = [heard("a", "one two", "one", 1), heard("b", "", "", 0)];
        insta::assert_snapshot!(told(&judged(&clips, Some("a\tone two\nb\t"), Some("a\tone too\nb\t"))), @"
        audio transcripts passed: 2 of 2 are the reference's (100.0 %), 2 words
        audio wer passed: 50.00 % of 2 words, the reference 50.00 %, +0.00 points
        audio red arm second half passed: broke 1 of 1 clips it applies to, least a: 2 words, 1 with the arm, 1 in the second half
        ");
        insta::assert_snapshot!(told(&judged(&clips, None, None)), @"
        audio transcripts not run: needs the reference's transcripts, by --transcripts
        audio wer not run: needs the reference's transcripts, by --transcripts
        audio red arm second half passed: broke 1 of 1 clips it applies to, least a: 2 words, 1 with the arm, 1 in the second half
        ");
    }

    #[test]
    fn clips_that_are_heard_wrong_or_not_at_all() {
        let mut silent = heard("b", "", "", 0);
        (silent.text, silent.unread) = (None, Some("soft_tokens is not finite at token 3".into()));
        let clips = [heard("a", "one", "one", 0), silent];
        insta::assert_snapshot!(told(&judged(&clips, Some("a\tone two\nb\tthree"), Some("a\tone two\nb\tthree"))), @r#"
        audio transcripts FAILED: 0 of 2 are the reference's (0.0 %), 3 words
          a: "one", the reference "one two"
          b: no words, soft_tokens is not finite at token 3
        audio wer FAILED: 66.67 % of 3 words, the reference 0.00 %, +66.67 points
        audio red arm second half not run: it applies to clips with a word in their second half, and no clip is one
        "#);
    }

    #[test]
    fn an_arm_that_is_dulled_fails() {
        let clips = [heard("a", "one two", "one two", 1), heard("b", "one", "", 1)];
        insta::assert_snapshot!(told(&judged(&clips, None, None)), @"
        audio transcripts not run: needs the reference's transcripts, by --transcripts
        audio wer not run: needs the reference's transcripts, by --transcripts
        audio red arm second half FAILED: did not break 1 of 2 clips it applies to, such as a
          a: 2 words, 2 with the arm, 1 in the second half
        ");
        let only = [heard("a", "one", "one", 0)];
        insta::assert_snapshot!(told(&judged(&only, None, None)), @"
        audio transcripts not run: needs the reference's transcripts, by --transcripts
        audio wer not run: needs the reference's transcripts, by --transcripts
        audio red arm second half not run: it applies to clips with a word in their second half, and no clip is one
        ");
    }
}
