//! Weight values: edits applied while a weight streams, a block at a time wherever the edits allow it.
//!
//! Everything that is computed (scales, projections, tables) is computed in f64 in a fixed order with `libm`, whose
//! functions are the same on every machine, and rounded to f32 once.

use super::quantize::{bytes_of_levels, levels, scales};
use super::weight::repeated;
use super::{Edit, Source, Table, Wave, Weight};
use crate::tensor::{DType, Fact, NotRepresentable, SourceError, WeightSource, bytes_of_f32, narrow_f16};

/// Elements per block: what a weight of any size costs in memory, small enough to stay in a core's cache.
const BLOCK: usize = 1 << 16;

/// Why a weight's values could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MaterializeError<E> {
    /// The tensor could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A value is not finite, or not in the dtype it is to become.
    #[error("{origin} in {place}: element {index} is {value}, which {dtype} cannot hold as a finite number")]
    Value {
        /// The tensor the weight is made of.
        origin: String,
        /// Its file.
        place: String,
        /// Element of the finished weight.
        index: usize,
        /// The value after all edits.
        value: f32,
        /// The dtype it was to become.
        dtype: DType,
    },
    /// Whoever takes the bytes failed.
    #[error("{0}")]
    Sink(E),
}

/// Makes weight values from a source. Keeps the last expensive intermediate, since the twelve relative keys of a layer
/// are rows of one projection.
pub struct Materializer<'a> {
    source: &'a dyn WeightSource,
    projected: Option<(String, Edit, Vec<f32>)>,
}

/// An edit as a function of a block of elements and the index of the first.
enum Step {
    Scale(f64),
    Exp,
    ScaleRows { by: Vec<f64>, row: usize },
    Levels { block: usize },
    Scales { block: usize },
}

impl<'a> Materializer<'a> {
    /// A materializer over `source`.
    pub fn new(source: &'a dyn WeightSource) -> Self {
        Materializer { source, projected: None }
    }

