//! Entries that are evenly spaced.

use super::{ClusterError, Palette, accept, assign, squared_error};

/// `k` entries evenly spaced from the least value to the greatest, and the nearest of them for each value; a single
/// entry is in the middle.
///
/// There are fewer where f32 has fewer numbers in between, and one where all values are equal.
///
/// # Errors
/// `k` is 0 or above [`MOST`](super::MOST), there are no values, or one of them is not finite.
pub fn uniform(values: &[f32], k: usize) -> Result<Palette, ClusterError> {
    accept(values, k)?;
    let (least, greatest) = values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
    let (from, to) = (f64::from(least), f64::from(greatest));
    // Both weights are exact at the ends, so that the ends are the values themselves. The zero added makes -0 a 0.
    let entry = |i: usize| match k {
        1 => (from + to) / 2.0,
        _ => (from * (k - 1 - i) as f64 + to * i as f64) / (k - 1) as f64,
    };
    let mut centroids: Vec<f32> = (0..k).map(|i| entry(i) as f32 + 0.0).collect();
    centroids.dedup();
    let indices = assign(values, &centroids);
    let squared_error = squared_error(values, &centroids, &indices);
    Ok(Palette { centroids, indices, squared_error })
}
