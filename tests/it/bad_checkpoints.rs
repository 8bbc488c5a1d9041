//! Checkpoints that are almost right: each is refused with a message, and its twin is converted.

use crate::cli::{command, fixture};
use eg2_convert::checkpoint::{Checkpoint, Named, write_safetensors};
use eg2_convert::tensor::{DType, Fact, WeightSource};
use std::collections::BTreeMap;
use std::path::Path;

/// Tensors of a checkpoint, to be edited.
struct Tensors(BTreeMap<String, (Fact, Vec<u8>)>);

const LAYER: &str = "audio_tower.layers.1";

impl Tensors {
    fn of_fixture() -> Tensors {
        let checkpoint = Checkpoint::open(&fixture("encoder_eg2")).unwrap();
        let read = |name: &str| {
            let fact = checkpoint.fact(name).unwrap().clone();
            let mut bytes = vec![0; fact.bytes()];
            checkpoint.read(name, 0, &mut bytes).unwrap();
            (name.to_string(), (fact, bytes))
        };
        Tensors(checkpoint.names().into_iter().map(read).collect())
    }

    fn get(&mut self, name: &str) -> &mut (Fact, Vec<u8>) {
        self.0.get_mut(&format!("{LAYER}.{name}")).unwrap()
    }

    /// Sets element `index` of an f32 tensor of the layer.
    fn set(&mut self, name: &str, index: usize, value: f32) {
        self.get(name).1[index * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }

    fn write(&self, folder: &Path) {
        fs_err::create_dir_all(folder).unwrap();
        let named = self.0.iter().map(|(name, (fact, bytes))| Named { name, fact, bytes }).collect();
        let file = fs_err::File::create(folder.join("model.safetensors")).unwrap();
        write_safetensors(named, file).unwrap();
        fs_err::copy(fixture("encoder_eg2/config.json"), folder.join("config.json")).unwrap();
    }
}

/// Exit code and stderr of a conversion of the edited fixture; nothing may be left behind where it fails.
fn convert(precision: &str, edit: impl FnOnce(&mut Tensors)) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut tensors = Tensors::of_fixture();
    edit(&mut tensors);
    tensors.write(&dir.path().join("checkpoint"));
    let args = ["encoder", "--bucket", "200", "--checkpoint", "checkpoint", "--precision", precision];
    let output = command(dir.path()).args(args).output().unwrap();
    let code = output.status.code().unwrap();
    let left = fs_err::read_dir(dir.path().join("out")).map_or(0, Iterator::count);
    assert_eq!(left, if code == 0 { 2 } else { 0 });
    (code, String::from_utf8(output.stderr).unwrap())
}

/// Refused in both precisions with one message.
fn refused(edit: impl Fn(&mut Tensors)) -> String {
    let [fp16, fp32] = ["fp16", "fp32"].map(|precision| convert(precision, &edit));
    assert_eq!((fp16.0, fp32.0), (3, 3), "{}{}", fp16.1, fp32.1);
    assert_eq!(fp16.1, fp32.1);
    fp16.1
}

fn accepted(edit: impl Fn(&mut Tensors)) {
    for precision in ["fp16", "fp32"] {
        let (code, err) = convert(precision, &edit);
        assert_eq!((code, err.as_str()), (0, ""), "{precision}");
    }
}

const MATRIX: &str = "feed_forward1.ffw_layer_1.linear.weight";

#[test]
fn the_fixture_itself_is_fine() {
    accepted(|_| ());
}

#[test]
fn a_tensor_too_few_too_many_or_of_another_kind() {
    let missing = refused(|t| drop(t.0.remove(&format!("{LAYER}.{MATRIX}"))));
    insta::assert_snapshot!(missing, @"error: tensor audio_tower.layers.1.feed_forward1.ffw_layer_1.linear.weight is not in model.safetensors, expected f64, f32, f16 or bf16 of shape [192,48]; it has audio_tower.layers.1.feed_forward1.ffw_layer_1.input_max, audio_tower.layers.1.feed_forward1.ffw_layer_1.input_min, audio_tower.layers.1.feed_forward1.ffw_layer_1.output_max");
    let extra = refused(|t| {
        let copy = t.get(MATRIX).clone();
        t.0.insert(format!("{LAYER}.adapter.weight"), copy);
    });
    insta::assert_snapshot!(extra, @"error: 1 tensor of the model in model.safetensors was not read: audio_tower.layers.1.adapter.weight");
    accepted(|t| {
        let copy = t.get(MATRIX).clone();
        t.0.insert("vision_tower.adapter.weight".into(), copy);
    });
    let misshapen = refused(|t| t.get(MATRIX).0.shape = [48, 192].into());
    insta::assert_snapshot!(misshapen, @"error: tensor audio_tower.layers.1.feed_forward1.ffw_layer_1.linear.weight in model.safetensors is f32[48,192], expected f64, f32, f16 or bf16 of shape [192,48]");
    let integers = refused(|t| {
        let (fact, bytes) = t.get(MATRIX);
        fact.dtype = DType::I64;
        bytes.extend(bytes.clone());
    });
    insta::assert_snapshot!(integers, @"error: tensor audio_tower.layers.1.feed_forward1.ffw_layer_1.linear.weight in model.safetensors is i64[192,48], expected f64, f32, f16 or bf16 of shape [192,48]");
    let empty = refused(|t| *t.get("norm_out.weight") = (Fact::new(DType::F32, [0]), Vec::new()));
    insta::assert_snapshot!(empty, @"error: tensor audio_tower.layers.1.norm_out.weight in model.safetensors is f32[0], expected f64, f32, f16 or bf16 of shape [48]");
}

