//! Running a plan: values come to be, are read and freed.

use super::plan::{Step, WholeOp, plan, width};
use super::pool::Pool;
use super::rows::{Program, Watch, look};
use super::top::{Fold, Found, Top, rows_of_part};
use super::value::{Reading, RoundF16, is_float, tensor};
use super::{EvalError, HostTensor, InputCast, NonFinite, Options, Peak, Report, Values, fit};
use super::{matrix, quantized, reduce, rows, shape, weights};
use crate::ir::{Graph, Materializer, Op, ValueId, Weight};
use crate::tensor::{DType, Fact, WeightSource, round_f16};
use crate::validate::Checked;
use candle_core::{DType as Stored, Device, Error, Tensor};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

/// Elements of a parallel chunk.
const CHUNK: usize = 1 << 16;

/// A graph ready to be run on inputs.
pub struct Evaluator<'a> {
    graph: &'a Graph,
    source: &'a dyn WeightSource,
    options: Options,
    steps: Vec<Step<'a>>,
}

impl<'a> Evaluator<'a> {
    /// An evaluator of `checked`, whose weights come from `source`, piece by piece, at every run.
    pub fn new(checked: Checked<'a>, source: &'a dyn WeightSource, options: Options) -> Evaluator<'a> {
        let graph = checked.graph();
        Evaluator { graph, source, options, steps: plan(graph, options.round_f16) }
    }

    /// The graph's outputs for `inputs`, by name, and what happened.
    ///
    /// Floats of another dtype than declared are cast and reported; integers never are. Where an output is not finite
    /// the graph is run a second time to find where that began.
    ///
    /// # Errors
    /// Inputs are missing, unknown or do not fit; a weight cannot be read; a dtype is not one computed in.
    pub fn run(
        &self,
        inputs: &BTreeMap<String, HostTensor>,
    ) -> Result<(BTreeMap<String, HostTensor>, Report), EvalError> {
        let mut casts = Vec::new();
        let feeds = self.feeds(inputs, &mut casts)?;
        let watch = Watch { values: self.options.trace, time: self.options.profile };
        let (outputs, mut report) = self.execute(&feeds, watch)?;
        let finite = |t: &HostTensor| t.floats().is_none_or(|v| !look(v).1);
        if !self.options.trace && !outputs.values().all(finite) {
            report.non_finite = self.execute(&feeds, Watch { values: true, time: false })?.1.non_finite;
        }
        report.casts = casts;
        Ok((outputs, report))
    }

    /// The inputs as tensors, in the graph's order.
    fn feeds(
        &self,
        inputs: &BTreeMap<String, HostTensor>,
        casts: &mut Vec<InputCast>,
    ) -> Result<Vec<(ValueId, Tensor)>, EvalError> {
        let named: Vec<(&str, ValueId, &Fact)> = self.graph.inputs().iter().filter_map(|id| self.input(*id)).collect();
        let declared: Vec<(&str, &Fact)> = named.iter().map(|(name, _, fact)| (*name, *fact)).collect();
        let (fitted, cast) = fit(&declared, inputs)?;
        casts.extend(cast);
        named.iter().zip(&fitted).map(|((_, id, _), given)| Ok((*id, self.feed(*id, given)?))).collect()
    }

    fn input(&self, id: ValueId) -> Option<(&'a str, ValueId, &'a Fact)> {
        let node = self.graph.node(id);
        if let Op::Input(name) = &node.op { Some((name, id, &node.fact)) } else { None }
    }

    fn feed(&self, id: ValueId, given: &HostTensor) -> Result<Tensor, EvalError> {
        let dims = given.fact().shape.dims();
        let made = match given.values() {
            Values::I32(values) => Tensor::from_slice(values, dims, &Device::Cpu),
            Values::F32(values) => {
                let mut values = values.clone();
                if self.options.round_f16 {
                    round_f16(&mut values);
                }
                tensor(values, dims)
            }
        };
        made.map_err(|source| self.failed(id, source))
    }

    /// Whether `id` is a constant of levels, which `dequantize` reads as whole numbers in f32.
    fn levels(&self, id: ValueId) -> bool {
        self.graph.fact(id).dtype == DType::I8 && self.graph.constant(id).is_some()
    }

    fn failed(&self, id: ValueId, source: Error) -> EvalError {
        let node = self.graph.node(id);
        EvalError::Tensor { path: node.path.clone(), op: node.op.name(), source }
    }

    fn execute(
        &self,
        feeds: &[(ValueId, Tensor)],
        watch: Watch,
    ) -> Result<(BTreeMap<String, HostTensor>, Report), EvalError> {
        if let Some((_, node)) = self.graph.nodes().find(|(id, n)| !computes_in(n.fact.dtype) && !self.levels(*id)) {
            let (path, op, found) = (node.path.clone(), node.op.name(), node.fact.clone());
            return Err(EvalError::Unsupported { path, op, found });
        }
        let mut run = Run {
            evaluator: self,
            graph: self.graph,
            materializer: Materializer::new(self.source),
            values: vec![None; self.graph.nodes().len()],
            readers: self.graph.uses(),
            shared: vec![false; self.graph.nodes().len()],
            pool: Pool::default(),
            watch,
            peaks: BTreeMap::new(),
            first_bad: None,
            seconds: BTreeMap::new(),
        };
        for (id, tensor) in feeds {
            run.note(*id, tensor)?;
            run.values[id.index()] = Some(tensor.clone());
            run.shared[id.index()] = true;
        }
        for step in &self.steps {
            match step {
                Step::Rows(program) => run.rows(program)?,
                Step::Top(top) => run.top(top)?,
                Step::Whole(id, op) => run.whole(*id, *op)?,
            }
        }
        let mut outputs = BTreeMap::new();
        for output in self.graph.outputs() {
            outputs.insert(output.name.clone(), run.output(&output.name, output.value)?);
        }
        Ok((outputs, run.report()))
    }
}

