//! What a tool printed, made fit to be shown and recorded.

/// `bytes` as text for a terminal: what is not UTF-8 and every control character but the tab become U+FFFD, and
/// carriage returns go.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let keep = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.trim_end_matches('\r').chars().map(keep).collect()
}

/// A tool's lines below a message, each marked as not ours.
pub fn quoted(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["\n  |", if line.is_empty() { "" } else { " " }, line]).collect()
}

/// `line` with every absolute path cut to its last part, so that a record names no folder of the machine.
///
/// Words are not cut at a blank inside quotes, which tools put around paths that have blanks in them.
pub fn without_paths(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut before = None;
    while let Some(c) = rest.chars().next() {
        if c == '/' && starts_path(before, rest) {
            let quote = before.filter(|q| matches!(q, '"' | '\'' | '`'));
            let end = rest.find(|c: char| ends_path(c, quote)).unwrap_or(rest.len());
            let path = rest[..end].trim_end_matches('/');
            out.push_str(path.rsplit('/').next().unwrap_or_default());
            before = rest[..end].chars().next_back();
            rest = &rest[end..];
        } else {
            out.push(c);
            before = Some(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// A slash begins a path unless it divides a word (`and/or`) or stands alone.
fn starts_path(before: Option<char>, rest: &str) -> bool {
    let divides = before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | ')'));
    !divides && rest.chars().nth(1).is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '/'))
}

fn ends_path(c: char, quote: Option<char>) -> bool {
    match quote {
        Some(quote) => c == quote,
        None => c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | ';' | ':' | ')' | ']' | '}' | '>'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_folders() {
        let cases = [
            ("", ""),
            ("no path, and/or none at all: 1/2 of n / m", "no path, and/or none at all: 1/2 of n / m"),
            ("open /Users/me/a.mlirb: denied", "open a.mlirb: denied"),
            ("Name = \"/var/folders/a b/x_ANE_region_1_0.bc.mlir\";", "Name = \"x_ANE_region_1_0.bc.mlir\";"),
            ("file:///private/tmp/x/y.bc next", "file:y.bc next"),
            ("/a/b/c/ and /d", "c and d"),
            ("loc(\"/home/u/m.py\":12:3)", "loc(\"m.py\":12:3)"),
            ("\u{e9}/not/a/path //x", "\u{e9}/not/a/path x"),
        ];
        for (line, want) in cases {
            assert_eq!(without_paths(line), want);
        }
    }

    #[test]
    fn no_control_character_reaches_a_terminal() {
        assert_eq!(printable(b"\x1b[31mred\xff\tx\r"), "\u{fffd}[31mred\u{fffd}\tx");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(line in "\\PC*") {
            without_paths(&line);
        }
    }
}
