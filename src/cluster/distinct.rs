//! Values in order, equal ones merged.

/// The distinct values of a group, ascending, and how often each is there; minus zero is zero.
pub(super) struct Distinct {
    pub values: Vec<f32>,
    pub counts: Vec<u64>,
    form: Form,
}

/// How the values were merged, and so how one of them is found again.
enum Form {
    /// Counted: values are `least + i` steps on the grid that all of them are on; `at[i]` is the index among the
    /// distinct ones.
    Counted { least: i32, shift: u32, at: Vec<u32> },
    /// Sorted, being too far apart to be counted.
    Sorted,
}

/// A number whose order is that of the floats: the bits of the magnitude, with the sign. Both zeros are 0.
fn key(v: f32) -> i32 {
    let bits = v.to_bits() as i32;
    let magnitude = bits & i32::MAX;
    if bits < 0 { -magnitude } else { magnitude }
}

fn float(key: i32) -> f32 {
    let magnitude = f32::from_bits(key.unsigned_abs());
    if key < 0 { -magnitude } else { magnitude }
}

impl Distinct {
    /// Of finite values.
    pub fn of(values: &[f32]) -> Distinct {
        let (least, greatest, bits) = values.iter().fold((i32::MAX, i32::MIN, 0), |(least, greatest, bits), v| {
            let key = key(*v);
            (least.min(key), greatest.max(key), bits | key)
        });
        // Values that were fp16 or bf16 leave the low bits zero: then there are few enough numbers between the least
        // and the greatest for a counter each. A negated number ends in the same zeros.
        let shift = bits.trailing_zeros().min(31);
        let range = ((i64::from(greatest) - i64::from(least)) >> shift) as usize + 1;
        if range / 8 <= values.len() && u32::try_from(values.len()).is_ok() {
            Self::counted(values, least, shift, range)
        } else {
            Self::sorted(values)
        }
    }

    fn counted(values: &[f32], least: i32, shift: u32, range: usize) -> Distinct {
        let mut at = vec![0u32; range];
        for v in values {
            at[place(*v, least, shift)] += 1;
        }
        let (mut distinct, mut counts) = (Vec::new(), Vec::new());
        for (i, slot) in at.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            counts.push(u64::from(*slot));
            *slot = distinct.len() as u32;
            distinct.push(float((i64::from(least) + ((i as i64) << shift)) as i32));
        }
        Distinct { values: distinct, counts, form: Form::Counted { least, shift, at } }
    }

    fn sorted(values: &[f32]) -> Distinct {
        let mut keys: Vec<i32> = values.iter().map(|v| key(*v)).collect();
        keys.sort_unstable();
        let runs = keys.chunk_by(|a, b| a == b);
        let (values, counts) = runs.map(|run| (float(run[0]), run.len() as u64)).unzip();
        Distinct { values, counts, form: Form::Sorted }
    }

    /// The index of the nearest centroid for each of `values`, which are those this was made of.
    pub fn assign(&self, values: &[f32], centroids: &[f32]) -> Vec<u8> {
        let Form::Counted { least, shift, at } = &self.form else { return super::assign(values, centroids) };
        let of_distinct = super::assign(&self.values, centroids);
        // Counters of numbers that are not there hold 0, which is an index of some distinct value as well.
        let table: Vec<u8> = at.iter().map(|i| of_distinct[*i as usize]).collect();
        values.iter().map(|v| table[place(*v, *least, *shift)]).collect()
    }
}

fn place(v: f32, least: i32, shift: u32) -> usize {
    ((i64::from(key(v)) - i64::from(least)) >> shift) as usize
}