/// The state of one run.
struct Run<'e, 'a> {
    evaluator: &'e Evaluator<'a>,
    graph: &'a Graph,
    materializer: Materializer<'a>,
    values: Vec<Option<Tensor>>,
    /// Readers of each value that are still to come.
    readers: Vec<usize>,
    /// Values whose buffer another value may have as well.
    shared: Vec<bool>,
    pool: Pool,
    watch: Watch,
    peaks: BTreeMap<ValueId, f32>,
    first_bad: Option<ValueId>,
    seconds: BTreeMap<&'static str, f64>,
}

impl Run<'_, '_> {
    fn failed(&self, id: ValueId) -> impl Fn(Error) -> EvalError {
        move |source| self.evaluator.failed(id, source)
    }

    /// A value by now computed, or a weight, which is read here.
    fn fetch(&mut self, id: ValueId) -> Result<Tensor, EvalError> {
        if let Some(value) = &self.values[id.index()] {
            return Ok(value.clone());
        }
        let start = Instant::now();
        let value = self.weight(id)?;
        self.spent("const", start);
        self.values[id.index()] = Some(value.clone());
        Ok(value)
    }

    fn weight(&mut self, id: ValueId) -> Result<Tensor, EvalError> {
        let node = self.graph.node(id);
        let Some(weight) = self.graph.constant(id) else {
            return Err(self.failed(id)(Error::Msg("its value is read before it is made".into())));
        };
        let failed = |source| EvalError::Weight { path: node.path.clone(), source };
        let dims = node.fact.shape.dims();
        let made = if node.fact.dtype == DType::I32 {
            let mut values: Vec<i32> = Vec::new();
            self.materializer
                .stream(weight, |block| {
                    values.extend(block.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)));
                    Ok(())
                })
                .map_err(failed)?;
            Tensor::from_vec(values, dims, &Device::Cpu)
        } else if node.fact.dtype == DType::I8 {
            let mut values = self.pool.take(node.fact.shape.elements());
            let mut at = 0;
            self.materializer
                .stream(weight, |block| {
                    let levels = block.iter().map(|b| f32::from(b.cast_signed()));
                    values[at..].iter_mut().zip(levels).for_each(|(v, level)| *v = level);
                    at += block.len();
                    Ok(())
                })
                .map_err(failed)?;
            tensor(values, dims)
        } else {
            let values = match self.read_plain(weight, 0..node.fact.shape.elements()) {
                Some(values) => values,
                None => {
                    let mut values = self.materializer.read_f32(weight).map_err(failed)?;
                    self.round_weight(&mut values);
                    values
                }
            };
            tensor(values, dims)
        };
        made.map_err(self.failed(id))
    }

    fn read_plain(&mut self, weight: &Weight, range: Range<usize>) -> Option<Vec<f32>> {
        let mut values = weights::read_plain(self.evaluator.source, weight, range, &mut self.pool)?;
        self.round_weight(&mut values);
        Some(values)
    }

    fn round_weight(&self, values: &mut [f32]) {
        if self.evaluator.options.round_f16 {
            values.par_chunks_mut(CHUNK).for_each(round_f16);
        }
    }

    /// Rows of a weight `[n, k]`: read by themselves where that can be, else cut from all of it.
    fn weight_rows(&mut self, id: ValueId, rows: Range<usize>) -> Result<Tensor, EvalError> {
        let k = width(&self.graph.fact(id).shape);
        if let (None, Some(weight)) = (&self.values[id.index()], self.graph.constant(id)) {
            let start = Instant::now();
            let read = self.read_plain(weight, rows.start * k..rows.end * k);
            self.spent("const", start);
            if let Some(values) = read {
                return tensor(values, &[rows.len(), k]).map_err(self.failed(id));
            }
        }
        self.fetch(id)?.narrow(0, rows.start, rows.len()).map_err(self.failed(id))
    }

    /// One reader of `id` is done.
    fn release(&mut self, id: ValueId) {
        let readers = &mut self.readers[id.index()];
        *readers = readers.saturating_sub(1);
        if *readers > 0 {
            return;
        }
        if let (Some(value), false) = (self.values[id.index()].take(), self.shared[id.index()]) {
            self.pool.give(&value);
        }
    }

    fn spent(&mut self, op: &'static str, start: Instant) {
        if self.watch.time {
            *self.seconds.entry(op).or_default() += start.elapsed().as_secs_f64();
        }
    }

    fn rows(&mut self, program: &Program) -> Result<(), EvalError> {
        let Some(first) = program.instrs.first().map(|i| i.id) else { return Ok(()) };
        let mut externals = Vec::with_capacity(program.externals.len());
        for id in &program.externals {
            externals.push(self.fetch(*id)?);
        }
        let start = Instant::now();
        let mut pool = std::mem::take(&mut self.pool);
        let failed = |source| self.evaluator.failed(first, source);
        for x in &mut externals {
            if !Reading::of(x).floats().map_err(failed)?.has_rows() {
                *x = shape::dense(x).map_err(failed)?;
            }
        }
        let readings: Vec<Reading<'_>> = externals.iter().map(Reading::of).collect();
        let views = readings.iter().map(Reading::floats).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let (made, seen) = rows::run(program, &views, self.watch, &mut pool);
        for (id, values) in program.outputs.iter().zip(made) {
            let dims = self.graph.fact(*id).shape.dims();
            self.values[id.index()] = Some(tensor(values, dims).map_err(self.failed(*id))?);
        }
        let wall = start.elapsed().as_secs_f64();
        let busy: f64 = seen.iter().map(|s| s.seconds).sum();
        for (instr, seen) in program.instrs.iter().zip(&seen) {
            if self.watch.time && busy > 0.0 {
                *self.seconds.entry(self.graph.node(instr.id).op.name()).or_default() += wall * seen.seconds / busy;
            }
            self.saw(instr.id, seen.peak, seen.non_finite);
        }
        self.pool = pool;
        drop(views);
        drop(readings);
        drop(externals);
        for instr in &program.instrs {
            self.graph.node(instr.id).args.iter().for_each(|arg| self.release(*arg));
        }
        Ok(())
    }

    fn whole(&mut self, id: ValueId, op: WholeOp<'_>) -> Result<(), EvalError> {
        let node = self.graph.node(id);
        let mut args = Vec::with_capacity(node.args.len());
        for arg in &node.args {
            args.push(self.fetch(*arg)?);
        }
        let start = Instant::now();
        let round = node.fact.dtype == DType::F16 || self.evaluator.options.round_f16;
        let made = apply(op, &args, round).map_err(self.failed(id))?;
        self.spent(node.op.name(), start);
        self.note(id, &made)?;
        self.values[id.index()] = Some(made);
        drop(args);
        if op.shares() {
            node.args.iter().chain([&id]).for_each(|v| self.shared[v.index()] = true);
        }
        for arg in &node.args {
            self.release(*arg);
        }
        if self.readers[id.index()] == 0 {
            self.values[id.index()] = None; // nobody reads it
        }
        Ok(())
    }

    fn top(&mut self, top: &Top) -> Result<(), EvalError> {
        let found = self.search(top)?;
        self.saw(top.linear, found.peak, found.non_finite);
        for id in &top.readers {
            let Fact { dtype, shape } = self.graph.fact(*id);
            let made = if dtype.is_float() {
                tensor(found.largest.clone(), shape.dims())
            } else {
                Tensor::from_vec(found.places.clone(), shape.dims(), &Device::Cpu)
            };
            let made = made.map_err(self.failed(*id))?;
            self.note(*id, &made)?;
            self.values[id.index()] = Some(made).filter(|_| self.readers[id.index()] > 0);
        }
        for id in top.cast.iter().chain([&top.linear]) {
            self.graph.node(*id).args.iter().for_each(|arg| self.release(*arg));
        }
        Ok(())
    }

    /// Multiplies by some rows of the weight after others, and looks each product through.
    fn search(&mut self, top: &Top) -> Result<Found, EvalError> {
        let node = self.graph.node(top.linear);
        let evaluator = self.evaluator;
        let failed = |source| evaluator.failed(top.linear, source);
        let x = self.fetch(node.args[0])?;
        let bias = node.args.get(2).map(|bias| self.fetch(*bias)).transpose()?;
        let round = node.fact.dtype == DType::F16 || evaluator.options.round_f16;
        let mut fold = Fold::new(&x, round, self.watch.values).map_err(failed)?;
        let n = width(&node.fact.shape);
        let rows = rows_of_part(fold.rows(), n, width(&self.graph.fact(top.weight).shape));
        for first in (0..n).step_by(rows) {
            let rows = rows.min(n - first);
            let part = self.weight_rows(top.weight, first..first + rows)?;
            if let Some(cast) = top.cast {
                self.note(cast, &part)?;
            }
            let start = Instant::now();
            let bias = bias.as_ref().map(|b| b.narrow(0, first, rows)).transpose().map_err(failed)?;
            let product = fold.multiply(&part, bias.as_ref()).map_err(failed)?;
            self.spent(node.op.name(), start);
            let start = Instant::now();
            fold.add(&product, first).map_err(failed)?;
            self.spent(self.graph.node(top.readers[0]).op.name(), start);
            if self.values[top.weight.index()].is_none() {
                self.pool.give(&part);
            }
        }
        Ok(fold.finish())
    }

    /// Looks at a value where that is wanted.
    fn note(&mut self, id: ValueId, value: &Tensor) -> Result<(), EvalError> {
        if !self.watch.values || !is_float(value) {
            return Ok(());
        }
        let value = shape::dense(value).map_err(self.failed(id))?;
        let reading = Reading::of(&value);
        let floats = reading.floats().map_err(self.failed(id))?;
        let each = floats.dense().map_err(self.failed(id))?.par_chunks(CHUNK).map(look);
        let (peak, bad) = each.reduce(|| (0.0, false), |a, b| (a.0.max(b.0), a.1 | b.1));
        self.saw(id, peak, bad);
        Ok(())
    }

    fn saw(&mut self, id: ValueId, peak: f32, non_finite: bool) {
        if self.watch.values {
            let known = self.peaks.entry(id).or_default();
            *known = known.max(peak);
            if non_finite && self.first_bad.is_none_or(|first| id < first) {
                self.first_bad = Some(id);
            }
        }
    }

    fn output(&mut self, name: &str, id: ValueId) -> Result<HostTensor, EvalError> {
        let value = self.fetch(id)?.flatten_all().map_err(self.failed(id))?;
        let fact = self.graph.fact(id).clone();
        let values = if is_float(&value) {
            Values::F32(value.to_vec1().map_err(self.failed(id))?)
        } else {
            Values::I32(value.to_vec1().map_err(self.failed(id))?)
        };
        HostTensor::new(fact, values).map_err(|source| EvalError::Output { output: name.into(), source })
    }

    fn report(self) -> Report {
        let node = |id: ValueId| {
            let node = self.graph.node(id);
            (node.path.clone(), node.op.name())
        };
        let peak = |(id, peak): (&ValueId, &f32)| {
            let (path, op) = node(*id);
            Peak { path, op, peak: *peak }
        };
        let wanted = self.evaluator.options.trace;
        Report {
            casts: Vec::new(),
            non_finite: self.first_bad.map(|id| {
                let (path, op) = node(id);
                NonFinite { path, op }
            }),
            peaks: if wanted { self.peaks.iter().map(peak).collect() } else { Vec::new() },
            seconds: self.seconds,
        }
    }
}

