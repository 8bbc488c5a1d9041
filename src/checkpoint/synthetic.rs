//! Seeded weights as a stream: the real job without the gated weights.
//!
//! An element is a function of seed, tensor name and index, made by integer arithmetic and exact float operations only,
//! so that it is the same on every machine and can be read from any place on.

use crate::tensor::{Fact, Shape, SourceError, WeightSource};
use std::collections::BTreeMap;

/// Tensors of given shapes, filled from a seed.
#[derive(Debug)]
pub struct Synthetic {
    seed: u64,
    facts: BTreeMap<String, Fact>,
}

impl Synthetic {
    /// Weights of those names and facts; all of them read as f32.
    pub fn new(seed: u64, facts: BTreeMap<String, Fact>) -> Synthetic {
        Synthetic { seed, facts }
    }
}

impl WeightSource for Synthetic {
    fn names(&self) -> Vec<&str> {
        self.facts.keys().map(String::as_str).collect()
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.get(name)
    }

    fn read(&self, name: &str, offset: u64, out: &mut [u8]) -> Result<(), SourceError> {
        let Some(fact) = self.facts.get(name) else {
            return Err(SourceError::Missing { tensor: name.into(), place: self.place(name) });
        };
        let (size, end) = (fact.bytes() as u64, offset.saturating_add(out.len() as u64));
        if end > size {
            let (tensor, place) = (name.into(), self.place(name));
            return Err(SourceError::Range { tensor, place, offset, end, size });
        }
        let first = (offset / 4) as usize;
        let skip = (offset % 4) as usize;
        let mut values = vec![0f32; (skip + out.len()).div_ceil(4)];
        fill(self.seed, name, &fact.shape, first, &mut values);
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).skip(skip);
        out.iter_mut().zip(bytes).for_each(|(o, b)| *o = b);
        Ok(())
    }

    fn place(&self, _: &str) -> String {
        format!("synthetic weights of seed {}", self.seed)
    }

    fn read_f32(&self, name: &str, start: usize, out: &mut [f32]) -> Result<(), SourceError> {
        match self.facts.get(name) {
            Some(fact) if start + out.len() <= fact.shape.elements() => {
                fill(self.seed, name, &fact.shape, start, out);
                Ok(())
            }
            Some(_) => self.read(name, (start * 4) as u64, &mut vec![0; out.len() * 4]),
            None => Err(SourceError::Missing { tensor: name.into(), place: self.place(name) }),
        }
    }
}

/// How the elements of a tensor are distributed: `centre + spread * n`, where `n` has mean 0 and variance 1.
struct Spread {
    centre: f32,
    spread: f32,
}

/// Close to a trained model: rows of unit gain, norm weights about 1, clamp bounds near the activations.
fn spread(name: &str, shape: &Shape) -> Spread {
    let leaf = name.rsplit('.').next().unwrap_or(name);
    match shape.dims() {
        [] if leaf.ends_with("_min") => Spread { centre: -3.0, spread: 0.25 },
        [] if leaf.ends_with("_max") => Spread { centre: 3.0, spread: 0.25 },
        [] => Spread { centre: 1.0, spread: 0.1 },
        [_] if leaf == "weight" => Spread { centre: 1.0, spread: 0.2 },
        [_] if leaf == "per_dim_scale" => Spread { centre: 0.0, spread: 0.3 },
        [_] => Spread { centre: 0.0, spread: 0.1 },
        [rows, ..] => {
            let fan_in = (shape.elements() / (*rows).max(1)).max(1);
            Spread { centre: 0.0, spread: 1.0 / (fan_in as f32).sqrt() }
        }
    }
}

/// Fills `out` with the elements of tensor `name` from `start` on.
pub(super) fn fill(seed: u64, name: &str, shape: &Shape, start: usize, out: &mut [f32]) {
    let key = name.bytes().fold(mix(seed ^ 0x9e37_79b9_7f4a_7c15), |k, b| mix(k ^ u64::from(b)));
    let Spread { centre, spread } = spread(name, shape);
    // The sum of four uniforms on 0..65536 has variance 4 (2^32 - 1) / 12; its square root scales it to 1.
    const SCALE: f32 = 1.0 / 37_837.227;
    const MEAN: i32 = 2 * 65_535;
    for (i, value) in out.iter_mut().enumerate() {
        let bits = mix(key.wrapping_add((start + i) as u64));
        let sum: i32 = [bits, bits >> 16, bits >> 32, bits >> 48].iter().map(|b| i32::from(*b as u16)).sum();
        *value = centre + spread * ((sum - MEAN) as f32 * SCALE);
    }
}

/// The finalizer of the splitmix64 generator: every input bit reaches every output bit.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
