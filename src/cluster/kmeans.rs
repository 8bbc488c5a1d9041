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
const GUESSES: usize = 16;

/// Cuts this few runs apart are too close for a guess to be better than the slope between them.
const CLOSE: usize = 4;

/// Costs that differ by less than this part of them are the same but for rounding.
const SAME: f64 = 1e-13;

/// A cut that is the best for its number of runs, and the price nearest to the one searched for that makes it so.
struct Side {
    cut: Cut,
    price: f64,
}

impl Side {
    fn runs(&self) -> f64 {
        self.cut.runs() as f64
    }
}

/// What is known of the error as a function of the number of runs: the nearest best cuts on both sides of `k`.
struct Known {
    fewer: Side,
    more: Side,
}

impl Known {
    /// The cuts that need no pass: one run, for which no price is too high, and a run for each value.
    fn new(errors: &impl Errors) -> Known {
        let len = errors.len() as u32;
        let all = Cut { bounds: (0..=len).collect(), error: 0.0 };
        let one = Side { cut: Cut::new(errors, vec![0, len]), price: f64::INFINITY };
        Known { fewer: one, more: Side { cut: all, price: 0.0 } }
    }

    /// What a run is worth between the two.
    fn slope(&self) -> f64 {
        (self.fewer.cut.error - self.more.cut.error) / (self.more.runs() - self.fewer.runs())
    }

    /// How many runs lie between the two.
    fn gap(&self) -> usize {
        self.more.cut.runs() - self.fewer.cut.runs()
    }

    /// Takes what a pass found; says whether it is nearer to `k` in runs.
    fn learn(&mut self, cut: Cut, price: f64, k: usize) -> bool {
        let few = cut.runs() < k;
        let side = if few { &mut self.fewer } else { &mut self.more };
        let (nearer, same) = match few {
            true => (cut.runs() > side.cut.runs(), price < side.price),
            false => (cut.runs() < side.cut.runs(), price > side.price),
        };
        if nearer {
            *side = Side { cut, price };
        } else if same && cut.runs() == side.cut.runs() {
            side.price = price;
        }
        nearer
    }

    /// The price that makes `k` runs if the error falls by a power of their number.
    ///
    /// With passes on both sides, the power is the one that leads from one to the other. With one only, its price tells
    /// the slope and so the power; then the next price is at least `push` runs' worth away, so that it leads somewhere.
    fn guess(&self, k: f64, push: f64) -> f64 {
        let worth = |side: &Side, power: f64| {
            let at = |k: f64| side.cut.error * (side.runs() / k).powf(power);
            (at(k - 1.0) - at(k + 1.0)) / 2.0
        };
        let alone = |side: &Side| {
            let told = side.price * side.runs() / side.cut.error;
            // It is 2 where the density is smooth, and the price tells no more digits than the number of runs has.
            let power = if (told - 2.0).abs() < 0.25 { 2.0 } else { told };
            (worth(side, power), side.price * (side.runs() / k).powf(3.0 * push))
        };
        match (self.fewer.price.is_finite(), self.more.price > 0.0) {
            (true, true) => {
                let ratio = self.fewer.cut.error / self.more.cut.error;
                let guess = worth(&self.fewer, ratio.ln() / (self.more.runs() / self.fewer.runs()).ln());
                let between = guess > self.more.price && guess < self.fewer.price;
                if between { guess } else { (self.more.price * self.fewer.price).sqrt() }
            }
            (true, false) => {
                let (guess, least_step) = alone(&self.fewer);
                guess.min(least_step)
            }
            (false, true) => {
                let (guess, least_step) = alone(&self.more);
                guess.max(least_step)
            }
            (false, false) => self.slope(),
        }
    }
}

/// The best cut into `k` runs, fewer than there are values, or nothing if its error is below `least`.
fn search(errors: &impl Errors, k: usize, first: f64, least: f64) -> Option<Cut> {
    let not_below = |cut: Cut| (cut.error >= least).then_some(cut);
    let mut known = Known::new(errors);
    if k == 1 {
        return not_below(known.fewer.cut);
    }
    let mut passes = Passes::new(errors);
    let (mut guess, mut push) = (Some(first), 1.0);
    for pass in 0.. {
        let usable = |price: &f64| price.is_finite() && *price > 0.0 && known.gap() > CLOSE && pass < GUESSES;
        let (price, by_slope) = guess.filter(usable).map_or((known.slope(), true), |price| (price, false));
        let cut = passes.cut(price);
        if cut.runs() == k {
            return not_below(cut);
        }
        if cut.runs() < k && cut.error < least {
            return None;
        }
        // At the slope between two cuts both cost the same; if no cut costs less, the best of `k` runs does as well.
        let level = by_slope && cut.cost(price) >= known.fewer.cut.cost(price) * (1.0 - SAME);
        let nearer = known.learn(cut, price, k);
        if by_slope && (level || !nearer) {
            return not_below(splice(errors, &known.fewer.cut, &known.more.cut, k));
        }
        let both = known.fewer.price.is_finite() && known.more.price > 0.0;
        push = if nearer { 1.0 } else { push * 2.0 };
        guess = (nearer || !both).then(|| known.guess(k as f64, push));
    }
    None
}

/// A cut of `k` runs made of the nearest of fewer and the nearest of more: the first runs of the latter, one run that
/// goes over to the former, and its last ones.
///
/// Of the two ways to cross over, this and its mirror image, both together cost no more than the two cuts; so where
/// those are the best at some price, this is as well.
fn splice(errors: &impl Errors, fewer: &Cut, more: &Cut, k: usize) -> Cut {
    let (few, many) = (&fewer.bounds, &more.bounds);
    let ahead = k - fewer.runs();
    // The first run of the one that a run of the other, as many ahead as are missing, lies within.
    let at = (0..fewer.runs()).find(|r| many[r + ahead + 1] <= few[r + 1]).unwrap_or_default();
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
