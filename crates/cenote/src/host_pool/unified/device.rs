//! Devices that hold the device side of a [`UnifiedBuffer`](super::UnifiedBuffer).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::host_pool::buffer::Buffer;

/// A device that allocates memory.
pub trait DeviceAllocator: fmt::Debug + Send + Sync {
    /// Whether this is a device; false for [`HostDevice`].
    fn is_device(&self) -> bool {
        true
    }

    /// Allocates `bytes` bytes, at least 1, with any values.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;
}

/// Memory of a [`DeviceAllocator`], freed when dropped.
pub trait DeviceMemory: fmt::Debug + Send + Sync {
    /// Copies `host` to the device. Copies nothing and fails with [`TransferLen`](Error::TransferLen) if
    /// the length is not the allocated one.
    fn upload(&mut self, host: &[u8]) -> Result<()>;

    /// Copies all bytes to `host`. Copies nothing and fails with [`TransferLen`](Error::TransferLen) if
    /// the length is not the allocated one.
    fn download(&mut self, host: &mut [u8]) -> Result<()>;

    /// The handle of this memory in the interface of the device: the name of a buffer object, or an
    /// address.
    ///
    /// The buffer cannot notice how the device uses a handle. A handle from
    /// [`UnifiedBuffer::device`](super::UnifiedBuffer::device) may be used for reading until the buffer
    /// is next borrowed, one from [`device_mut`](super::UnifiedBuffer::device_mut) also for writing.
    /// Other writes are not downloaded, and an upload may overwrite them. They do no other harm: a
    /// handle gives access to memory of this process only with `unsafe` code of the caller.
    fn handle(&self) -> u64;

    /// The bytes for writing, if the host can access them.
    fn host_bytes(&mut self) -> Option<&mut [u8]> {
        None
    }

    /// The bytes for reading, if the host can access them, and if only
    /// [`upload`](DeviceMemory::upload) and [`host_bytes`](DeviceMemory::host_bytes) can change them.
    fn as_host_bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// A read-only view of the device side of a [`UnifiedBuffer`](super::UnifiedBuffer). Its bytes do not
/// change while the view is alive.
#[derive(Debug, Clone)]
pub struct DeviceView {
    memory: Arc<dyn DeviceMemory>,
}

impl DeviceView {
    pub(super) fn new(memory: &Arc<dyn DeviceMemory>) -> Option<DeviceView> {
        memory.as_host_bytes()?;
        Some(DeviceView { memory: Arc::clone(memory) })
    }
}

impl Deref for DeviceView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_host_bytes().unwrap_or_default()
    }
}

/// A substitute for a device: its memory is host memory.
///
/// Code for a device runs with it, and copies as often as with a device. Its memory belongs to no
/// pool. It is allocated when the device side is first used, and freed with the buffer.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostDevice;

impl DeviceAllocator for HostDevice {
    fn is_device(&self) -> bool {
        false
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        Ok(Box::new(HostMemory(Buffer::without_pool(bytes)?)))
    }
}

struct HostMemory(Buffer<u8>);

impl HostMemory {
    fn check(&self, host: usize) -> Result<()> {
        let device = self.0.len();
        if device == host { Ok(()) } else { Err(Error::TransferLen { device, host }) }
    }
}

impl DeviceMemory for HostMemory {
    fn upload(&mut self, host: &[u8]) -> Result<()> {
        self.check(host.len())?;
        self.0.copy_from_slice(host);
        Ok(())
    }

    fn download(&mut self, host: &mut [u8]) -> Result<()> {
        self.check(host.len())?;
        host.copy_from_slice(&self.0);
        Ok(())
    }

    fn handle(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn host_bytes(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }

    fn as_host_bytes(&self) -> Option<&[u8]> {
        Some(&self.0)
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} bytes)", self.0.len())
    }
}