    /// What tensors are read from.
    pub fn source(&self) -> &'a dyn WeightSource {
        self.source
    }

    /// Hands the finished bytes of `weight` to `sink`, little endian, row-major, block after block.
    ///
    /// # Errors
    /// The source cannot be read, a value is not finite or does not fit the dtype, or `sink` fails.
    pub fn stream<E>(
        &mut self,
        weight: &Weight,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), MaterializeError<E>> {
        let fact = weight.fact();
        if !weight.source_fact().dtype.is_float() {
            return self.stream_integers(weight, sink);
        }
        let place = self.source.place(weight.origin());
        let mut bytes = Vec::new();
        self.blocks(weight, |start, block| {
            bytes.clear();
            let stored = if fact.dtype == DType::F16 {
                narrow_f16(block, &mut bytes)
            } else if fact.dtype == DType::I8 {
                bytes_of_levels(block, &mut bytes)
            } else {
                bytes_of_f32(block, &mut bytes)
            };
            stored.map_err(|bad| not_representable(weight, &place, start, bad))?;
            sink(&bytes).map_err(MaterializeError::Sink)
        })
    }

    /// The finished values of a float weight as f32 (an f16 weight is rounded).
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub fn read_f32(&mut self, weight: &Weight) -> Result<Vec<f32>, MaterializeError<std::convert::Infallible>> {
        let dtype = weight.fact().dtype;
        let mut values = Vec::with_capacity(weight.fact().shape.elements());
        let mut bytes = Vec::new();
        self.stream(weight, |block| {
            bytes.clear();
            bytes.extend_from_slice(block);
            let start = values.len();
            values.resize(start + bytes.len() / dtype.size(), 0.0);
            crate::tensor::widen(dtype, &bytes, &mut values[start..]);
            Ok(())
        })?;
        Ok(values)
    }

    fn stream_integers<E>(
        &mut self,
        weight: &Weight,
        mut sink: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), MaterializeError<E>> {
        let dtype = weight.fact().dtype;
        match weight.source() {
            Source::Tensor(name) => {
                let total = weight.fact().bytes();
                let mut block = vec![0u8; total.min(BLOCK * dtype.size())];
                for start in (0..total).step_by(block.len().max(1)) {
                    let part = block.len().min(total - start);
                    self.source.read(name, start as u64, &mut block[..part])?;
                    sink(&block[..part]).map_err(MaterializeError::Sink)?;
                }
                Ok(())
            }
            Source::Literal(values) => {
                let bytes: Vec<u8> =
                    values.iter().flat_map(|v| (*v as i64).to_le_bytes()[..dtype.size()].to_vec()).collect();
                sink(&bytes).map_err(MaterializeError::Sink)
            }
            Source::Table(_) => Ok(()),
        }
    }

    /// Runs `take` over blocks of edited f32 values, not yet narrowed to the final dtype.
    fn blocks<E>(
        &mut self,
        weight: &Weight,
        mut take: impl FnMut(usize, &[f32]) -> Result<(), MaterializeError<E>>,
    ) -> Result<(), MaterializeError<E>> {
        let whole = weight.edits().iter().rposition(|e| !blockwise(e)).map_or(0, |at| at + 1);
        let mut fact = weight.source_fact().clone();
        let mut held = match (weight.source(), whole) {
            (Source::Tensor(_), 0) => None,
            (Source::Tensor(name), _) => Some(self.whole(name, &weight.edits()[..whole], &mut fact)?),
            (Source::Literal(values), _) => {
                let values = values.iter().map(|v| *v as f32).collect();
                Some(self.edited(values, &weight.edits()[..whole], &mut fact)?)
            }
            (Source::Table(table), _) => Some(self.edited(tabulate(table), &weight.edits()[..whole], &mut fact)?),
        };
        let total = fact.shape.elements();
        let mut steps = Vec::new();
        let mut saturate = None;
        for edit in &weight.edits()[whole..] {
            self.step(edit, &fact, &mut steps)?;
            if let Edit::Saturate(DType::F16) = edit {
                saturate = Some(f32::from(half::f16::MAX));
            }
            fact.shape = shape_after(edit, &fact);
        }
        let size = block_size(&steps).min(total);
        let mut buffer = vec![0f32; if held.is_some() { 0 } else { size }];
        for start in (0..total).step_by(size.max(1)) {
            let n = size.min(total - start);
            let block = match (&mut held, weight.source()) {
                (Some(values), _) => &mut values[start..start + n],
                (None, Source::Tensor(name)) => {
                    self.source.read_f32(name, start, &mut buffer[..n])?;
                    &mut buffer[..n]
                }
                (None, Source::Literal(_) | Source::Table(_)) => &mut buffer[..n],
            };
            let (start, n) = run(&steps, start, block);
            let block = &mut block[..n];
            if let Some(limit) = saturate {
                block.iter_mut().for_each(|v| *v = v.clamp(-limit, limit));
            }
            take(start, block)?;
        }
        Ok(())
    }

    /// A tensor with the edits that need all of it at once.
    fn whole(&mut self, name: &str, edits: &[Edit], fact: &mut Fact) -> Result<Vec<f32>, SourceError> {
        let mut done = 0;
        let mut values = match (edits.first(), &self.projected) {
            (Some(edit), Some((known, by, values))) if known == name && by == edit => {
                done = 1;
                values.clone()
            }
            _ => {
                let mut values = vec![0f32; fact.shape.elements()];
                for (block, out) in values.chunks_mut(BLOCK).enumerate() {
                    self.source.read_f32(name, block * BLOCK, out)?;
                }
                values
            }
        };
        for (at, edit) in edits.iter().enumerate() {
            if at >= done {
                values = self.edit_whole(edit, fact, values)?;
                if let (0, Edit::ProjectSinusoid { .. }) = (at, edit) {
                    self.projected = Some((name.into(), edit.clone(), values.clone()));
                }
            }
            fact.shape = shape_after(edit, fact);
        }
        Ok(values)
    }

    /// Values with edits that need all of them at once.
    fn edited(&self, mut values: Vec<f32>, edits: &[Edit], fact: &mut Fact) -> Result<Vec<f32>, SourceError> {
        for edit in edits {
            values = self.edit_whole(edit, fact, values)?;
            fact.shape = shape_after(edit, fact);
        }
        Ok(values)
    }

    fn edit_whole(&self, edit: &Edit, fact: &Fact, mut values: Vec<f32>) -> Result<Vec<f32>, SourceError> {
        let dims = fact.shape.dims();
        Ok(match edit {
            Edit::Repeat(n) => values.repeat(*n),
            Edit::Row(r) => {
                let width = dims.last().copied().unwrap_or(0);
                values[r * width..(r + 1) * width].to_vec()
            }
            Edit::Rows { begin, count } => {
                let width = dims.iter().skip(1).product::<usize>();
                values[begin * width..(begin + count) * width].to_vec()
            }
            Edit::Transpose(perm) => transpose(&values, dims, perm),
            Edit::ProjectSinusoid { positions, offset } => project_sinusoid(&values, dims, *positions, *offset),
            Edit::Scale(_)
            | Edit::Exp
            | Edit::ScaleRowsSoftplus { .. }
            | Edit::QuantizeBlocks { .. }
            | Edit::BlockScales { .. } => {
                let mut steps = Vec::new();
                self.step(edit, fact, &mut steps)?;
                let (_, n) = run(&steps, 0, &mut values);
                values.truncate(n);
                values
            }
            Edit::Reshape(_) | Edit::Cast(_) | Edit::Saturate(_) => values,
        })
    }

    fn step(&self, edit: &Edit, fact: &Fact, steps: &mut Vec<Step>) -> Result<(), SourceError> {
        match edit {
            Edit::Scale(factor) => steps.push(Step::Scale(*factor)),
            Edit::Exp => steps.push(Step::Exp),
            Edit::ScaleRowsSoftplus { tensor, period, factor } => {
                let mut v = vec![0f32; *period];
                self.source.read_f32(tensor, 0, &mut v)?;
                let by = v.iter().map(|x| factor * softplus(f64::from(*x))).collect();
                let rows = fact.shape.dims().first().copied().unwrap_or(1).max(1);
                steps.push(Step::ScaleRows { by, row: fact.shape.elements() / rows });
            }
            Edit::QuantizeBlocks { block } => steps.push(Step::Levels { block: *block }),
            Edit::BlockScales { block } => steps.push(Step::Scales { block: *block }),
            Edit::Repeat(_)
            | Edit::ProjectSinusoid { .. }
            | Edit::Row(_)
            | Edit::Rows { .. }
            | Edit::Transpose(_)
            | Edit::Reshape(_)
            | Edit::Cast(_)
            | Edit::Saturate(_) => {}
        }
        Ok(())
    }
}

