//! Whether every row of a table is a unit vector, so that a dot product with a unit vector is a cosine.

use crate::tensor::{DType, Fact, SourceError, WeightSource, widen};
use pulp::Arch;

/// Bytes read at a time: little memory, and still in the second-level cache when they are summed.
const SLAB: usize = 1 << 18;

/// Widest row, which bounds the memory a header can ask for. Tables have 768 numbers a row.
const WIDTH_MAX: usize = 1 << 16;

/// Sums kept side by side, so that they can be vectorized.
const LANES: usize = 32;

/// A table with a row that is no unit vector, or that cannot be read. Rows count from 0.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum UnitRowsError {
    #[error("{file}: tensor {tensor} is {found}, expected rows of up to {WIDTH_MAX} floats")]
    NotRows { file: String, tensor: String, found: Fact },
    #[error("{file}: row {row} of tensor {tensor} is zero, expected a unit vector")]
    Zero { file: String, tensor: String, row: usize },
    #[error("{file}: row {row} of tensor {tensor} has a number that is not finite, expected a unit vector")]
    NotFinite { file: String, tensor: String, row: usize },
    #[error("{file}: row {row} of tensor {tensor} has norm {}, expected 1 within {tolerance}", shown(*.norm))]
    Norm { file: String, tensor: String, row: usize, norm: f64, tolerance: f64 },
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A norm near 1 with its digits, any other in short.
fn shown(norm: f64) -> String {
    if (0.01..100.0).contains(&norm) { format!("{norm:.6}") } else { format!("{norm:.1e}") }
}

/// How far from 1 the norm of a row may be that was made a unit vector before it was stored as `dtype`.
///
/// Rounding to p bits moves each number by up to 2^-p of itself, and so the norm: 4.9e-4 for f16 (p = 11), 3.9e-3 for
/// bf16 (p = 8). That is the worst case, all numbers erring one way; over hundreds of numbers they err far less. A row
/// of f32 was divided by a norm summed in f32, where n additions cost up to n 2^-24: 4.6e-5 for 768 numbers. f64 gets
/// the tolerance of f32, from which it may have been widened. Integers are refused before.
const fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 4e-3,
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => 1e-4,
    }
}

/// Checks that every row of `tensor`, of shape `[rows, width]`, has norm 1. Reads it once, slab by slab.
///
/// # Errors
/// It is absent, holds no rows of floats, or cannot be read; or a row is zero, not finite or not of norm 1: the first
/// such row is named.
pub fn check_unit_rows(source: &dyn WeightSource, tensor: &str) -> Result<(), UnitRowsError> {
    let (name, file) = (|| tensor.to_string(), || source.place(tensor));
    let fact = source.fact(tensor).ok_or_else(|| SourceError::Missing { tensor: name(), place: file() })?;
    let (&[rows, width @ ..=WIDTH_MAX], true) = (fact.shape.dims(), fact.dtype.is_float()) else {
        return Err(UnitRowsError::NotRows { file: file(), tensor: name(), found: fact.clone() });
    };
    let tolerance = tolerance(fact.dtype);
    if width == 0 {
        return if rows == 0 { Ok(()) } else { Err(UnitRowsError::Zero { file: file(), tensor: name(), row: 0 }) };
    }
    let row_bytes = width * fact.dtype.size();
    let step = (SLAB / row_bytes).max(1);
    let mut bytes = vec![0u8; step.min(rows) * row_bytes];
    let mut row = vec![0f32; width];
    for first in (0..rows).step_by(step) {
        let slab = &mut bytes[..step.min(rows - first) * row_bytes];
        source.read(tensor, (first * row_bytes) as u64, slab)?;
        if let Some(bad) = first_bad(fact.dtype, slab, row_bytes, &mut row, tolerance) {
            widen(fact.dtype, &slab[bad * row_bytes..][..row_bytes], &mut row);
            let (file, tensor, bad) = (file(), name(), first + bad);
            return Err(verdict(&row, file, tensor, bad, tolerance));
        }
    }
    Ok(())
}

/// The first row of the slab whose norm is not within the tolerance of 1.
fn first_bad(dtype: DType, slab: &[u8], row_bytes: usize, row: &mut [f32], tolerance: f64) -> Option<usize> {
    let good = |sum: f32| (f64::from(sum).sqrt() - 1.0).abs() <= tolerance;
    slab.chunks_exact(row_bytes).position(|bytes| {
        !good(if dtype == DType::F32 {
            sum_of_squares(bytes.as_chunks().0, f32::from_le_bytes)
        } else {
            widen(dtype, bytes, row);
            sum_of_squares(row, |v| v)
        })
    })
}

/// The sum of squares, in [`LANES`] partial sums: of 768 numbers each lane takes 24, so that rounding costs at most
/// 30 2^-24, far below any tolerance. What overflows or underflows is looked at again in f64.
fn sum_of_squares<T: Copy>(values: &[T], number: impl Fn(T) -> f32) -> f32 {
    Arch::new().dispatch(
        #[inline(always)]
        || {
            let (chunks, rest) = values.as_chunks::<LANES>();
            let mut sums = [0f32; LANES];
            for chunk in chunks {
                for (sum, v) in sums.iter_mut().zip(chunk) {
                    let v = number(*v);
                    *sum += v * v;
                }
            }
            for (sum, v) in sums.iter_mut().zip(rest) {
                let v = number(*v);
                *sum += v * v;
            }
            sums.iter().sum()
        },
    )
}

