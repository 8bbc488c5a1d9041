//! Largest elements and their places, alone and folded into the product they are of.

use super::super::plan::{Step, plan};
use super::*;
use crate::ir::Edit;

/// A product of `x [2, rows, 5]` with a weight of `n` rows whose maximum and its place are outputs, and, where it is
/// `held`, the product as well, so that it is made in one piece.
fn choice(dtype: DType, rows: usize, n: usize, widened: bool, bias: bool, held: bool) -> Graph {
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(dtype, [2, rows, 5])).unwrap();
    let stored = Weight::tensor("w", &f32s(&[n, 5])).unwrap();
    let half = dtype == DType::F16 || widened;
    let stored = if half { stored.edit(Edit::Cast(DType::F16)).unwrap() } else { stored };
    let mut w = b.constant("w", stored);
    if widened {
        w = b.push("widened", Op::Cast(DType::F32), &[w]).unwrap();
    }
    let mut args = vec![x, w];
    if bias {
        let bias = Weight::tensor("b", &f32s(&[n])).unwrap();
        let bias = if dtype == DType::F16 { bias.edit(Edit::Cast(dtype)).unwrap() } else { bias };
        args.push(b.constant("b", bias));
    }
    let y = b.push("product", Op::Linear, &args).unwrap();
    let top = b.push("top", Op::Reduce { kind: Reduce::Max, axis: 2 }, &[y]).unwrap();
    let at = b.push("at", Op::ArgMax { axis: 2 }, &[y]).unwrap();
    b.output("top", top);
    b.output("at", at);
    if held {
        b.output("product", y);
    }
    b.finish()
}

#[test]
fn a_choice_that_is_folded_is_the_one_of_the_whole_product() {
    // Enough rows that the weight comes in three parts, the last of them short.
    let (rows, n) = (1500, 1600);
    let mut memory = Memory::default();
    memory.insert_f32("w", &[n, 5], &numbers(n * 5, 1));
    memory.insert_f32("b", &[n], &numbers(n, 2));
    let run = |graph: &Graph, options| {
        let inputs = feed(graph, &[numbers(2 * rows * 5, 3)]);
        Evaluator::new(Checked::unchecked(graph), &memory, options).run(&inputs).unwrap()
    };
    for (dtype, widened, bias, round_f16) in [
        (DType::F32, false, false, false),
        (DType::F32, false, true, true),
        (DType::F32, true, true, false),
        (DType::F16, false, true, false),
    ] {
        let options = Options { round_f16, trace: true, profile: true };
        let (folded, report) = run(&choice(dtype, rows, n, widened, bias, false), options);
        let (held, whole) = run(&choice(dtype, rows, n, widened, bias, true), options);
        for name in ["top", "at"] {
            assert_eq!(folded[name], held[name], "{name} of {dtype}, widened {widened}, bias {bias}");
        }
        assert_eq!(report.peaks, whole.peaks);
        assert!(["const", "linear", "reduce_max"].iter().all(|op| report.seconds.contains_key(op)), "{report:?}");
    }
}

#[test]
fn a_choice_among_computed_rows_is_folded_too() {
    let mut b = Builder::new("g");
    let x = b.input("x", f32s(&[1500, 5])).unwrap();
    let w = b.input("w", f32s(&[5, 1600])).unwrap();
    let w = b.push("rows", Op::Transpose { perm: vec![1, 0] }, &[w]).unwrap();
    let y = b.push("product", Op::Linear, &[x, w]).unwrap();
    let top = b.push("top", Op::Reduce { kind: Reduce::Max, axis: 1 }, &[y]).unwrap();
    b.output("y", top);
    let graph = b.finish();
    let [x, w] = [numbers(1500 * 5, 1), numbers(5 * 1600, 2)];
    let want = (0..1500).map(|i| {
        let product = |j: usize| (0..5).map(|k| f64::from(x[i * 5 + k]) * f64::from(w[k * 1600 + j])).sum::<f64>();
        (0..1600).map(product).fold(f64::NEG_INFINITY, f64::max)
    });
    let want: Vec<f64> = want.collect();
    for (got, want) in run(&graph, &[x, w]).iter().zip(want) {
        assert!((f64::from(*got) - want).abs() < 2e-5, "{got} {want}");
    }
}