/// Runs `steps` over `block`, whose first element is number `start`. Returns where the result starts, and how many
/// elements of `block` it takes.
fn run(steps: &[Step], start: usize, block: &mut [f32]) -> (usize, usize) {
    steps.iter().fold((start, block.len()), |(start, n), step| step.run(start, &mut block[..n]))
}

/// Elements per block, a multiple of those that share a scale: they are divisors of the last axis, and so of the whole.
fn block_size(steps: &[Step]) -> usize {
    let together = steps.iter().map(|step| match step {
        Step::Levels { block } | Step::Scales { block } => *block,
        Step::Scale(_) | Step::Exp | Step::ScaleRows { .. } => 1,
    });
    BLOCK.next_multiple_of(together.product::<usize>().max(1))
}

impl Step {
    fn run(&self, start: usize, block: &mut [f32]) -> (usize, usize) {
        let n = block.len();
        match self {
            Step::Levels { block: together } => levels(block, *together),
            Step::Scales { block: together } => return (start / together, scales(block, *together)),
            Step::Exp => block.iter_mut().for_each(|v| *v = libm::exp(f64::from(*v)) as f32),
            Step::Scale(factor) => block.iter_mut().for_each(|v| *v = (f64::from(*v) * factor) as f32),
            Step::ScaleRows { by, row } => {
                let mut at = start;
                let mut rest = block;
                while !rest.is_empty() {
                    let n = (row - at % row).min(rest.len());
                    let (part, tail) = rest.split_at_mut(n);
                    let factor = by[at / row % by.len()];
                    part.iter_mut().for_each(|v| *v = (f64::from(*v) * factor) as f32);
                    at += n;
                    rest = tail;
                }
            }
        }
        (start, n)
    }
}

