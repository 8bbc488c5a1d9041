//! Every op against a plain f64 reference, alone and fused with its neighbours.

mod choice;
mod matmul;

use super::accuracy::{Accuracy, accuracy};
use super::*;
use crate::ir::{Binary, Builder, ConvSpec, Graph, Op, Reduce, Unary, ValueId, Weight};
use crate::tensor::{Memory, Shape, round_f16};
use crate::validate::Checked;
use proptest::prelude::*;

fn f32s(dims: &[usize]) -> Fact {
    Fact::new(DType::F32, Shape::new(dims))
}

/// Reproducible numbers in about -2..2.
fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 22) as f32 - 2.0
        })
        .collect()
}

/// A graph of `op` over inputs `x0`, `x1`, .. of those facts; its output is `y`.
fn graph_of(op: Op, facts: &[Fact]) -> Graph {
    let mut b = Builder::new("g");
    let args: Vec<ValueId> =
        facts.iter().enumerate().map(|(i, f)| b.input(&format!("x{i}"), f.clone()).unwrap()).collect();
    let y = b.push("op", op, &args).unwrap();
    b.output("y", y);
    b.finish()
}

fn feed(graph: &Graph, values: &[Vec<f32>]) -> BTreeMap<String, HostTensor> {
    let named = graph.inputs().iter().zip(values).map(|(id, v)| {
        let node = graph.node(*id);
        (node.path.clone(), HostTensor::new(node.fact.clone(), Values::F32(v.clone())).unwrap())
    });
    named.collect()
}

fn run_with(graph: &Graph, values: &[Vec<f32>], options: Options) -> (Vec<f32>, Report) {
    let memory = Memory::default();
    let (outputs, report) =
        Evaluator::new(Checked::unchecked(graph), &memory, options).run(&feed(graph, values)).unwrap();
    (outputs["y"].floats().unwrap().to_vec(), report)
}

fn run(graph: &Graph, values: &[Vec<f32>]) -> Vec<f32> {
    run_with(graph, values, Options::default()).0
}

/// Indices of largest elements, as numbers that f64 holds.
fn places(graph: &Graph, values: Vec<f32>) -> Vec<i32> {
    let memory = Memory::default();
    let (outputs, _) =
        Evaluator::new(Checked::unchecked(graph), &memory, Options::default()).run(&feed(graph, &[values])).unwrap();
    match outputs["y"].values() {
        Values::I32(values) => values.clone(),
        Values::F32(values) => panic!("{values:?}"),
    }
}

/// Runs `op` on numbers and holds it to its accuracy class against `reference`, which takes operands and gives
/// result and the sum of absolute terms behind each element.
fn holds(op: Op, dims: &[&[usize]], seed: u64, reference: impl Fn(&[Nd]) -> Vec<(f64, f64)>) {
    let facts: Vec<Fact> = dims.iter().map(|d| f32s(d)).collect();
    let graph = graph_of(op.clone(), &facts);
    let values: Vec<Vec<f32>> =
        facts.iter().enumerate().map(|(i, f)| numbers(f.shape.elements(), seed + i as u64)).collect();
    let operands: Vec<Nd> = dims
        .iter()
        .zip(&values)
        .map(|(d, v)| Nd { dims: d.to_vec(), values: v.iter().map(|x| f64::from(*x)).collect() })
        .collect();
    let (got, want) = (run(&graph, &values), reference(&operands));
    assert_eq!(got.len(), want.len(), "{op:?}");
    for (i, (got, (want, terms))) in got.iter().zip(want).enumerate() {
        let allowed = match accuracy(&op) {
            Accuracy::Exact => 0.0,
            Accuracy::Rounded => 4e-7 * want.abs(),
            Accuracy::Accumulated => 1e-6 * terms.max(want.abs()),
        };
        let difference = (f64::from(*got) - want).abs();
        assert!(difference <= allowed, "{op:?} {dims:?}: element {i} is {got}, expected {want}");
    }
}

/// A plain f64 tensor.
struct Nd {
    dims: Vec<usize>,
    values: Vec<f64>,
}

/// All positions of `dims` in row-major order.
fn positions(dims: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for d in dims {
        all = all.iter().flat_map(|p| (0..*d).map(move |i| [p.as_slice(), &[i]].concat())).collect();
    }
    all
}

