use super::distinct::Distinct;
use super::links::{Errors, Plain, Precise};
use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::BTreeSet;

/// Squared error of values about their mean, term by term.
fn spread(values: &[f32]) -> f64 {
    let from = f64::from(values[0]);
    let mean = from + values.iter().map(|v| f64::from(*v) - from).sum::<f64>() / values.len() as f64;
    values.iter().map(|v| square(f64::from(*v) - mean)).sum()
}

/// The least error of `k` clusters, by a table of all of them.
fn by_table(values: &[f32], k: usize) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    // The error of each run, by how far every value is from the mean of those that follow it there.
    let mut errors = vec![vec![0.0; n + 1]; n];
    for to in 1..=n {
        let (mut mean, mut error) = (sorted[to - 1], 0.0);
        for from in (0..to - 1).rev() {
            let (away, count) = (sorted[from] - mean, (to - from) as f64);
            mean += away / count;
            error += away * (sorted[from] - mean);
            errors[from][to] = error;
        }
    }
    let mut least = vec![f64::INFINITY; n + 1];
    least[0] = 0.0;
    let mut overall = f64::INFINITY;
    for _ in 0..k.min(n) {
        let last = |to: usize| (0..to).map(|from| least[from] + errors[from][to]).fold(f64::INFINITY, f64::min);
        least = std::iter::once(f64::INFINITY).chain((1..=n).map(last)).collect();
        overall = overall.min(least[n]);
    }
    overall
}

fn distinct_of(values: &[f32]) -> usize {
    values.iter().map(|v| (v + 0.0).to_bits()).collect::<BTreeSet<_>>().len()
}

