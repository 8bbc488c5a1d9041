//! A block of rows as kernels see it.

/// An operand's rows within a block: row `i` is `data[i * step..][..width]`.
///
/// `step` is the width where rows lie side by side, larger where they are cut from a wider value, and 0 where one row
/// serves the whole block; a `width` of 1 under wider results serves the whole row.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub data: &'a [f32],
    pub step: usize,
    pub width: usize,
}

impl<'a> Rows<'a> {
    /// Rows that lie side by side.
    pub fn side_by_side(data: &'a [f32], width: usize) -> Rows<'a> {
        Rows { data, step: width, width }
    }

    /// Row `i`.
    #[inline(always)]
    pub fn row(&self, i: usize) -> &'a [f32] {
        &self.data[i * self.step..][..self.width]
    }

    /// Elements from the first row's start to the end of row `rows - 1`.
    #[inline(always)]
    pub fn reach(&self, rows: usize) -> usize {
        rows.saturating_sub(1) * self.step + self.width
    }

    /// Whether the block is one run of elements, rows of `width`.
    #[inline(always)]
    pub fn dense(&self, width: usize) -> bool {
        self.width == width && self.step == width
    }

    /// Whether one element serves the whole block.
    #[inline(always)]
    pub fn one(&self) -> bool {
        self.width == 1 && self.step == 0
    }
}