impl Nd {
    /// The element at `position`, stretched where this tensor has extent 1 or fewer axes.
    fn at(&self, position: &[usize]) -> f64 {
        let missing = position.len() - self.dims.len();
        let flat = self.dims.iter().zip(&position[missing..]).fold(0, |n, (d, i)| n * d + i.min(&(d - 1)));
        self.values[flat]
    }

    /// The elements of `axis` through `position`.
    fn line(&self, position: &[usize], axis: usize) -> Vec<f64> {
        let mut p = position.to_vec();
        (0..self.dims[axis])
            .map(|i| {
                p[axis] = i;
                self.at(&p)
            })
            .collect()
    }
}

fn exact(v: f64) -> (f64, f64) {
    (v, 0.0)
}

fn unary64(kind: Unary, x: f64) -> f64 {
    match kind {
        Unary::Abs => x.abs(),
        Unary::Square => x * x,
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Relu => x.max(0.0),
        Unary::Gelu => 0.5 * x * libm::erfc(-x / 2f64.sqrt()),
        Unary::GeluTanh => 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()),
    }
}

fn binary64(kind: Binary, x: f64, y: f64) -> f64 {
    match kind {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Maximum => x.max(y),
        Binary::Minimum => x.min(y),
    }
}

#[test]
fn unary_ops() {
    for kind in Unary::ALL.into_iter().filter(|k| *k != Unary::Rsqrt) {
        for dims in [&[2, 3, 37][..], &[5], &[], &[3, 1], &[1, 70_000]] {
            holds(Op::Unary(kind), &[dims], 1, |x| x[0].values.iter().map(|v| exact(unary64(kind, *v))).collect());
        }
    }
    let g = graph_of(Op::Unary(Unary::Rsqrt), &[f32s(&[4])]);
    assert_eq!(run(&g, &[vec![4.0, 0.25, 0.0, 1e-6]]), [0.5, 2.0, f32::INFINITY, 1.0 / 1e-6f32.sqrt()]);
}

/// Two shapes that broadcast: a result shape, and for each operand how many leading axes it lacks and which axes it has
/// extent 1 in.
fn broadcasts() -> impl Strategy<Value = (Vec<usize>, [(usize, Vec<bool>); 2])> {
    prop::collection::vec(1usize..6, 0..5).prop_flat_map(|dims| {
        let operand = (0..=dims.len(), prop::collection::vec(any::<bool>(), dims.len()));
        (Just(dims), [operand.clone(), operand])
    })
}

