//! Every precision computes what fp32 computes, within its rounding: as a graph, and read back from a package.

use eg2_convert::emit::mil::read::Package;
use eg2_convert::emit::mil::{Description, write};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Values};
use eg2_convert::ir::{Graph, parse};
use eg2_convert::passes::{Precision, precision};
use eg2_convert::tensor::{DType, Fact, Memory, WeightSource};
use eg2_convert::validate::check;

/// Two linear layers, one of 33 inputs, and a clamp by a vector and by a number.
const LAYERS: &str = include_str!("../support/layers.txt");

fn memory() -> Memory {
    let mut memory = Memory::default();
    let wave = |n: usize, by: f32| (0..n).map(|i| (i as f32 * by).sin()).collect::<Vec<f32>>();
    memory.insert_f32("low", &[64], &wave(64, 0.1));
    memory.insert_f32("proj", &[33, 64], &wave(33 * 64, 0.37));
    memory.insert_f32("bias", &[33], &wave(33, 0.9));
    memory.insert_f32("odd", &[4, 33], &wave(4 * 33, 0.53));
    memory
}

fn evaluated(graph: &Graph, source: &dyn WeightSource) -> Vec<f32> {
    let values = (0..3 * 64).map(|i| (i as f32 * 0.21).cos() * 2.0).collect();
    let x = HostTensor::new(Fact::new(DType::F32, [1, 3, 64]), Values::F32(values)).unwrap();
    let evaluator = Evaluator::new(check(graph).unwrap(), source, Options::default());
    evaluator.run(&[("x".to_string(), x)].into()).unwrap().0["y"].floats().unwrap().to_vec()
}

#[test]
fn all_precisions_compute_the_same_within_their_rounding() {
    let memory = memory();
    let exact = evaluated(&parse(LAYERS).unwrap(), &memory);
    let largest = exact.iter().fold(0f32, |m, v| m.max(v.abs()));
    // Roundings of relative size 2^-11, and of half a level of 127.
    for (to, allowed) in
        [(Precision::Fp32, 0.0), (Precision::Fp16W32, 4e-3), (Precision::Fp16, 1e-2), (Precision::Int8, 2e-2)]
    {
        let found = evaluated(&precision(&parse(LAYERS).unwrap(), to, &memory).unwrap().0, &memory);
        let off = exact.iter().zip(&found).fold(0f32, |m, (a, b)| m.max((a - b).abs()));
        assert!(off <= allowed * largest, "{}: {off} of {largest}", to.name());
        assert_eq!(off == 0.0, to == Precision::Fp32, "{} changes something", to.name());
    }
}

/// Levels and scales that were stored give the same numbers as those that are made anew.
#[test]
fn a_package_computes_what_its_graph_computes() {
    let memory = memory();
    for to in Precision::ALL {
        let (graph, _) = precision(&parse(LAYERS).unwrap(), to, &memory).unwrap();
        let dir = tempfile::tempdir().unwrap();
        write(&[check(&graph).unwrap()], &memory, &Description::default(), dir.path()).unwrap();
        let package = Package::open(dir.path()).unwrap();
        assert_eq!(package.violations(), []);
        let lifted = package.lift("main").unwrap();
        assert_eq!(evaluated(&lifted, &package), evaluated(&graph, &memory), "{}", to.name());
    }
}
