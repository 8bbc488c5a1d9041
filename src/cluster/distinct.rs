//! Values in order, equal ones merged.

/// The distinct values of a group, ascending, and how often each is there; minus zero is zero.
pub(super) struct Distinct {
    pub values: Vec<f32>,
    pub counts: Vec<u64>,
    form: Form,
}

/// How the values were merged, and so how one of them is found again.
enum Form {
    /// Counted: `at` holds, for each number of the grid that all of them are on, the index among the distinct ones.
    Counted { grid: Grid, at: Vec<u32> },
    /// Sorted, being too far apart to be counted.
    Sorted,
}

/// The floats between the least and the greatest of some values that end in as many zero bits as all of them do.
///
/// Values that were fp16 or bf16 have many, and leave few enough numbers in between for a counter each.
struct Grid {
    /// Zero bits at the end.
    shift: u32,
    /// Bits of the magnitude one step below the least that is not zero. The many floats from there to zero, which most
    /// tensors have no value among, are left out.
    base: u32,
    /// Steps from zero to the least value and to the greatest.
    ends: (i32, i32),
}

impl Grid {
    fn of(values: &[f32]) -> Grid {
        // Zeros wrap around to the greatest number there is, and so are no minimum.
        let (mut bits, mut least_but_one) = (0, u32::MAX);
        for v in values {
            let magnitude = v.abs().to_bits();
            bits |= magnitude;
            least_but_one = least_but_one.min(magnitude.wrapping_sub(1));
        }
        let shift = bits.trailing_zeros().min(31);
        let base = least_but_one.wrapping_add(1).saturating_sub(1 << shift);
        let grid = Grid { shift, base, ends: (0, 0) };
        let ends = values.iter().map(|v| grid.steps(*v)).fold((i32::MAX, i32::MIN), |(a, b), s| (a.min(s), b.max(s)));
        Grid { ends, ..grid }
    }

    /// Steps from zero to a value on the grid; in the order of the values.
    #[inline]
    fn steps(&self, v: f32) -> i32 {
        let steps = (v.abs().to_bits().saturating_sub(self.base) >> (self.shift % 32)) as i32;
        // All ones for a negative value; then this negates, without a branch that half of the values take.
        let sign = v.to_bits() as i32 >> 31;
        (steps ^ sign) - sign
    }

    /// The value so many steps from zero.
    fn value(&self, steps: i32) -> f32 {
        if steps == 0 {
            return 0.0;
        }
        let magnitude = f32::from_bits((steps.unsigned_abs() << self.shift) + self.base);
        if steps < 0 { -magnitude } else { magnitude }
    }

    fn len(&self) -> usize {
        self.ends.1.abs_diff(self.ends.0) as usize + 1
    }

    #[inline]
    fn place(&self, v: f32) -> usize {
        self.steps(v).wrapping_sub(self.ends.0) as u32 as usize
    }
}

impl Distinct {
    /// Of finite values.
    pub fn of(values: &[f32]) -> Distinct {
        let grid = Grid::of(values);
        if grid.len() / 8 <= values.len() && u32::try_from(values.len()).is_ok() {
            Self::counted(values, grid)
        } else {
            Self::sorted(values)
        }
    }

    fn counted(values: &[f32], grid: Grid) -> Distinct {
        let mut at = vec![0u32; grid.len()];
        for v in values {
            at[grid.place(*v)] += 1;
        }
        let (mut distinct, mut counts) = (Vec::new(), Vec::new());
        for (steps, slot) in (grid.ends.0..).zip(&mut at).filter(|(_, count)| **count > 0) {
            counts.push(u64::from(*slot));
            *slot = distinct.len() as u32;
            distinct.push(grid.value(steps));
        }
        Distinct { values: distinct, counts, form: Form::Counted { grid, at } }
    }

    fn sorted(values: &[f32]) -> Distinct {
        // The zero added makes -0, which comes before 0 in this order, a 0.
        let mut sorted: Vec<f32> = values.iter().map(|v| v + 0.0).collect();
        sorted.sort_unstable_by(f32::total_cmp);
        let runs = sorted.chunk_by(|a, b| a == b);
        let (values, counts) = runs.map(|run| (run[0], run.len() as u64)).unzip();
        Distinct { values, counts, form: Form::Sorted }
    }

    /// The index of the nearest centroid for each of `values`, which are those this was made of.
    pub fn assign(&self, values: &[f32], centroids: &[f32]) -> Vec<u8> {
        let Form::Counted { grid, at } = &self.form else { return super::assign(values, centroids) };
        let of_distinct = super::assign(&self.values, centroids);
        // Counters of numbers that are not there hold 0, which is an index of some distinct value as well.
        let table: Vec<u8> = at.iter().map(|i| of_distinct[*i as usize]).collect();
        values.iter().map(|v| table[grid.place(*v)]).collect()
    }
}
