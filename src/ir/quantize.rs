//! Symmetric 8-bit blocks: each run of values along a row shares one scale, and a value is `scale * q` with `q` a whole
//! number from -127 to 127. -128 is left out, so that a block and its negative have the same scale.
//!
//! Values stay floats here, levels included; the arithmetic is IEEE f32 division and rounding to nearest even, so the
//! result does not depend on the machine.

use crate::tensor::{DType, NotRepresentable};

/// Largest level.
const LEVELS: f32 = 127.0;

/// 1.5 * 2^23: a float of magnitude below 2^22 that is added to it loses its fraction, rounded to nearest even, and the
/// sum's low bits are the whole number in two's complement. Unlike a call that rounds, an addition vectorizes anywhere.
const ROUNDER: f32 = 12_582_912.0;

/// The scale of a block whose largest magnitude is `largest`, which is returned as it is where it is not finite.
///
/// A block of zeros has scale 1. No scale is below the smallest normal f32: a smaller one would have too few bits for
/// the largest value to stay within the levels, and hardware may read it as 0.
fn scale(largest: f32) -> f32 {
    if largest == 0.0 || !largest.is_finite() {
        return if largest == 0.0 { 1.0 } else { largest };
    }
    let scale = (largest / LEVELS).max(f32::MIN_POSITIVE);
    // Next to the end of f32's range the quotient may be rounded up so far that the product overflows.
    if (scale * LEVELS).is_infinite() { scale.next_down() } else { scale }
}

/// Largest magnitude, or what is not finite where there is such a value. Without their sign, floats order like their
/// bits, with infinity and NaN above all others.
fn largest(block: &[f32]) -> f32 {
    f32::from_bits(block.iter().fold(0, |largest, v| largest.max(v.abs().to_bits())))
}

/// Replaces each value by its level. A block with a value that is not finite stays as it is; [`bytes_of_levels`] finds
/// it there.
pub(super) fn levels(values: &mut [f32], block: usize) {
    for part in values.chunks_mut(block.max(1)) {
        let scale = scale(largest(part));
        if scale.is_finite() {
            part.iter_mut().for_each(|v| *v = (*v / scale + ROUNDER) - ROUNDER);
        }
    }
}

/// Writes each block's scale to the front of `values`; returns how many there are.
pub(super) fn scales(values: &mut [f32], block: usize) -> usize {
    let block = block.max(1);
    let count = values.len() / block;
    for at in 0..count {
        values[at] = scale(largest(&values[at * block..(at + 1) * block]));
    }
    count
}

/// Appends levels as bytes.
///
/// # Errors
/// A value that is not finite, which is one that had no level.
pub(super) fn bytes_of_levels(levels: &[f32], out: &mut Vec<u8>) -> Result<(), NotRepresentable> {
    if let (true, Some(index)) = (!largest(levels).is_finite(), levels.iter().position(|v| !v.is_finite())) {
        return Err(NotRepresentable { index, value: levels[index], dtype: DType::I8 });
    }
    out.extend(levels.iter().map(|v| (v + ROUNDER).to_bits() as u8));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Levels as bytes, and scales.
    fn quantized(values: &[f32], block: usize) -> (Vec<i8>, Vec<f32>) {
        let (mut q, mut s, mut bytes) = (values.to_vec(), values.to_vec(), Vec::new());
        levels(&mut q, block);
        bytes_of_levels(&q, &mut bytes).unwrap();
        let count = scales(&mut s, block);
        s.truncate(count);
        (bytes.into_iter().map(u8::cast_signed).collect(), s)
    }

    #[test]
    fn blocks_at_the_ends_of_the_range() {
        let case = |values: &[f32]| {
            let (q, s) = quantized(values, values.len());
            (q, s[0])
        };
        assert_eq!(case(&[0.0, -0.0]), (vec![0, 0], 1.0));
        assert_eq!(case(&[1.27, -0.635, 0.004_9]), (vec![127, -64, 0], 0.01));
        assert_eq!(case(&[-127.0, 0.5, 1.5, 2.5, -2.5]), (vec![-127, 0, 2, 2, -2], 1.0));
        let least = f32::from_bits(1);
        assert_eq!(case(&[least, -least]), (vec![0, 0], f32::MIN_POSITIVE));
        assert_eq!(case(&[f32::MIN_POSITIVE * 100.0, least]), (vec![100, 0], f32::MIN_POSITIVE));
        let (q, s) = case(&[f32::MAX, -f32::MAX, 1.0]);
        assert_eq!(q, [127, -127, 0]);
        assert!((s * 127.0).is_finite(), "the largest value comes back as a finite one");
    }

    #[test]
    fn what_is_not_finite_is_found_where_it_stands() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 12];
            values[6] = bad;
            let mut scaled = values.clone();
            levels(&mut values, 4);
            let error = bytes_of_levels(&values, &mut Vec::new()).unwrap_err();
            assert_eq!((error.index, error.value.to_bits(), error.dtype), (6, bad.to_bits(), DType::I8));
            assert_eq!(scales(&mut scaled, 4), 3);
            assert!(!scaled[1].is_finite() && scaled[0].is_finite() && scaled[2].is_finite());
        }
    }

    fn value() -> impl Strategy<Value = f32> {
        let any = prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO;
        prop_oneof![8 => -4f32..4.0, 1 => any]
    }

    proptest! {
        /// The division adds at most 127 half units in the last place to the half level of rounding.
        #[test]
        fn no_value_is_off_by_more_than_half_a_level(
            values in prop::collection::vec(value(), 8..40),
            block in prop::sample::select(&[1usize, 2, 8][..]),
        ) {
            let values = &values[..values.len() / block * block];
            let (q, s) = quantized(values, block);
            for (i, v) in values.iter().enumerate() {
                let scale = f64::from(s[i / block]);
                prop_assert!(s[i / block].is_normal() && scale > 0.0);
                prop_assert!((-127..=127).contains(&q[i]));
                let off = (f64::from(*v) - f64::from(q[i]) * scale).abs();
                prop_assert!(off <= scale * (0.5 + 1e-5), "{} became {} * {}", v, q[i], scale);
                prop_assert!((f32::from(q[i]) * s[i / block]).is_finite());
            }
        }

        /// The largest value of a block is at the last level, so no bit is given away.
        #[test]
        fn the_largest_value_takes_the_last_level(values in prop::collection::vec(-4f32..4.0, 8)) {
            prop_assume!(values.iter().any(|v| v.abs() > 1e-3));
            let (q, _) = quantized(&values, 8);
            prop_assert_eq!(q.iter().map(|q| q.unsigned_abs()).max(), Some(127));
        }

        #[test]
        fn a_negative_block_has_negative_levels(values in prop::collection::vec(value(), 8)) {
            let negated: Vec<f32> = values.iter().map(|v| -v).collect();
            let ((q, s), (p, t)) = (quantized(&values, 8), quantized(&negated, 8));
            prop_assert_eq!(s, t);
            prop_assert!(q.iter().zip(&p).all(|(q, p)| *q == -*p));
        }
    }
}
