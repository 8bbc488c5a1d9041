//! The palette of least squared error there is.
//!
//! In one dimension the clusters of an optimum are runs of the sorted values. With a price on each run the best cut is
//! one pass ([`links`](super::links)), and the higher the price, the fewer its runs: so the price is searched for that
//! makes them `k`. The least error as a function of the number of runs is convex, hence some price always makes `k`
//! runs as good as any other number, and where a pass prefers two other numbers at that price, a cut into `k` runs
//! that costs no more is spliced from both.

use super::distinct::Distinct;
use super::links::{Cut, Errors, Passes, Plain, Precise};
use super::{ClusterError, Palette, accept, square, squared_error};

/// The globally optimal palette of at most `k` entries: exactly `k`, or one for each distinct value if there are fewer.
///
/// Entries are the means of their clusters, computed in f64 and rounded to f32. The optimum is the one before that
/// rounding, and is exact but for rounding in f64 (in pairs of f64, where the error is below a millionth of the
/// values' spread).
///
/// # Errors
/// `k` is 0 or above [`MOST`](super::MOST), there are no values, or one of them is not finite.
pub fn kmeans(values: &[f32], k: usize) -> Result<Palette, ClusterError> {
    accept(values, k)?;
    let distinct = Distinct::of(values);
    let centroids =
        if distinct.values.len() <= k { distinct.values.clone() } else { means(&distinct, &best(&distinct, k)) };
    let indices = distinct.assign(values, &centroids);
    let squared_error = squared_error(values, &centroids, &indices);
    Ok(Palette { centroids, indices, squared_error })
}

/// Below this part of the squares' sum, an error is no longer computed as a difference of sums in f64: of its 53 bits
/// too few would be left.
const PRECISE_BELOW: f64 = 1.0 / (1 << 20) as f64;

/// Bounds of the best `k` runs, fewer than there are distinct values.
pub(super) fn best(distinct: &Distinct, k: usize) -> Vec<u32> {
    let plain = Plain::of(distinct);
    let first = first_price(distinct, k);
    let least = plain.squares() * PRECISE_BELOW;
    if let Some(cut) = search(&plain, k, first, least) {
        return cut.bounds;
    }
    drop(plain);
    // With nothing to give up for, there is always a cut.
    search(&Precise::of(distinct), k, first, f64::NEG_INFINITY).map(|cut| cut.bounds).unwrap_or_default()
}

/// What one run fewer would cost, judged from the values' density alone: the error of many runs tends to the cube of
/// the integral of its cube root, over 12 k².
fn first_price(distinct: &Distinct, k: usize) -> f64 {
    let (values, last) = (&distinct.values, distinct.values.len() - 1);
    let block = (last / 1024).max(1);
    let roots = (0..last).step_by(block).map(|from| {
        let to = (from + block).min(last);
        let count = distinct.counts[from..to].iter().sum::<u64>();
        (count as f64 * square(f64::from(values[to]) - f64::from(values[from]))).cbrt()
    });
    let k = k as f64;
    roots.sum::<f64>().powi(3) / (6.0 * k * k * k)
}

/// Passes that follow a guess; after so many, only slopes between cuts are tried, which comes to an end.
const GUESSES: usize = 12;

/// Cuts this few runs apart are too close for a guess to be better than the slope between them.
const CLOSE: usize = 4;

/// Costs that differ by less than this part of them are the same but for rounding.
const SAME: f64 = 1e-13;

/// What is known of the error as a function of the number of runs: the nearest best cuts on both sides of `k`.
struct Known {
    fewer: Cut,
    more: Cut,
}

impl Known {
    /// What a run is worth between the two.
    fn slope(&self) -> f64 {
        (self.fewer.error - self.more.error) / (self.more.runs() - self.fewer.runs()) as f64
    }

    /// Takes a cut that is nearer to `k`; says whether it was.
    fn learn(&mut self, cut: Cut, k: usize) -> bool {
        let (side, nearer) = if cut.runs() < k {
            let nearer = cut.runs() > self.fewer.runs();
            (&mut self.fewer, nearer)
        } else {
            let nearer = cut.runs() < self.more.runs();
            (&mut self.more, nearer)
        };
        if nearer {
            *side = cut;
        }
        nearer
    }