/// Whether values of that dtype are computed.
fn computes_in(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::I32)
}

/// One op over whole values; rounded to f16 where `round` says so and the op computes.
fn apply(op: WholeOp<'_>, args: &[Tensor], round: bool) -> Result<Tensor, Error> {
    let x = args.first().ok_or_else(|| Error::Msg("an op without operands".into()))?;
    let weight = || args.get(1).ok_or_else(|| Error::Msg("a product without a weight".into()));
    let made = match op {
        WholeOp::Linear => matrix::linear(x, weight()?, args.get(2))?,
        WholeOp::MatMul => matrix::matmul(x, weight()?)?,
        WholeOp::Einsum => matrix::einsum(x, weight()?)?,
        WholeOp::ArgMax { axis } => argmax(x, axis)?,
        WholeOp::Conv(spec) => matrix::conv(spec, x, weight()?, args.get(2))?,
        WholeOp::Reduce { kind, axis } => along(x, axis, 1, |x, n, inner| reduce::axis(kind, x, n, inner))?,
        WholeOp::Softmax { axis } => along(x, axis, x.dims()[axis], reduce::axis_softmax)?,
        WholeOp::Cast(dtype) => cast(x, dtype)?,
        WholeOp::Dequantize => quantized::dequantize(x, args.get(1))?,
        WholeOp::Transpose(perm) => return x.permute(perm),
        WholeOp::Reshape(shape) => return shape::dense(x)?.reshape(shape.dims()),
        WholeOp::Slice { begin, end } => return shape::slice(x, begin, end),
        WholeOp::Concat { axis } => return shape::concat(args, axis),
        WholeOp::Pad(amount) => return shape::pad(x, amount),
    };
    if round && is_float(&made) {
        made.inplace_op1(&RoundF16)?;
    }
    Ok(made)
}