/// Whether an edit leaves every element, or what becomes of a run of them, where it is, so that it can be applied block
/// by block.
fn blockwise(edit: &Edit) -> bool {
    match edit {
        Edit::Scale(_)
        | Edit::Exp
        | Edit::ScaleRowsSoftplus { .. }
        | Edit::Reshape(_)
        | Edit::Cast(_)
        | Edit::Saturate(_)
        | Edit::QuantizeBlocks { .. }
        | Edit::BlockScales { .. } => true,
        Edit::Repeat(_) | Edit::ProjectSinusoid { .. } | Edit::Row(_) | Edit::Rows { .. } | Edit::Transpose(_) => false,
    }
}

fn shape_after(edit: &Edit, fact: &Fact) -> crate::tensor::Shape {
    let dims = fact.shape.dims();
    match (edit, dims) {
        (Edit::Repeat(n), _) => repeated(*n, dims).unwrap_or_else(|| fact.shape.clone()),
        (Edit::ProjectSinusoid { positions, .. }, [n, _]) => [*positions, *n].into(),
        (Edit::Row(_), [_, k]) => [*k].into(),
        (Edit::Rows { count, .. }, [_, rest @ ..]) => [&[*count], rest].concat().into(),
        (Edit::Transpose(perm), _) => perm.iter().map(|&p| dims[p]).collect::<Vec<_>>().into(),
        (Edit::Reshape(shape), _) => shape.clone(),
        (Edit::BlockScales { block }, [rest @ .., k]) => [rest, &[k / block]].concat().into(),
        _ => fact.shape.clone(),
    }
}

fn not_representable<E>(weight: &Weight, place: &str, start: usize, bad: NotRepresentable) -> MaterializeError<E> {
    MaterializeError::Value {
        origin: weight.origin().into(),
        place: place.into(),
        index: start + bad.index,
        value: bad.value,
        dtype: bad.dtype,
    }
}

/// `ln(1 + e^x)` without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + libm::log1p(libm::exp(-x.abs()))
}

fn transpose(values: &[f32], dims: &[usize], perm: &[usize]) -> Vec<f32> {
    let mut strides = vec![1usize; dims.len()];
    for i in (0..dims.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * dims[i + 1];
    }
    let shape: Vec<usize> = perm.iter().map(|&p| dims[p]).collect();
    let step: Vec<usize> = perm.iter().map(|&p| strides[p]).collect();
    let mut index = vec![0usize; shape.len()];
    let mut at = 0;
    (0..values.len())
        .map(|_| {
            let value = values[at];
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                at += step[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                at -= step[axis] * shape[axis];
                index[axis] = 0;
            }
            value
        })
        .collect()
}

