//! The least costly way to cut sorted values into runs, where every run costs its squared error and a price.
//!
//! With a price on each run the number of runs is not asked for, it follows: one pass over the values finds the best
//! cut, where a table for `k` runs would take `k` passes. That one pass is enough rests on the squared error being
//! Monge: of two crossing pairs of runs, the nested one costs no less. So once a later start of the last run is better
//! than an earlier one, it stays better for all ends that follow, and the best starts are a queue.

use super::distinct::Distinct;
use super::pair::Pair;

/// What a run of distinct values costs if one entry, its mean, stands for all of them.
pub(super) trait Errors {
    /// How many distinct values there are.
    fn len(&self) -> usize;
    /// Squared error of the values from `from` up to, but without, `to`.
    fn between(&self, from: usize, to: usize) -> f64;
}

/// Sums up to each distinct value: of the counts, of the values and of their squares, about a value in the middle.
#[derive(Clone, Copy, Default)]
struct Sums<T> {
    count: f64,
    first: T,
    second: T,
}

/// Errors from sums in f64: off by some units in the last place of the sum of squares of all values of the run.
pub(super) struct Plain(Vec<Sums<f64>>);

/// Errors from sums in pairs of f64, for values whose error is that small a part of their squares.
pub(super) struct Precise(Vec<Sums<Pair>>);

/// The sums, each as `keep` holds it. They are always added up in pairs, so that millions of terms lose nothing.
fn sums<T>(distinct: &Distinct, keep: impl Fn(Pair) -> T) -> Vec<Sums<T>> {
    let weighed = distinct.values.iter().zip(&distinct.counts);
    let total = weighed.clone().map(|(v, c)| f64::from(*v) * *c as f64).sum::<f64>();
    let centre = f64::from((total / distinct.counts.iter().sum::<u64>() as f64) as f32);
    let (mut count, mut first, mut second) = (0u64, Pair::default(), Pair::default());
    let mut sums = Vec::with_capacity(distinct.values.len() + 1);
    sums.push(Sums { count: 0.0, first: keep(first), second: keep(second) });
    for (v, c) in weighed {
        let offset = Pair::sum(f64::from(*v), -centre);
        let weighted = offset.times_single(*c as f64);
        count += c;
        first = first.plus(weighted);
        second = second.plus(weighted.times(offset));
        sums.push(Sums { count: count as f64, first: keep(first), second: keep(second) });
    }
    sums
}

impl Plain {
    pub fn of(distinct: &Distinct) -> Plain {
        Plain(sums(distinct, Pair::single))
    }

    /// Sum of the squares that the errors are differences of.
    pub fn squares(&self) -> f64 {
        self.0.last().map_or(0.0, |s| s.second)
    }
}

impl Precise {
    pub fn of(distinct: &Distinct) -> Precise {
        Precise(sums(distinct, |pair| pair))
    }
}

impl Errors for Plain {
    fn len(&self) -> usize {
        self.0.len() - 1
    }

    #[inline]
    fn between(&self, from: usize, to: usize) -> f64 {
        let (a, b) = (&self.0[from], &self.0[to]);
        let first = b.first - a.first;
        (b.second - a.second) - first * first / (b.count - a.count)
    }
}

impl Errors for Precise {
    fn len(&self) -> usize {
        self.0.len() - 1
    }

    #[inline]
    fn between(&self, from: usize, to: usize) -> f64 {
        let (a, b) = (&self.0[from], &self.0[to]);
        let (first, count) = (b.first.minus(a.first), b.count - a.count);
        let scaled = b.second.minus(a.second).times_single(count).minus(first.times(first));
        // A single value has none, and what rounding leaves of it must not pass for a gain.
        scaled.single().max(0.0) / count
    }
}

/// Values cut into runs.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// Where the runs begin, and the end of the last.
    pub bounds: Vec<u32>,
    /// Squared error of all runs, without their price.
    pub error: f64,
}

impl Cut {
    pub fn new(errors: &impl Errors, bounds: Vec<u32>) -> Cut {
        let error = bounds.windows(2).map(|run| errors.between(run[0] as usize, run[1] as usize)).sum();
        Cut { bounds, error }
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.bounds.len() - 1
    }

    /// What it costs with a price on each run.
    pub fn cost(&self, price: f64) -> f64 {
        self.error + price * self.runs() as f64
    }
}

/// Room for the passes over one group, which all need the same.
pub(super) struct Passes<'e, E> {
    errors: &'e E,
    /// Least cost of the values up to each, and where the last run of that cut begins.
    best: Vec<(f64, u32)>,
    /// Starts that are the best from some end on, in order, each with that end.
    queue: Vec<(u32, u32)>,
}

impl<'e, E: Errors> Passes<'e, E> {
    pub fn new(errors: &'e E) -> Self {
        Passes { errors, best: vec![(0.0, 0); errors.len() + 1], queue: Vec::new() }
    }

    #[inline]
    fn cost(&self, start: u32, end: u32) -> f64 {
        self.best[start as usize].0 + self.errors.between(start as usize, end as usize)
    }

    /// The cut of least cost.
    pub fn cut(&mut self, price: f64) -> Cut {
        let len = self.errors.len() as u32;
        self.queue.clear();
        let mut front = 0;
        for end in 1..=len {
            self.enter(end - 1, len, front);
            while self.queue.get(front + 1).is_some_and(|(_, from)| *from <= end) {
                front += 1;
            }
            let start = self.queue[front].0;
            self.best[end as usize] = (self.cost(start, end) + price, start);
        }
        let mut bounds = vec![len];
        let mut end = len;
        while end > 0 {
            end = self.best[end as usize].1;
            bounds.push(end);
        }
        bounds.reverse();
        Cut::new(self.errors, bounds)
    }

    /// Puts a start, later than all in the queue, where it belongs: behind those that are better for a while, in place
    /// of those that never are again.
    fn enter(&mut self, start: u32, len: u32, front: usize) {
        while let Some((other, from)) = self.queue.get(front..).and_then(|live| live.last().copied()) {
            // No run that ends here or earlier is left to be decided.
            let from = from.max(start + 1);
            if self.cost(start, from) < self.cost(other, from) {
                self.queue.pop();
                continue;
            }
            // The first end for which the new start is better: mostly close by, so in growing steps first.
            let (mut not, mut step) = (from, 1);
            let mut yes = loop {
                if not == len {
                    return;
                }
                let next = len.min(not.saturating_add(step));
                if self.cost(start, next) < self.cost(other, next) {
                    break next;
                }
                (not, step) = (next, step * 2);
            };
            while yes - not > 1 {
                let middle = not + (yes - not) / 2;
                if self.cost(start, middle) < self.cost(other, middle) {
                    yes = middle;
                } else {
                    not = middle;
                }
            }
            self.queue.push((start, yes));
            return;
        }
        self.queue.push((start, start + 1));
    }
}
