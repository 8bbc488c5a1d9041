//! What a tool's words and end mean.
//!
//! A tool prints hundreds of kilobytes of warnings around the one line that matters, so lines are matched as they
//! stream by and only the blocks that match are kept. Words alone fail nothing: [`classify`] is for runs that ended
//! badly, and what a good end is worth is judged by the files it left.

use super::run::{End, Finished};
use super::text::printable;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;

/// Why a run ended badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// No room left where the tool writes.
    DiskFull,
    /// The component with Apple's kernel compiler is absent, or of another Xcode.
    MetalToolchain,
    /// No device has this architecture, as far as the tool knows.
    UnknownArchitecture,
    /// The architecture belongs to another platform or system version.
    UnsupportedArchitecture,
    /// The tool cannot read the bundle it was given.
    ModelRefused,
    /// Ended by a signal.
    Crash,
    /// The Neural Engine's compiler refused a region.
    NeuralEngine,
    /// None of the above.
    Unknown,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::DiskFull => "no space left on the disk",
            Class::MetalToolchain => "the Metal Toolchain is missing or of another Xcode",
            Class::UnknownArchitecture => "the tool does not know the architecture",
            Class::UnsupportedArchitecture => "the architecture does not belong to the platform",
            Class::ModelRefused => "the tool cannot read the model",
            Class::Crash => "the tool crashed",
            Class::NeuralEngine => "the Neural Engine's compiler failed",
            Class::Unknown => "for a reason not known here",
        })
    }
}

/// A message that gives a class away.
struct Signature {
    class: Class,
    /// All of them are in the line, in lower case.
    words: &'static [&'static str],
}

/// Known messages, with where each was seen. The last three were seen nowhere and follow the usual wording.
const SIGNATURES: [Signature; 15] = [
    // apple/coreai-models#205. Not to be taken for the runtime's `ANECCompile() FAILED`, which is harmless here.
    Signature { class: Class::NeuralEngine, words: &["aneccompileoffline", "failed"] },
    // Xcode 26 and 27, many build logs.
    Signature { class: Class::MetalToolchain, words: &["missing metal toolchain"] },
    // Printed by the front end of coreai-build where the selected Xcode's toolchain predates it.
    Signature { class: Class::MetalToolchain, words: &["core ai requires the metal toolchain"] },
    // xcrun, where Xcode is older than the component.
    Signature { class: Class::MetalToolchain, words: &["unable to find utility \"metal\""] },
    // Both from coreai-build 3600.79.1.
    Signature { class: Class::UnknownArchitecture, words: &["unknown architecture '"] },
    Signature {
        class: Class::UnsupportedArchitecture,
        words: &["architecture '", "is not supported for the requested deployment target"],
    },
    // coreai-build 3600.79.1.
    Signature { class: Class::ModelRefused, words: &["input model is missing the source bytecode"] },
    // coreai-build 3600.75, before it aborts on a bundle of an older exporter.
    Signature { class: Class::ModelRefused, words: &["expected aicode versioned location"] },
    // coremlcompiler.
    Signature { class: Class::ModelRefused, words: &["failed to parse the model specification"] },
    Signature { class: Class::ModelRefused, words: &["failed to read model package"] },
    // `LLVM ERROR: No space left on device`, and POSIX in general.
    Signature { class: Class::DiskFull, words: &["no space left on device"] },
    // Foundation, when it writes a file.
    Signature { class: Class::DiskFull, words: &["nscocoaerrordomain code=640"] },
    // Not seen.
    Signature { class: Class::DiskFull, words: &["nsposixerrordomain code=28"] },
    Signature { class: Class::DiskFull, words: &["error: disk full"] },
    Signature { class: Class::UnsupportedArchitecture, words: &["unsupported architecture '"] },
];

/// The first message of its class in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it means.
    pub class: Class,
    /// `aneCompileStatus` of the Neural Engine's compiler.
    pub status: Option<i64>,
    /// The message, from its heading to its closing brace.
    pub block: Vec<String>,
}

/// Lines of a block that are kept at most; the error block of an Apple tool has about ten.
const BLOCK_LINES: usize = 40;
/// Characters of a line that are kept at most.
const LINE_CHARS: usize = 400;
/// Lines before a message in which its heading is looked for.
const HEADING_LINES: usize = 3;

/// Looks for known messages, line by line.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    findings: Vec<Finding>,
    recent: VecDeque<Vec<u8>>,
    /// Open braces of the last finding's block, while it goes on.
    open: Option<i64>,
    lower: Vec<u8>,
}

impl Scanner {
    pub(super) fn line(&mut self, line: &[u8]) {
        if let Some(open) = self.open {
            self.open = self.extend(line, open);
        } else {
            self.lower.clear();
            self.lower.extend(line.iter().map(u8::to_ascii_lowercase));
            for signature in &SIGNATURES {
                let Some(at) = found(&self.lower, signature.words) else { continue };
                if self.findings.iter().all(|f| f.class != signature.class) {
                    self.open = self.begin(signature.class, line, at);
                    break;
                }
            }
        }
        // Buffers are reused: there may be millions of lines.
        let mut slot =
            if self.recent.len() < HEADING_LINES { Vec::new() } else { self.recent.pop_front().unwrap_or_default() };
        slot.clear();
        slot.extend_from_slice(&line[..line.len().min(LINE_CHARS)]);
        self.recent.push_back(slot);
    }