/// See [`Edit::ProjectSinusoid`]. Each sum runs over `k` in order, so its value does not depend on the machine.
fn project_sinusoid(weight: &[f32], dims: &[usize], positions: usize, offset: i64) -> Vec<f32> {
    let (n, k) = match dims {
        [n, k] => (*n, *k),
        _ => return Vec::new(),
    };
    let half = k / 2;
    let increment = libm::log(10000.0) / (half.saturating_sub(1).max(1)) as f64;
    // sinusoid[j][p], so that the inner loop runs over positions and each sum keeps its order
    let mut sinusoid = vec![0f64; k * positions];
    for p in 0..positions {
        let Ok(position) = u32::try_from(p as i64 + offset) else { continue };
        for i in 0..half {
            let angle = f64::from(position) * libm::exp(-increment * i as f64);
            sinusoid[i * positions + p] = libm::sin(angle);
            sinusoid[(half + i) * positions + p] = libm::cos(angle);
        }
    }
    let mut out = vec![0f32; positions * n];
    let mut sums = vec![0f64; positions];
    for (row, weights) in weight.chunks_exact(k.max(1)).enumerate() {
        sums.fill(0.0);
        for (w, waves) in weights.iter().zip(sinusoid.chunks_exact(positions.max(1))) {
            let w = f64::from(*w);
            for (sum, wave) in sums.iter_mut().zip(waves) {
                *sum += w * wave;
            }
        }
        for (p, sum) in sums.iter().enumerate() {
            out[p * n + row] = *sum as f32;
        }
    }
    out
}

