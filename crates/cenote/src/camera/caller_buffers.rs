//! Buffers of the caller, which the driver fills.

use std::{fmt, io};

use crate::camera::config::CameraConfig;
use crate::error::{Error, Result};
use crate::sys::v4l2::{Device, Filled, Memory};
use crate::tensor::Tensor;

/// Allocates a buffer for a frame of this many bytes.
pub(crate) type Alloc = Box<dyn FnMut(usize) -> Result<Tensor> + Send>;

/// The caller's buffers, by the index that the driver knows them by.
pub(crate) struct CallerBuffers {
    device: Device,
    slots: Vec<BufferSlot>,
    bytes: usize,
    alloc: Alloc,
    /// The error of the last refill, if the pool was full.
    pool_full: Option<Error>,
}

/// The buffer at one of the driver's indexes.
enum BufferSlot {
    Empty,
    /// Not queued yet.
    Ready(Tensor),
    /// The driver fills it.
    Queued(Tensor),
}

impl CallerBuffers {
    pub(crate) fn start(
        device: Device,
        config: &CameraConfig,
        bytes: usize,
        alloc: Alloc,
    ) -> Result<CallerBuffers> {
        let wanted = u32::try_from(config.buffers).unwrap_or(u32::MAX);
        let count = device
            .request(wanted, Memory::DmaBuf)
            .map_err(|source| device.error("requesting DMA-BUF buffers", source))?;
        let slots = (0..count).map(|_| BufferSlot::Empty).collect();
        let mut buffers = CallerBuffers { device, slots, bytes, alloc, pool_full: None };
        buffers.refill()?;
        buffers.device.start().map_err(|source| buffers.device.error("starting it", source))?;
        Ok(buffers)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Queues as many buffers as can be allocated, and returns how many the driver has then. A full pool is
    /// no error, because it may have room again soon. Fails if the driver refuses a buffer and has no other.
    pub(crate) fn refill(&mut self) -> Result<usize> {
        self.pool_full = None;
        let mut refused = None;
        for index in 0..self.slots.len() {
            match self.fill(index) {
                Ok(done) => refused = done.err().or(refused),
                Err(full @ Error::PoolFull { .. }) => {
                    self.pool_full = Some(full);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let queued = self.slots.iter().filter(|slot| matches!(slot, BufferSlot::Queued(_))).count();
        match (queued, refused) {
            (0, Some(source)) => Err(self.device.error("queuing a DMA-BUF", source)),
            _ => Ok(queued),
        }
    }

    /// Returns the error of the pool, if the last refill found it full.
    pub(crate) fn take_pool_full(&mut self) -> Option<Error> {
        self.pool_full.take()
    }

    /// Queues a buffer at this index, unless the driver has one there. Returns the driver's answer.
    fn fill(&mut self, index: usize) -> Result<io::Result<()>> {
        let buffer = match std::mem::replace(&mut self.slots[index], BufferSlot::Empty) {
            BufferSlot::Empty => self.allocate()?,
            BufferSlot::Ready(buffer) => buffer,
            queued @ BufferSlot::Queued(_) => {
                self.slots[index] = queued;
                return Ok(Ok(()));
            }
        };
        // A device may still use what the buffer held before.
        if !buffer.is_idle() {
            self.slots[index] = BufferSlot::Ready(buffer);
            return Ok(Ok(()));
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let bytes = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        let queued = buffer.with_dmabuf(|fd| self.device.queue_dmabuf(number, fd, bytes))?;
        if queued.is_ok() {
            self.slots[index] = BufferSlot::Queued(buffer);
        }
        Ok(queued)
    }

    /// Allocates a buffer. Fails if a driver could not fill it.
    fn allocate(&mut self) -> Result<Tensor> {
        let buffer = (self.alloc)(self.bytes)?;
        let refuse = |rule| Err(Error::CameraBuffer { path: self.device.path().into(), rule });
        if buffer.dmabuf_offset()? != 0 {
            return refuse("it must start at the start of its DMA-BUF");
        }
        if buffer.not_writable().is_some() {
            return refuse("it must have no other holder");
        }
        if buffer.buffer_len() < self.bytes {
            return refuse("it must have room for a frame");
        }
        Ok(buffer)
    }

    pub(crate) fn dequeue(&mut self) -> io::Result<Option<Filled>> {
        self.device.dequeue(Memory::DmaBuf)
    }

    pub(crate) fn discard(&mut self, index: u32) {
        if let Ok(buffer) = self.take(index)
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            *slot = BufferSlot::Ready(buffer);
        }
    }

    /// Removes the buffer of a frame, which belongs to the application from now on.
    pub(crate) fn take(&mut self, index: u32) -> Result<Tensor> {
        let slot = self.slots.get_mut(index as usize);
        match slot.map(|slot| std::mem::replace(slot, BufferSlot::Empty)) {
            Some(BufferSlot::Queued(buffer) | BufferSlot::Ready(buffer)) => Ok(buffer),
            Some(BufferSlot::Empty) | None => Err(self.device.no_such_buffer()),
        }
    }
}

impl Drop for CallerBuffers {
    fn drop(&mut self) {
        // Before the buffers are dropped, so that the driver no longer writes them.
        self.device.end(Memory::DmaBuf);
    }
}

impl fmt::Debug for CallerBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerBuffers").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