fn narrowed(dims: &[usize], (missing, ones): &(usize, Vec<bool>)) -> Vec<usize> {
    dims.iter().zip(ones).skip(*missing).map(|(d, one)| if *one { 1 } else { *d }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn binary_ops_broadcast((dims, [a, b]) in broadcasts(), kind in prop::sample::select(&Binary::ALL[..]), seed in 0u64..99) {
        let (a, b) = (narrowed(&dims, &a), narrowed(&dims, &b));
        let op = Op::Binary(kind);
        let graph = graph_of(op.clone(), &[f32s(&a), f32s(&b)]);
        let shape = graph.fact(graph.outputs()[0].value).shape.clone();
        holds(op, &[&a, &b], seed, |x| {
            positions(shape.dims()).iter().map(|p| {
                let (x, y) = (x[0].at(p), x[1].at(p));
                (binary64(kind, x, y), x.abs() + y.abs())
            }).collect()
        });
    }

    #[test]
    fn reductions(dims in prop::collection::vec(1usize..50, 1..4), axis in 0usize..4, seed in 0u64..99) {
        let axis = axis % dims.len();
        let mut shape = dims.clone();
        shape[axis] = 1;
        for kind in Reduce::ALL {
            holds(Op::Reduce { kind, axis }, &[&dims], seed, |x| {
                positions(&shape).iter().map(|p| {
                    let line = x[0].line(p, axis);
                    let n = if kind == Reduce::Mean { line.len() as f64 } else { 1.0 };
                    let terms = line.iter().map(|v| v.abs()).sum::<f64>() / n;
                    match kind {
                        Reduce::Max => exact(line.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
                        Reduce::Sum | Reduce::Mean => (line.iter().sum::<f64>() / n, terms),
                    }
                }).collect()
            });
        }
        let graph = graph_of(Op::ArgMax { axis }, &[f32s(&dims)]);
        let x = Nd { dims: dims.clone(), values: numbers(graph.fact(graph.inputs()[0]).shape.elements(), seed).iter().map(|v| f64::from(*v)).collect() };
        let want: Vec<i32> = positions(&shape).iter().map(|p| {
            let line = x.line(p, axis);
            let largest = line.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            line.iter().position(|v| *v == largest).unwrap() as i32
        }).collect();
        prop_assert_eq!(places(&graph, x.values.iter().map(|v| *v as f32).collect()), want);
        holds(Op::Softmax { axis }, &[&dims], seed, |x| {
            positions(&dims).iter().map(|p| {
                let sum: f64 = x[0].line(p, axis).iter().map(|v| v.exp()).sum();
                exact(x[0].at(p).exp() / sum)
            }).collect()
        });
    }

    #[test]
    fn linear_and_conv(
        (n, c, h, w) in (1usize..3, 1usize..4, 1usize..9, 1usize..9),
        (each, groups, kh, kw) in (1usize..4, 1usize..4, 1usize..4, 1usize..4),
        (sh, sw, pads) in (1usize..4, 1usize..4, [[0usize..3, 0..3], [0..3, 0..3]]),
        (line, bias) in (any::<bool>(), any::<bool>()),
        seed in 0u64..99,
    ) {
        prop_assume!(h + pads[0][0] + pads[0][1] >= kh && w + pads[1][0] + pads[1][1] >= kw);
        let keep = usize::from(line);
        let spec = ConvSpec { stride: [sh, sw][keep..].to_vec(), pad: pads[keep..].to_vec(), groups };
        let x: Vec<usize> = [&[n, c * groups][..], &[h, w][keep..]].concat();
        let weight: Vec<usize> = [&[each * groups, c][..], &[kh, kw][keep..]].concat();
        let mut dims: Vec<&[usize]> = vec![&x, &weight];
        let outs = [each * groups];
        if bias {
            dims.push(&outs);
        }
        let facts: Vec<Fact> = dims.iter().map(|d| f32s(d)).collect();
        let graph = graph_of(Op::Conv(spec.clone()), &facts);
        let shape = graph.fact(graph.outputs()[0].value).shape.clone();
        holds(Op::Conv(spec.clone()), &dims, seed, |a| {
            positions(shape.dims()).iter().map(|p| conv64(&spec, a, p, each)).collect()
        });
        let flat = [n * h, w];
        let matrix = [each, w];
        holds(Op::Linear, &[&flat, &matrix], seed, |a| {
            positions(&[n * h, each]).iter().map(|p| {
                let terms = (0..w).map(|i| a[0].at(&[p[0], i]) * a[1].at(&[p[1], i]));
                (terms.clone().sum(), terms.map(f64::abs).sum())
            }).collect()
        });
    }

    #[test]
    fn moves(dims in prop::collection::vec(1usize..40, 1..5), cut in prop::collection::vec((0usize..40, 1usize..40), 4),
             pads in prop::collection::vec([0usize..4, 0..4], 4), order in Just([0usize, 1, 2, 3]).prop_shuffle(), axis in 0usize..4) {
        prop_assume!(dims.iter().product::<usize>() < 40_000);
        let (rank, axis) = (dims.len(), axis % dims.len());
        let perm: Vec<usize> = order.into_iter().filter(|i| *i < rank).collect();
        let shape: Vec<usize> = perm.iter().map(|p| dims[*p]).collect();
        holds(Op::Transpose { perm: perm.clone() }, &[&dims], 3, |x| {
            positions(&shape).iter().map(|p| {
                let mut from = vec![0; rank];
                perm.iter().zip(p).for_each(|(axis, i)| from[*axis] = *i);
                exact(x[0].at(&from))
            }).collect()
        });
        let begin: Vec<usize> = dims.iter().zip(&cut).map(|(d, (b, _))| b % d).collect();
        let end: Vec<usize> = dims.iter().zip(&begin).zip(&cut).map(|((d, b), (_, n))| (b + n).min(*d)).collect();
        let extent: Vec<usize> = end.iter().zip(&begin).map(|(e, b)| e - b).collect();
        holds(Op::Slice { begin: begin.clone(), end }, &[&dims], 4, |x| {
            let from = |p: &Vec<usize>| p.iter().zip(&begin).map(|(i, b)| i + b).collect::<Vec<_>>();
            positions(&extent).iter().map(|p| exact(x[0].at(&from(p)))).collect()
        });
        let amount = pads[..rank].to_vec();
        let padded: Vec<usize> = dims.iter().zip(&amount).map(|(d, [a, b])| d + a + b).collect();
        holds(Op::Pad { amount: amount.clone() }, &[&dims], 5, |x| {
            positions(&padded).iter().map(|p| {
                let from: Option<Vec<usize>> = p.iter().zip(&amount).zip(&dims)
                    .map(|((i, [a, _]), d)| i.checked_sub(*a).filter(|i| i < d)).collect();
                exact(from.map_or(0.0, |p| x[0].at(&p)))
            }).collect()
        });
        let mut joined = dims.clone();
        joined[axis] = dims[axis] * 2;
        holds(Op::Concat { axis }, &[&dims, &dims], 6, |x| {
            positions(&joined).iter().map(|p| {
                let mut from = p.clone();
                from[axis] = p[axis] % dims[axis];
                exact(x[p[axis] / dims[axis]].at(&from))
            }).collect()
        });
        let flat = [dims.iter().product::<usize>()];
        holds(Op::Reshape { shape: flat.into() }, &[&dims], 7, |x| x[0].values.iter().map(|v| exact(*v)).collect());
    }
}

/// One output of a convolution, and the sum of its absolute terms.
fn conv64(spec: &ConvSpec, a: &[Nd], p: &[usize], each: usize) -> (f64, f64) {
    let (x, weight) = (&a[0], &a[1]);
    let group = p[1] / each;
    let mut total = a.get(2).map_or((0.0, 0.0), |b| (b.values[p[1]], b.values[p[1]].abs()));
    for tap in positions(&weight.dims[1..]) {
        let from: Option<Vec<usize>> = (0..spec.stride.len())
            .map(|i| {
                (p[i + 2] * spec.stride[i] + tap[i + 1]).checked_sub(spec.pad[i][0]).filter(|v| *v < x.dims[i + 2])
            })
            .collect();
        if let Some(from) = from {
            let channel = group * weight.dims[1] + tap[0];
            let v = x.at(&[&[p[0], channel][..], &from].concat()) * weight.at(&[&[p[1]][..], &tap].concat());
            total = (total.0 + v, total.1 + v.abs());
        }
    }
    total
}

/// Views, row ops, reductions and several outputs in one graph.
fn mixed(dtype: DType) -> Graph {
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(dtype, [1, 9, 4, 8])).unwrap();
    let q = b.push("heads", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[x]).unwrap();
    let k = b.push("pad", Op::Pad { amount: vec![[0, 0], [0, 0], [2, 0], [0, 0]] }, &[q]).unwrap();
    let mut logits = Vec::new();
    for d in 0..3 {
        let (begin, end) = (vec![0, 0, 2 - d, 0], vec![1, 4, 11 - d, 8]);
        let key = b.push("key", Op::Slice { begin, end }, &[k]).unwrap();
        let product = b.binary(Binary::Mul, key, q).unwrap();
        logits.push(b.push("sum", Op::Reduce { kind: Reduce::Sum, axis: 3 }, &[product]).unwrap());
    }
    let l = b.push("logits", Op::Concat { axis: 3 }, &logits).unwrap();
    let p = b.push("softmax", Op::Softmax { axis: 3 }, &[l]).unwrap();
    let mut sum = None;
    for d in 0..3 {
        let (begin, end) = (vec![0, 0, 2 - d, 0], vec![1, 4, 11 - d, 8]);
        let value = b.push("value", Op::Slice { begin, end }, &[k]).unwrap();
        let (begin, end) = (vec![0, 0, 0, d], vec![1, 4, 9, d + 1]);
        let weight = b.push("weight", Op::Slice { begin, end }, &[p]).unwrap();
        let part = b.binary(Binary::Mul, value, weight).unwrap();
        sum = Some(match sum {
            Some(sum) => b.binary(Binary::Add, sum, part).unwrap(),
            None => part,
        });
    }
    b.output("y", sum.unwrap());
    b.output("p", p);
    b.output("l", l);
    b.finish()
}

#[test]
fn a_fused_program_is_its_ops_one_by_one() {
    let x = numbers(9 * 4 * 8, 5);
    let at = |t: usize, h: usize, i: usize| f64::from(x[(t * 4 + h) * 8 + i]);
    let got = run(&mixed(DType::F32), std::slice::from_ref(&x));
    for h in 0..4 {
        for t in 0..9usize {
            let key = |d: usize, i: usize| t.checked_sub(d).map_or(0.0, |t| at(t, h, i));
            let logits: Vec<f64> = (0..3).map(|d| (0..8).map(|i| key(d, i) * at(t, h, i)).sum::<f64>().exp()).collect();
            let total: f64 = logits.iter().sum();
            for i in 0..8 {
                let want: f64 = (0..3).map(|d| logits[d] / total * key(d, i)).sum();
                assert!((f64::from(got[(h * 9 + t) * 8 + i]) - want).abs() < 3e-6);
            }
        }
    }
}

#[test]
fn an_f16_graph_and_f16_rounding_are_one() {
    let mut x = numbers(9 * 4 * 8, 6);
    let rounded = Options { round_f16: true, ..Options::default() };
    let (forced, _) = run_with(&mixed(DType::F32), std::slice::from_ref(&x), rounded);
    round_f16(&mut x);
    let declared = run(&mixed(DType::F16), std::slice::from_ref(&x));
    assert_eq!(forced, declared);
    let mut again = declared.clone();
    round_f16(&mut again);
    assert_eq!(again, declared);
    assert_ne!(declared, run(&mixed(DType::F32), &[x]));
}

#[test]
fn each_result_is_rounded_once_and_sums_are_not() {
    // 2048 + 1 is no f16; as one sum of eight it is 2056, as a chain of rounded additions it would stay 2048.
    let g = graph_of(Op::Reduce { kind: Reduce::Sum, axis: 1 }, &[Fact::new(DType::F16, [1, 9])]);
    let mut x = vec![1.0; 9];
    x[0] = 2048.0;
    assert_eq!(run(&g, std::slice::from_ref(&x)), [2056.0]);
    let add = graph_of(Op::Binary(Binary::Add), &vec![Fact::new(DType::F16, [1]); 2]);
    assert_eq!(run(&add, &[vec![2048.0], vec![1.0]]), [2048.0]);
    assert_eq!(run(&add, &[vec![65504.0], vec![65504.0]]), [f32::INFINITY]);
}

#[test]
fn where_it_stopped_being_finite() {
    let mut b = Builder::new("g");
    let x = b.input("x", f32s(&[2, 3])).unwrap();
    let big = b.constant("big", Weight::scalar(1e30));
    let y = b.binary(Binary::Mul, x, big).unwrap();
    let y = b.unary(Unary::Square, y).unwrap();
    let y = b.binary(Binary::Sub, y, y).unwrap();
    b.output("y", y);
    let g = b.finish();
    let (_, report) = run_with(&g, &[vec![1.0; 6]], Options::default());
    assert_eq!(report.non_finite, Some(NonFinite { path: "square".into(), op: "square" }));
    let (_, report) = run_with(&g, &[vec![1e-20; 6]], Options { trace: true, profile: true, ..Options::default() });
    assert_eq!(report.non_finite, None);
    let peaks: Vec<(&str, f32)> = report.peaks.iter().map(|p| (p.path.as_str(), p.peak)).collect();
    assert_eq!(peaks.len(), 4, "{peaks:?}");
    assert!(peaks[1].0 == "mul" && (peaks[1].1 / 1e10 - 1.0).abs() < 1e-6, "{peaks:?}");
    assert!(report.seconds.contains_key("mul") && report.seconds.contains_key("const"));
}

#[test]
fn nan_does_not_vanish_in_a_clamp_or_a_maximum() {
    let g = graph_of(Op::Binary(Binary::Maximum), &[f32s(&[2]), f32s(&[])]);
    assert!(run(&g, &[vec![f32::NAN, 1.0], vec![0.0]])[0].is_nan());
    let g = graph_of(Op::Binary(Binary::Minimum), &[f32s(&[]), f32s(&[2])]);
    assert!(run(&g, &[vec![0.0], vec![f32::NAN, 1.0]])[0].is_nan());
    for n in [3, 70] {
        let g = graph_of(Op::Reduce { kind: Reduce::Max, axis: 0 }, &[f32s(&[n])]);
        assert_eq!(run(&g, &[vec![-3.5; n]]), [-3.5], "a maximum never starts at 0");
        let mut x = vec![1.0; n];
        x[1] = f32::NAN;
        assert!(run(&g, &[x])[0].is_nan());
    }
}

#[test]
fn inputs_that_do_not_fit() {
    let g = graph_of(Op::Binary(Binary::Add), &[f32s(&[2, 3]), f32s(&[3])]);
    let memory = Memory::default();
    let evaluator = Evaluator::new(Checked::unchecked(&g), &memory, Options::default());
    let tensor = |dtype, dims: &[usize]| {
        let fact = Fact::new(dtype, Shape::new(dims));
        let n = fact.shape.elements();
        let values = if dtype == DType::I32 { Values::I32(vec![0; n]) } else { Values::F32(vec![0.0; n]) };
        HostTensor::new(fact, values).unwrap()
    };
    let case = |inputs: &[(&str, HostTensor)]| {
        let inputs = inputs.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
        evaluator.run(&inputs).map(|(_, report)| report.casts)
    };
    let (x0, x1) = (("x0", tensor(DType::F32, &[2, 3])), ("x1", tensor(DType::F32, &[3])));
    assert_eq!(case(&[x0.clone(), x1.clone()]).unwrap(), []);
    let error = |inputs: &[(&str, HostTensor)]| case(inputs).unwrap_err().to_string();
    insta::assert_snapshot!(error(std::slice::from_ref(&x0)), @"input x1 is missing; the graph takes x0 f32[2,3], x1 f32[3]");
    insta::assert_snapshot!(error(&[x0.clone(), x1.clone(), ("bias", x1.1.clone())]), @"there is no input bias; the graph takes x0 f32[2,3], x1 f32[3]");
    insta::assert_snapshot!(error(&[x0.clone(), ("x1", tensor(DType::F32, &[4]))]), @"input x1 is f32[4], expected f32[3]");
    insta::assert_snapshot!(error(&[x0.clone(), ("x1", tensor(DType::I32, &[3]))]), @"input x1 is i32[3], expected f32[3]");
    let cast = InputCast { input: "x1".into(), from: DType::BF16, to: DType::F32 };
    assert_eq!(case(&[x0, ("x1", tensor(DType::BF16, &[3]))]).unwrap(), [cast]);
}

#[test]
fn a_cast_that_overflows_is_named() {
    let g = graph_of(Op::Unary(Unary::Abs), &[Fact::new(DType::F16, [2])]);
    let memory = Memory::default();
    let evaluator = Evaluator::new(Checked::unchecked(&g), &memory, Options::default());
    let run = |v: f32| {
        let x = HostTensor::new(f32s(&[2]), Values::F32(vec![0.0, v])).unwrap();
        evaluator.run(&BTreeMap::from([("x0".to_string(), x)]))
    };
    let err = run(1e6).unwrap_err();
    let source = std::error::Error::source(&err).unwrap();
    insta::assert_snapshot!(format!("{err}: {source}"), @"input x0 cannot be cast from f32: element 1 is 1000000, which f16 cannot hold as a finite number");
    assert_eq!(run(-0.1).unwrap().0["y"].floats().unwrap(), [0.0, 0.099975586]);
}

#[test]
fn weights_are_read_and_their_faults_named() {
    let mut memory = Memory::default();
    memory.insert_f32("w", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let weight = Weight::tensor("w", &f32s(&[2, 3])).unwrap();
    let mut b = Builder::new("g");
    let x = b.input("x", f32s(&[1, 3])).unwrap();
    let plain = b.constant("plain", weight.clone());
    let scaled = b.constant("scaled", weight.edit(crate::ir::Edit::Scale(2.0)).unwrap());
    let y = b.push("plain_linear", Op::Linear, &[x, plain]).unwrap();
    let z = b.push("scaled_linear", Op::Linear, &[x, scaled]).unwrap();
    let y = b.binary(Binary::Add, y, z).unwrap();
    b.output("y", y);
    let g = b.finish();
    let inputs = feed(&g, &[vec![1.0, 0.0, 1.0]]);
    let run = |memory: &Memory| Evaluator::new(Checked::unchecked(&g), memory, Options::default()).run(&inputs);
    assert_eq!(run(&memory).unwrap().0["y"].floats().unwrap(), [12.0, 30.0]);
    memory.insert_f32("w", &[2, 3], &[1.0, 2.0, 3.0, 4.0, f32::NAN, 6.0]);
    let err = run(&memory).unwrap_err();
    let source = std::error::Error::source(&err).unwrap();
    insta::assert_snapshot!(format!("{err}: {source}"), @"weight plain: w in memory: element 4 is NaN, which f32 cannot hold as a finite number");
    memory.0.clear();
    let err = run(&memory).unwrap_err();
    let source = std::error::Error::source(&err).unwrap();
    insta::assert_snapshot!(format!("{err}: {source}"), @"weight plain: tensor w is not in memory");
}

/// Scales along every axis, in f32 and in f16, where each product is rounded.
#[test]
fn levels_are_multiplied_by_the_scale_of_their_block() {
    for dtype in [DType::F32, DType::F16] {
        for (dims, blocks) in [([4, 6], [4, 2]), ([4, 6], [2, 6]), ([4, 6], [1, 1]), ([4, 6], [2, 3])] {
            let levels: Vec<f64> = (0..16).map(|i| f64::from(i * 16 - 127)).collect();
            let mut memory = Memory::default();
            let q: Vec<u8> = (0..24).map(|i| levels[i % 16] as i8 as u8).collect();
            memory.0.insert("q".into(), (Fact::new(DType::I8, dims), q));
            let scales = numbers(blocks.iter().product(), 7);
            memory.insert_f32("s", &blocks, &scales);
            let mut b = Builder::new("g");
            let q = b.constant("q", Weight::tensor("q", &Fact::new(DType::I8, dims)).unwrap());
            let s = Weight::tensor("s", &f32s(&blocks)).unwrap();
            let s = if dtype == DType::F16 { s.edit(crate::ir::Edit::Cast(dtype)).unwrap() } else { s };
            let s = b.constant("s", s);
            let y = b.push("y", Op::Dequantize, &[q, s]).unwrap();
            b.output("y", y);
            let graph = b.finish();
            let evaluator = Evaluator::new(Checked::unchecked(&graph), &memory, Options::default());
            let got = evaluator.run(&BTreeMap::new()).unwrap().0["y"].floats().unwrap().to_vec();
            for (i, got) in got.iter().enumerate() {
                let at = i / 6 / (4 / blocks[0]) * blocks[1] + i % 6 / (6 / blocks[1]);
                let mut want = [scales[at]];
                if dtype == DType::F16 {
                    round_f16(&mut want);
                }
                want[0] *= levels[i % 16] as f32;
                if dtype == DType::F16 {
                    round_f16(&mut want);
                }
                assert_eq!(*got, want[0], "{dtype} {blocks:?}: element {i}");
            }
        }
    }
}

#[test]
fn integers_pass_through_moves_and_casts() {
    let mut b = Builder::new("g");
    let x = b.input("x", Fact::new(DType::I32, [2, 3])).unwrap();
    let t = b.push("t", Op::Transpose { perm: vec![1, 0] }, &[x]).unwrap();
    let p = b.push("p", Op::Pad { amount: vec![[1, 0], [0, 1]] }, &[t]).unwrap();
    let c = b.push("c", Op::Concat { axis: 1 }, &[p, p]).unwrap();
    let s = b.push("s", Op::Slice { begin: vec![1, 0], end: vec![3, 4] }, &[c]).unwrap();
    let f = b.push("f", Op::Cast(DType::F32), &[s]).unwrap();
    b.output("s", s);
    b.output("f", f);
    let g = b.finish();
    let memory = Memory::default();
    let x = HostTensor::new(Fact::new(DType::I32, [2, 3]), Values::I32(vec![1, 2, 3, 4, 5, 200_000])).unwrap();
    let run = Evaluator::new(Checked::unchecked(&g), &memory, Options::default());
    let (outputs, _) = run.run(&BTreeMap::from([("x".to_string(), x)])).unwrap();
    assert_eq!(outputs["s"].values(), &Values::I32(vec![1, 4, 0, 1, 2, 5, 0, 2]));
    assert_eq!(outputs["f"].floats().unwrap(), [1.0, 4.0, 0.0, 1.0, 2.0, 5.0, 0.0, 2.0]);
    let wide = graph_of(Op::Transpose { perm: vec![0] }, &[Fact::new(DType::F64, [2])]);
    let x = HostTensor::new(Fact::new(DType::F64, [2]), Values::F32(vec![0.0; 2])).unwrap();
    let run = Evaluator::new(Checked::unchecked(&wide), &memory, Options::default());
    let err = run.run(&BTreeMap::from([("x0".to_string(), x)])).unwrap_err();
    insta::assert_snapshot!(err, @"input at x0 is f64[2], expected f32, f16 or i32");
}
