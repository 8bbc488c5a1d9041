//! Products: of two values, and with a weight in linear layers and convolutions.

use super::{FactError, exactly, float, same_dtype};
use crate::tensor::{Fact, Shape};

/// Parameters of a convolution; one entry per spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvSpec {
    /// Step of the window.
    pub stride: Vec<usize>,
    /// Zeros before and after.
    pub pad: Vec<[usize; 2]>,
    /// Channel groups; the channel count for a depthwise convolution.
    pub groups: usize,
}

pub(super) fn linear(args: &[&Fact]) -> Result<Fact, FactError> {
    const OP: &str = "linear";
    let (x, weight) = match args {
        [x, weight] | [x, weight, _] => (*x, *weight),
        _ => return Err(FactError::Arity { op: OP, want: "2 or 3", got: args.len() }),
    };
    float(OP, x)?;
    let [n, k] = weight.shape.dims() else {
        return Err(FactError::Rank { op: OP, want: "2 (weight)", got: weight.shape.clone() });
    };
    for operand in &args[1..] {
        same_dtype(OP, x, operand)?;
    }
    if x.shape.rank() < 2 || x.shape.dims().last() != Some(k) {
        return Err(FactError::Shapes { op: OP, first: x.shape.clone(), second: weight.shape.clone() });
    }
    bias(OP, args.get(2), *n)?;
    let mut dims = x.shape.dims().to_vec();
    dims.pop();
    dims.push(*n);
    Ok(Fact { dtype: x.dtype, shape: Shape::new(dims) })
}

pub(super) fn matmul(args: &[&Fact]) -> Result<Fact, FactError> {
    const OP: &str = "matmul";
    let [x, y] = exactly(OP, "2", args)?;
    float(OP, x)?;
    same_dtype(OP, x, y)?;
    match (x.shape.dims(), y.shape.dims()) {
        ([lead @ .., m, k], [same @ .., rows, n]) if lead == same && k == rows => {
            Ok(Fact { dtype: x.dtype, shape: Shape::new([lead, &[*m, *n]].concat()) })
        }
        _ => Err(FactError::Shapes { op: OP, first: x.shape.clone(), second: y.shape.clone() }),
    }
}

pub(super) fn einsum(args: &[&Fact]) -> Result<Fact, FactError> {
    const OP: &str = "einsum";
    let [x, y] = exactly(OP, "2", args)?;
    float(OP, x)?;
    same_dtype(OP, x, y)?;
    match (x.shape.dims(), y.shape.dims()) {
        ([n, c, h, w], [batch, terms, rows, u]) if [n, w, h] == [batch, terms, rows] => {
            Ok(Fact::new(x.dtype, [*n, *c, *h, *u]))
        }
        _ => Err(FactError::Shapes { op: OP, first: x.shape.clone(), second: y.shape.clone() }),
    }
}

pub(super) fn conv(spec: &ConvSpec, args: &[&Fact]) -> Result<Fact, FactError> {
    const OP: &str = "conv";
    let (x, weight) = match args {
        [x, weight] | [x, weight, _] => (*x, *weight),
        _ => return Err(FactError::Arity { op: OP, want: "2 or 3", got: args.len() }),
    };
    float(OP, x)?;
    for operand in &args[1..] {
        same_dtype(OP, x, operand)?;
    }
    let (xs, ws) = (x.shape.dims(), weight.shape.dims());
    if !(3..=4).contains(&xs.len()) {
        return Err(FactError::Rank { op: OP, want: "3 or 4", got: x.shape.clone() });
    }
    let spatial = xs.len() - 2;
    let bad = |parameter, found: String| FactError::Parameter { op: OP, parameter, found, got: x.shape.clone() };
    if spec.stride.len() != spatial || spec.stride.contains(&0) {
        return Err(bad("stride", format!("{:?}", spec.stride)));
    }
    if spec.pad.len() != spatial {
        return Err(bad("pad", format!("{:?}", spec.pad)));
    }
    let shapes = || FactError::Shapes { op: OP, first: x.shape.clone(), second: weight.shape.clone() };
    if ws.len() != xs.len() {
        return Err(shapes());
    }
    if spec.groups == 0 || !xs[1].is_multiple_of(spec.groups) || !ws[0].is_multiple_of(spec.groups) {
        return Err(bad("groups", spec.groups.to_string()));
    }
    if ws[1] != xs[1] / spec.groups {
        return Err(shapes());
    }
    bias(OP, args.get(2), ws[0])?;
    let mut dims = vec![xs[0], ws[0]];
    for axis in 0..spatial {
        let padded = xs[axis + 2].saturating_add(spec.pad[axis][0]).saturating_add(spec.pad[axis][1]);
        let room = padded.checked_sub(ws[axis + 2]).ok_or_else(shapes)?;
        dims.push(room / spec.stride[axis] + 1);
    }
    Ok(Fact { dtype: x.dtype, shape: Shape::new(dims) })
}

