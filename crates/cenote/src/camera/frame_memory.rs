//! Tensors over the memory of camera buffers.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::memory::choose::selection::{Origin, Selection};
use crate::memory::kind::TensorMemory;
use crate::memory::region::Region;
use crate::memory::storage::{Protection, Storage};
use crate::sys::dmabuf::DmaBuf;
use crate::sys::mapping::{Access, Kept, Map};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::image::geometry::{image_layout, plane_layout};
use crate::types::dtype::DType;
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::geometry::Plane;

impl Tensor {
    /// The bytes of a buffer that the driver has filled. The driver does not write it until `lease` is
    /// dropped. The last holder does that, in this process or another.
    #[allow(unsafe_code, reason = "frames of a camera share mappings, one after another")]
    pub(crate) fn captured(map: Arc<Map>, lease: Kept) -> Result<Tensor> {
        let (dma, len) = (map.dmabuf().cloned(), map.len());
        // SAFETY: the region is only read. The driver does not write the buffer before it is queued again,
        // which needs the lease to be dropped. The storage drops that after the region.
        let region = unsafe { Region::part(map, 0..len, Access::Read) };
        let region = region.ok_or(Error::OutOfBuffer { start: 0, end: len as i128, len })?;
        let storage = Storage {
            memory: TensorMemory::Dma,
            stable: false,
            protection: Protection::Convention,
            dma,
            kept: Some(lease),
            ..Storage::heap(region, None)
        };
        let selection = Selection::given(TensorMemory::Dma, Origin::Captured);
        let layout = Layout::contiguous(&[len], DType::U8.size())?;
        Tensor::over(Handle::new(storage, selection), layout, DType::U8)
    }

    /// The image that lies in this buffer at `offset`, with rows `stride` bytes apart.
    pub(crate) fn as_image(
        &self,
        (width, height): (usize, usize),
        format: PixelFormat,
        (stride, offset): (usize, usize),
    ) -> Result<Tensor> {
        let shape = format.shape(width, height)?;
        let layout = image_layout(format, &shape, height, stride, offset)?;
        self.reinterpreted(layout, format.dtype())?.with_format(format)
    }

    /// The image whose planes each lie in a separate buffer.
    pub(crate) fn as_planes<'a>(
        format: PixelFormat,
        planes: impl Iterator<Item = (&'a Tensor, Plane)>,
    ) -> Result<Tensor> {
        let (dtype, item) = (format.dtype(), format.dtype().size());
        let planes = planes.map(|(buffer, plane)| {
            Tensor::over(buffer.buffer.clone(), plane_layout(&plane, 0, item)?, dtype)
        });
        Tensor::from_far_planes(format, planes.collect::<Result<_>>()?)
    }

    /// The size of the whole buffer, in bytes.
    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer.storage().region.len()
    }

    /// Returns whether no device reads or writes the buffer.
    pub(crate) fn is_idle(&self) -> bool {
        self.buffer.dmabuf("DMA-BUF").is_ok_and(DmaBuf::is_idle)
    }

    /// Calls `use_fd` with the DMA-BUF. The driver that it is passed to returns it later.
    pub(crate) fn with_dmabuf<R>(&self, use_fd: impl FnOnce(BorrowedFd<'_>) -> R) -> Result<R> {
        Ok(use_fd(self.buffer.dmabuf("DMA-BUF")?.as_fd()))
    }
}