    /// The price that makes `k` runs if the error falls by a power of their number: the one that leads from the one
    /// cut to the other, or the one the last cut itself tells of, since its price is about the error's slope there.
    fn guess(&self, seen: &Seen, k: f64) -> f64 {
        let (fewer, more) = (self.fewer.runs() as f64, self.more.runs() as f64);
        let both = fewer > 1.0 && self.more.error > 0.0;
        let power = if both {
            (self.fewer.error / self.more.error).ln() / (more / fewer).ln()
        } else {
            let told = seen.price * seen.runs / seen.error;
            // It is 2 where the density is smooth, and the price tells no more digits than the number of runs has.
            if (told - 2.0).abs() < 0.1 { 2.0 } else { told }
        };
        let (runs, error) = if both { (fewer, self.fewer.error) } else { (seen.runs, seen.error) };
        let at = |k: f64| error * (runs / k).powf(power);
        (at(k - 1.0) - at(k + 1.0)) / 2.0
    }
}

/// What a pass came to.
struct Seen {
    runs: f64,
    error: f64,
    price: f64,
}

/// The best cut into `k` runs, fewer than there are values, or nothing if its error is below `least`.
fn search(errors: &impl Errors, k: usize, first: f64, least: f64) -> Option<Cut> {
    let len = errors.len() as u32;
    let not_below = |cut: Cut| (cut.error >= least).then_some(cut);
    // The two cuts that need no pass.
    let mut known = Known { fewer: Cut::new(errors, vec![0, len]), more: Cut::new(errors, (0..=len).collect()) };
    if k == 1 {
        return not_below(known.fewer);
    }
    let mut passes = Passes::new(errors);
    let (mut guess, mut guesses) = (Some(first), 0);
    loop {
        let close = known.more.runs() - known.fewer.runs() <= CLOSE;
        let usable = |price: &f64| price.is_finite() && *price > 0.0 && !close && guesses < GUESSES;
        let (price, by_slope) = guess.filter(usable).map_or((known.slope(), true), |price| (price, false));
        guesses += usize::from(!by_slope);
        let cut = passes.cut(price);
        if cut.runs() == k {
            return not_below(cut);
        }
        if cut.runs() < k && cut.error < least {
            return None;
        }
        let no_better = cut.cost(price) >= known.fewer.cost(price) * (1.0 - SAME);
        let seen = Seen { runs: cut.runs() as f64, error: cut.error, price };
        if known.learn(cut, k) && !no_better {
            guess = Some(known.guess(&seen, k as f64));
        } else if by_slope {
            return not_below(splice(errors, &known, k));
        } else {
            guess = None;
        }
    }
}

/// A cut of `k` runs made of the nearest of fewer and the nearest of more: the first runs of the latter, one run that
/// goes over to the former, and its last ones.
///
/// Of the two ways to cross over, this and its mirror image, both together cost no more than the two cuts; so where
/// those are the best at some price, this is as well.
fn splice(errors: &impl Errors, known: &Known, k: usize) -> Cut {
    let (few, many) = (&known.fewer.bounds, &known.more.bounds);
    let ahead = k - known.fewer.runs();
    // The first run of the one that a run of the other, as many ahead as are missing, lies within.
    let at = (0..known.fewer.runs()).find(|r| many[r + ahead + 1] <= few[r + 1]).unwrap_or_default();
    Cut::new(errors, many[..=at + ahead].iter().chain(&few[at + 1..]).copied().collect())
}

/// The entry of each run: its mean, computed about its first value.
fn means(distinct: &Distinct, bounds: &[u32]) -> Vec<f32> {
    let mean = |run: &[u32]| {
        let run = run[0] as usize..run[1] as usize;
        let from = f64::from(distinct.values[run.start]);
        let (mut sum, mut count) = (0.0, 0.0);
        for (v, c) in distinct.values[run.clone()].iter().zip(&distinct.counts[run]) {
            sum += (f64::from(*v) - from) * *c as f64;
            count += *c as f64;
        }
        // The zero added makes -0, which a mean of the smallest numbers can round to, a 0.
        (from + sum / count) as f32 + 0.0
    };
    bounds.windows(2).map(mean).collect()
}
