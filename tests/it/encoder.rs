//! The encoder against the published implementation, on the fixtures of scripts/encoder_goldens.py.

use eg2_convert::checkpoint::{Checkpoint, Ledger};
use eg2_convert::eval::{Comparison, Evaluator, HostTensor, Options, Values, compare};
use eg2_convert::models::gemma_audio::{AudioConfig, Bucket, MEL_BINS, author};
use eg2_convert::passes::{Precision, precision};
use eg2_convert::tensor::{DType, Fact, WeightSource};
use eg2_convert::validate::check;
use std::collections::BTreeMap;
use std::path::PathBuf;

const FIXTURES: [&str; 2] = ["encoder_eg2", "encoder_gemma4"];
/// Frames of the goldens, and valid frames in each class of n % 4.
const BUCKET: usize = 200;
const CLASSES: [usize; 4] = [197, 198, 199, 200];
/// log 0.001, what silence is in every mel bin.
const LOG_SILENCE: f32 = -6.907_755_4;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// One clip as the host feeds it, with a knob for each rule of the contract.
struct Clip {
    valid: usize,
    padding: f32,
    mask_padding: bool,
}

struct Encoder {
    checkpoint: Checkpoint,
    golden: Checkpoint,
    precision: Precision,
}

impl Encoder {
    fn new(name: &str, precision: Precision) -> Encoder {
        let open = |path: PathBuf| Checkpoint::open(&path).unwrap();
        let golden = Checkpoint::open_file(&fixture(name).join("golden.safetensors")).unwrap();
        Encoder { checkpoint: open(fixture(name)), golden, precision }
    }

    fn golden(&self, name: &str) -> Vec<f32> {
        let mut values = vec![0.0; self.golden.fact(name).unwrap().shape.elements()];
        self.golden.read_f32(name, 0, &mut values).unwrap();
        values
    }

    /// Soft tokens of the clip and of the reference, and their width.
    fn run(&self, clip: &Clip) -> (Vec<f32>, Vec<f32>, usize) {
        let config = fs_err::read_to_string(self.checkpoint.config_path().unwrap()).unwrap();
        let config = AudioConfig::parse(&config, "config.json").unwrap();
        let bucket = Bucket::new(BUCKET).unwrap();
        let (graph, _) = author(&config, bucket, &Ledger::new(&self.checkpoint)).unwrap();
        let (graph, _) = precision(&graph, self.precision, &self.checkpoint).unwrap();
        let checked = check(&graph).unwrap();
        let mut features = self.golden("features");
        features[clip.valid * MEL_BINS..].fill(clip.padding);
        let mask = (0..bucket.half()).map(|i| f32::from(u8::from(!clip.mask_padding || 2 * i < clip.valid))).collect();
        let tensor = |dims: &[usize], values| {
            HostTensor::new(Fact::new(DType::F32, dims.to_vec()), Values::F32(values)).unwrap()
        };
        let inputs = BTreeMap::from([
            ("features".to_string(), tensor(&[1, BUCKET, MEL_BINS], features)),
            ("half_mask".to_string(), tensor(&[1, bucket.half()], mask)),
        ]);
        let (outputs, report) = Evaluator::new(checked, &self.checkpoint, Options::default()).run(&inputs).unwrap();
        assert!(report.non_finite.is_none(), "{report:?}");
        let reference = self.golden(&format!("soft_tokens_{}", clip.valid));
        let width = config.text_hidden;
        assert_eq!(reference.len(), clip.valid.div_ceil(2).div_ceil(2) * width);
        let found = outputs["soft_tokens"].floats().unwrap()[..reference.len()].to_vec();
        (found, reference, width)
    }

    /// All tokens held against the reference.
    fn compare(&self, clip: &Clip) -> Comparison {
        let (found, reference, width) = self.run(clip);
        compare(&found, &reference, width).unwrap()
    }

    /// The least cosine of all tokens but the last, and the last one's.
    fn last_token(&self, clip: &Clip) -> [f64; 2] {
        let (found, reference, width) = self.run(clip);
        let at = reference.len() - width;
        let part = |range: std::ops::Range<usize>| {
            compare(&found[range.clone()], &reference[range], width).unwrap().cosine_min
        };
        [part(0..at), part(at..reference.len())]
    }
}

#[test]
fn fp32_is_the_published_encoder() {
    for name in FIXTURES {
        let encoder = Encoder::new(name, Precision::Fp32);
        for valid in CLASSES {
            let found = encoder.compare(&Clip { valid, padding: 0.0, mask_padding: true });
            assert!(found.cosine_min >= 0.99999, "{name}, {valid} frames: {found:?}");
            assert!(found.max_abs <= 1e-4, "{name}, {valid} frames: {found:?}");
        }
    }
}

/// Without the mask, the second convolution of a clip whose last column is its last looks into padding.
#[test]
fn a_mask_of_ones_breaks_the_last_token_of_one_class() {
    for name in FIXTURES {
        let encoder = Encoder::new(name, Precision::Fp32);
        for valid in CLASSES {
            let [rest, last] = encoder.last_token(&Clip { valid, padding: 0.0, mask_padding: false });
            assert!(rest >= 0.99999, "{name}, {valid} frames: {rest}");
            assert_eq!(valid % 4 == 2, last < 0.99, "{name}, {valid} frames: {last}");
            assert_eq!(valid % 4 != 2, last >= 0.99999, "{name}, {valid} frames: {last}");
        }
    }
}

/// Padding is 0, not silence: the first convolution looks one frame ahead, and no mask covers it.
#[test]
fn log_silence_in_the_padding_breaks_the_last_token_of_two_classes() {
    for name in FIXTURES {
        let encoder = Encoder::new(name, Precision::Fp32);
        for valid in CLASSES {
            let [rest, last] = encoder.last_token(&Clip { valid, padding: LOG_SILENCE, mask_padding: true });
            assert!(rest >= 0.99999, "{name}, {valid} frames: {rest}");
            assert_eq!(valid % 2 == 1, last < 0.99, "{name}, {valid} frames: {last}");
            assert_eq!(valid % 2 == 0, last >= 0.99999, "{name}, {valid} frames: {last}");
        }
    }
}

#[test]
fn narrower_numbers_stay_close() {
    for (precision, mean) in [(Precision::Fp16, 0.999), (Precision::Fp16W32, 0.99999), (Precision::Int8, 0.999)] {
        for name in FIXTURES {
            let encoder = Encoder::new(name, precision);
            for valid in CLASSES {
                let found = encoder.compare(&Clip { valid, padding: 0.0, mask_padding: true });
                assert!(found.cosine_mean >= mean, "{} {name}, {valid} frames: {found:?}", precision.name());
            }
        }
    }
}