/// Runs `f(x [outer, n, inner], n, inner)` along `axis`, whose extent becomes `extent`.
fn along(
    x: &Tensor,
    axis: usize,
    extent: usize,
    f: impl Fn(&[f32], usize, usize) -> Vec<f32>,
) -> Result<Tensor, Error> {
    let x = shape::dense(x)?;
    let mut dims = x.dims().to_vec();
    let (n, inner) = (dims[axis], dims[axis + 1..].iter().product());
    dims[axis] = extent;
    let reading = Reading::of(&x);
    tensor(f(reading.floats()?.dense()?, n, inner), &dims)
}

/// Index of the first largest element along `axis`, whose extent becomes 1.
fn argmax(x: &Tensor, axis: usize) -> Result<Tensor, Error> {
    let x = shape::dense(x)?;
    let mut dims = x.dims().to_vec();
    let (n, inner) = (dims[axis], dims[axis + 1..].iter().product());
    dims[axis] = 1;
    let reading = Reading::of(&x);
    Tensor::from_vec(reduce::axis_argmax(reading.floats()?.dense()?, n, inner), dims, &Device::Cpu)
}

/// Between floats and integers; a float loses its fraction.
fn cast(x: &Tensor, dtype: DType) -> Result<Tensor, Error> {
    x.to_dtype(if dtype.is_float() { Stored::F32 } else { Stored::I32 })
}
