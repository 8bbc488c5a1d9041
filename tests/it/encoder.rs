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

    /// Soft tokens of the clip, held against the reference token by token.
    fn compare(&self, clip: &Clip) -> Comparison {
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
        let width = config.text_hidden;
        let reference = self.golden(&format!("soft_tokens_{}", clip.valid));
        let tokens = clip.valid.div_ceil(2).div_ceil(2);
        assert_eq!(reference.len(), tokens * width);
        compare(&outputs["soft_tokens"].floats().unwrap()[..tokens * width], &reference, width).unwrap()
    }
}

#[test]
fn fp32_is_the_published_encoder() {
    for name in FIXTURES {
        let encoder = Encoder::new(name, Precision::Fp32);
        for valid in CLASSES {
            let found = encoder.compare(&Clip { valid, padding: 0.0, mask_padding: true });
            println!("{name} {valid} {found:?}");
            assert!(found.cosine_min >= 0.99999, "{name}, {valid} frames: {found:?}");
            assert!(found.max_abs <= 1e-4, "{name}, {valid} frames: {found:?}");
        }
    }
}