/// Values of the kinds that go wrong: many equal, on a grid, both zeros, far apart, tiny and huge.
fn values() -> impl Strategy<Value = Vec<f32>> {
    let one = prop_oneof![
        (-6i32..6).prop_map(|i| i as f32),
        (-40i32..40).prop_map(|i| i as f32 / 16.0),
        select(vec![
            0.0,
            -0.0,
            f32::MIN_POSITIVE,
            -1e-45,
            1e-45,
            3e38,
            -3e38,
            f32::MAX,
            f32::MIN,
            65504.0,
            1.0,
            1.0 + f32::EPSILON
        ]),
        -1f32..1.0,
        any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |v| v.is_finite()),
    ];
    let grid = prop::collection::vec(-9i32..9, 1..28).prop_map(|v| v.into_iter().map(|i| i as f32 * 0.5).collect());
    let even = (-1f32..1.0, 1u16..28).prop_map(|(from, n)| (0..n).map(|i| from + f32::from(i) / 256.0).collect());
    let near = prop::collection::vec(0u32..40, 1..28)
        .prop_map(|v| v.iter().map(|i| f32::from_bits(0x4180_0000 + i)).collect());
    let plain = prop::collection::vec(-1f32..1.0, 1..28);
    let far = prop::collection::vec((-1f32..1.0, -30i32..30), 1..20);
    let far = far.prop_map(|v| v.into_iter().map(|(m, e)| m * 2f32.powi(e)).collect());
    prop_oneof![prop::collection::vec(one, 1..28), grid, even, near, plain, far]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_better_than_kmeans(values in values(), k in 1usize..12) {
        let palette = kmeans(&values, k).unwrap();
        prop_assert_eq!(palette.centroids.len(), k.min(distinct_of(&values)));
        prop_assert!(palette.centroids.is_sorted_by(|a, b| a < b), "{:?}", palette.centroids);
        prop_assert!(palette.centroids.iter().all(|c| c.to_bits() != (-0f32).to_bits()));
        prop_assert_eq!(&palette.indices, &assign(&values, &palette.centroids));
        prop_assert_eq!(palette.squared_error, squared_error(&values, &palette.centroids, &palette.indices));
        let least = by_table(&values, k);
        // What the entries can be off by for being f32, of which an error is the square.
        let rounded: f64 = values.iter().map(|v| square(f64::from(*v) / f64::from(1 << 24)) + square(1e-45)).sum();
        prop_assert!(palette.squared_error <= least * (1.0 + 1e-9) + rounded, "{} above {least}", palette.squared_error);
        prop_assert!(palette.squared_error >= least * (1.0 - 1e-9), "{} below {least}", palette.squared_error);
    }

    /// The clusters themselves, which rounding the entries hides.
    #[test]
    fn nothing_is_better_than_the_cut(values in values(), k in 1usize..12) {
        let distinct = Distinct::of(&values);
        let k = k.min(distinct.values.len() - 1);
        if k == 0 {
            return Ok(());
        }
        let mut sorted = values.clone();
        sorted.sort_by(f32::total_cmp);
        let bounds = kmeans::best(&distinct, k);
        prop_assert_eq!(bounds.len(), k + 1);
        let ends = bounds.windows(2).scan(0, |at, run| {
            let from = *at;
            *at += distinct.counts[run[0] as usize..run[1] as usize].iter().sum::<u64>() as usize;
            Some(spread(&sorted[from..*at]))
        });
        let (error, least) = (ends.sum::<f64>(), by_table(&values, k));
        let squares = spread(&values);
        prop_assert!(error <= least * (1.0 + 1e-9) + squares * 1e-28, "{error} above {least}");
    }

    #[test]
    fn the_order_of_values_is_of_no_account(values in values(), swaps: Vec<(Index, Index)>, k in 1usize..12) {
        let mut places: Vec<usize> = (0..values.len()).collect();
        for (a, b) in swaps {
            places.swap(a.index(values.len()), b.index(values.len()));
        }
        let other: Vec<f32> = places.iter().map(|i| values[*i]).collect();
        for cluster in [kmeans, uniform] {
            let (one, two) = (cluster(&values, k).unwrap(), cluster(&other, k).unwrap());
            prop_assert_eq!(one.centroids, two.centroids);
            prop_assert_eq!(places.iter().map(|i| one.indices[*i]).collect::<Vec<_>>(), two.indices);
        }
    }

    #[test]
    fn the_nearest_entry_is_taken(values in values(), entries in values()) {
        let mut entries: Vec<f32> = entries.into_iter().map(|v| v + 0.0).collect();
        entries.sort_by(f32::total_cmp);
        entries.dedup();
        for (v, index) in values.iter().zip(assign(&values, &entries)) {
            let further = |below: f32, above: f32| {
                let (v, below, above) = (f64::from(*v), f64::from(below), f64::from(above));
                Pair::sum(v, -below).minus(Pair::sum(above, -v)).single() > 0.0
            };
            let nearest = entries.windows(2).filter(|pair| further(pair[0], pair[1])).count();
            prop_assert_eq!(usize::from(index), nearest);
        }
    }

    #[test]
    fn uniform_entries_span_the_values(values in values(), k in 1usize..=MOST) {
        let palette = uniform(&values, k).unwrap();
        prop_assert!((1..=k).contains(&palette.centroids.len()));
        prop_assert!(palette.centroids.is_sorted_by(|a, b| a < b), "{:?}", palette.centroids);
        if k > 1 {
            let (least, greatest) = values.iter().fold((f32::MAX, f32::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
            prop_assert_eq!((palette.centroids[0], *palette.centroids.last().unwrap()), (least, greatest));
        }
    }

    /// Both ways of adding up give what adding up term by term does.
    #[test]
    fn sums_give_the_errors(values in values(), from: Index, to: Index) {
        let distinct = Distinct::of(&values);
        let (a, b) = (from.index(distinct.values.len()), to.index(distinct.values.len()));
        let (from, to) = (a.min(b), a.max(b) + 1);
        let count = |range: std::ops::Range<usize>| distinct.counts[range].iter().sum::<u64>() as usize;
        let mut sorted = values.clone();
        sorted.sort_by(f32::total_cmp);
        let run = &sorted[count(0..from)..count(0..to)];
        let (want, squares) = (spread(run), values.len() as f64 * spread(&values));
        let (plain, precise) = (Plain::of(&distinct), Precise::of(&distinct));
        prop_assert!((plain.between(from, to) - want).abs() <= squares * 1e-14);
        prop_assert!((precise.between(from, to) - want).abs() <= want * 1e-12 + squares * 1e-28);
    }
}

/// Seeded values of a bell shape, as weights are.
fn bell(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..n).map(|_| (0..6).map(|_| unit() - 0.5).sum::<f32>() * 0.03).collect()
}

