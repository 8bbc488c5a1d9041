//! Path-like strings in the bytes of a file. Debug locations name source files by absolute path, and a text search
//! skips binary files, so the bytes are scanned.

use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{self, Read};

/// What a path of somebody's machine starts with, wherever it stands.
const ROOTS: [&[u8]; 10] = [
    b"/Users/",
    b"/home/",
    b"/private/var/",
    b"/private/tmp/",
    b"/var/folders/",
    b"/Volumes/",
    b"/root/",
    b"/workspace/",
    b"/tmp/",
    b"\\Users\\",
];

/// The same, where no name stands before it: such a folder may be the middle of a name, as in `model/data/table`.
const ROOTS_AT_START: [&[u8]; 12] = [
    b"/opt/",
    b"/usr/",
    b"/var/",
    b"/mnt/",
    b"/srv/",
    b"/data/",
    b"/app/",
    b"/content/",
    b"/kaggle/",
    b"/workspaces/",
    b"/nix/",
    b"/Library/",
];

/// Folders whose folders are called like people.
const HOMES: [&str; 3] = ["/Users/", "/home/", "\\Users\\"];

/// Shortest name of a person that is searched for: shorter ones stand in any text.
const NAME_MIN: usize = 3;

/// Longest string reported, and how much of a block is kept so that one across its end is seen whole.
const LONGEST: usize = 256;

/// What tells of somebody's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leaks {
    /// Path-like strings.
    pub paths: Vec<String>,
    /// Names of people, as words. They may be words of the model by chance.
    pub names: Vec<String>,
}

impl Leaks {
    /// Adds `more`, each once, up to `limit` of a kind.
    pub fn add(&mut self, more: Leaks, limit: usize) {
        for (known, more) in [(&mut self.paths, more.paths), (&mut self.names, more.names)] {
            for one in more {
                if known.len() < limit && !known.contains(&one) {
                    known.push(one);
                }
            }
        }
    }
}

/// Path-like strings of all that `reader` yields, each once, in order of appearance; at most `limit` of them.
///
/// # Errors
/// The reader's.
pub fn path_like(mut reader: impl Read, limit: usize) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut buffer = vec![0u8; (1 << 20) + LONGEST];
    let mut kept = 0;
    loop {
        let n = read_full(&mut reader, &mut buffer[kept..])?;
        let (filled, last) = (kept + n, kept + n < buffer.len());
        // What starts in the tail is left for the next round, which sees all of it.
        let safe = if last { filled } else { filled - LONGEST };
        scan(&buffer[..filled], safe, limit, &mut found);
        if last || found.len() >= limit {
            return Ok(found);
        }
        buffer.copy_within(safe..filled, 0);
        kept = filled - safe;
    }
}

/// Fills `buffer` as far as the reader goes, and tells how far.
pub(super) fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match reader.read(&mut buffer[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

fn scan(bytes: &[u8], starts_before: usize, limit: usize, found: &mut Vec<String>) {
    let mut at = 0;
    while let Some(slash) = memchr::memchr2(b'/', b'\\', &bytes[at..starts_before.max(at)]) {
        let start = at + slash;
        at = start + 1;
        let starts = |root: &&[u8]| bytes[start..].starts_with(root);
        let named = start.checked_sub(1).is_some_and(|before| in_name(bytes[before]));
        if !ROOTS.iter().any(starts) && (named || !ROOTS_AT_START.iter().any(starts)) {
            continue;
        }
        let end = bytes[start..].iter().take(LONGEST).position(|b| !printable(*b)).map_or(bytes.len(), |n| start + n);
        let text = String::from_utf8_lossy(&bytes[start..end.min(start + LONGEST)]).into_owned();
        at = at.max(end.min(starts_before));
        if !found.contains(&text) {
            found.push(text);
        }
        if found.len() >= limit {
            return;
        }
    }
}

fn in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 0x80
}

/// Names of the people in whose home folders `paths` lie.
pub fn people(paths: &[String]) -> BTreeSet<String> {
    let name = |path: &String| {
        let rest = HOMES.iter().find_map(|home| Some(path.split_once(home)?.1))?;
        let name = rest.split(['/', '\\']).next()?;
        (name.len() >= NAME_MIN).then(|| name.to_string())
    };
    paths.iter().filter_map(name).collect()
}

/// Those of `words` that stand in what `reader` yields, not as a part of a longer word. All of it is held in memory:
/// it is meant for text and tables, not for weights.
///
/// # Errors
/// The reader's.
pub fn words_in(mut reader: impl Read, words: &BTreeSet<String>) -> io::Result<Vec<String>> {
    let mut bytes = Vec::new();
    if !words.is_empty() {
        reader.read_to_end(&mut bytes)?;
    }
    let whole = |word: &&String| {
        memchr::memmem::find_iter(&bytes, word.as_bytes()).any(|at| {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            let after = bytes.get(at + word.len());
            ![before, after].into_iter().flatten().any(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        })
    };
    Ok(words.iter().filter(whole).cloned().collect())
}

fn printable(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'"' || byte == b' ' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_paths_wherever_blocks_end() {
        let path = b"/Users/someone/model.py";
        for offset in [0, 1, (1 << 20) - 5, 1 << 20, (1 << 20) + LONGEST - 9, 3 << 20] {
            let mut bytes = vec![0u8; offset];
            bytes.extend_from_slice(path);
            bytes.push(0);
            bytes.extend_from_slice(b"/home is not one, nor is a/b/c");
            assert_eq!(path_like(&bytes[..], 10).unwrap(), ["/Users/someone/model.py"], "at {offset}");
        }
    }

    #[test]
    fn roots_of_every_kind() {
        let found = |text: &str| path_like(text.as_bytes(), 9).unwrap();
        for path in ["/Users/a/x", "\\Users\\a\\x", "/opt/lib/x.py", "/usr/lib/x", "/content/m.ipynb", "/private/tmp/a"]
        {
            assert_eq!(found(path), [path]);
            assert_eq!(found(&format!("\0{path}\0")), [path]);
        }
        assert_eq!(found("file:///Users/a"), ["/Users/a"]);
        assert_eq!(found(r#"{"author": "/Users/a", "x": 1}"#), ["/Users/a"]);
        assert_eq!(found("C:\\Users\\a"), ["\\Users\\a"]);
        for name in ["model/data/table", "blocks.0/app/x", "a/usr/b", "/layers/0", "\\frac"] {
            assert!(found(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn people_and_where_they_are_named() {
        let paths = ["/Users/ada/x.py", "/home/bob", "\\Users\\eve x\\m", "/tmp/zoe/x", "/home/al/x"].map(String::from);
        let people = people(&paths);
        assert_eq!(people.iter().map(String::as_str).collect::<Vec<_>>(), ["ada", "bob", "eve x"]);
        let found = |text: &str| words_in(text.as_bytes(), &people).unwrap();
        assert_eq!(found("made by ada, bob2 and eve x"), ["ada", "eve x"]);
        assert!(found("adagrad, ada_down, kebobs").is_empty());
    }

    #[test]
    fn none_in_none() {
        assert!(path_like(&b""[..], 10).unwrap().is_empty());
        assert!(path_like(&vec![b'/'; 3 << 20][..], 10).unwrap().is_empty());
    }

    #[test]
    fn each_once_and_no_more_than_asked() {
        let text = "/tmp/a\0/tmp/b\0/tmp/a\0/tmp/c";
        assert_eq!(path_like(text.as_bytes(), 10).unwrap(), ["/tmp/a", "/tmp/b", "/tmp/c"]);
        assert_eq!(path_like(text.as_bytes(), 2).unwrap().len(), 2);
    }
}