fn bias(op: &'static str, bias: Option<&&Fact>, want: usize) -> Result<(), FactError> {
    match bias {
        Some(b) if b.shape.dims() != [want] => {
            Err(FactError::Shapes { op, first: b.shape.clone(), second: [want].into() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn f(dims: &[usize]) -> Fact {
        Fact::new(DType::F32, Shape::new(dims))
    }

    #[test]
    fn linear_shapes() {
        assert_eq!(linear(&[&f(&[1, 7, 3]), &f(&[5, 3]), &f(&[5])]).unwrap(), f(&[1, 7, 5]));
        assert!(linear(&[&f(&[1, 7, 4]), &f(&[5, 3])]).is_err());
        assert!(linear(&[&f(&[1, 7, 3]), &f(&[5, 3]), &f(&[4])]).is_err());
        assert!(linear(&[&f(&[3]), &f(&[5, 3])]).is_err());
    }

    #[test]
    fn matmul_shapes() {
        assert_eq!(matmul(&[&f(&[1, 8, 5, 4]), &f(&[1, 8, 4, 7])]).unwrap(), f(&[1, 8, 5, 7]));
        assert_eq!(matmul(&[&f(&[5, 4]), &f(&[4, 7])]).unwrap(), f(&[5, 7]));
        for [x, y] in [[&[5, 4][..], &[3, 7]], [&[2, 5, 4], &[3, 4, 7]], [&[2, 5, 4], &[4, 7]], [&[4], &[4]]] {
            assert!(matches!(matmul(&[&f(x), &f(y)]), Err(FactError::Shapes { .. })), "{x:?} {y:?}");
        }
        let half = Fact::new(DType::F16, [4, 7]);
        assert!(matches!(matmul(&[&f(&[5, 4]), &half]), Err(FactError::MixedDType { .. })));
        assert!(matches!(matmul(&[&f(&[5, 4])]), Err(FactError::Arity { .. })));
    }

    #[test]
    fn einsum_shapes() {
        assert_eq!(einsum(&[&f(&[2, 3, 5, 4]), &f(&[2, 4, 5, 7])]).unwrap(), f(&[2, 3, 5, 7]));
        let four = f(&[2, 3, 5, 4]);
        for y in [&[2, 3, 5, 7][..], &[1, 4, 5, 7], &[2, 4, 1, 7], &[4, 5, 7]] {
            assert!(matches!(einsum(&[&four, &f(y)]), Err(FactError::Shapes { .. })), "{y:?}");
        }
        let half = Fact::new(DType::F16, [2, 4, 5, 7]);
        assert!(matches!(einsum(&[&four, &half]), Err(FactError::MixedDType { .. })));
        assert!(matches!(einsum(&[&four]), Err(FactError::Arity { .. })));
    }

    #[test]
    fn conv_shapes() {
        let spec = ConvSpec { stride: vec![2, 2], pad: vec![[1, 1], [1, 1]], groups: 1 };
        assert_eq!(conv(&spec, &[&f(&[1, 1, 8, 6]), &f(&[4, 1, 3, 3])]).unwrap(), f(&[1, 4, 4, 3]));
        let depthwise = ConvSpec { stride: vec![1], pad: vec![[4, 0]], groups: 6 };
        assert_eq!(conv(&depthwise, &[&f(&[1, 6, 9]), &f(&[6, 1, 5])]).unwrap(), f(&[1, 6, 9]));
        assert!(conv(&depthwise, &[&f(&[1, 6, 9]), &f(&[6, 2, 5])]).is_err());
        let narrow = ConvSpec { stride: vec![1], pad: vec![[0, 0]], groups: 1 };
        assert!(conv(&narrow, &[&f(&[1, 1, 2]), &f(&[1, 1, 5])]).is_err());
    }
}