fn tabulate(table: &Table) -> Vec<f32> {
    match table {
        Table::CausalBand { tokens, keys, value } => {
            (0..*tokens).flat_map(|t| (0..*keys).map(move |d| if d <= t { 0.0 } else { *value as f32 })).collect()
        }
        Table::Rotary { wave, positions, width, base } => {
            let half = width / 2;
            let angle = |p: usize, i: usize| p as f64 * libm::pow(*base, -(i as f64) / half.max(1) as f64);
            let value = |p: usize, j: usize| match wave {
                Wave::Cos => libm::cos(angle(p, j % half)),
                Wave::Sin if j < half => -libm::sin(angle(p, j)),
                Wave::Sin => libm::sin(angle(p, j - half)),
            };
            (0..*positions).flat_map(|p| (0..*width).map(move |j| value(p, j) as f32)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Memory;
    use std::convert::Infallible;

    fn memory_of(tensors: &[(&str, &[usize], Vec<f32>)]) -> Memory {
        let mut memory = Memory::default();
        tensors.iter().for_each(|(name, dims, values)| memory.insert_f32(name, dims, values));
        memory
    }

    fn weight(memory: &Memory, name: &str) -> Weight {
        Weight::tensor(name, memory.fact(name).unwrap()).unwrap()
    }

    #[test]
    fn rows_are_scaled_across_blocks() {
        let (rows, width) = (300, 777);
        let memory = memory_of(&[("w", &[rows, width], vec![1.0; rows * width]), ("s", &[3], vec![0.0, 1.0, -2.0])]);
        let edit = Edit::ScaleRowsSoftplus { tensor: "s".into(), period: 3, factor: 0.5 };
        let weight = weight(&memory, "w").edit(edit).unwrap();
        let values = Materializer::new(&memory).read_f32(&weight).unwrap();
        for (i, v) in values.iter().enumerate() {
            let x = [0.0f64, 1.0, -2.0][i / width % 3];
            assert_eq!(*v, (0.5 * x.exp().ln_1p()) as f32, "element {i}");
        }
    }

    #[test]
    fn projection_is_the_sum_over_the_sinusoid() {
        let (n, k) = (5, 8);
        let w: Vec<f32> = (0..n * k).map(|i| i as f32 * 0.01 - 0.2).collect();
        let memory = memory_of(&[("w", &[n, k], w.clone())]);
        let base = weight(&memory, "w").edit(Edit::ProjectSinusoid { positions: 4, offset: -1 }).unwrap();
        let mut made = Materializer::new(&memory);
        let values = made.read_f32(&base).unwrap();
        assert!(values[..n].iter().all(|v| *v == 0.0), "a negative position projects to zero");
        for p in 1..4 {
            for row in 0..n {
                let want: f64 = (0..k)
                    .map(|j| {
                        let angle = (p as f64 - 1.0) * (-(1e4f64.ln()) / 3.0 * (j % 4) as f64).exp();
                        f64::from(w[row * k + j]) * if j < 4 { angle.sin() } else { angle.cos() }
                    })
                    .sum();
                assert!((f64::from(values[p * n + row]) - want).abs() < 1e-6);
            }
        }
        let row = base.edit(Edit::Row(2)).unwrap();
        assert_eq!(made.read_f32(&row).unwrap(), &values[2 * n..3 * n]);
    }

    #[test]
    fn transpose_moves_every_element() {
        let memory = memory_of(&[("w", &[2, 3, 4], (0..24).map(|i| i as f32).collect())]);
        let weight = weight(&memory, "w").edit(Edit::Transpose(vec![2, 0, 1])).unwrap();
        let values = Materializer::new(&memory).read_f32(&weight).unwrap();
        assert_eq!(values[..7], [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 1.0]);
    }

    #[test]
    fn numbers_of_the_graph_take_every_edit() {
        let values = |weight: Weight| Materializer::new(&memory_of(&[])).read_f32(&weight).unwrap();
        let repeated = Weight::scalar(1.5).edit(Edit::Scale(2.0)).and_then(|w| w.edit(Edit::Repeat(3))).unwrap();
        assert_eq!(values(repeated), [3.0; 3]);
        let columns = Weight::literal(vec![1.0, 2.0], Fact::new(DType::F32, [1, 2])).unwrap();
        let columns = columns.edit(Edit::Repeat(2)).unwrap();
        assert_eq!((columns.fact().shape.dims(), values(columns.clone())), (&[2, 2][..], vec![1.0, 2.0, 1.0, 2.0]));
        let pair = Weight::literal(vec![1.0, 2.0, 3.0, 4.0], Fact::new(DType::F32, [2, 2])).unwrap();
        assert_eq!(values(pair.edit(Edit::Transpose(vec![1, 0])).unwrap()), [1.0, 3.0, 2.0, 4.0]);
        let band = Weight::table(Table::CausalBand { tokens: 2, keys: 2, value: -1.0 }).unwrap();
        assert_eq!(values(band.edit(Edit::Transpose(vec![0, 1, 3, 2])).unwrap()), [0.0, 0.0, -1.0, 0.0]);
    }

    #[test]
    fn a_rotary_table_turns_a_vector_by_its_position() {
        let waves = [Wave::Cos, Wave::Sin].map(|wave| {
            let table = Table::Rotary { wave, positions: 300, width: 6, base: 1e4 };
            Materializer::new(&memory_of(&[])).read_f32(&Weight::table(table).unwrap()).unwrap()
        });
        let [cos, sin] = &waves;
        let x = [0.3f64, -0.7, 1.1, 0.2, 0.9, -0.4];
        for p in [0usize, 1, 299] {
            for i in 0..3 {
                let angle = p as f64 * 1e4f64.powf(-(i as f64) / 3.0);
                let got = |j: usize| x[j] * f64::from(cos[p * 6 + j]) + x[(j + 3) % 6] * f64::from(sin[p * 6 + j]);
                assert!((got(i) - (x[i] * angle.cos() - x[i + 3] * angle.sin())).abs() < 1e-6);
                assert!((got(i + 3) - (x[i + 3] * angle.cos() + x[i] * angle.sin())).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn rows_and_exponentials() {
        let memory = memory_of(&[("w", &[6, 2], (0..12).map(|i| i as f32).collect()), ("s", &[1], vec![90f32.ln()])]);
        let mut made = Materializer::new(&memory);
        let rows = weight(&memory, "w").edit(Edit::Rows { begin: 2, count: 3 }).unwrap();
        assert_eq!(made.read_f32(&rows).unwrap(), [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let scaled = rows.edit(Edit::Scale(0.5)).and_then(|w| w.edit(Edit::Rows { begin: 2, count: 1 })).unwrap();
        assert_eq!(made.read_f32(&scaled).unwrap(), [4.0, 4.5]);
        let scale = weight(&memory, "s").edit(Edit::Exp).unwrap();
        assert!((made.read_f32(&scale).unwrap()[0] - 90.0).abs() < 1e-4);
    }

    #[test]
    fn the_band_hides_what_lies_before_the_clip() {
        let weight = Weight::table(Table::CausalBand { tokens: 3, keys: 2, value: -1e4 }).unwrap();
        let values = Materializer::new(&memory_of(&[])).read_f32(&weight).unwrap();
        assert_eq!(values, [0.0, -1e4, 0.0, 0.0, 0.0, 0.0]);
    }

    /// Rows longer than a block of the stream, and a run of values that does not divide one.
    #[test]
    fn levels_and_scales_belong_together_wherever_a_block_is_cut() {
        let (rows, k, block) = (3, BLOCK + 8, 12);
        assert!(k.is_multiple_of(block) && !BLOCK.is_multiple_of(block));
        let values: Vec<f32> = (0..rows * k).map(|i| (i % 1013) as f32 - 500.0 + (i / 4000) as f32).collect();
        let memory = memory_of(&[("w", &[rows, k], values.clone()), ("s", &[1], vec![0.3])]);
        let scaled = || {
            let edit = Edit::ScaleRowsSoftplus { tensor: "s".into(), period: 1, factor: 0.01 };
            weight(&memory, "w").edit(edit).unwrap()
        };
        let mut made = Materializer::new(&memory);
        let exact = made.read_f32(&scaled()).unwrap();
        let scales = made.read_f32(&scaled().edit(Edit::BlockScales { block }).unwrap()).unwrap();
        assert_eq!(scales.len(), rows * k / block);
        let mut levels = Vec::new();
        let quantized = scaled().edit(Edit::QuantizeBlocks { block }).unwrap();
        made.stream(&quantized, |bytes| {
            levels.extend(bytes.iter().map(|b| b.cast_signed()));
            Ok::<_, Infallible>(())
        })
        .unwrap();
        assert_eq!(levels.len(), rows * k);
        for (i, (exact, level)) in exact.iter().zip(&levels).enumerate() {
            let scale = scales[i / block];
            assert!((exact - scale * f32::from(*level)).abs() <= scale * 0.5001, "element {i}");
        }
        let turned = scaled().edit(Edit::BlockScales { block }).and_then(|w| w.edit(Edit::Transpose(vec![1, 0])));
        let turned = made.read_f32(&turned.unwrap()).unwrap();
        assert_eq!((turned[0], turned[1]), (scales[0], scales[k / block]));
    }

    #[test]
    fn a_value_without_level_names_tensor_and_element() {
        let mut values = vec![0.5; 64];
        values[40] = f32::INFINITY;
        let memory = memory_of(&[("w", &[2, 32], values)]);
        let mut made = Materializer::new(&memory);
        let mut message = |edit| {
            let weight = weight(&memory, "w").edit(edit).unwrap();
            made.stream(&weight, |_| Ok::<_, Infallible>(())).unwrap_err().to_string()
        };
        insta::assert_snapshot!(message(Edit::QuantizeBlocks { block: 32 }), @"w in memory: element 40 is inf, which i8 cannot hold as a finite number");
        insta::assert_snapshot!(message(Edit::BlockScales { block: 32 }), @"w in memory: element 1 is inf, which f32 cannot hold as a finite number");
    }

    #[test]
    fn a_value_out_of_range_names_tensor_and_element() {
        let mut values = vec![0.0; BLOCK + 9];
        values[BLOCK + 3] = 7e4;
        let memory = memory_of(&[("w", &[BLOCK + 9], values)]);
        let cast = weight(&memory, "w").edit(Edit::Cast(DType::F16)).unwrap();
        let err = Materializer::new(&memory).stream(&cast, |_| Ok::<_, Infallible>(())).unwrap_err();
        assert!(matches!(err, MaterializeError::Value { index, .. } if index == BLOCK + 3), "{err}");
        let bound = weight(&memory, "w").edit(Edit::Saturate(DType::F16)).unwrap();
        assert_eq!(Materializer::new(&memory).read_f32(&bound).unwrap()[BLOCK + 3], 65504.0);
    }
}