    pub(super) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Starts a block at `line`, whose message is at byte `at`; tells how many braces it leaves open.
    fn begin(&mut self, class: Class, line: &[u8], at: usize) -> Option<i64> {
        let heading = self.recent.iter().position(|l| l.trim_ascii().to_ascii_lowercase().ends_with(b"error:"));
        let before = heading.map_or_else(Vec::new, |from| self.recent.iter().skip(from).map(|l| shown(l)).collect());
        // Of a very long line, what is said matters and what comes before it does not.
        let message = if line.len() > LINE_CHARS { line.get(at..).unwrap_or(line) } else { line };
        let block = before.into_iter().chain([shown(message)]).collect();
        self.findings.push(Finding { class, status: status(&self.lower), block });
        let open = braces(message);
        (open > 0).then_some(open)
    }

    fn extend(&mut self, line: &[u8], open: i64) -> Option<i64> {
        let block = &mut self.findings.last_mut()?.block;
        block.push(shown(line));
        let open = open.saturating_add(braces(line));
        (open > 0 && block.len() < BLOCK_LINES).then_some(open)
    }
}

/// Where the first of `words` is, if all of them are there.
fn found(line: &[u8], words: &[&str]) -> Option<usize> {
    let mut places = words.iter().map(|word| memchr::memmem::find(line, word.as_bytes()));
    let first = places.next()??;
    places.all(|place| place.is_some()).then_some(first)
}

fn status(lower: &[u8]) -> Option<i64> {
    const KEY: &[u8] = b"anecompilestatus=";
    let digits = lower.get(memchr::memmem::find(lower, KEY)? + KEY.len()..)?;
    let end = digits.iter().position(|b| !b.is_ascii_digit() && *b != b'-').unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

fn braces(line: &[u8]) -> i64 {
    line.iter().map(|b| i64::from(*b == b'{') - i64::from(*b == b'}')).sum()
}

fn shown(line: &[u8]) -> String {
    printable(&line[..line.len().min(4 * LINE_CHARS)]).chars().take(LINE_CHARS).collect()
}

/// Why `run` ended badly; none where it exited with 0.
///
/// What the tool said comes before how it died: a full disk makes it abort too.
pub fn classify(run: &Finished) -> Option<Class> {
    if run.end.is_success() {
        return None;
    }
    let said = |class| run.finding(class).map(|_| class);
    let causes = [
        Class::DiskFull,
        Class::MetalToolchain,
        Class::UnknownArchitecture,
        Class::UnsupportedArchitecture,
        Class::ModelRefused,
    ];
    let crashed = matches!(run.end, End::Signal(_)).then_some(Class::Crash);
    let class = causes.into_iter().find_map(said).or(crashed).or_else(|| said(Class::NeuralEngine));
    Some(class.unwrap_or(Class::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Vec<Finding> {
        let mut scanner = Scanner::default();
        text.lines().for_each(|line| scanner.line(line.as_bytes()));
        scanner.findings
    }

    #[test]
    fn known_messages_and_their_class() {
        let cases = [
            ("Error: Unknown architecture 'h99z'", Class::UnknownArchitecture),
            (
                "Architecture 'h18p' is not supported for the requested deployment target: macOS 27.0",
                Class::UnsupportedArchitecture,
            ),
            ("error: Core AI requires the Metal Toolchain", Class::MetalToolchain),
            (
                "error: cannot execute tool 'metal' due to missing Metal Toolchain; use: xcodebuild -downloadComponent",
                Class::MetalToolchain,
            ),
            ("xcrun: error: unable to find utility \"metal\", not a developer tool or in PATH", Class::MetalToolchain),
            ("LLVM ERROR: No space left on device", Class::DiskFull),
            ("Error Domain=NSCocoaErrorDomain Code=640 \"...\"", Class::DiskFull),
            ("Input model is missing the source bytecode.", Class::ModelRefused),
            ("coremlcompiler: error: Failed to parse the model specification. Error: ...", Class::ModelRefused),
            ("2026-01-01 x[1:2] ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=7", Class::NeuralEngine),
        ];
        for (line, class) in cases {
            let found = scan(&format!("noise\n{line}\nnoise"));
            assert_eq!(found.len(), 1, "{line}");
            assert_eq!((found[0].class, found[0].block.as_slice()), (class, &[line.to_string()][..]));
        }
    }

    #[test]
    fn harmless_lines_are_no_finding() {
        let text = "Error=_ANECompiler : ANECCompile() FAILED.\n\
                    E5RT: MILCompilerForANE error: failed to compile ANE model using ANEF.\n\
                    warning: failed: ANE regionCall op not found\n\
                    ANECCompileOffline() finished\n\
                    the architecture is unknown; nothing failed; metal toolchain found";
        assert_eq!(scan(text), []);
    }

    #[test]
    fn the_block_is_kept_whole_and_once() {
        let block = "Error:\n\n ANECCompileOffline() failed: OSStatus=0, aneCompileStatus=1, statusdict={\n    \
                     ErrorList =     (\n    );\n    Inner = {\n    };\n}";
        let found = scan(&format!("warning: a\n{block}\nwarning: b\n{block}\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].status, Some(1));
        assert_eq!(found[0].block.join("\n"), block);
    }

    #[test]
    fn a_block_without_end_is_cut() {
        let text = format!("ANECCompileOffline() failed: {{\n{}", "line {\n".repeat(1000));
        let found = scan(&text);
        assert_eq!((found[0].block.len(), found[0].status), (BLOCK_LINES, None));
        let long = format!("{}Unknown architecture 'x'{}", "n".repeat(5000), "m".repeat(5000));
        let found = scan(&long);
        assert!(found[0].block[0].starts_with("Unknown architecture 'x'mmm"), "{found:?}");
        assert_eq!(found[0].block[0].len(), LINE_CHARS);
    }
}
