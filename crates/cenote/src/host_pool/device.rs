//! Devices: whatever holds the other side of a [`UnifiedBuffer`](super::UnifiedBuffer).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::typed::Buffer;
use crate::error::{Error, Result};

/// Something that has memory of its own.
pub trait DeviceAllocator: fmt::Debug + Send + Sync {
    /// Whether this is more than the host by another name.
    fn is_device(&self) -> bool {
        true
    }

    /// Allocates `bytes` bytes, at least 1. They hold anything.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>>;
}

/// Memory of a [`DeviceAllocator`], freed when dropped.
pub trait DeviceMemory: fmt::Debug + Send + Sync {
    /// Copies `host` here. Another length than was allocated is an error
    /// ([`TransferLen`](Error::TransferLen)), and then nothing is copied.
    fn upload(&mut self, host: &[u8]) -> Result<()>;

    /// Copies everything to `host`. Another length than was allocated is an error
    /// ([`TransferLen`](Error::TransferLen)), and then nothing is copied.
    fn download(&mut self, host: &mut [u8]) -> Result<()>;

    /// What the device's own interface calls this memory: the name of a buffer object, an address.
    ///
    /// What a device does with a name cannot be seen from here. So the name is good for reading
    /// until the buffer is next borrowed if it came from
    /// [`UnifiedBuffer::device`](super::UnifiedBuffer::device), and for writing, too, if it came from
    /// [`device_mut`](super::UnifiedBuffer::device_mut). Whatever else is written through it is not
    /// downloaded, and may be overwritten by an upload. Nothing worse: the name reaches no memory of
    /// this process without `unsafe` code of the caller's.
    fn handle(&self) -> u64;

    /// The bytes, where the host can reach them.
    fn host_bytes(&mut self) -> Option<&mut [u8]> {
        None
    }

    /// The bytes, to be read, where the host can reach them and the device does not write them unless
    /// [`upload`](DeviceMemory::upload) or [`host_bytes`](DeviceMemory::host_bytes) is called.
    fn as_host_bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// A share of the device side of a [`UnifiedBuffer`](super::UnifiedBuffer): its bytes, which do not
/// change while this lives.
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

/// Stands in where there is no device: its memory is host memory, too.
///
/// Code written for a device runs, and copies as often as it would with one. Its memory belongs to
/// no pool: it is allocated with the first use of the device side, and freed with the buffer.
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
