//! Buffers of values that were freed, for values to come: memory that is fresh from the system costs a page fault every
//! 4 KB, and memory that must read as zero costs another pass, both of them as much as a cheap op.

use candle_core::{CpuStorage, Error, InplaceOp1, Layout, Tensor};
use std::sync::Mutex;

/// Most bytes kept: a few weights and activations of the largest layer.
const KEPT: usize = 192 << 20;

/// Free buffers.
#[derive(Default)]
pub(super) struct Pool {
    free: Vec<Vec<f32>>,
}

impl Pool {
    /// `len` floats of any value; whoever takes them writes them all.
    pub fn take(&mut self, len: usize) -> Vec<f32> {
        let fits = |b: &&(usize, &Vec<f32>)| b.1.len() >= len && b.1.len() / 2 <= len;
        match self.free.iter().enumerate().filter(|b| fits(&b)).min_by_key(|(_, b)| b.len()) {
            Some((at, _)) => {
                let mut buffer = self.free.swap_remove(at);
                buffer.truncate(len);
                buffer
            }
            None => vec![0f32; len],
        }
    }

    /// Takes the buffer out of `tensor`, which no other tensor may share.
    pub fn give(&mut self, tensor: &Tensor) {
        let held: usize = self.free.iter().map(|b| b.len() * size_of::<f32>()).sum();
        if held + tensor.elem_count() * size_of::<f32>() <= KEPT {
            let out = TakeOut(Mutex::new(Vec::new()));
            if tensor.inplace_op1(&out).is_ok() {
                self.free.extend(out.0.into_inner().ok().filter(|b| !b.is_empty()));
            }
        }
    }
}

/// The way candle has to reach the buffer behind a tensor.
struct TakeOut(Mutex<Vec<f32>>);

impl InplaceOp1 for TakeOut {
    fn name(&self) -> &'static str {
        "take-out"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<(), Error> {
        if let (CpuStorage::F32(values), Ok(mut out)) = (storage, self.0.lock()) {
            *out = std::mem::take(values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::value::tensor;

    #[test]
    fn a_buffer_comes_back_for_a_value_of_about_its_size() {
        let mut pool = Pool::default();
        pool.give(&tensor(vec![7.0; 100], &[100]).unwrap());
        assert_eq!(pool.take(101), vec![0.0; 101]);
        assert_eq!(pool.take(40), vec![0.0; 40], "too small to spend it on");
        assert_eq!(pool.take(60), vec![7.0; 60]);
        assert_eq!(pool.take(60), vec![0.0; 60]);
    }
}
