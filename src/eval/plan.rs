//! Which ops run together: consecutive ops that look at one row at a time become one [`Program`], executed a block of
//! rows after another so that what passes between them stays in a core's cache. A product that is only looked through
//! for its largest elements runs with those that look ([`top`]). All others run by themselves.

use super::rows::{Instr, Program, RowOp, Src};
use super::top::{self, Top};
use crate::ir::{ConvSpec, Graph, Node, Op, Reduce, ValueId};
use crate::tensor::{DType, Shape};
use std::collections::{HashMap, HashSet};

/// A part of the evaluation.
pub(super) enum Step<'g> {
    /// Ops over rows.
    Rows(Program),
    /// A product and the search for its largest elements.
    Top(Top),
    /// One op over a whole value.
    Whole(ValueId, WholeOp<'g>),
}

/// An op that needs more than a row of its operands, or only looks at them in another way.
#[derive(Clone, Copy)]
pub(super) enum WholeOp<'g> {
    Conv(&'g ConvSpec),
    Linear,
    MatMul,
    Einsum,
    ArgMax { axis: usize },
    Reduce { kind: Reduce, axis: usize },
    Softmax { axis: usize },
    Transpose(&'g [usize]),
    Reshape(&'g Shape),
    Slice { begin: &'g [usize], end: &'g [usize] },
    Concat { axis: usize },
    Pad(&'g [[usize; 2]]),
    Cast(DType),
    Dequantize,
}

impl WholeOp<'_> {
    /// Whether the result may share its buffer with an operand.
    pub fn shares(&self) -> bool {
        match self {
            WholeOp::Conv(_)
            | WholeOp::Linear
            | WholeOp::MatMul
            | WholeOp::Einsum
            | WholeOp::ArgMax { .. }
            | WholeOp::Reduce { .. }
            | WholeOp::Softmax { .. }
            | WholeOp::Dequantize => false,
            WholeOp::Transpose(_)
            | WholeOp::Reshape(_)
            | WholeOp::Slice { .. }
            | WholeOp::Concat { .. }
            | WholeOp::Pad(_)
            | WholeOp::Cast(_) => true,
        }
    }
}

enum Class<'g> {
    Leaf,
    Row(RowOp),
    Whole(WholeOp<'g>),
}

/// All axes but the last: what ops of one program share.
pub(super) fn lead(shape: &Shape) -> &[usize] {
    shape.dims().split_last().map_or(&[], |(_, lead)| lead)
}

/// Extent of the last axis; 1 for a single number.
pub(super) fn width(shape: &Shape) -> usize {
    shape.dims().last().copied().unwrap_or(1)
}

fn classify<'g>(graph: &Graph, node: &'g Node) -> Class<'g> {
    let last = |axis: usize| axis + 1 == node.fact.shape.rank();
    let floats = node.fact.dtype.is_float() && node.args.iter().all(|a| graph.fact(*a).dtype.is_float());
    match &node.op {
        Op::Input(_) | Op::Const(_) => Class::Leaf,
        Op::Conv(spec) => Class::Whole(WholeOp::Conv(spec)),
        Op::Linear => Class::Whole(WholeOp::Linear),
        Op::MatMul => Class::Whole(WholeOp::MatMul),
        Op::Einsum => Class::Whole(WholeOp::Einsum),
        Op::ArgMax { axis } => Class::Whole(WholeOp::ArgMax { axis: *axis }),
        Op::Unary(kind) => Class::Row(RowOp::Unary(*kind)),
        Op::Binary(kind) => Class::Row(RowOp::Binary(*kind)),
        Op::Reduce { kind, axis } if last(*axis) => Class::Row(RowOp::Reduce(*kind)),
        Op::Reduce { kind, axis } => Class::Whole(WholeOp::Reduce { kind: *kind, axis: *axis }),
        Op::Softmax { axis } if last(*axis) => Class::Row(RowOp::Softmax),
        Op::Softmax { axis } => Class::Whole(WholeOp::Softmax { axis: *axis }),
        Op::Transpose { perm } => Class::Whole(WholeOp::Transpose(perm)),
        Op::Reshape { shape } => Class::Whole(WholeOp::Reshape(shape)),
        Op::Slice { begin, .. } if floats && slices_rows(graph, node) => {
            Class::Row(RowOp::Slice { begin: begin.last().copied().unwrap_or(0) })
        }
        Op::Slice { begin, end } => Class::Whole(WholeOp::Slice { begin, end }),
        Op::Concat { axis } if floats && last(*axis) => Class::Row(RowOp::Concat),
        Op::Concat { axis } => Class::Whole(WholeOp::Concat { axis: *axis }),
        Op::Pad { amount } => Class::Whole(WholeOp::Pad(amount)),
        // Widened values are those that were read; as a row of a program they would be copied.
        Op::Cast(DType::F32) if floats && node.args.iter().any(|x| graph.constant(*x).is_some()) => {
            Class::Whole(WholeOp::Cast(DType::F32))
        }
        Op::Cast(_) if floats => Class::Row(RowOp::Copy),
        Op::Cast(dtype) => Class::Whole(WholeOp::Cast(*dtype)),
        Op::Dequantize => Class::Whole(WholeOp::Dequantize),
    }
}

