//! Word errors: the least substitutions, deletions and insertions that make a reference of what was found.

use serde::Serialize;
use std::iter::Sum;
use std::ops::Add;

/// Word errors of one clip, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WordErrors {
    /// Words of the reference.
    pub reference: usize,
    /// Words that are right.
    pub hits: usize,
    /// Words in the place of another.
    pub substitutions: usize,
    /// Words of the reference that were not found.
    pub deletions: usize,
    /// Words found that the reference does not have.
    pub insertions: usize,
}

impl WordErrors {
    /// All errors: the edit distance.
    pub fn errors(&self) -> usize {
        self.substitutions + self.deletions + self.insertions
    }

    /// Errors for each word of the reference; of an empty reference, the words found, so that none found is 0.
    pub fn rate(&self) -> f64 {
        self.errors() as f64 / self.reference.max(1) as f64
    }
}

impl Add for WordErrors {
    type Output = WordErrors;

    fn add(self, other: WordErrors) -> WordErrors {
        WordErrors {
            reference: self.reference + other.reference,
            hits: self.hits + other.hits,
            substitutions: self.substitutions + other.substitutions,
            deletions: self.deletions + other.deletions,
            insertions: self.insertions + other.insertions,
        }
    }
}

impl Sum for WordErrors {
    /// Counts added up, which weighs each clip by its words.
    fn sum<I: Iterator<Item = WordErrors>>(clips: I) -> WordErrors {
        clips.fold(WordErrors::default(), Add::add)
    }
}

/// Counts of one best path, from the start of both texts to a cell of the table.
#[derive(Clone, Copy, Default)]
struct Path {
    errors: usize,
    hits: usize,
    substitutions: usize,
    deletions: usize,
    insertions: usize,
}

impl Path {
    fn met(self, same: bool) -> Path {
        if same {
            Path { hits: self.hits + 1, ..self }
        } else {
            Path { errors: self.errors + 1, substitutions: self.substitutions + 1, ..self }
        }
    }

    fn deleted(self) -> Path {
        Path { errors: self.errors + 1, deletions: self.deletions + 1, ..self }
    }

    fn inserted(self) -> Path {
        Path { errors: self.errors + 1, insertions: self.insertions + 1, ..self }
    }
}

/// Word errors of `found` against `reference`; words are compared as they are.
///
/// Of several paths of the fewest errors, the one is counted that, traced back from the end, meets a word of the
/// reference where it can, else deletes, else inserts. One row of counts is held, as long as `reference` between the
/// words that both begin and end with.
pub fn word_errors<W: PartialEq>(found: &[W], reference: &[W]) -> WordErrors {
    // The traced path meets every equal word at the end, and those at the start once all before them are equal too. A
    // proptest holds this against the whole table.
    let tail = found.iter().rev().zip(reference.iter().rev()).take_while(|(a, b)| a == b).count();
    let (inner_found, inner) = (&found[..found.len() - tail], &reference[..reference.len() - tail]);
    let head = inner_found.iter().zip(inner).take_while(|(a, b)| a == b).count();
    let errors = table(&inner_found[head..], &inner[head..]);
    WordErrors { reference: reference.len(), hits: errors.hits + head + tail, ..errors }
}

/// The same by the whole table, which takes a step for each pair of words.
fn table<W: PartialEq>(found: &[W], reference: &[W]) -> WordErrors {
    let mut row = vec![Path::default()];
    for _ in reference {
        let last = row.last().copied().unwrap_or_default();
        row.push(last.deleted());
    }
    for word in found {
        let Some((first, rest)) = row.split_first_mut() else { break };
        let mut corner = *first;
        *first = first.inserted();
        let mut left = *first;
        for (cell, expected) in rest.iter_mut().zip(reference) {
            let (met, deleted, inserted) = (corner.met(word == expected), left.deleted(), cell.inserted());
            corner = *cell;
            let mut best = met;
            for other in [deleted, inserted] {
                if other.errors < best.errors {
                    best = other;
                }
            }
            (*cell, left) = (best, best);
        }
    }
    let Path { hits, substitutions, deletions, insertions, .. } = row.last().copied().unwrap_or_default();
    WordErrors { reference: reference.len(), hits, substitutions, deletions, insertions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    fn counts(found: &str, reference: &str) -> [usize; 4] {
        let e = word_errors(&words(found), &words(reference));
        assert_eq!(e.reference, words(reference).len());
        [e.hits, e.substitutions, e.deletions, e.insertions]
    }

    #[test]
    fn known_counts() {
        for (found, reference, expected) in [
            ("", "", [0, 0, 0, 0]),
            ("", "a b", [0, 0, 2, 0]),
            ("a b", "", [0, 0, 0, 2]),
            ("a b c", "a b c", [3, 0, 0, 0]),
            ("a x c", "a b c", [2, 1, 0, 0]),
            ("a c", "a b c", [2, 0, 1, 0]),
            ("a b b c", "a b c", [3, 0, 0, 1]),
            ("x a b c", "a b c d", [3, 0, 1, 1]),
            // Two substitutions, or a deletion and an insertion around a hit: as many errors, and a meeting goes first.
            ("b a", "a b", [0, 2, 0, 0]),
            ("A", "a", [0, 1, 0, 0]),
        ] {
            assert_eq!(counts(found, reference), expected, "{found:?} against {reference:?}");
        }
    }

    #[test]
    fn rates_and_sums() {
        let clip = |found, reference| word_errors(&words(found), &words(reference));
        assert_eq!(clip("a x", "a b").rate(), 0.5);
        assert_eq!(clip("", "").rate(), 0.0);
        assert_eq!(clip("a b", "").rate(), 2.0);
        let sum: WordErrors = [clip("x", "a"), clip("a b c", "a b c")].into_iter().sum();
        assert_eq!((sum.rate(), sum.hits, sum.reference), (0.25, 3, 4), "not the mean of the rates");
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..4, 0..24)
    }

    #[test]
    fn long_texts_that_are_almost_equal_are_quick() {
        let reference: Vec<u32> = (0..1_000_000).collect();
        let mut found = reference.clone();
        found[500_000] = 0;
        found.remove(500_002);
        let e = word_errors(&found, &reference);
        assert_eq!((e.hits, e.substitutions, e.deletions, e.insertions), (999_998, 1, 1, 0));
    }

    proptest! {
        #[test]
        fn equal_ends_change_no_count(
            [head, a, b, tail] in [text(), text(), text(), text()],
        ) {
            let [a, b] = [a, b].map(|inner| [&head[..], &inner, &tail].concat());
            prop_assert_eq!(word_errors(&a, &b), table(&a, &b));
        }

        #[test]
        fn identity(a in text()) {
            let e = word_errors(&a, &a);
            prop_assert_eq!((e.errors(), e.hits), (0, a.len()));
        }

        #[test]
        fn symmetry_and_bounds(a in text(), b in text()) {
            let (e, back) = (word_errors(&a, &b), word_errors(&b, &a));
            prop_assert_eq!(e.errors(), back.errors());
            prop_assert_eq!(e.hits + e.substitutions + e.deletions, b.len());
            prop_assert_eq!(e.hits + e.substitutions + e.insertions, a.len());
            prop_assert!(e.errors() >= a.len().abs_diff(b.len()) && e.errors() <= a.len().max(b.len()));
        }

        #[test]
        fn triangle(a in text(), b in text(), c in text()) {
            prop_assert!(word_errors(&a, &c).errors() <= word_errors(&a, &b).errors() + word_errors(&b, &c).errors());
        }
    }
}
