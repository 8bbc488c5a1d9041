//! Several static lengths of one artefact.

use super::{BadBucket, Bucket};
use std::collections::BTreeSet;

/// One bucket or more, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets(BTreeSet<Bucket>);

/// A list of buckets that no artefact can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBuckets {
    /// The list is empty.
    #[error("no bucket is given, expected a number of frames such as 3000")]
    Empty,
    /// One that no graph can have.
    #[error(transparent)]
    Bad(#[from] BadBucket),
    /// One that is there twice.
    #[error("bucket {0} is given twice")]
    Twice(usize),
}

impl Buckets {
    /// Buckets of so many frames each, in any order.
    ///
    /// # Errors
    /// There is none, one is no [`Bucket`], or one is there twice.
    pub fn new(frames: &[usize]) -> Result<Buckets, BadBuckets> {
        let mut buckets = BTreeSet::new();
        for frames in frames {
            if !buckets.insert(Bucket::new(*frames)?) {
                return Err(BadBuckets::Twice(*frames));
            }
        }
        if buckets.is_empty() { Err(BadBuckets::Empty) } else { Ok(Buckets(buckets)) }
    }

    /// The buckets, shortest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is more than one.
    pub fn several(&self) -> bool {
        self.0.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_sorted_and_unlike() {
        let frames = |list: &[usize]| Buckets::new(list).map(|b| b.iter().map(Bucket::frames).collect::<Vec<_>>());
        assert_eq!(frames(&[3000, 1000]), Ok(vec![1000, 3000]));
        assert_eq!(frames(&[200]), Ok(vec![200]));
        assert_eq!(frames(&[]), Err(BadBuckets::Empty));
        assert_eq!(frames(&[200, 400, 200]), Err(BadBuckets::Twice(200)));
        assert_eq!(frames(&[200, 3]), Err(BadBuckets::Bad(BadBucket(3))));
    }
}