/// What is wrong with a row.
fn verdict(row: &[f32], file: String, tensor: String, at: usize, tolerance: f64) -> UnitRowsError {
    let norm = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    if !norm.is_finite() {
        UnitRowsError::NotFinite { file, tensor, row: at }
    } else if norm == 0.0 {
        UnitRowsError::Zero { file, tensor, row: at }
    } else {
        UnitRowsError::Norm { file, tensor, row: at, norm, tolerance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Memory;
    use half::{bf16, f16};

    const WIDTH: usize = 770;

    /// 900 unit rows, enough for several slabs, with numbers from seeded integers.
    fn unit() -> Vec<f32> {
        let mut state = 7u32;
        let mut values = vec![0f32; 900 * WIDTH];
        for row in values.chunks_exact_mut(WIDTH) {
            for v in row.iter_mut() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *v = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
            }
            let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            row.iter_mut().for_each(|v| *v /= norm);
        }
        values
    }

    fn stored(dtype: DType, values: &[f32]) -> Vec<u8> {
        let value = |v: &f32| -> Vec<u8> {
            match dtype.name() {
                "f64" => f64::from(*v).to_le_bytes().into(),
                "f16" => f16::from_f32(*v).to_le_bytes().into(),
                "bf16" => bf16::from_f32(*v).to_le_bytes().into(),
                _ => v.to_le_bytes().into(),
            }
        };
        values.iter().flat_map(value).collect()
    }

    fn check(dtype: DType, values: &[f32]) -> Result<(), UnitRowsError> {
        let mut memory = Memory::default();
        memory.0.insert("table".into(), (Fact::new(dtype, [values.len() / WIDTH, WIDTH]), stored(dtype, values)));
        check_unit_rows(&memory, "table")
    }

    const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    #[test]
    fn unit_rows_pass_in_every_dtype() {
        let values = unit();
        FLOATS.iter().for_each(|dtype| check(*dtype, &values).unwrap());
        check(DType::F32, &[]).unwrap();
    }

    #[test]
    fn the_first_row_that_is_none_is_named() {
        let values = unit();
        let refusal = |dtype, edit: &dyn Fn(&mut [f32])| {
            let mut values = values.clone();
            edit(&mut values[701 * WIDTH..702 * WIDTH]);
            values[800 * WIDTH] = f32::NAN;
            check(dtype, &values).unwrap_err().to_string()
        };
        insta::assert_snapshot!(refusal(DType::F32, &|row| row.fill(0.0)), @"memory: row 701 of tensor table is zero, expected a unit vector");
        insta::assert_snapshot!(refusal(DType::F32, &|row| row[WIDTH - 1] = f32::NEG_INFINITY), @"memory: row 701 of tensor table has a number that is not finite, expected a unit vector");
        insta::assert_snapshot!(refusal(DType::F32, &|row| row[0] = f32::NAN), @"memory: row 701 of tensor table has a number that is not finite, expected a unit vector");
        insta::assert_snapshot!(refusal(DType::F32, &|row| row[3] = 1e30), @"memory: row 701 of tensor table has norm 1.0e30, expected 1 within 0.0001");
        insta::assert_snapshot!(refusal(DType::F32, &|row| row.fill(1e-30)), @"memory: row 701 of tensor table has norm 2.8e-29, expected 1 within 0.0001");
        for dtype in FLOATS {
            // Off by half as much again as is tolerated, and by half of it where rounding leaves that much room.
            let scale = |by: f64| move |row: &mut [f32]| row.iter_mut().for_each(|v| *v *= (1.0 + by) as f32);
            let off = tolerance(dtype) * 1.5;
            assert!(refusal(dtype, &scale(off)).contains("row 701"), "{dtype}");
            assert!(refusal(dtype, &scale(-off)).contains("row 701"), "{dtype}");
            assert!(refusal(dtype, &scale(tolerance(dtype) / 2.0)).contains("row 800"), "{dtype}");
        }
        insta::assert_snapshot!(refusal(DType::F16, &|row| row.iter_mut().for_each(|v| *v *= 1.01)), @"memory: row 701 of tensor table has norm 1.009998, expected 1 within 0.001");
    }

    #[test]
    fn what_is_no_table() {
        let refusal = |fact: Fact| {
            let mut memory = Memory::default();
            let bytes = vec![0; fact.bytes().min(64)];
            memory.0.insert("table".into(), (fact, bytes));
            check_unit_rows(&memory, "table").unwrap_err().to_string()
        };
        insta::assert_snapshot!(refusal(Fact::new(DType::F32, [4])), @"memory: tensor table is f32[4], expected rows of up to 65536 floats");
        insta::assert_snapshot!(refusal(Fact::new(DType::I32, [2, 2])), @"memory: tensor table is i32[2,2], expected rows of up to 65536 floats");
        insta::assert_snapshot!(refusal(Fact::new(DType::F32, [2, WIDTH_MAX + 1])), @"memory: tensor table is f32[2,65537], expected rows of up to 65536 floats");
        insta::assert_snapshot!(refusal(Fact::new(DType::F32, [2, 0])), @"memory: row 0 of tensor table is zero, expected a unit vector");
        insta::assert_snapshot!(check_unit_rows(&Memory::default(), "table").unwrap_err(), @"tensor table is not in memory");
    }
}