#[test]
fn many_clusters_of_many_values() {
    for (k, step) in [(256, 1024.0), (64, 1e9), (37, 300.0)] {
        let values: Vec<f32> = bell(k as u64, 700).into_iter().map(|v| (v * step).round() / step).collect();
        let (palette, least) = (kmeans(&values, k).unwrap(), by_table(&values, k));
        assert_eq!(palette.centroids.len(), k.min(distinct_of(&values)));
        assert!((palette.squared_error - least).abs() <= least * 1e-9, "{} for {least}", palette.squared_error);
    }
}

#[test]
fn evenly_spaced_values_tie_everywhere() {
    // 24 clusters of 3 and 232 of 4 neighbours, at every place: no price makes 256 runs rather than 250 or 333.
    let values: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    assert_eq!(kmeans(&values, 256).unwrap().squared_error, 24.0 * 2.0 + 232.0 * 5.0);
}

#[test]
fn an_error_far_below_the_squares_is_still_least() {
    let mut values = bell(3, 200);
    values.extend([30_000.0, -50_000.0]);
    let (palette, least) = (kmeans(&values, 40).unwrap(), by_table(&values, 40));
    assert!((palette.squared_error - least).abs() <= least * 1e-9, "{} for {least}", palette.squared_error);
}

#[test]
fn a_value_that_is_alone_and_both_zeros() {
    let palette = kmeans(&[7.5; 9], 16).unwrap();
    assert_eq!(palette, Palette { centroids: vec![7.5], indices: vec![0; 9], squared_error: 0.0 });
    assert_eq!(uniform(&[7.5; 9], 16).unwrap(), palette);
    let zeros = kmeans(&[0.0, -0.0, -0.0], 4).unwrap();
    assert_eq!((zeros.centroids[0].to_bits(), zeros.indices), (0, vec![0; 3]));
    assert_eq!(uniform(&[-0.0], 2).unwrap().centroids[0].to_bits(), 0);
}

#[test]
fn known_palettes() {
    let values = [4.0, 0.0, 1.0, 5.0, 9.0, 0.0];
    let palette = kmeans(&values, 3).unwrap();
    assert_eq!(palette.centroids, [1.0 / 3.0, 4.5, 9.0]);
    assert_eq!(palette.indices, [1, 0, 0, 1, 2, 0]);
    assert!((palette.squared_error - (2.0 / 3.0 + 0.5)).abs() < 1e-6);
    let palette = uniform(&values, 4).unwrap();
    assert_eq!((palette.centroids, palette.indices), (vec![0.0, 3.0, 6.0, 9.0], vec![1, 0, 0, 2, 3, 0]));
    assert_eq!(uniform(&values, 1).unwrap().centroids, [4.5]);
    // All 256 entries, and what is equally near goes to the lower.
    let all: Vec<f32> = (0..256).map(|i| i as f32).collect();
    assert_eq!(assign(&all, &all), (0..=255).collect::<Vec<u8>>());
    assert_eq!(assign(&[0.5, 1.5, 254.5, 1e9, -1e9], &all), [0, 1, 254, 255, 0]);
}

#[test]
fn what_cannot_be_clustered() {
    for cluster in [kmeans, uniform] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(cluster(&[1.0], 0).unwrap_err(), @"a palette of 0 entries, expected 1 to 256");
            insta::assert_snapshot!(cluster(&[1.0], 257).unwrap_err(), @"a palette of 257 entries, expected 1 to 256");
            insta::assert_snapshot!(cluster(&[], 1).unwrap_err(), @"no values to make a palette of");
            insta::assert_snapshot!(cluster(&[1.0, f32::NAN], 1).unwrap_err(), @"value 1 is NaN, expected finite numbers");
            insta::assert_snapshot!(cluster(&[1.0, 2.0, f32::NEG_INFINITY], 1).unwrap_err(), @"value 2 is -inf, expected finite numbers");
        }
        assert!(cluster(&[1.0], 1).is_ok() && cluster(&[1.0, f32::MAX], 256).is_ok());
    }
}
