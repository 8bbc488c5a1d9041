//! Ops that move elements and change none.

use super::{FactError, axis_of, exactly, same_dtype};
use crate::tensor::{Fact, Shape};

pub(super) fn transpose(perm: &[usize], args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("transpose", "1", args)?;
    let dims = permuted(perm, &x.shape).ok_or_else(|| FactError::Parameter {
        op: "transpose",
        parameter: "perm",
        found: format!("{perm:?}"),
        got: x.shape.clone(),
    })?;
    Ok(Fact { dtype: x.dtype, shape: dims })
}

/// The shape after a permutation, or `None` where `perm` is not one of the shape's axes.
pub(crate) fn permuted(perm: &[usize], shape: &Shape) -> Option<Shape> {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    (sorted.len() == shape.rank() && sorted.iter().enumerate().all(|(i, &p)| i == p))
        .then(|| Shape::new(perm.iter().map(|&p| shape.dims()[p]).collect::<Vec<_>>()))
}

pub(super) fn reshape(shape: &Shape, args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("reshape", "1", args)?;
    if shape.checked_elements() != x.shape.checked_elements() {
        return Err(FactError::Shapes { op: "reshape", first: x.shape.clone(), second: shape.clone() });
    }
    Ok(Fact { dtype: x.dtype, shape: shape.clone() })
}

pub(super) fn slice(begin: &[usize], end: &[usize], args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("slice", "1", args)?;
    let dims = x.shape.dims();
    let fits = begin.len() == dims.len()
        && end.len() == dims.len()
        && begin.iter().zip(end).zip(dims).all(|((b, e), d)| b < e && e <= d);
    if !fits {
        let found = format!("{begin:?}..{end:?}");
        return Err(FactError::Parameter { op: "slice", parameter: "bounds", found, got: x.shape.clone() });
    }
    let dims: Vec<usize> = begin.iter().zip(end).map(|(b, e)| e - b).collect();
    Ok(Fact { dtype: x.dtype, shape: Shape::new(dims) })
}

pub(super) fn concat(axis: usize, args: &[&Fact]) -> Result<Fact, FactError> {
    let [first, rest @ ..] = args else {
        return Err(FactError::Arity { op: "concat", want: "1 or more", got: 0 });
    };
    let axis = axis_of("concat", axis, first)?;
    let mut dims = first.shape.dims().to_vec();
    for operand in rest {
        same_dtype("concat", first, operand)?;
        let other = operand.shape.dims();
        let alike = other.len() == dims.len() && (0..dims.len()).all(|i| i == axis || dims[i] == other[i]);
        if !alike {
            return Err(FactError::Shapes { op: "concat", first: first.shape.clone(), second: operand.shape.clone() });
        }
        dims[axis] = dims[axis].saturating_add(other[axis]);
    }
    Ok(Fact { dtype: first.dtype, shape: Shape::new(dims) })
}

pub(super) fn pad(amount: &[[usize; 2]], args: &[&Fact]) -> Result<Fact, FactError> {
    let [x] = exactly("pad", "1", args)?;
    if amount.len() != x.shape.rank() {
        return Err(FactError::Parameter {
            op: "pad",
            parameter: "amount",
            found: format!("{amount:?}"),
            got: x.shape.clone(),
        });
    }
    let dims: Vec<usize> =
        x.shape.dims().iter().zip(amount).map(|(d, [a, b])| d.saturating_add(*a).saturating_add(*b)).collect();
    Ok(Fact { dtype: x.dtype, shape: Shape::new(dims) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn f(dims: &[usize]) -> Fact {
        Fact::new(DType::F32, Shape::new(dims))
    }

    #[test]
    fn shapes_that_fit() {
        let x = f(&[2, 3, 4]);
        assert_eq!(transpose(&[2, 0, 1], &[&x]).unwrap(), f(&[4, 2, 3]));
        assert_eq!(reshape(&[6, 4].into(), &[&x]).unwrap(), f(&[6, 4]));
        assert_eq!(slice(&[0, 1, 0], &[2, 3, 1], &[&x]).unwrap(), f(&[2, 2, 1]));
        assert_eq!(concat(1, &[&x, &x]).unwrap(), f(&[2, 6, 4]));
        assert_eq!(pad(&[[0, 0], [11, 0], [0, 0]], &[&x]).unwrap(), f(&[2, 14, 4]));
    }

    #[test]
    fn shapes_that_do_not() {
        let x = f(&[2, 3, 4]);
        assert!(transpose(&[0, 0, 1], &[&x]).is_err());
        assert!(transpose(&[0, 1], &[&x]).is_err());
        assert!(reshape(&[5, 5].into(), &[&x]).is_err());
        assert!(slice(&[0, 1, 0], &[2, 4, 1], &[&x]).is_err());
        assert!(slice(&[0, 1, 0], &[2, 1, 1], &[&x]).is_err());
        assert!(concat(1, &[&x, &f(&[2, 3, 5])]).is_err());
        assert!(concat(3, &[&x]).is_err());
        assert!(pad(&[[0, 0]], &[&x]).is_err());
    }
}
