//! Buffers of the driver's, lent to frames.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::camera::config::CameraConfig;
use crate::error::{Error, Result};
use crate::memory::dma;
use crate::os::dmabuf::DmaBuf;
use crate::os::memfd;
use crate::os::v4l2::{Device, Filled, Memory};
use crate::region::{Access, Map};
use crate::tensor::Tensor;
use crate::tensor::pool::sweep_owned;

/// The driver's buffers.
#[derive(Debug)]
pub(super) struct Lent {
    shared: Arc<Shared>,
    /// Each buffer, mapped once.
    maps: Vec<Arc<Map>>,
}

/// What frames know of their camera.
#[derive(Debug)]
struct Shared {
    device: Device,
    state: Mutex<State>,
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
        if let Some(camera) = self.camera.upgrade() {
            camera.state().idle.push(self.index);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent {
    pub(super) fn start(device: Device, config: &CameraConfig, bytes: usize) -> Result<Lent> {
        let error = |source| Error::os("asking a camera for buffers", source);
        let wanted = u32::try_from(config.buffers).unwrap_or(u32::MAX);
        let count = device.request(wanted, Memory::Driver).map_err(error)?;
        let maps = (0..count).map(|index| map(&device, index, bytes)).collect::<Result<_>>()?;
        let state = State { idle: (0..count).collect(), queued: 0 };
        let lent = Lent { shared: Arc::new(Shared { device, state: Mutex::new(state) }), maps };
        lent.refill();
        lent.shared.device.start().map_err(|source| Error::os("starting a camera", source))?;
        Ok(lent)
    }

    pub(super) fn device(&self) -> &Device {
        &self.shared.device
    }

    pub(super) fn count(&self) -> usize {
        self.maps.len()
    }

    /// Gives back to the driver what nobody has any more, and no device either.
    pub(super) fn refill(&self) -> usize {
        if self.shared.state().queued < self.maps.len() {
            // Frames that were sent are given back when the topics look who still has them.
            sweep_owned();
        }
        let mut state = self.shared.state();
        for index in std::mem::take(&mut state.idle) {
            let dma = self.maps.get(index as usize).and_then(|map| map.dmabuf());
            let is_idle = dma.is_some_and(DmaBuf::is_idle);
            match is_idle && self.shared.device.queue(index).is_ok() {
                true => state.queued += 1,
                false => state.idle.push(index),
            }
        }
        state.queued
    }

    pub(super) fn dequeue(&self) -> io::Result<Option<Filled>> {
        let filled = self.shared.device.dequeue(Memory::Driver)?;
        if filled.is_some() {
            let mut state = self.shared.state();
            state.queued = state.queued.saturating_sub(1);
        }
        Ok(filled)
    }

    pub(super) fn discard(&self, index: u32) {
        self.shared.state().idle.push(index);
    }

    /// A frame's bytes, which it gives back.
    pub(super) fn take(&self, index: u32) -> Result<Tensor> {
        let loan = Arc::new(Loan { camera: Arc::downgrade(&self.shared), index });
        let none = Error::BadMessage { what: "a buffer that the camera does not have" };
        let map = self.maps.get(index as usize).ok_or(none)?;
        Tensor::captured(map.clone(), loan)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Frames may outlive this: their memory stays, and the driver no longer writes it.
        self.shared.device.end(Memory::Driver);
    }
}

/// A buffer as a DMA-BUF, mapped to be read.
fn map(device: &Device, index: u32, bytes: usize) -> Result<Arc<Map>> {
    let error = |source| Error::os("exporting a buffer of a camera", source);
    let len = device.length(index).map_err(error)?;
    let fd = device.export(index).map_err(error)?;
    let facts = memfd::examine(&fd).map_err(error)?;
    let needed = u64::from(len).max(bytes as u64);
    dma::open(fd, &facts, needed, Access::Read).map(Arc::new)
}
