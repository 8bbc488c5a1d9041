//! One stream of a tool's output in bounded memory: digest of all of it, its first and last bytes, and the known
//! messages in it.

use super::classify::{Finding, Scanner};
use super::text::{printable, without_paths};
use crate::digest::Digest;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Bytes kept of the beginning; enough for a version or a path.
const HEAD: usize = 4 << 10;
/// Bytes kept of the end.
const TAIL: usize = 16 << 10;
/// Last lines that are reported.
const LAST_LINES: usize = 12;
/// Characters of each.
const LINE_CHARS: usize = 240;
/// Longest line that is matched in one piece.
const LINE: usize = 8 << 10;
/// Bytes that two pieces of a longer line share, so that a message across the seam is seen; longer than any message.
const SEAM: usize = 256;

const _: () = assert!(SEAM < LINE);

/// What is known of a stream.
#[derive(Clone, Debug, Serialize)]
pub struct LogReport {
    /// Digest of all bytes.
    pub sha256: Digest,
    /// How many there were.
    pub bytes: u64,
    /// The last lines, fit for a terminal.
    pub last_lines: Vec<String>,
    /// Known messages, one of each class.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    #[serde(skip)]
    head: Vec<u8>,
}

impl LogReport {
    /// The same for a record: without folders of this machine.
    #[must_use]
    pub fn for_record(&self) -> LogReport {
        let last_lines = self.last_lines.iter().map(|line| without_paths(line)).collect();
        LogReport { last_lines, ..self.clone() }
    }

    /// The first line that is not blank.
    pub fn first_line(&self) -> Option<String> {
        self.head.split(|b| *b == b'\n').map(|l| printable(l).trim().to_string()).find(|l| !l.is_empty())
    }
}

/// A stream while it is read.
#[derive(Debug, Default)]
pub(super) struct Log {
    hash: Sha256,
    bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
    line: Vec<u8>,
    scanner: Scanner,
}

impl Log {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
        let room = HEAD - self.head.len();
        self.head.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.tail.extend_from_slice(&chunk[chunk.len().saturating_sub(TAIL)..]);
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            self.collect(&rest[..end]);
            self.scanner.line(&self.line);
            self.line.clear();
            rest = &rest[end + 1..];
        }
        self.collect(rest);
    }

    /// Adds to the line at hand, handing over pieces of it where it is very long.
    fn collect(&mut self, mut bytes: &[u8]) {
        while self.line.len() + bytes.len() > LINE {
            let (piece, rest) = bytes.split_at(LINE - self.line.len());
            self.line.extend_from_slice(piece);
            self.scanner.line(&self.line);
            self.line.drain(..LINE - SEAM);
            bytes = rest;
        }
        self.line.extend_from_slice(bytes);
    }

    /// What is known when the stream has ended, or has been given up.
    pub(super) fn report(&mut self) -> LogReport {
        if !self.line.is_empty() {
            self.scanner.line(&self.line);
            self.line.clear();
        }
        let lines: Vec<&[u8]> = self.tail.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
        LogReport {
            sha256: Digest::from_bytes(self.hash.clone().finalize().into()),
            bytes: self.bytes,
            last_lines: last.iter().map(|l| printable(l).chars().take(LINE_CHARS).collect()).collect(),
            findings: self.scanner.findings().to_vec(),
            head: self.head.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Class;
    use super::*;

    fn log(text: &[u8], chunk: usize) -> LogReport {
        let mut log = Log::default();
        text.chunks(chunk).for_each(|c| log.push(c));
        log.report()
    }

    #[test]
    fn chunks_do_not_matter() {
        let mut text = b"3600.79.1\n\xff\xfe\n".to_vec();
        text.extend(b"warning: noise \xc3\n".repeat(3000));
        text.extend_from_slice(b"Error: Unknown architecture 'x'\nlast");
        for chunk in [1, 7, 4096, 1 << 20] {
            let report = log(&text, chunk);
            assert_eq!((report.sha256, report.bytes), (Digest::of(&text), text.len() as u64));
            assert_eq!(report.first_line().as_deref(), Some("3600.79.1"));
            assert_eq!(report.last_lines.len(), LAST_LINES);
            assert_eq!(report.last_lines.last().map(String::as_str), Some("last"));
            assert_eq!(report.findings[0].class, Class::UnknownArchitecture);
        }
    }

    #[test]
    fn messages_in_a_line_without_end_are_seen_wherever_they_are() {
        for at in [0, LINE - 10, LINE, 3 * LINE - 2 * SEAM - 5, 100_000] {
            let text = [vec![0xffu8; at], b"LLVM ERROR: No space left on device".to_vec(), vec![b'x'; 20_000]].concat();
            assert_eq!(log(&text, 1000).findings.len(), 1, "at {at}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut log = Log::default();
        let noise = vec![b'n'; 1 << 20];
        for _ in 0..64 {
            log.push(&noise);
        }
        assert!(log.head.capacity() + log.tail.capacity() + log.line.capacity() < 4 * (TAIL + LINE));
        assert_eq!(log.report().bytes, 64 << 20);
    }

    #[test]
    fn nothing_at_all() {
        let report = log(b"", 1);
        assert_eq!((report.first_line(), report.last_lines.len(), report.bytes), (None, 0, 0));
    }
}
