//! Programs over rows: a few ops executed together, a block of rows after another, blocks in parallel.
//!
//! Every operand is addressed by strides over the leading axes, so views (cut, permuted, broadcast) are read where they
//! lie. The ops' own loops are in `elementwise`, `reduce` and `shape`.

use super::block::Rows;
use super::pool::Pool;
use super::shape::{concat_rows, copy_rows, slice_rows};
use super::value::{Floats, Strides};
use super::{elementwise, reduce};
use crate::ir::{Binary, Reduce, Unary, ValueId};
use crate::tensor::round_f16;
use rayon::prelude::*;
use std::sync::Mutex;
use std::time::Instant;

/// Elements of the widest value of a block. A handful of such values fit a second-level cache of 256 KB and more.
const BLOCK: usize = 8192;

/// An op on rows.
#[derive(Clone, Copy)]
pub(super) enum RowOp {
    Unary(Unary),
    Binary(Binary),
    Reduce(Reduce),
    Softmax,
    Concat,
    Slice { begin: usize },
    Copy,
}

impl RowOp {
    /// Whether its results may need rounding to f16, or are numbers that were there before.
    pub fn rounds(&self) -> bool {
        match self {
            RowOp::Concat | RowOp::Slice { .. } => false,
            RowOp::Unary(_) | RowOp::Binary(_) | RowOp::Reduce(_) | RowOp::Softmax | RowOp::Copy => true,
        }
    }
}

/// Where an operand is.
#[derive(Clone, Copy)]
pub(super) enum Src {
    /// Made by the program itself.
    Slot(usize),
    /// Made before.
    External(usize),
}

/// One op of a program.
pub(super) struct Instr {
    pub id: ValueId,
    pub op: RowOp,
    pub args: Vec<Src>,
    /// Where the result goes.
    pub slot: usize,
    /// Elements of a row of the result.
    pub width: usize,
    /// Whether the result is rounded to f16.
    pub round: bool,
}

/// Ops whose results share all axes but the last.
pub(super) struct Program {
    /// Those axes.
    pub lead: Vec<usize>,
    pub instrs: Vec<Instr>,
    /// Values read, made before.
    pub externals: Vec<ValueId>,
    /// Values given out; the first slots are theirs.
    pub outputs: Vec<ValueId>,
    /// Row width of each slot.
    pub slots: Vec<usize>,
}

/// What was seen of each instruction's results.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// Largest absolute value that is finite.
    pub peak: f32,
    /// Whether a value is NaN or infinite.
    pub non_finite: bool,
    /// Seconds spent, summed over threads.
    pub seconds: f64,
}

/// What to look at while a program runs; each costs time.
#[derive(Clone, Copy, Default)]
pub(super) struct Watch {
    pub values: bool,
    pub time: bool,
}

/// A run of rows that every external reads with one stride.
struct Task<'a> {
    /// Element of each external where the first row starts.
    starts: Vec<usize>,
    rows: usize,
    outputs: Vec<&'a mut [f32]>,
}

/// Runs `program`; gives its outputs, dense, and what was seen where `watch` asks.
pub(super) fn run(
    program: &Program,
    externals: &[Floats<'_>],
    watch: Watch,
    pool: &mut Pool,
) -> (Vec<Vec<f32>>, Vec<Seen>) {
    let rows: usize = program.lead.iter().product();
    let mut outputs: Vec<Vec<f32>> =
        program.slots[..program.outputs.len()].iter().map(|width| pool.take(rows * width)).collect();
    let strides: Vec<Strides> = externals.iter().map(|x| x.row_strides(&program.lead)).collect();
    let (lead, strides) = coalesce(&program.lead, &strides);
    let seen = Mutex::new(vec![Seen::default(); program.instrs.len()]);
    let steps: Vec<usize> = strides.iter().map(|s| s.last().copied().unwrap_or(0)).collect();
    let widest = program.instrs.iter().map(|i| i.width).max().unwrap_or(1);
    let block = (BLOCK / widest).max(1);
    tasks(program, externals, &lead, &strides, block, &mut outputs).into_par_iter().for_each_init(
        || program.slots[program.outputs.len()..].iter().map(|width| vec![0f32; width * block]).collect::<Vec<_>>(),
        |scratch, task| {
            let noted = run_block(program, externals, &steps, scratch, task, watch);
            if let (true, Ok(mut seen)) = (watch.values || watch.time, seen.lock()) {
                for (all, one) in seen.iter_mut().zip(noted) {
                    all.peak = all.peak.max(one.peak);
                    all.non_finite |= one.non_finite;
                    all.seconds += one.seconds;
                }
            }
        },
    );
    (outputs, seen.into_inner().unwrap_or_default())
}

/// Leading axes merged wherever all operands allow it, so that blocks are long. At least one axis is left.
fn coalesce(lead: &[usize], strides: &[Strides]) -> (Vec<usize>, Vec<Strides>) {
    let mut dims: Vec<usize> = Vec::new();
    let mut merged: Vec<Strides> = vec![Strides::new(); strides.len()];
    for (axis, &extent) in lead.iter().enumerate() {
        if extent == 1 {
            continue;
        }
        let joins = merged.iter().zip(strides).all(|(m, s)| m.last().is_some_and(|outer| *outer == s[axis] * extent));
        match dims.last_mut() {
            Some(outer) if joins => {
                *outer *= extent;
                merged.iter_mut().zip(strides).for_each(|(m, s)| {
                    m.pop();
                    m.push(s[axis]);
                });
            }
            Some(_) | None => {
                dims.push(extent);
                merged.iter_mut().zip(strides).for_each(|(m, s)| m.push(s[axis]));
            }
        }
    }
    if dims.is_empty() {
        dims.push(1);
        merged.iter_mut().for_each(|m| m.push(0));
    }
    (dims, merged)
}

/// Cuts the rows into runs of at most `block` within the innermost leading axis.
fn tasks<'a>(
    program: &Program,
    externals: &[Floats<'_>],
    lead: &[usize],
    strides: &[Strides],
    block: usize,
    outputs: &'a mut [Vec<f32>],
) -> Vec<Task<'a>> {
    let Some((&inner, outer)) = lead.split_last() else { return Vec::new() };
    let mut rest: Vec<&mut [f32]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    let mut made = Vec::new();
    for slab in 0..outer.iter().product::<usize>() {
        let bases: Vec<usize> = externals.iter().zip(strides).map(|(x, s)| x.offset() + dot(slab, outer, s)).collect();
        for first in (0..inner).step_by(block) {
            let rows = block.min(inner - first);
            let starts = bases.iter().zip(strides).map(|(b, s)| b + first * s.last().copied().unwrap_or(0)).collect();
            let cut = |(out, width): (&mut &'a mut [f32], &usize)| {
                let (head, tail) = std::mem::take(out).split_at_mut(rows * width);
                *out = tail;
                head
            };
            made.push(Task { starts, rows, outputs: rest.iter_mut().zip(&program.slots).map(cut).collect() });
        }
    }
    made
}