/// Whether a slice only shortens rows.
fn slices_rows(graph: &Graph, node: &Node) -> bool {
    node.args.first().is_some_and(|x| lead(&graph.fact(*x).shape) == lead(&node.fact.shape))
}

/// The steps of `graph` in an order in which each follows what it reads.
pub(super) fn plan(graph: &Graph, round_all: bool) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut open = Open::default();
    let uses = graph.uses();
    let mut tops = top::find(graph, &uses);
    let done_with: HashSet<ValueId> = tops.values().flat_map(Top::others).collect();
    for (id, node) in graph.nodes() {
        if done_with.contains(&id) {
            continue;
        }
        match classify(graph, node) {
            Class::Leaf => {}
            Class::Row(op) => {
                if !open.is_empty() && open.lead != lead(&node.fact.shape) {
                    steps.extend(open.close(graph, &uses, round_all));
                }
                open.lead = lead(&node.fact.shape).to_vec();
                open.push(id, op);
            }
            // A step that does not read the open program may run before it.
            Class::Whole(op) => {
                if node.args.iter().any(|a| open.holds.contains_key(a)) {
                    steps.extend(open.close(graph, &uses, round_all));
                }
                steps.push(tops.remove(&id).map_or(Step::Whole(id, op), Step::Top));
            }
        }
    }
    steps.extend(open.close(graph, &uses, round_all));
    steps
}

/// The program that takes ops at present.
#[derive(Default)]
struct Open {
    lead: Vec<usize>,
    ops: Vec<(ValueId, RowOp)>,
    holds: HashMap<ValueId, usize>,
}

impl Open {
    fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    fn push(&mut self, id: ValueId, op: RowOp) {
        self.holds.insert(id, self.ops.len());
        self.ops.push((id, op));
    }

    /// Gives each value a slot: one of its own where it is read outside, else one that is free by then.
    fn close(&mut self, graph: &Graph, uses: &[usize], round_all: bool) -> Option<Step<'static>> {
        let ops = std::mem::take(&mut self.ops);
        let holds = std::mem::take(&mut self.holds);
        if ops.is_empty() {
            return None;
        }
        let mut inside = vec![0usize; ops.len()];
        let mut last_read: Vec<usize> = (0..ops.len()).collect();
        for (at, (id, _)) in ops.iter().enumerate() {
            for arg in &graph.node(*id).args {
                if let Some(&from) = holds.get(arg) {
                    inside[from] += 1;
                    last_read[from] = at;
                }
            }
        }
        let escapes: Vec<bool> = ops.iter().zip(&inside).map(|((id, _), n)| uses[id.index()] > *n).collect();
        let outputs: Vec<ValueId> = ops.iter().zip(&escapes).filter(|(_, e)| **e).map(|((id, _), _)| *id).collect();
        let mut slots: Vec<usize> = outputs.iter().map(|id| width(&graph.fact(*id).shape)).collect();
        let mut externals: Vec<ValueId> = Vec::new();
        let mut slot_of = vec![0usize; ops.len()];
        let mut free: Vec<usize> = Vec::new();
        let mut next_output = 0;
        let mut instrs = Vec::with_capacity(ops.len());
        for (at, (id, op)) in ops.into_iter().enumerate() {
            let node = graph.node(id);
            let width = width(&node.fact.shape);
            slot_of[at] = if escapes[at] {
                next_output += 1;
                next_output - 1
            } else {
                take_slot(&mut free, &mut slots, width)
            };
            let mut args = Vec::with_capacity(node.args.len());
            for arg in &node.args {
                args.push(match holds.get(arg) {
                    Some(&from) => Src::Slot(slot_of[from]),
                    None => Src::External(position(&mut externals, *arg)),
                });
            }
            for from in node.args.iter().filter_map(|a| holds.get(a)) {
                let slot = slot_of[*from];
                if !escapes[*from] && last_read[*from] == at && !free.contains(&slot) {
                    free.push(slot);
                }
            }
            // A value nobody reads still has its place for the time it is made.
            if !escapes[at] && inside[at] == 0 {
                free.push(slot_of[at]);
            }
            let round = (node.fact.dtype == DType::F16 || round_all) && op.rounds();
            instrs.push(Instr { id, op, args, slot: slot_of[at], width, round });
        }
        Some(Step::Rows(Program { lead: std::mem::take(&mut self.lead), instrs, externals, outputs, slots }))
    }
}

fn take_slot(free: &mut Vec<usize>, slots: &mut Vec<usize>, width: usize) -> usize {
    match free.iter().position(|s| slots[*s] == width) {
        Some(at) => free.swap_remove(at),
        None => {
            slots.push(width);
            slots.len() - 1
        }
    }
}

fn position(list: &mut Vec<ValueId>, value: ValueId) -> usize {
    list.iter().position(|v| *v == value).unwrap_or_else(|| {
        list.push(value);
        list.len() - 1
    })
}
