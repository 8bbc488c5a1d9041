//! Times the evaluator on a word reader, whose last product chooses among all words, and says where the time goes:
//! `cargo run --release --example reader_bench -- DIRECTORY TOKENS [RUNS]`, where the directory is one that the
//! reference implementation wrote: `reader.safetensors`, `table.safetensors` and `golden_T<TOKENS>.safetensors`.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use eg2_convert::checkpoint::Checkpoint;
use eg2_convert::eval::{Evaluator, HostTensor, Options, Values};
use eg2_convert::ir::{Binary, BuildError, Builder, Edit, Graph, Op, Reduce, Table, Unary, ValueId, Wave, Weight};
use eg2_convert::tensor::{Fact, SourceError, WeightSource};
use eg2_convert::validate::check;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

const HEADS: usize = 8;
const WIDTH: usize = 64;

/// The network's tensors and the table.
struct Files([Checkpoint; 2]);

impl Files {
    fn with(&self, name: &str) -> &Checkpoint {
        let [network, table] = &self.0;
        if name == "table" { table } else { network }
    }
}

impl WeightSource for Files {
    fn names(&self) -> Vec<&str> {
        self.0.iter().flat_map(WeightSource::names).collect()
    }
    fn fact(&self, name: &str) -> Option<&Fact> {
        self.with(name).fact(name)
    }
    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        self.with(name).read(name, offset, out)
    }
    fn place(&self, name: &str) -> String {
        self.with(name).place(name)
    }
}

type Made = Result<ValueId, BuildError>;

struct Wiring<'f> {
    b: Builder,
    files: &'f Files,
    tokens: usize,
}

impl Wiring<'_> {
    fn weight(&mut self, name: &str, edits: &[Edit]) -> Made {
        let wrong = |source| BuildError { path: name.into(), source };
        let fact = self.files.fact(name).cloned().unwrap_or_else(|| Fact::new(eg2_convert::tensor::DType::F32, [1]));
        let weight = Weight::tensor(name, &fact).map_err(wrong)?;
        let weight = edits.iter().try_fold(weight, |w, e| w.edit(e.clone())).map_err(wrong)?;
        Ok(self.b.constant(name, weight))
    }

    fn with(&mut self, kind: Binary, x: ValueId, v: f64) -> Made {
        let v = self.b.constant("number", Weight::scalar(v));
        self.b.binary(kind, x, v)
    }

    fn reduce(&mut self, kind: Reduce, axis: usize, x: ValueId) -> Made {
        self.b.push(kind.name(), Op::Reduce { kind, axis }, &[x])
    }

    fn linear(&mut self, name: &str, x: ValueId) -> Made {
        let (w, bias) = (self.weight(&format!("{name}.weight"), &[])?, self.weight(&format!("{name}.bias"), &[])?);
        self.b.push(name, Op::Linear, &[x, w, bias])
    }

    fn norm(&mut self, name: &str, x: ValueId) -> Made {
        let mean = self.reduce(Reduce::Mean, 2, x)?;
        let x = self.b.binary(Binary::Sub, x, mean)?;
        let s = self.b.unary(Unary::Square, x)?;
        let s = self.reduce(Reduce::Mean, 2, s)?;
        let s = self.with(Binary::Add, s, 1e-5)?;
        let r = self.b.unary(Unary::Rsqrt, s)?;
        let x = self.b.binary(Binary::Mul, x, r)?;
        let (w, bias) = (self.weight(&format!("{name}.weight"), &[])?, self.weight(&format!("{name}.bias"), &[])?);
        let x = self.b.binary(Binary::Mul, x, w)?;
        self.b.binary(Binary::Add, x, bias)
    }

    fn heads(&mut self, name: &str, x: ValueId, perm: &[usize]) -> Made {
        let y = self.linear(name, x)?;
        let y = self.b.push("split", Op::Reshape { shape: [1, self.tokens, HEADS, WIDTH].into() }, &[y])?;
        self.b.push("split", Op::Transpose { perm: perm.to_vec() }, &[y])
    }

    fn rotated(&mut self, x: ValueId) -> Made {
        let mut half = |from: usize| {
            let (begin, end) = (vec![0, 0, 0, from], vec![1, HEADS, self.tokens, from + WIDTH / 2]);
            self.b.push("half", Op::Slice { begin, end }, &[x])
        };
        let (left, right) = (half(0)?, half(WIDTH / 2)?);
        let swapped = self.b.push("swapped", Op::Concat { axis: 3 }, &[right, left])?;
        let mut turn = |x: ValueId, wave: Wave| {
            let table = Table::Rotary { wave, positions: self.tokens, width: WIDTH, base: 10000.0 };
            let table = Weight::table(table).map_err(|source| BuildError { path: "rotary".into(), source })?;
            let table = self.b.constant("rotary", table);
            self.b.binary(Binary::Mul, x, table)
        };
        let (x, swapped) = (turn(x, Wave::Cos)?, turn(swapped, Wave::Sin)?);
        self.b.binary(Binary::Add, x, swapped)
    }

    fn block(&mut self, name: &str, x: ValueId, mask: ValueId) -> Made {
        let h = self.norm(&format!("{name}.attn_norm"), x)?;
        let q = self.heads(&format!("{name}.q_proj"), h, &[0, 2, 1, 3])?;
        let k = self.heads(&format!("{name}.k_proj"), h, &[0, 2, 1, 3])?;
        let v = self.heads(&format!("{name}.v_proj"), h, &[0, 2, 1, 3])?;
        let (q, k) = (self.rotated(q)?, self.rotated(k)?);
        let k = self.b.push("keys", Op::Transpose { perm: vec![0, 1, 3, 2] }, &[k])?;
        let s = self.b.push("scores", Op::MatMul, &[q, k])?;
        let s = self.with(Binary::Mul, s, 0.125)?;
        let s = self.b.binary(Binary::Add, s, mask)?;
        let p = self.b.push("softmax", Op::Softmax { axis: 3 }, &[s])?;
        let y = self.b.push("attended", Op::MatMul, &[p, v])?;
        let y = self.b.push("merge", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[y])?;
        let y = self.b.push("merge", Op::Reshape { shape: [1, self.tokens, HEADS * WIDTH].into() }, &[y])?;
        let y = self.linear(&format!("{name}.out_proj"), y)?;
        let x = self.b.binary(Binary::Add, x, y)?;
        let h = self.norm(&format!("{name}.ff_norm"), x)?;
        let h = self.linear(&format!("{name}.ff_in"), h)?;
        let h = self.b.unary(Unary::Gelu, h)?;
        let h = self.linear(&format!("{name}.ff_out"), h)?;
        self.b.binary(Binary::Add, x, h)
    }
}

