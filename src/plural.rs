//! Numbers of things in sentences. Level 0.

/// `1 flip`, `2 flips`: how many there are of a noun that takes an s.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "word")), ["0 words", "1 word", "2 words"]);
    }
}
