//! Clusters of numbers: at most 256 entries that stand for many values. Level 0.
//!
//! [`kmeans`] finds the entries of least squared error there are, [`uniform`] spaces them evenly. Both are for one
//! group of values; whoever has many runs them side by side. What comes out depends neither on the order of the values
//! nor on the machine.

mod distinct;
mod error;
mod kmeans;
mod links;
mod pair;
#[cfg(test)]
mod tests;
mod uniform;

pub use error::ClusterError;
pub use kmeans::kmeans;
pub use uniform::uniform;

use pair::Pair;

/// The most entries a palette has: what an index of 8 bits can name.
pub const MOST: usize = 256;

/// Entries, and which of them stands for each value.
#[derive(Clone, Debug, PartialEq)]
pub struct Palette {
    /// The entries, ascending, no two equal.
    pub centroids: Vec<f32>,
    /// For each value in the order given, its entry: the nearest, the lower of two that are equally near.
    pub indices: Vec<u8>,
    /// Sum of the squared differences between the values and their entries.
    pub squared_error: f64,
}

/// What is asked for can be done: `k` entries, some values, all of them finite.
fn accept(values: &[f32], k: usize) -> Result<(), ClusterError> {
    if k == 0 || k > MOST {
        return Err(ClusterError::Entries { found: k });
    }
    if values.is_empty() {
        return Err(ClusterError::Empty);
    }
    // Looked at without a way out, which is several times quicker than a search; the search is for the message.
    if values.iter().fold(true, |all, v| all & v.is_finite()) {
        return Ok(());
    }
    match values.iter().position(|v| !v.is_finite()) {
        Some(index) => Err(ClusterError::NotFinite { index, value: values[index] }),
        None => Ok(()),
    }
}

/// For each value the index of the nearest of `centroids`, of two equally near the lower.
///
/// The centroids are ascending and at most [`MOST`]; without any, all indices are zero. A NaN has index 0.
pub fn assign(values: &[f32], centroids: &[f32]) -> Vec<u8> {
    // Padded to a power of two with what no value is above, the search takes the same steps for every value.
    let steps = centroids.len().max(1).next_power_of_two().trailing_zeros();
    let mut bounds = [f32::INFINITY; MOST];
    for (bound, pair) in bounds.iter_mut().zip(centroids.windows(2)) {
        *bound = last_of_lower(pair[0], pair[1]);
    }
    let index = |v: f32| {
        let mut index = 0;
        for step in (0..steps).rev() {
            let half = 1usize << step;
            // Bound i parts the entries i and i + 1. Added up rather than chosen, so that there is no branch to guess
            // wrong; the remainder says what holds anyway, so that none is left for a check.
            index += usize::from(v > bounds[(index + half - 1) % MOST]) << step;
        }
        index as u8
    };
    values.iter().map(|v| index(*v)).collect()
}

/// The greatest value that is no nearer to `upper` than to `lower`.
fn last_of_lower(lower: f32, upper: f32) -> f32 {
    // Twice the middle, in full: two f32 can be too far apart for their sum to fit an f64.
    let twice = Pair::sum(f64::from(lower), f64::from(upper));
    let middle = (twice.high / 2.0) as f32;
    if twice.is_below(2.0 * f64::from(middle)) { middle.next_down() } else { middle }
}

/// Sum of the squared differences between `values` and the centroids that `indices` name.
///
/// Summed in blocks, so that millions of values lose no more digits than thousands.
///
/// # Panics
/// An index names no centroid.
pub fn squared_error(values: &[f32], centroids: &[f32], indices: &[u8]) -> f64 {
    let of_block = |(values, indices): (&[f32], &[u8])| -> f64 {
        values.iter().zip(indices).map(|(v, i)| square(f64::from(*v) - f64::from(centroids[usize::from(*i)]))).sum()
    };
    values.chunks(1024).zip(indices.chunks(1024)).map(of_block).sum()
}

fn square(x: f64) -> f64 {
    x * x
}
