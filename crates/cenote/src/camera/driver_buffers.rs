//! Buffers of the driver, which frames lease.

use std::io;
use std::sync::{Arc, Weak};

use crate::camera::config::CameraConfig;
use crate::camera::frame_layout::BufferPart;
use crate::error::Result;
use crate::ipc::pool::registry::sweep_owned;
use crate::memory::dma::dma;
use crate::sys::dmabuf::DmaBuf;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::process_lock::ProcessLock;
use crate::sys::v4l2::{Device, Filled, Memory};
use crate::tensor::Tensor;

/// The driver's buffers.
#[derive(Debug)]
pub(crate) struct DriverBuffers {
    shared: Arc<SharedBuffers>,
    /// The memory of each buffer, mapped once: one area, or one for each plane.
    maps: Vec<Vec<Arc<Map>>>,
}

/// What a frame needs to return its buffer.
#[derive(Debug)]
struct SharedBuffers {
    device: Device,
    queue: ProcessLock<BufferQueue>,
}

#[derive(Debug, Default)]
struct BufferQueue {
    /// Buffers that neither a frame nor the driver has.
    idle: Vec<u32>,
    /// How many buffers the driver has.
    queued: usize,
}

/// A frame's lease of a buffer. Dropping it makes the buffer idle.
#[derive(Debug)]
struct BufferLease {
    camera: Weak<SharedBuffers>,
    index: u32,
}

impl Drop for BufferLease {
    fn drop(&mut self) {
        if let Some(camera) = self.camera.upgrade()
            && let Some(mut queue) = camera.queue.lock()
        {
            queue.idle.push(self.index);
        }
    }
}

impl DriverBuffers {
    pub(crate) fn start(
        device: Device,
        config: &CameraConfig,
        parts: &[BufferPart],
    ) -> Result<DriverBuffers> {
        let wanted = u32::try_from(config.buffers).unwrap_or(u32::MAX);
        let count = device
            .request(wanted, Memory::Driver)
            .map_err(|source| device.error("requesting buffers", source))?;
        let maps = (0..count).map(|index| maps(&device, index, parts)).collect::<Result<_>>()?;
        let queue = BufferQueue { idle: (0..count).collect(), queued: 0 };
        let shared = SharedBuffers { device, queue: ProcessLock::new(queue) };
        let buffers = DriverBuffers { shared: Arc::new(shared), maps };
        buffers.refill()?;
        let device = buffers.device();
        device.start().map_err(|source| device.error("starting it", source))?;
        Ok(buffers)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(crate) fn count(&self) -> usize {
        self.maps.len()
    }

    /// Queues the idle buffers that no device uses, and returns how many the driver has then. A buffer that
    /// the driver refuses is tried again next time. Fails if the driver has no other.
    pub(crate) fn refill(&self) -> Result<usize> {
        if self.with(|queue| queue.queued) < self.maps.len() {
            // Frames that were sent are released when their pools find that no reader leases them.
            sweep_owned();
        }
        let idle = self.with(|queue| std::mem::take(&mut queue.idle));
        let mut failed = None;
        for index in idle {
            let maps = self.maps.get(index as usize).map_or(&[][..], Vec::as_slice);
            let is_idle = |map: &Arc<Map>| map.dmabuf().is_some_and(DmaBuf::is_idle);
            let is_idle = maps.iter().all(is_idle);
            let queued = is_idle.then(|| self.shared.device.queue(index)).transpose();
            self.with(|queue| match &queued {
                Ok(Some(())) => queue.queued += 1,
                Ok(None) | Err(_) => queue.idle.push(index),
            });
            failed = failed.or(queued.err());
        }
        match (self.with(|queue| queue.queued), failed) {
            (0, Some(source)) => Err(self.device().error("queuing a buffer", source)),
            (queued, _) => Ok(queued),
        }
    }

    /// Calls `f` with the queue; in a forked child with an empty one.
    fn with<R>(&self, f: impl FnOnce(&mut BufferQueue) -> R) -> R {
        match self.shared.queue.lock() {
            Some(mut queue) => f(&mut queue),
            None => f(&mut BufferQueue::default()),
        }
    }

    pub(crate) fn dequeue(&self) -> io::Result<Option<Filled>> {
        let filled = self.shared.device.dequeue(Memory::Driver)?;
        if filled.is_some() {
            self.with(|queue| queue.queued = queue.queued.saturating_sub(1));
        }
        Ok(filled)
    }

    pub(crate) fn discard(&self, index: u32) {
        self.with(|queue| queue.idle.push(index));
    }

    /// Returns the memory of a filled buffer. All of it shares one lease.
    pub(crate) fn take(&self, index: u32) -> Result<Vec<Tensor>> {
        let maps = self.maps.get(index as usize).ok_or_else(|| self.device().no_such_buffer())?;
        let lease = Arc::new(BufferLease { camera: Arc::downgrade(&self.shared), index });
        maps.iter().map(|map| Tensor::captured(map.clone(), lease.clone())).collect()
    }
}

impl Drop for DriverBuffers {
    fn drop(&mut self) {
        // Frames may outlive this. Their memory stays, and the driver no longer writes it.
        self.shared.device.end(Memory::Driver);
    }
}

/// Maps the memory of a buffer, as DMA-BUFs.
fn maps(device: &Device, index: u32, parts: &[BufferPart]) -> Result<Vec<Arc<Map>>> {
    (0..).zip(parts).map(|(plane, part)| map(device, (index, plane), part.bytes)).collect()
}

/// Exports one plane of a buffer as a DMA-BUF, and maps it for reading.
fn map(device: &Device, (index, plane): (u32, u32), bytes: usize) -> Result<Arc<Map>> {
    let error = |source: io::Error| device.error("exporting a buffer", source);
    let len = device.length(index, plane).map_err(error)?;
    let fd = device.export(index, plane).map_err(error)?;
    let facts = memfd::examine(&fd).map_err(error)?;
    let needed = u64::from(len).max(bytes as u64);
    dma::open(fd, &facts, needed, Access::Read).map(Arc::new)
}
