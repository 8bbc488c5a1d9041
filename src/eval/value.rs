//! Values while a graph runs: candle tensors, whose layouts make cuts, permutations and reshapes free, and the way from
//! them to plain slices and back.

use candle_core::{CpuStorage, DType as Stored, Device, Error, InplaceOp1, Layout, Storage, StorageRef, Tensor};
use rayon::prelude::*;

/// A stride for each leading axis, in elements.
pub(super) type Strides = Vec<usize>;

/// Elements of a parallel chunk.
const CHUNK: usize = 1 << 16;

/// A tensor of those values, which are moved, not copied.
pub(super) fn tensor(values: Vec<f32>, dims: &[usize]) -> Result<Tensor, Error> {
    Tensor::from_vec(values, dims, &Device::Cpu)
}

/// Keeps a float tensor's storage open for reading.
pub(super) struct Reading<'a> {
    storage: StorageRef<'a>,
    layout: &'a Layout,
}

impl<'a> Reading<'a> {
    /// Opens `tensor`.
    pub fn of(tensor: &'a Tensor) -> Reading<'a> {
        let (storage, layout) = tensor.storage_and_layout();
        Reading { storage, layout }
    }

    /// The floats in it.
    ///
    /// # Errors
    /// The tensor is not one of f32 on the CPU.
    pub fn floats(&self) -> Result<Floats<'_>, Error> {
        match &*self.storage {
            Storage::Cpu(storage) => Ok(Floats { data: storage.as_slice()?, layout: self.layout }),
            Storage::Cuda(_) | Storage::Metal(_) => Err(Error::Msg("a tensor that is not in main memory".into())),
        }
    }
}

/// A strided view of floats.
pub(super) struct Floats<'a> {
    data: &'a [f32],
    layout: &'a Layout,
}

impl<'a> Floats<'a> {
    /// The whole storage; the view starts at [`offset`](Self::offset).
    pub fn data(&self) -> &'a [f32] {
        self.data
    }

    /// Element of the storage where the view starts.
    pub fn offset(&self) -> usize {
        self.layout.start_offset()
    }

    /// Extents.
    pub fn dims(&self) -> &'a [usize] {
        self.layout.dims()
    }

    /// Strides of all axes.
    pub fn strides(&self) -> &'a [usize] {
        self.layout.stride()
    }

    /// Elements of a row: the extent of the last axis, 1 for a single number.
    pub fn width(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// Whether the elements of a row lie side by side.
    pub fn has_rows(&self) -> bool {
        self.width() == 1 || self.strides().last() == Some(&1)
    }

    /// The elements, which lie side by side in row-major order.
    ///
    /// # Errors
    /// They do not; `shape::dense` makes them.
    pub fn dense(&self) -> Result<&'a [f32], Error> {
        let (start, end) =
            self.layout.contiguous_offsets().ok_or_else(|| Error::Msg("a view where a dense value is due".into()))?;
        Ok(&self.data[start..end])
    }

    /// Strides over the axes `lead` of a value that this one is stretched to: 0 where it has extent 1 or no such axis.
    pub fn row_strides(&self, lead: &[usize]) -> Strides {
        let own = self.dims().len().saturating_sub(1);
        let missing = lead.len() - own.min(lead.len());
        let stride = |axis: usize| match axis.checked_sub(missing) {
            Some(i) if self.dims()[i] != 1 => self.strides()[i],
            Some(_) | None => 0,
        };
        (0..lead.len()).map(stride).collect()
    }
}

/// Rounds every element of a dense tensor to f16, in place.
pub(super) struct RoundF16;

impl InplaceOp1 for RoundF16 {
    fn name(&self) -> &'static str {
        "round-f16"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, _: &Layout) -> Result<(), Error> {
        let CpuStorage::F32(values) = storage else {
            return Err(Error::Msg("f16 rounding of values that are not f32".into()));
        };
        values.par_chunks_mut(CHUNK).for_each(crate::tensor::round_f16);
        Ok(())
    }
}

/// Whether a tensor holds floats here.
pub(super) fn is_float(tensor: &Tensor) -> bool {
    tensor.dtype() == Stored::F32
}