fn reader(files: &Files, soft: &Fact, mask: &Fact) -> Result<Graph, BuildError> {
    let tokens = mask.shape.elements();
    let mut w = Wiring { b: Builder::new("bench"), files, tokens };
    let x = w.b.input("soft_tokens", soft.clone())?;
    let mask = w.b.input("token_mask", mask.clone())?;
    let mask = w.with(Binary::Sub, mask, 1.0)?;
    let mask = w.with(Binary::Mul, mask, 1e4)?;
    let mask = w.b.push("mask", Op::Reshape { shape: [1, 1, 1, tokens].into() }, &[mask])?;
    let x = w.norm("input_norm", x)?;
    let mut x = w.linear("input_proj", x)?;
    for layer in (0..).map(|l| format!("layers.{l}")).take_while(|l| files.fact(&format!("{l}.ff_in.bias")).is_some()) {
        x = w.block(&layer, x, mask)?;
    }
    let x = w.norm("output_norm", x)?;
    let y = w.linear("output_proj", x)?;
    let blank = w.linear("blank", y)?;
    let s = w.b.unary(Unary::Square, y)?;
    let s = w.reduce(Reduce::Sum, 2, s)?;
    let r = w.b.unary(Unary::Rsqrt, s)?;
    let scale = w.weight("log_scale", &[Edit::Exp])?;
    let y = w.b.binary(Binary::Mul, y, r)?;
    let y = w.b.binary(Binary::Mul, y, scale)?;
    let table = w.weight("table", &[])?;
    let words = w.b.push("words", Op::Linear, &[y, table])?;
    let logit = w.reduce(Reduce::Max, 2, words)?;
    let index = w.b.push("index", Op::ArgMax { axis: 2 }, &[words])?;
    w.b.output("top1_index", index);
    w.b.output("top1_logit", logit);
    w.b.output("blank_logit", blank);
    Ok(w.b.finish())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [directory, tokens, rest @ ..] = args.as_slice() else { return Err("DIRECTORY TOKENS [RUNS]".into()) };
    let runs: usize = rest.first().map_or(Ok(3), |n| n.parse())?;
    let file = |name: &str| Checkpoint::open_file(&Path::new(directory).join(name));
    let files = Files([file("reader.safetensors")?, file("table.safetensors")?]);
    let golden = file(&format!("golden_T{tokens}.safetensors"))?;
    let floats = |name: &str| -> Result<HostTensor, Box<dyn std::error::Error>> {
        let fact = golden.fact(name).ok_or("a golden file without its tensors")?.clone();
        let mut values = vec![0f32; fact.shape.elements()];
        golden.read_f32(name, 0, &mut values)?;
        Ok(HostTensor::new(fact, Values::F32(values))?)
    };
    let inputs = BTreeMap::from([
        ("soft_tokens".to_string(), floats("soft_tokens")?),
        ("token_mask".to_string(), floats("token_mask")?),
    ]);
    let graph = reader(&files, inputs["soft_tokens"].fact(), inputs["token_mask"].fact())?;
    let checked = check(&graph).map_err(|e| format!("{e:?}"))?;
    for (name, options) in [
        ("f32", Options::default()),
        ("f32, profiled", Options { profile: true, ..Options::default() }),
        ("f16 rounding", Options { round_f16: true, ..Options::default() }),
    ] {
        let evaluator = Evaluator::new(checked, &files, options);
        let mut times = Vec::new();
        let mut last = None;
        for _ in 0..runs {
            let start = Instant::now();
            last = Some(evaluator.run(&inputs)?);
            times.push(start.elapsed().as_secs_f64());
        }
        let Some((outputs, report)) = last else { return Ok(()) };
        let listed = times.iter().map(|s| format!("{s:.2}")).collect::<Vec<_>>().join(" ");
        println!("{name}: seconds {listed}");
        for output in ["top1_logit", "blank_logit"] {
            let (found, golden) = (outputs[output].floats().unwrap_or(&[]), floats(output)?);
            let pairs = found.iter().zip(golden.floats().unwrap_or(&[]));
            println!("  {output}: largest difference {:e}", pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max));
        }
        let mut bytes = vec![0u8; 4 * inputs["token_mask"].fact().shape.elements()];
        golden.read("top1_index", 0, &mut bytes)?;
        if let Values::I32(found) = outputs["top1_index"].values() {
            let golden = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b));
            println!("  {} of {} words differ", found.iter().zip(golden).filter(|(a, b)| *a != b).count(), found.len());
        }
        let mut sorted: Vec<_> = report.seconds.into_iter().collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (op, s) in sorted {
            println!("  {op:12} {:8.1} ms", s * 1e3);
        }
    }
    Ok(())
}