/// Offset of the `index`-th position of `dims` under `strides`.
fn dot(mut index: usize, dims: &[usize], strides: &[usize]) -> usize {
    let mut offset = 0;
    for (extent, stride) in dims.iter().zip(strides).rev() {
        offset += index % extent * stride;
        index /= extent;
    }
    offset
}

fn run_block(
    program: &Program,
    externals: &[Floats<'_>],
    steps: &[usize],
    scratch: &mut [Vec<f32>],
    task: Task<'_>,
    watch: Watch,
) -> Vec<Seen> {
    let rows = task.rows;
    let given = task.outputs.len();
    let widths = &program.slots[given..];
    let scratch = scratch.iter_mut().zip(widths).map(|(slot, width)| &mut slot[..rows * width]);
    let mut slots: Vec<&mut [f32]> = task.outputs.into_iter().chain(scratch).collect();
    let mut seen = Vec::new();
    for instr in &program.instrs {
        let start = watch.time.then(Instant::now);
        // Taken out, so that the operands beside it can be read.
        let out = std::mem::take(&mut slots[instr.slot]);
        let operand = |at: usize| match instr.args[at] {
            Src::Slot(slot) => Rows::side_by_side(slots[slot], program.slots[slot]),
            Src::External(x) => {
                Rows { data: &externals[x].data()[task.starts[x]..], step: steps[x], width: externals[x].width() }
            }
        };
        run_instr(instr, operand, rows, out);
        if instr.round {
            round_f16(out);
        }
        if watch.values || watch.time {
            let (peak, non_finite) = if watch.values { look(out) } else { (0.0, false) };
            seen.push(Seen { peak, non_finite, seconds: start.map_or(0.0, |s| s.elapsed().as_secs_f64()) });
        }
        slots[instr.slot] = out;
    }
    seen
}

fn run_instr<'a>(instr: &Instr, operand: impl Fn(usize) -> Rows<'a>, rows: usize, out: &mut [f32]) {
    let width = instr.width;
    // A dense operand may run past the block; kernels stop where `out` ends.
    let fit = |x: Rows<'a>| Rows { data: if x.step == 0 { x.data } else { &x.data[..x.reach(rows)] }, ..x };
    match instr.op {
        RowOp::Unary(kind) => elementwise::unary(kind, fit(operand(0)), out, width),
        RowOp::Binary(kind) => elementwise::binary(kind, fit(operand(0)), fit(operand(1)), out, width),
        RowOp::Reduce(kind) => reduce::rows(kind, operand(0), out),
        RowOp::Softmax => reduce::softmax_rows(operand(0), out, width),
        RowOp::Concat => concat_rows((0..instr.args.len()).map(operand), out, width),
        RowOp::Slice { begin } => slice_rows(operand(0), begin, out, width),
        RowOp::Copy => copy_rows(operand(0), out, width),
    }
}

/// Bits of infinity; those of a NaN without its sign are above.
const INFINITE: u32 = f32::INFINITY.to_bits();

/// Largest finite absolute value, and whether there is one that is not finite.
///
/// Compares bits, which order like the numbers do without their sign: a maximum of integers vectorizes.
pub(super) fn look(values: &[f32]) -> (f32, bool) {
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let (mut peak, mut worst) = (0u32, 0u32);
            for v in values {
                let bits = v.abs().to_bits();
                worst = worst.max(bits);
                peak = peak.max(if bits < INFINITE { bits } else { 0 });
            }
            (f32::from_bits(peak), worst >= INFINITE)
        },
    )
}
