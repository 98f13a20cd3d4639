//! Buffers of the driver's, lent to frames.

use std::io;
use std::sync::{Arc, Weak};

use crate::camera::config::{CameraConfig, Part};
use crate::error::Result;
use crate::ipc::pool::registry::sweep_owned;
use crate::memory::dma;
use crate::sys::dmabuf::DmaBuf;
use crate::sys::mapping::{Access, Map};
use crate::sys::memfd;
use crate::sys::process_lock::ProcessLock;
use crate::sys::v4l2::{Device, Filled, Memory};
use crate::tensor::Tensor;

/// The driver's buffers.
#[derive(Debug)]
pub(crate) struct Lent {
    shared: Arc<Shared>,
    /// The pieces of memory of each buffer, mapped once.
    maps: Vec<Vec<Arc<Map>>>,
}

/// What frames know of their camera.
#[derive(Debug)]
struct Shared {
    device: Device,
    state: ProcessLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Buffers that nobody has, and that are not with the driver.
    idle: Vec<u32>,
    /// How many are with the driver.
    queued: usize,
}

/// A buffer that a frame borrows, until it is dropped.
#[derive(Debug)]
struct Loan {
    camera: Weak<Shared>,
    index: u32,
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(camera) = self.camera.upgrade()
            && let Some(mut state) = camera.state.lock()
        {
            state.idle.push(self.index);
        }
    }
}

impl Lent {
    pub(crate) fn start(device: Device, config: &CameraConfig, parts: &[Part]) -> Result<Lent> {
        let wanted = u32::try_from(config.buffers).unwrap_or(u32::MAX);
        let count = device
            .request(wanted, Memory::Driver)
            .map_err(|source| device.error("asking it for buffers", source))?;
        let maps = (0..count).map(|index| maps(&device, index, parts)).collect::<Result<_>>()?;
        let state = State { idle: (0..count).collect(), queued: 0 };
        let shared = Shared { device, state: ProcessLock::new(state) };
        let lent = Lent { shared: Arc::new(shared), maps };
        lent.refill()?;
        let device = lent.device();
        device.start().map_err(|source| device.error("starting it", source))?;
        Ok(lent)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(crate) fn count(&self) -> usize {
        self.maps.len()
    }

    /// Gives back to the driver what nobody has any more, and no device either. A buffer that it refuses
    /// is tried again next time, and is an error only if the driver has no other.
    pub(crate) fn refill(&self) -> Result<usize> {
        if self.with(|state| state.queued) < self.maps.len() {
            // Frames that were sent are given back when the topics look who still has them.
            sweep_owned();
        }
        let idle = self.with(|state| std::mem::take(&mut state.idle));
        let mut failed = None;
        for index in idle {
            let maps = self.maps.get(index as usize).map_or(&[][..], Vec::as_slice);
            let is_idle = |map: &Arc<Map>| map.dmabuf().is_some_and(DmaBuf::is_idle);
            let is_idle = maps.iter().all(is_idle);
            let queued = is_idle.then(|| self.shared.device.queue(index)).transpose();
            self.with(|state| match &queued {
                Ok(Some(())) => state.queued += 1,
                Ok(None) | Err(_) => state.idle.push(index),
            });
            failed = failed.or(queued.err());
        }
        match (self.with(|state| state.queued), failed) {
            (0, Some(source)) => Err(self.device().error("giving it a buffer back", source)),
            (queued, _) => Ok(queued),
        }
    }

    /// Looks at the state, or changes it. A forked child has one of its own that is empty.
    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        match self.shared.state.lock() {
            Some(mut state) => f(&mut state),
            None => f(&mut State::default()),
        }
    }

    pub(crate) fn dequeue(&self) -> io::Result<Option<Filled>> {
        let filled = self.shared.device.dequeue(Memory::Driver)?;
        if filled.is_some() {
            self.with(|state| state.queued = state.queued.saturating_sub(1));
        }
        Ok(filled)
    }

    pub(crate) fn discard(&self, index: u32) {
        self.with(|state| state.idle.push(index));
    }

    /// A frame's bytes, all of which go back together.
    pub(crate) fn take(&self, index: u32) -> Result<Vec<Tensor>> {
        let maps = self.maps.get(index as usize).ok_or_else(|| self.device().no_such_buffer())?;
        let loan = Arc::new(Loan { camera: Arc::downgrade(&self.shared), index });
        maps.iter().map(|map| Tensor::captured(map.clone(), loan.clone())).collect()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Frames may outlive this: their memory stays, and the driver no longer writes it.
        self.shared.device.end(Memory::Driver);
    }
}

/// The memory of a buffer as DMA-BUFs.
fn maps(device: &Device, index: u32, parts: &[Part]) -> Result<Vec<Arc<Map>>> {
    (0..).zip(parts).map(|(plane, part)| map(device, (index, plane), part.bytes)).collect()
}

/// A piece of a buffer as a DMA-BUF, mapped to be read.
fn map(device: &Device, (index, plane): (u32, u32), bytes: usize) -> Result<Arc<Map>> {
    let error = |source: io::Error| device.error("exporting a buffer of it", source);
    let len = device.length(index, plane).map_err(error)?;
    let fd = device.export(index, plane).map_err(error)?;
    let facts = memfd::examine(&fd).map_err(error)?;
    let needed = u64::from(len).max(bytes as u64);
    dma::open(fd, &facts, needed, Access::Read).map(Arc::new)
}
