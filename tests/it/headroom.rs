//! fp16 headroom: the published residual stream reaches 383, whose square overflows fp16. A stream driven to 1,000 must
//! still give finite numbers, close to the fp32 ones.

use crate::cli::fixture;
use eg2_convert::checkpoint::{Checkpoint, Ledger};
use eg2_convert::eval::{Evaluator, HostTensor, Options, Report, Values, compare};
use eg2_convert::models::gemma_audio::{AudioConfig, Bucket, MEL_BINS, author};
use eg2_convert::passes::{Precision, precision};
use eg2_convert::tensor::{DType, Fact, SourceError, WeightSource};
use eg2_convert::validate::check;
use std::collections::BTreeMap;

/// The fixture with the weights of some norms scaled.
struct Louder {
    inner: Checkpoint,
    ends: &'static [&'static str],
    factor: f32,
}

impl WeightSource for Louder {
    fn names(&self) -> Vec<&str> {
        self.inner.names()
    }
    fn fact(&self, name: &str) -> Option<&Fact> {
        self.inner.fact(name)
    }
    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.inner.read(name, offset, out)?;
        if self.ends.iter().any(|end| name.ends_with(end)) {
            for value in out.as_chunks_mut::<4>().0 {
                *value = (f32::from_le_bytes(*value) * self.factor).to_le_bytes();
            }
        }
        Ok(())
    }
    fn place(&self, name: &str) -> String {
        self.inner.place(name)
    }
}

const BUCKET: usize = 200;

/// Soft tokens of the fixture's clip times `loudness`, and the report of the run.
fn run(source: &dyn WeightSource, to: Precision, loudness: f32) -> (Vec<f32>, Report) {
    let config = fs_err::read_to_string(fixture("encoder_eg2/config.json")).unwrap();
    let config = AudioConfig::parse(&config, "config.json").unwrap();
    let (graph, _) = author(&config, Bucket::new(BUCKET).unwrap(), &Ledger::new(source)).unwrap();
    let (graph, _) = precision(&graph, to, source).unwrap();
    let golden = Checkpoint::open_file(&fixture("encoder_eg2/golden.safetensors")).unwrap();
    let mut features = vec![0f32; BUCKET * MEL_BINS];
    golden.read_f32("features", 0, &mut features).unwrap();
    features.iter_mut().for_each(|v| *v *= loudness);
    features[197 * MEL_BINS..].fill(0.0);
    let mask = (0..BUCKET / 2).map(|i| f32::from(u8::from(2 * i < 197))).collect();
    let tensor =
        |dims: &[usize], values| HostTensor::new(Fact::new(DType::F32, dims.to_vec()), Values::F32(values)).unwrap();
    let inputs = BTreeMap::from([
        ("features".to_string(), tensor(&[1, BUCKET, MEL_BINS], features)),
        ("half_mask".to_string(), tensor(&[1, BUCKET / 2], mask)),
    ]);
    let options = Options { trace: true, ..Options::default() };
    let (outputs, report) = Evaluator::new(check(&graph).unwrap(), source, options).run(&inputs).unwrap();
    (outputs["soft_tokens"].floats().unwrap().to_vec(), report)
}

fn peak(report: &Report, ends: &str) -> f32 {
    report.peaks.iter().filter(|p| p.path.ends_with(ends)).map(|p| p.peak).fold(0.0, f32::max)
}

#[test]
fn a_residual_stream_of_a_thousand_stays_finite() {
    let loud = |ends, factor| Louder { inner: Checkpoint::open(&fixture("encoder_eg2")).unwrap(), ends, factor };
    let cases: [(&'static [&'static str], f32, f32); 3] = [
        (&["norm_out.weight"], 300.0, 1.0),
        (&["post_layer_norm.weight", "norm_post_attn.weight"], 400.0, 1.0),
        (&["norm_out.weight", "post_layer_norm.weight"], 250.0, 3.0),
    ];
    for (ends, factor, loudness) in cases {
        let source = loud(ends, factor);
        let (half, report) = run(&source, Precision::Fp16, loudness);
        assert!(peak(&report, ".residual").max(peak(&report, ".norm_out")) >= 1000.0, "{ends:?} is not loud enough");
        assert_eq!(report.non_finite, None, "{ends:?}");
        let (single, _) = run(&source, Precision::Fp32, loudness);
        let tokens = 50 * 24;
        let found = compare(&half[..tokens], &single[..tokens], 24).unwrap();
        assert!(found.cosine_mean >= 0.999, "{ends:?}: {found:?}");
    }
}

/// The twin that must break: with the row not divided first, the same stream overflows.
#[test]
fn a_plain_square_of_that_stream_overflows() {
    use eg2_convert::ir::{Builder, Op, Reduce, Unary};
    let mut b = Builder::new("main");
    let x = b.input("x", Fact::new(DType::F16, [1, 8])).unwrap();
    let square = b.unary(Unary::Square, x).unwrap();
    let mean = b.push("mean", Op::Reduce { kind: Reduce::Mean, axis: 1 }, &[square]).unwrap();
    b.output("y", mean);
    let graph = b.finish();
    let empty = Checkpoint::open_file(&fixture("encoder_eg2/golden.safetensors")).unwrap();
    let x = HostTensor::new(Fact::new(DType::F16, [1, 8]), Values::F32(vec![383.0; 8])).unwrap();
    let run = Evaluator::new(check(&graph).unwrap(), &empty, Options::default());
    let (_, report) = run.run(&BTreeMap::from([("x".to_string(), x)])).unwrap();
    assert_eq!(report.non_finite.unwrap().op, "square");
}
