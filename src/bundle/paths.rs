//! Path-like strings in the bytes of a file. Debug locations name source files by absolute path, and a text search
//! skips binary files, so the bytes are scanned.

use std::io::{self, Read};

/// What a path of somebody's machine starts with.
const ROOTS: [&[u8]; 9] = [
    b"/Users/",
    b"/home/",
    b"/private/var/",
    b"/private/tmp/",
    b"/var/folders/",
    b"/Volumes/",
    b"/root/",
    b"/workspace/",
    b"/tmp/",
];

/// Longest string reported, and how much of a block is kept so that one across its end is seen whole.
const LONGEST: usize = 256;

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

fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
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
    while let Some(slash) = memchr::memchr(b'/', &bytes[at..starts_before.max(at)]) {
        let start = at + slash;
        at = start + 1;
        if !ROOTS.iter().any(|root| bytes[start..].starts_with(root)) {
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

fn printable(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' ' || byte >= 0x80
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
