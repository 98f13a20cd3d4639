//! Buffers of the caller's, filled by the driver.

use std::{fmt, io};

use crate::camera::config::CameraConfig;
use crate::error::{Error, Result};
use crate::sys::v4l2::{Device, Filled, Memory};
use crate::tensor::Tensor;

/// Makes room for a frame of so many bytes.
pub(crate) type Alloc = Box<dyn FnMut(usize) -> Result<Tensor> + Send>;

/// The caller's buffers, each with the driver, or none in its place.
pub(crate) struct Given {
    device: Device,
    places: Vec<Place>,
    bytes: usize,
    alloc: Alloc,
    /// The pool had no room when it was last asked.
    full: Option<Error>,
}

/// What is at one of the driver's numbers.
enum Place {
    Empty,
    /// Ours, to be given to the driver.
    Ready(Tensor),
    /// With the driver.
    Queued(Tensor),
}

impl Given {
    pub(crate) fn start(
        device: Device,
        config: &CameraConfig,
        bytes: usize,
        alloc: Alloc,
    ) -> Result<Given> {
        let wanted = u32::try_from(config.buffers).unwrap_or(u32::MAX);
        let count = device
            .request(wanted, Memory::DmaBuf)
            .map_err(|source| device.error("asking it to use DMA-BUFs", source))?;
        let places = (0..count).map(|_| Place::Empty).collect();
        let mut given = Given { device, places, bytes, alloc, full: None };
        given.refill()?;
        given.device.start().map_err(|source| given.device.error("starting it", source))?;
        Ok(given)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Gives the driver as many buffers as can be had. A pool that is full may have room again soon. A
    /// buffer that the driver refuses is an error only if it has no other.
    pub(crate) fn refill(&mut self) -> Result<usize> {
        self.full = None;
        let mut refused = None;
        for index in 0..self.places.len() {
            match self.fill(index) {
                Ok(done) => refused = done.err().or(refused),
                Err(full @ Error::PoolFull { .. }) => {
                    self.full = Some(full);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let queued = self.places.iter().filter(|place| matches!(place, Place::Queued(_))).count();
        match (queued, refused) {
            (0, Some(source)) => Err(self.device.error("giving it a DMA-BUF", source)),
            _ => Ok(queued),
        }
    }

    /// Why there is nothing to capture into.
    pub(crate) fn why_starved(&mut self) -> Option<Error> {
        self.full.take()
    }

    /// Gives the driver a buffer in this place, unless it has one; what it says to that.
    fn fill(&mut self, index: usize) -> Result<io::Result<()>> {
        let buffer = match std::mem::replace(&mut self.places[index], Place::Empty) {
            Place::Empty => self.fresh()?,
            Place::Ready(buffer) => buffer,
            queued @ Place::Queued(_) => {
                self.places[index] = queued;
                return Ok(Ok(()));
            }
        };
        // A device may not be done with what it held before.
        if !buffer.is_idle() {
            self.places[index] = Place::Ready(buffer);
            return Ok(Ok(()));
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let bytes = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        let queued = buffer.lend_dmabuf(|fd| self.device.queue_dmabuf(number, fd, bytes))?;
        if queued.is_ok() {
            self.places[index] = Place::Queued(buffer);
        }
        Ok(queued)
    }

    /// A buffer that a driver can fill.
    fn fresh(&mut self) -> Result<Tensor> {
        let buffer = (self.alloc)(self.bytes)?;
        let refuse = |rule| Err(Error::CameraBuffer { path: self.device.path().into(), rule });
        if buffer.dmabuf_offset()? != 0 {
            return refuse("it must start where its DMA-BUF does");
        }
        if buffer.not_writable().is_some() {
            return refuse("nobody else may have it");
        }
        if buffer.room() < self.bytes {
            return refuse("it must have room for a frame");
        }
        Ok(buffer)
    }

    pub(crate) fn dequeue(&mut self) -> io::Result<Option<Filled>> {
        self.device.dequeue(Memory::DmaBuf)
    }

    pub(crate) fn discard(&mut self, index: u32) {
        if let Ok(buffer) = self.take(index)
            && let Some(place) = self.places.get_mut(index as usize)
        {
            *place = Place::Ready(buffer);
        }
    }

    /// The buffer of a frame, which is the application's from now on.
    pub(crate) fn take(&mut self, index: u32) -> Result<Tensor> {
        let place = self.places.get_mut(index as usize);
        match place.map(|place| std::mem::replace(place, Place::Empty)) {
            Some(Place::Queued(buffer) | Place::Ready(buffer)) => Ok(buffer),
            Some(Place::Empty) | None => Err(self.device.no_such_buffer()),
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // First, so that the driver has let go of what is dropped next.
        self.device.end(Memory::DmaBuf);
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
