//! Weights stored in fewer bits, brought back to floats.

use super::{FactError, exactly, float};
use crate::tensor::{DType, Fact};

pub(super) fn dequantize(args: &[&Fact]) -> Result<Fact, FactError> {
    const OP: &str = "dequantize";
    let [q, scale] = exactly(OP, "2", args)?;
    if q.dtype != DType::I8 {
        return Err(FactError::DType { op: OP, want: "levels of i8", got: q.dtype });
    }
    float(OP, scale)?;
    let (levels, scales) = (q.shape.dims(), scale.shape.dims());
    let divides = levels.len() == scales.len() && levels.iter().zip(scales).all(|(q, s)| q.is_multiple_of(*s));
    if !divides {
        return Err(FactError::Shapes { op: OP, first: q.shape.clone(), second: scale.shape.clone() });
    }
    Ok(Fact { dtype: scale.dtype, shape: q.shape.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_divide_levels() {
        let case = |q: (DType, &[usize]), s: (DType, &[usize])| {
            dequantize(&[&Fact::new(q.0, q.1.to_vec()), &Fact::new(s.0, s.1.to_vec())])
        };
        let (i8, f32, f16) = (DType::I8, DType::F32, DType::F16);
        assert_eq!(case((i8, &[4, 64]), (f32, &[4, 2])).unwrap(), Fact::new(f32, [4, 64]));
        assert_eq!(case((i8, &[4, 64]), (f16, &[1, 1])).unwrap(), Fact::new(f16, [4, 64]));
        for (q, s) in [
            ((f32, &[4, 64][..]), (f32, &[4, 2][..])),
            ((DType::U8, &[4, 64]), (f32, &[4, 2])),
            ((i8, &[4, 64]), (i8, &[4, 2])),
            ((i8, &[4, 64]), (f32, &[4, 3])),
            ((i8, &[4, 64]), (f32, &[2])),
            ((i8, &[4, 64]), (f32, &[4, 128])),
        ] {
            assert!(case(q, s).is_err(), "{q:?} {s:?}");
        }
    }
}