#[test]
fn bounds_of_one_element_or_of_rank_one() {
    accepted(|t| t.get("self_attn.q_proj.output_min").0.shape = [1].into());
    let two = refused(|t| {
        let (fact, bytes) = t.get("self_attn.q_proj.output_min");
        fact.shape = [2].into();
        bytes.extend(bytes.clone());
    });
    insta::assert_snapshot!(two, @"error: tensor audio_tower.layers.1.self_attn.q_proj.output_min in model.safetensors is f32[2], expected f64, f32, f16 or bf16 of shape []");
}

#[test]
fn bounds_that_bound_nothing_sensible() {
    let bound = |name: &'static str, value: f32| move |t: &mut Tensors| t.set(name, 0, value);
    insta::assert_snapshot!(refused(bound("lconv1d.linear_end.input_min", f32::NAN)), @"error: tensor audio_tower.layers.1.lconv1d.linear_end.input_min in model.safetensors is NaN, expected a number, or -inf for no bound");
    insta::assert_snapshot!(refused(bound("lconv1d.linear_end.input_max", f32::NAN)), @"error: tensor audio_tower.layers.1.lconv1d.linear_end.input_max in model.safetensors is NaN, expected a number, or inf for no bound");
    insta::assert_snapshot!(refused(bound("lconv1d.linear_end.input_min", f32::INFINITY)), @"error: tensor audio_tower.layers.1.lconv1d.linear_end.input_min in model.safetensors is inf, expected a number, or -inf for no bound");
    insta::assert_snapshot!(refused(bound("lconv1d.linear_end.input_max", -100.0)), @"error: tensor audio_tower.layers.1.lconv1d.linear_end.input_min in model.safetensors is -2.188133716583252, expected at most input_max, which is -100");
    for value in [f32::NEG_INFINITY, -1e30, -70000.0, -3.0] {
        accepted(bound("lconv1d.linear_end.input_min", value));
    }
    accepted(|t| {
        t.set("lconv1d.linear_end.input_min", 0, 0.5);
        t.set("lconv1d.linear_end.input_max", 0, 0.5);
    });
}

#[test]
fn weights_that_are_no_numbers() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        for precision in ["fp16", "fp32"] {
            let (code, err) = convert(precision, |t| t.set(MATRIX, 5000, value));
            assert_eq!(code, 3, "{err}");
            let dtype = if precision == "fp16" { "f16" } else { "f32" };
            let message =
                format!("{LAYER}.{MATRIX} in model.safetensors: element 5000 is {shown}, which {dtype} cannot hold");
            assert!(err.contains(&message), "{err}");
        }
    }
}

#[test]
fn weights_that_overflow_fp16() {
    let (code, err) = convert("fp16", |t| t.set(MATRIX, 7, 65520.0));
    assert_eq!(code, 3);
    insta::assert_snapshot!(err, @"
    error: function main: node layers.1.feed_forward1.ffw_layer_1.weight: weight could not be written
      caused by: audio_tower.layers.1.feed_forward1.ffw_layer_1.linear.weight in model.safetensors: element 7 is 65520, which f16 cannot hold as a finite number
    ");
    accepted(|t| t.set(MATRIX, 7, 65519.0));
    assert_eq!(convert("fp32", |t| t.set(MATRIX, 7, 65520.0)).0, 0);
}

#[test]
fn files_that_are_damaged() {
    let damaged = |edit: &dyn Fn(&mut Vec<u8>)| {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("checkpoint");
        Tensors::of_fixture().write(&folder);
        let path = folder.join("model.safetensors");
        let mut bytes = fs_err::read(&path).unwrap();
        edit(&mut bytes);
        fs_err::write(&path, bytes).unwrap();
        let args = ["encoder", "--bucket", "200", "--checkpoint", "checkpoint"];
        let output = command(dir.path()).args(args).output().unwrap();
        assert!(!dir.path().join("out").exists());
        assert_eq!(output.status.code(), Some(3));
        String::from_utf8(output.stderr).unwrap()
    };
    let length = Tensors::of_fixture().0.values().map(|(_, bytes)| bytes.len()).sum::<usize>();
    insta::with_settings!({ filters => vec![(length.to_string().as_str(), "[all]"), (r"\b\d{4,}\b", "[n]")] }, {
        insta::assert_snapshot!(damaged(&|b| b.truncate(b.len() - 1)), @"error: model.safetensors has [n] bytes of data, expected [all]: it is cut short");
        insta::assert_snapshot!(damaged(&|b| b.push(0)), @"error: model.safetensors has [n] bytes of data, expected [all]: bytes trail behind the last tensor");
        insta::assert_snapshot!(damaged(&|b| b.truncate(100)), @"error: model.safetensors says its header is [n] bytes long, but the file has 100; it is cut short or not safetensors");
    });
}
