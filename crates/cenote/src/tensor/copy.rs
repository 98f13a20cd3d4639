//! Copies of a tensor: to a vector, or to another tensor.

use std::io;

use bytemuck::checked;

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{Error, Result};
use crate::memory::budget::Budget;
use crate::memory::kind::TensorMemory;
use crate::tensor::image::geometry::image_layout;
use crate::tensor::map::{TensorMapMut, cast, check_dtype};
use crate::tensor::options::TensorOptions;
use crate::tensor::tensor::Tensor;
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;

impl Tensor {
    /// Copies the elements into a vector, in row-major order. Works for every view. Fails if they are not of type
    /// `T`.
    ///
    /// ```
    /// use cenote::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1u8, 2, 3, 4], &[2, 2])?;
    /// assert_eq!(tensor.transpose().to_vec::<u8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check_dtype::<T>(self.dtype)?;
        // A view can have more elements than its buffer has bytes, and a peer can send such a view.
        let _room = Budget::reserve(self.nbytes())?;
        let mut elements = Vec::new();
        let no_room = |_| Error::os("allocation of heap memory", io::ErrorKind::OutOfMemory);
        elements.try_reserve_exact(self.len()).map_err(no_room)?;
        for run in self.map()?.runs() {
            // A `bool` is read once and then checked: another process may write the memory.
            match cast::<T>(run) {
                Ok(run) if T::DTYPE != DType::Bool => elements.extend_from_slice(run),
                Ok(_) | Err(Error::Misaligned { .. }) => extend_unaligned(&mut elements, run)?,
                Err(error) => return Err(error),
            }
        }
        copies::count(CopyReason::CopiedOut, self.nbytes());
        Ok(elements)
    }

    /// Returns a contiguous copy in row-major order, in memory of the same kind. It always copies, and
    /// [`copies`](crate::copies) counts that.
    ///
    /// An image stays an image, with the smallest row stride that its format allows. Rows of an odd width are
    /// padded if pixels share samples (NV12, I420, YUYV).
    pub fn to_contiguous(&self) -> Result<Tensor> {
        self.copied(CopyReason::ToContiguous)
    }

    /// Returns a contiguous copy in row-major order, in memory of this kind. It always copies, and
    /// [`copies`](crate::copies) counts that. An image stays an image, as with
    /// [`to_contiguous`](Tensor::to_contiguous).
    ///
    /// ```
    /// use cenote::{DType, Tensor, TensorMemory};
    ///
    /// let tensor = Tensor::new(&[4], DType::U8)?;
    /// assert_eq!(tensor.to_memory(TensorMemory::Mem)?.memory(), TensorMemory::Mem);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn to_memory(&self, memory: TensorMemory) -> Result<Tensor> {
        self.copied_to(memory, CopyReason::CopiedOut)
    }

    /// Returns write access: to the bytes themselves if [`map_mut`](Tensor::map_mut) allows it. Otherwise this
    /// handle gets a copy, and other handles keep the old bytes.
    ///
    /// The copy of an image keeps its row stride. Planes of several buffers follow each other in the copy, which
    /// therefore has the [`shape`](crate::PixelFormat::shape) of the whole image.
    ///
    /// ```
    /// use cenote::{DType, Tensor};
    ///
    /// let mut tensor = Tensor::new(&[4], DType::U8)?;
    /// let before = tensor.clone();
    /// assert!(tensor.map_mut().is_err()); // `before` shares the bytes
    /// tensor.make_mut()?.as_mut_slice::<u8>()?.fill(1);
    /// assert_eq!(before.to_vec::<u8>()?, [0; 4]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn make_mut(&mut self) -> Result<TensorMapMut<'_>> {
        // Not `not_writable`: it has no `&mut`, so it could miss a write of another thread just before.
        if self.buffer.storage_mut().is_err() {
            *self = self.copied(CopyReason::MakeMut)?;
        }
        self.map_mut()
    }

    fn copied(&self, reason: CopyReason) -> Result<Tensor> {
        self.copied_with(TensorOptions::new().memory_of(self), reason)
    }

    fn copied_to(&self, memory: TensorMemory, reason: CopyReason) -> Result<Tensor> {
        self.copied_with(TensorOptions::new().memory(memory), reason)
    }

    fn copied_with(&self, options: TensorOptions, reason: CopyReason) -> Result<Tensor> {
        let stride = self.effective_row_stride().filter(|_| reason == CopyReason::MakeMut);
        let options = if stride.is_none() { options.row_alignment(1) } else { options };
        let copy = match (self.format, self.image_size()) {
            (Some(format), Some(size)) => options.image_with_stride(size, format, stride)?,
            _ => options.create(self.shape(), self.dtype)?,
        };
        let (copy, bytes) = copy.filled_from(self)?;
        copies::count(reason, bytes);
        Ok(copy)
    }

    /// Returns the layout of a packed copy, and the bytes that it takes.
    pub(crate) fn copy_layout(&self) -> Result<(Layout, usize)> {
        let (Some(format), Some((width, height))) = (self.format, self.image_size()) else {
            let layout = Layout::contiguous(self.shape(), self.dtype.size())?;
            let len = layout.nbytes();
            return Ok((layout, len));
        };
        let stride = format.min_row_stride(width)?;
        let shape = format.shape(width, height)?;
        let layout = image_layout(format, &shape, height, stride, 0)?;
        Ok((layout, format.image_bytes(width, height, stride)?))
    }

    /// Copies the elements, format and device of `source` into a new tensor, which is large enough. Returns how
    /// many bytes were copied.
    pub(crate) fn filled_from(mut self, source: &Tensor) -> Result<(Tensor, usize)> {
        if let Some(format) = source.format {
            self.set_format(format)?;
        }
        self.device = source.device;
        let bytes = self.fill_from(source)?;
        // A single channel may or may not be an axis. (Far planes became rows, so their lengths differ.)
        if self.shape() != source.shape() && self.len() == source.len() {
            self.layout = self.layout.reshape(source.shape())?;
        }
        Ok((self, bytes))
    }

    /// Copies the elements of `source`, which has the same shape, or the same size and format. Returns how many
    /// bytes were copied.
    pub(crate) fn fill_from(&mut self, source: &Tensor) -> Result<usize> {
        let mut copied = 0;
        for plane in 0..source.plane_count() {
            let from = source.samples(plane)?;
            let to = self.samples(plane)?.layout().clone();
            copy_runs(&mut self.map_mut()?, &to, &from)?;
            copied += from.nbytes();
        }
        Ok(copied)
    }
}

/// Appends elements that may be misaligned. Fails for an invalid value.
fn extend_unaligned<T: Element>(elements: &mut Vec<T>, run: &[u8]) -> Result<()> {
    for bytes in run.chunks_exact(size_of::<T>()) {
        let element = checked::try_pod_read_unaligned(bytes);
        elements.push(element.map_err(|_| Error::InvalidValue { dtype: T::DTYPE.name() })?);
    }
    Ok(())
}

/// Copies the elements of `from` into `target`, at the layout `to`, which has as many elements.
fn copy_runs(target: &mut TensorMapMut<'_>, to: &Layout, from: &Tensor) -> Result<()> {
    let map = from.map()?;
    let mut sources = map.runs();
    let mut source: &[u8] = &[];
    for run in to.runs() {
        let mut target = target.at_mut(run);
        while !target.is_empty() {
            if source.is_empty() {
                // Both have the same number of bytes, so the source does not end first.
                let Some(next) = sources.next() else { return Ok(()) };
                source = next;
            }
            let step = source.len().min(target.len());
            let (head, rest) = target.split_at_mut(step);
            head.copy_from_slice(&source[..step]);
            target = rest;
            source = &source[step..];
        }
    }
    Ok(())
}
