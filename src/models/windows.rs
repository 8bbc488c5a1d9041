//! A sequence that is longer than a static graph, in windows that overlap.
//!
//! What a graph gives for a token depends on tokens before it, so the first tokens of a window, which lack what stood
//! before, are taken from the window before and dropped here.

use std::ops::Range;

/// Soft tokens of 40 ms that windows share: 3.84 s. Each of the encoder's layers looks back about 15 tokens; with the 12
/// of the published one, 83 tokens give a mean cosine of 0.999 and a least one of 0.99.
pub const OVERLAP: usize = 96;

/// One window; both ranges count from the start of the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// All of it.
    pub range: Range<usize>,
    /// What no window before has given.
    pub fresh: Range<usize>,
}

impl Window {
    /// How many of its first elements a window before has given.
    pub fn stale(&self) -> usize {
        self.fresh.start - self.range.start
    }
}

/// Windows that cannot be: they would never come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("windows of {length} tokens cannot overlap by {overlap}, expected an overlap below their length")]
pub struct BadOverlap {
    /// Tokens of a window.
    pub length: usize,
    /// Tokens that each shares with the one before.
    pub overlap: usize,
}

/// The windows of a sequence, in order. Each but the last is full, and each gives something new.
#[derive(Clone, Debug)]
pub struct Windows {
    total: usize,
    length: usize,
    overlap: usize,
    start: Option<usize>,
}

impl Windows {
    /// Windows of `length` over `total` elements; each begins `overlap` elements before the end of the one before.
    ///
    /// # Errors
    /// There have to be several, and the overlap leaves no room for anything new.
    pub fn new(total: usize, length: usize, overlap: usize) -> Result<Windows, BadOverlap> {
        if total > length && overlap >= length {
            return Err(BadOverlap { length, overlap });
        }
        Ok(Windows { total, length, overlap, start: (total > 0).then_some(0) })
    }
}

impl Iterator for Windows {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        let start = self.start?;
        let end = self.total.min(start + self.length);
        let fresh = if start == 0 { 0 } else { start + self.overlap };
        self.start = (end < self.total).then(|| end - self.overlap);
        Some(Window { range: start..end, fresh: fresh..end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(total: usize, length: usize, overlap: usize) -> Vec<(Range<usize>, Range<usize>)> {
        Windows::new(total, length, overlap).unwrap().map(|w| (w.range, w.fresh)).collect()
    }

    #[test]
    fn windows_as_shipped() {
        assert_eq!(told(0, 750, 96), []);
        assert_eq!(told(1, 750, 96), [(0..1, 0..1)]);
        assert_eq!(told(750, 750, 96), [(0..750, 0..750)]);
        assert_eq!(told(751, 750, 96), [(0..750, 0..750), (654..751, 750..751)]);
        assert_eq!(told(1404, 750, 96), [(0..750, 0..750), (654..1404, 750..1404)]);
        assert_eq!(told(1405, 750, 96).len(), 3);
        assert_eq!(told(5, 2, 0), [(0..2, 0..2), (2..4, 2..4), (4..5, 4..5)]);
    }

    #[test]
    fn an_overlap_that_leaves_nothing_new() {
        insta::assert_snapshot!(Windows::new(41, 40, 40).unwrap_err(), @"windows of 40 tokens cannot overlap by 40, expected an overlap below their length");
        assert!(Windows::new(40, 40, 96).is_ok(), "one window overlaps with nothing");
        assert!(Windows::new(41, 0, 0).is_err());
    }

    proptest! {
        #[test]
        fn every_element_is_given_once(total in 0usize..5000, length in 1usize..800, share in 0.0f64..1.0) {
            let overlap = (length as f64 * share) as usize;
            prop_assume!(overlap < length);
            let windows: Vec<Window> = Windows::new(total, length, overlap).unwrap().collect();
            let mut at = 0;
            for (k, window) in windows.iter().enumerate() {
                prop_assert!(window.range.len() <= length && !window.fresh.is_empty());
                prop_assert_eq!(window.fresh.start, at);
                prop_assert_eq!(window.fresh.end, window.range.end);
                prop_assert_eq!(window.stale(), if k == 0 { 0 } else { overlap });
                prop_assert!(k + 1 == windows.len() || window.range.len() == length);
                at = window.fresh.end;
            }
            prop_assert_eq!(at, total);
        }
    }
}
