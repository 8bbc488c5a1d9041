//! Little-endian bytes to f32 and back, with the one check a narrowing needs: that the value still exists.

use super::DType;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

/// A finite f32 that the narrower dtype has no finite value for, or a value that was not finite before.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("element {index} is {value}, which {dtype} cannot hold as a finite number")]
pub struct NotRepresentable {
    /// Position within the slice that was converted.
    pub index: usize,
    /// The value found there.
    pub value: f32,
    /// The dtype it was to become.
    pub dtype: DType,
}

/// Widens little-endian float bytes to f32: exact for f16, bf16 and f32, rounded once for f64.
///
/// Integer and boolean bytes are not numbers here and give zeros; callers ask [`DType::is_float`] first.
pub fn widen(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *o = f32::from_le_bytes(*b);
            }
        }
        DType::F16 => {
            let mut words = [0u16; 1024];
            for (o, b) in out.chunks_mut(1024).zip(bytes.chunks(2048)) {
                let n = load_words(b, &mut words).min(o.len());
                words[..n].reinterpret_cast::<f16>().convert_to_f32_slice(&mut o[..n]);
            }
        }
        DType::BF16 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
                *o = bf16::from_le_bytes(*b).to_f32();
            }
        }
        DType::F64 => {
            for (o, b) in out.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *o = f64::from_le_bytes(*b) as f32;
            }
        }
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => out.fill(0.0),
    }
}

fn load_words(bytes: &[u8], words: &mut [u16; 1024]) -> usize {
    let pairs = bytes.as_chunks::<2>().0;
    for (w, b) in words.iter_mut().zip(pairs) {
        *w = u16::from_le_bytes(*b);
    }
    pairs.len()
}

/// Appends `values` as little-endian f16, rounded to nearest even.
///
/// # Errors
/// A value that has no finite f16: NaN, infinite, or of magnitude 65520 and above.
pub fn narrow_f16(values: &[f32], out: &mut Vec<u8>) -> Result<(), NotRepresentable> {
    let mut halves = [f16::ZERO; 1024];
    out.reserve(values.len() * 2);
    for (block, chunk) in values.chunks(1024).enumerate() {
        let halves = &mut halves[..chunk.len()];
        halves.convert_from_f32_slice(chunk);
        // An all-ones exponent is infinity or NaN; tested on the bits so that the loop vectorizes.
        let words: &[u16] = halves.reinterpret_cast();
        if words.iter().fold(false, |bad, w| bad | (w & 0x7c00 == 0x7c00)) {
            let at = words.iter().position(|w| w & 0x7c00 == 0x7c00).unwrap_or(0);
            return Err(NotRepresentable { index: block * 1024 + at, value: chunk[at], dtype: DType::F16 });
        }
        for w in words {
            out.extend_from_slice(&w.to_le_bytes());
        }
    }
    Ok(())
}

/// Appends `values` as little-endian f32.
///
/// # Errors
/// A value that is NaN or infinite.
pub fn bytes_of_f32(values: &[f32], out: &mut Vec<u8>) -> Result<(), NotRepresentable> {
    if values.iter().fold(false, |bad, v| bad | !v.is_finite()) {
        let index = values.iter().position(|v| !v.is_finite()).unwrap_or(0);
        return Err(NotRepresentable { index, value: values[index], dtype: DType::F32 });
    }
    out.reserve(values.len() * 4);
    for v in values {
        out.extend_from_slice(&v.to_le_bytes());
    }
    Ok(())
}

/// Rounds each value to the nearest f16 and back, in place; beyond the range it becomes infinite, as in hardware.
pub fn round_f16(values: &mut [f32]) {
    let mut halves = [f16::ZERO; 1024];
    for chunk in values.chunks_mut(1024) {
        let halves = &mut halves[..chunk.len()];
        halves.convert_from_f32_slice(chunk);
        halves.convert_to_f32_slice(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn f16_overflow_is_named_with_its_place() {
        let mut values = vec![1.0f32; 1500];
        values[1400] = 65520.0;
        let err = narrow_f16(&values, &mut Vec::new()).unwrap_err();
        assert_eq!((err.index, err.value), (1400, 65520.0));
        values[1400] = 65519.0;
        let mut out = Vec::new();
        narrow_f16(&values, &mut out).unwrap();
        assert_eq!(out[2800..2802], 0x7bffu16.to_le_bytes());
    }

    #[test]
    fn f32_refuses_what_is_not_finite() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(bytes_of_f32(&[0.0, bad], &mut Vec::new()).unwrap_err().index, 1);
        }
    }

    proptest! {
        #[test]
        fn narrow_then_widen_is_round(values in prop::collection::vec(-65000f32..65000.0, 0..3000)) {
            let mut bytes = Vec::new();
            narrow_f16(&values, &mut bytes).unwrap();
            let mut back = vec![0f32; values.len()];
            widen(DType::F16, &bytes, &mut back);
            let mut rounded = values.clone();
            round_f16(&mut rounded);
            prop_assert_eq!(back, rounded);
        }

        #[test]
        fn f32_bytes_round_trip(values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::ZERO, 0..3000)) {
            let mut bytes = Vec::new();
            bytes_of_f32(&values, &mut bytes).unwrap();
            let mut back = vec![0f32; values.len()];
            widen(DType::F32, &bytes, &mut back);
            prop_assert_eq!(back, values);
        }
    }
}