#[test]
fn only_products_that_nothing_else_reads_are_folded() {
    let folded = |graph: &Graph| {
        let steps = plan(graph, false);
        steps.iter().filter(|s| matches!(s, Step::Top(_))).count()
    };
    assert_eq!(folded(&choice(DType::F32, 2, 3, true, true, false)), 1);
    assert_eq!(folded(&choice(DType::F32, 2, 3, true, true, true)), 0, "the product is an output");
    for (axis, also, want) in [(1, false, 1), (0, false, 0), (1, true, 0)] {
        let mut b = Builder::new("g");
        let (x, w) = (b.input("x", f32s(&[4, 5])).unwrap(), b.input("w", f32s(&[3, 5])).unwrap());
        let y = b.push("product", Op::Linear, &[x, w]).unwrap();
        let top = b.push("top", Op::ArgMax { axis }, &[y]).unwrap();
        b.output("top", top);
        if also {
            let y = b.unary(Unary::Abs, y).unwrap();
            b.output("y", y);
        }
        assert_eq!(folded(&b.finish()), want, "axis {axis}, another reader {also}");
    }
}

#[test]
fn faults_of_a_weight_that_is_read_in_parts_are_named() {
    let n = 3000;
    let mut weight = numbers(n * 5, 1);
    weight[n * 5 - 2] = f32::INFINITY;
    let mut memory = Memory::default();
    memory.insert_f32("w", &[n, 5], &weight);
    let graph = choice(DType::F32, 1000, n, false, false, false);
    let inputs = feed(&graph, &[numbers(2 * 1000 * 5, 3)]);
    let err = Evaluator::new(Checked::unchecked(&graph), &memory, Options::default()).run(&inputs).unwrap_err();
    let source = std::error::Error::source(&err).unwrap();
    insta::assert_snapshot!(format!("{err}: {source}"), @"weight w: w in memory: element 14998 is inf, which f32 cannot hold as a finite number");
}

#[test]
fn a_product_that_overflows_is_where_it_stopped_being_finite() {
    let mut memory = Memory::default();
    memory.insert_f32("w", &[2, 5], &[1e30; 10]);
    let graph = choice(DType::F32, 1, 2, false, false, false);
    let inputs = feed(&graph, &[vec![1e30; 10]]);
    let (_, report) = Evaluator::new(Checked::unchecked(&graph), &memory, Options::default()).run(&inputs).unwrap();
    assert_eq!(report.non_finite, Some(NonFinite { path: "product".into(), op: "linear" }));
}

#[test]
fn the_first_largest() {
    const NAN: f32 = f32::NAN;
    const LEAST: f32 = f32::NEG_INFINITY;
    let last = graph_of(Op::ArgMax { axis: 1 }, &[f32s(&[2, 3])]);
    let first = graph_of(Op::ArgMax { axis: 0 }, &[f32s(&[3, 2])]);
    for (a, b, want) in [
        ([1.0, 3.0, 3.0], [-5.0, -4.0, -6.0], [1, 1]),
        ([1.0, NAN, NAN], [NAN, 9.0, NAN], [1, 0]),
        ([LEAST, LEAST, LEAST], [LEAST, NAN, f32::INFINITY], [0, 1]),
        ([-0.0, 0.0, -1.0], [0.0, 0.0, 1e-45], [0, 2]),
    ] {
        assert_eq!(places(&last, [a, b].concat()), want);
        assert_eq!(places(&first, a.iter().zip(b).flat_map(|(a, b)| [*a, b]).collect()), want);
    }
    for n in [31, 32, 33, 64, 70_001, 200_000] {
        for axis in [0, 1] {
            let dims = if axis == 0 { [n, 1] } else { [1, n] };
            let graph = graph_of(Op::ArgMax { axis }, &[f32s(&dims)]);
            for at in [0, 1, n / 2, n - 2, n - 1] {
                let mut x = vec![-3.0; n];
                x[at..].fill(-2.5);
                assert_eq!(places(&graph, x.clone()), [at as i32]);
                x[at] = NAN;
                x[n - 1] = NAN;
                assert_eq!(places(&graph, x), [at as i32]);
            }
        }
    }
}

#[test]
fn a_place_is_that_of_the_rounded_value() {
    let graph = graph_of(Op::ArgMax { axis: 0 }, &[Fact::new(DType::F16, [3])]);
    assert_eq!(places(&graph, vec![1.0, 2.0, 2.0001]), [1]);
}
