//! Devices: whatever holds the other side of a [`UnifiedBuffer`](super::UnifiedBuffer).

use std::fmt;
use std::sync::OnceLock;

use super::pool::BufferPool;
use super::typed::Buffer;
use crate::error::Result;

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
    /// Copies `host` here. It has the length that was allocated.
    fn upload(&mut self, host: &[u8]) -> Result<()>;

    /// Copies everything to `host`, which has the length that was allocated.
    fn download(&mut self, host: &mut [u8]) -> Result<()>;

    /// What the device's own interface calls this memory: the name of a buffer object, an address.
    fn handle(&self) -> u64;

    /// The bytes, where the host can reach them.
    fn host_bytes(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// Stands in where there is no device: its memory is host memory, too.
///
/// Code written for a device runs, and copies as often as it would with one.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostDevice;

impl DeviceAllocator for HostDevice {
    fn is_device(&self) -> bool {
        false
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        static POOL: OnceLock<BufferPool> = OnceLock::new();
        let pool = POOL.get_or_init(|| BufferPool::options().build());
        Ok(Box::new(HostMemory(pool.acquire_bytes(bytes, false)?)))
    }
}

#[derive(Debug)]
struct HostMemory(Buffer<u8>);

impl DeviceMemory for HostMemory {
    fn upload(&mut self, host: &[u8]) -> Result<()> {
        self.0.copy_from_slice(host);
        Ok(())
    }

    fn download(&mut self, host: &mut [u8]) -> Result<()> {
        host.copy_from_slice(&self.0);
        Ok(())
    }

    fn handle(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn host_bytes(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
}
