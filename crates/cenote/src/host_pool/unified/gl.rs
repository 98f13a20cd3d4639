//! OpenGL buffers as the device side of a [`UnifiedBuffer`](super::UnifiedBuffer).

use std::fmt;

use super::device::{DeviceAllocator, DeviceMemory};
use crate::error::{Error, Result};
use crate::gl::context::GlContext;
use crate::memory::pbo::{MapPolicy, Pbo};

/// Allocates buffer objects of the context. Their names are the [`handle`](DeviceMemory::handle)s.
///
/// ```no_run
/// use cenote::{DType, GlContext, UnifiedBuffer};
/// use std::sync::Arc;
///
/// let mut buffer = UnifiedBuffer::new(&[2, 2], DType::F32)?;
/// buffer.set_device(Arc::new(GlContext::headless()?))?;
/// buffer.host_mut::<f32>()?.fill(1.0);
/// let name = buffer.device()?.handle(); // uploads
/// # Ok::<(), cenote::Error>(())
/// ```
impl DeviceAllocator for GlContext {
    fn allocate(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>> {
        // Other code uses it by its name, so the driver must see every access: maps are ended.
        Ok(Box::new(GlMemory(Pbo::new(self.core(), bytes, MapPolicy::Ended)?)))
    }
}

struct GlMemory(Pbo);

impl GlMemory {
    fn check(&self, host: usize) -> Result<()> {
        let device = self.0.len();
        if device == host { Ok(()) } else { Err(Error::TransferLen { device, host }) }
    }
}

impl DeviceMemory for GlMemory {
    fn upload(&mut self, host: &[u8]) -> Result<()> {
        self.check(host.len())?;
        self.0.store(host)
    }

    fn download(&mut self, host: &mut [u8]) -> Result<()> {
        self.check(host.len())?;
        self.0.load(host)
    }

    fn handle(&self) -> u64 {
        self.0.state().name.get().into()
    }
}

impl fmt::Debug for GlMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlMemory({} bytes)", self.0.len())
    }
}
