//! The Gemma 4 audio tower with `embed_audio`, as EmbeddingGemma 2 ships it: log-mel features to soft tokens.

mod attention;
mod author;
mod buckets;
mod clip;
mod config;
mod host;

pub use author::{AuthorReport, Authored, author, end_of_layer};
pub use buckets::{BadBuckets, Buckets};
pub use clip::DroppedBound;
pub use config::AudioConfig;
pub use host::{half_mask, tokens_of};

pub use crate::dsp::MEL_BINS;

/// Feature frames of one soft token: two convolutions of stride 2.
pub const FRAMES_PER_TOKEN: usize = 4;

/// Longest bucket in frames. The Neural Engine takes no axis above 16,384, and 163 s is five shipped windows.
pub const MAX_BUCKET: usize = 16_384;

/// Longest bucket that is only evaluated: ten minutes, whose largest activation is 2 GB.
pub const MAX_EVALUATED: usize = 60_000;

/// A static length in feature frames of 10 ms: four of them make one soft token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(usize);

/// A bucket the graph cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bucket {0} is not a number of frames from 4 to {MAX_BUCKET} that four divides (3000 is 30 s)")]
pub struct BadBucket(pub usize);

/// A bucket that cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bucket {0} is not a number of frames from 4 to {MAX_EVALUATED} that four divides (3000 is 30 s)")]
pub struct BadEvaluated(pub usize);

impl Bucket {
    /// The bucket that is shipped: 30 s.
    pub const SHIPPED: Bucket = Bucket(3000);

    /// A bucket of that many frames.
    ///
    /// # Errors
    /// Zero, not a multiple of four, or above [`MAX_BUCKET`].
    pub fn new(frames: usize) -> Result<Bucket, BadBucket> {
        if frames > 0 && frames.is_multiple_of(4) && frames <= MAX_BUCKET {
            Ok(Bucket(frames))
        } else {
            Err(BadBucket(frames))
        }
    }

    /// A bucket of a graph that is evaluated here and written for no target, so that a clip of minutes can be one window.
    ///
    /// # Errors
    /// Zero, not a multiple of four, or above [`MAX_EVALUATED`].
    pub fn evaluated(frames: usize) -> Result<Bucket, BadEvaluated> {
        if frames > 0 && frames.is_multiple_of(4) && frames <= MAX_EVALUATED {
            Ok(Bucket(frames))
        } else {
            Err(BadEvaluated(frames))
        }
    }

    /// Frames, `Tb`.
    pub fn frames(self) -> usize {
        self.0
    }

    /// Rows after the first subsampling layer, `Tb / 2`: the length of `half_mask`.
    pub fn half(self) -> usize {
        self.0 / 2
    }

    /// Soft tokens, `Tb / 4`, of 40 ms each.
    pub fn tokens(self) -> usize {
        self.0 / FRAMES_PER_TOKEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets() {
        assert_eq!(Bucket::evaluated(18_000).unwrap().tokens(), 4500);
        insta::assert_snapshot!(Bucket::evaluated(MAX_EVALUATED + 4).unwrap_err(), @"bucket 60004 is not a number of frames from 4 to 60000 that four divides (3000 is 30 s)");
        for good in [4, 200, 1000, 3000, MAX_BUCKET] {
            assert_eq!(Bucket::new(good).unwrap().tokens(), good / 4);
        }
        for bad in [0, 1, 2, 3001, 3002, MAX_BUCKET + 4, usize::MAX] {
            assert_eq!(Bucket::new(bad), Err(BadBucket(bad)));
        }
        insta::assert_snapshot!(BadBucket(3001), @"bucket 3001 is not a number of frames from 4 to 16384 that four divides (3000 is 30 s)");
    }
}
