//! How far two results are apart, in f64.

use serde::Serialize;

/// Two tensors of the same shape compared; a row is the last axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Rows compared.
    pub rows: usize,
    /// Least cosine of any row.
    pub cosine_min: f64,
    /// Row of that cosine.
    pub cosine_min_row: usize,
    /// Mean cosine of the rows.
    pub cosine_mean: f64,
    /// Largest absolute difference.
    pub max_abs: f64,
    /// Signal to noise, dB: power of the reference over power of the difference. Infinite (`null` in JSON) where
    /// nothing differs.
    pub snr_db: f64,
}

/// Why two tensors were not compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// Different lengths.
    #[error("{found} values against a reference of {expected}")]
    Length {
        /// Values of the result.
        found: usize,
        /// Values of the reference.
        expected: usize,
    },
    /// Rows that do not divide the values.
    #[error("{values} values are not rows of {width}")]
    Width {
        /// How many values.
        values: usize,
        /// The row width asked for.
        width: usize,
    },
}

/// Compares `found` with `reference`, both rows of `width` values.
///
/// A row that is zero on both sides has cosine 1, on one side only cosine 0; a row with a NaN has cosine 0, and the
/// largest difference is then infinite.
///
/// # Errors
/// The lengths differ, there is no value, or `width` does not divide them.
pub fn compare(found: &[f32], reference: &[f32], width: usize) -> Result<Comparison, MetricError> {
    if found.len() != reference.len() {
        return Err(MetricError::Length { found: found.len(), expected: reference.len() });
    }
    if width == 0 || found.is_empty() || !found.len().is_multiple_of(width) {
        return Err(MetricError::Width { values: found.len(), width });
    }
    let rows = found.len() / width;
    let (mut sum, mut least) = (0.0, (f64::INFINITY, 0));
    for (row, (a, b)) in found.chunks_exact(width).zip(reference.chunks_exact(width)).enumerate() {
        let cosine = cosine(a, b);
        sum += cosine;
        if cosine < least.0 {
            least = (cosine, row);
        }
    }
    Ok(Comparison {
        rows,
        cosine_min: least.0,
        cosine_min_row: least.1,
        cosine_mean: sum / rows as f64,
        max_abs: max_abs(found, reference),
        snr_db: snr_db(found, reference),
    })
}

fn pairs<'a>(a: &'a [f32], b: &'a [f32]) -> impl Iterator<Item = (f64, f64)> + 'a {
    a.iter().zip(b).map(|(x, y)| (f64::from(*x), f64::from(*y)))
}

/// Cosine of the angle between two vectors; see [`compare`] for zeros and NaN.
fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in pairs(a, b) {
        dot += x * y;
        aa += x * x;
        bb += y * y;
    }
    if aa == 0.0 && bb == 0.0 {
        return 1.0;
    }
    // Two roots, since the product of two squares can leave the range.
    let cosine = dot / (aa.sqrt() * bb.sqrt());
    if cosine.is_finite() { cosine.clamp(-1.0, 1.0) } else { 0.0 }
}

fn max_abs(found: &[f32], reference: &[f32]) -> f64 {
    pairs(found, reference)
        // Equal infinities differ by nothing, and a NaN by everything.
        .map(|(x, y)| if x == y { 0.0 } else { (x - y).abs() })
        .fold(0.0, |worst, d| if d.is_nan() { f64::INFINITY } else { f64::max(worst, d) })
}

fn snr_db(found: &[f32], reference: &[f32]) -> f64 {
    let (signal, noise) = pairs(found, reference).fold((0.0, 0.0), |(s, n), (x, y)| (s + y * y, n + (x - y) * (x - y)));
    if noise == 0.0 { f64::INFINITY } else { 10.0 * (signal / noise).log10() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_figures() {
        let c = compare(&[1.0, 0.0, 1.0, 1.0], &[1.0, 0.0, 1.0, 0.0], 2).unwrap();
        assert_eq!((c.rows, c.cosine_min_row, c.max_abs), (2, 1, 1.0));
        assert!((c.cosine_min - 0.5f64.sqrt()).abs() < 1e-12);
        assert!((c.cosine_mean - (1.0 + 0.5f64.sqrt()) / 2.0).abs() < 1e-12);
        assert!((c.snr_db - 10.0 * 2f64.log10()).abs() < 1e-12);
    }

    #[test]
    fn zeros_nan_and_infinity_do_not_pass_for_equal() {
        let same = compare(&[0.0, 0.0], &[0.0, 0.0], 2).unwrap();
        assert_eq!((same.cosine_min, same.max_abs, same.snr_db), (1.0, 0.0, f64::INFINITY));
        assert_eq!(compare(&[0.0, 0.0], &[1.0, 0.0], 2).unwrap().cosine_min, 0.0);
        let nan = compare(&[f32::NAN, 1.0], &[1.0, 1.0], 2).unwrap();
        assert_eq!((nan.cosine_min, nan.max_abs), (0.0, f64::INFINITY));
        let later = compare(&[f32::NAN, 1.0], &[1.0, 3.0], 1).unwrap();
        assert_eq!(later.max_abs, f64::INFINITY);
        assert!(compare(&[1e30, 1e30], &[1e30, 1e30], 2).unwrap().cosine_min > 1.0 - 1e-12);
    }

    #[test]
    fn what_cannot_be_compared() {
        insta::assert_snapshot!(compare(&[1.0], &[1.0, 2.0], 1).unwrap_err(), @"1 values against a reference of 2");
        insta::assert_snapshot!(compare(&[1.0; 3], &[1.0; 3], 2).unwrap_err(), @"3 values are not rows of 2");
        assert!(compare(&[], &[], 1).is_err() && compare(&[1.0], &[1.0], 0).is_err());
    }
}
