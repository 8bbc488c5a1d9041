//! The few numeric rules that the action head and the answers share.

/// The share of each of `logits`. What is empty stays empty; no logit may be NaN or infinite.
pub fn softmax(logits: &[f32]) -> Vec<f32> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut shares: Vec<f32> = logits.iter().map(|x| (x - largest).exp()).collect();
    let sum: f32 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

/// Place of the first of the largest values; 0 of none.
pub fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (i, value) in values.iter().enumerate() {
        if values.get(best).is_some_and(|top| value > top) {
            best = i;
        }
    }
    best
}

/// Place of the first value that is NaN or infinite.
pub fn not_finite(values: &[f32]) -> Option<usize> {
    values.iter().position(|value| !value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one() {
        assert_eq!(softmax(&[3.0]), [1.0]);
        assert_eq!(softmax(&[-1e4, -1e4]), [0.5, 0.5]);
        assert_eq!(softmax(&[1e4, -1e4]), [1.0, 0.0]);
        assert!(softmax(&[]).is_empty());
    }

    #[test]
    fn the_first_of_equals() {
        assert_eq!([argmax(&[1.0, 2.0, 2.0]), argmax(&[]), argmax(&[-1.0])], [1, 0, 0]);
        assert_eq!(
            [not_finite(&[0.0, f32::NAN]), not_finite(&[f32::INFINITY]), not_finite(&[0.0])],
            [Some(1), Some(0), None]
        );
    }
}
