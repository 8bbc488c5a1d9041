//! What a host does around the encoder's graph: how long a clip's outputs are, and how its inputs are padded.

/// Soft tokens of so many feature frames: two convolutions of stride 2, each of which rounds up.
pub const fn tokens_of(frames: usize) -> usize {
    frames.div_ceil(2).div_ceil(2)
}

/// The mask of a clip of `frames` in a bucket: 1 for every second frame of the clip, 0 past it. `bucket / 2` numbers.
pub fn half_mask(frames: usize, bucket: usize) -> Vec<f32> {
    let half = frames.div_ceil(2);
    (0..bucket / 2).map(|column| if column < half { 1.0 } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_of_each_length_in_a_bucket() {
        let told = |frames| (tokens_of(frames), half_mask(frames, 12));
        assert_eq!(told(0), (0, vec![0.0; 6]));
        assert_eq!(told(1), (1, vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
        assert_eq!(told(4), (1, vec![1.0, 1.0, 0.0, 0.0, 0.0, 0.0]));
        assert_eq!(told(5), (2, vec![1.0, 1.0, 1.0, 0.0, 0.0, 0.0]));
        assert_eq!(told(12), (3, vec![1.0; 6]));
        assert_eq!([2999, 3000, 3001].map(tokens_of), [750, 750, 751]);
    }
}
