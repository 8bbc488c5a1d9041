//! Nodes that only bring a stored constant to the form it is computed in. A program spells them `constexpr_*`, with the
//! stored values at their operands instead of in a `const` of their own, and takes the result wherever it takes a
//! constant.

use crate::ir::{Graph, Node, Op, ValueId};
use crate::tensor::DType;

/// How such a node is spelt.
pub(super) struct Compressed {
    /// The operation's type.
    pub kind: &'static str,
    /// Its stored operands.
    pub stored: Vec<(&'static str, ValueId)>,
    /// A parameter besides.
    pub text: Option<(&'static str, &'static str)>,
    /// Whether operands are attributes: the opset of iOS 16 has them there, that of iOS 18 among the inputs, and an
    /// operation keeps the form of the opset that brought it.
    pub in_attributes: bool,
}

/// The spelling of `node`, or `None` where it is an operation like others.
pub(super) fn compressed(graph: &Graph, node: &Node) -> Option<Compressed> {
    if node.args.iter().any(|x| graph.constant(*x).is_none()) {
        return None;
    }
    match (&node.op, node.args.as_slice()) {
        (Op::Cast(DType::F32), [x]) if graph.fact(*x).dtype == DType::F16 => Some(Compressed {
            kind: "constexpr_cast",
            stored: vec![("source_val", *x)],
            text: Some(("output_dtype", "fp32")),
            in_attributes: true,
        }),
        (Op::Dequantize, [q, scale]) => Some(Compressed {
            kind: "constexpr_blockwise_shift_scale",
            stored: vec![("data", *q), ("scale", *scale)],
            text: None,
            in_attributes: false,
        }),
        _ => None,
    }
}
