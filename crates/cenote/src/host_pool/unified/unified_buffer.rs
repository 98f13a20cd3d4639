//! Buffers with a host side and a device side.
//!
//! The buffer notices every write. A write needs a mutable borrow, which marks the side as newer, or
//! a loan, which keeps the host side marked while it is alive. Views are read-only, and the bytes of a
//! view are not written while it is alive.

use std::fmt;
use std::sync::Arc;

use super::device::{DeviceAllocator, DeviceMemory, DeviceView, HostDevice};
use super::host_side::{Host, HostLoan, HostView};
use crate::copies::{self, CopyReason};
use crate::error::{Error, Result};
use crate::host_pool::buffer::Buffer;
use crate::tensor::map::{cast, cast_mut, check_dtype};
use crate::types::dtype::{DType, Element};
use crate::types::layout::Layout;

/// Which side of a [`UnifiedBuffer`] holds the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SyncState {
    /// Neither side: nothing was written yet.
    Uninitialized,
    /// The host side. The device side has no memory yet.
    HostOnly,
    /// The device side. The host side was never written.
    DeviceOnly,
    /// Both sides hold the same data.
    InStep,
    /// The host side is newer.
    HostDirty,
    /// The device side is newer.
    DeviceDirty,
}

impl SyncState {
    /// Whether the host side must be downloaded before it is used.
    fn host_is_behind(self) -> bool {
        matches!(self, SyncState::DeviceOnly | SyncState::DeviceDirty)
    }

    /// Whether the device side must be uploaded before it is used.
    fn device_is_behind(self) -> bool {
        matches!(self, SyncState::HostOnly | SyncState::HostDirty)
    }
}

/// Elements on the host and on a device. The use of the older side copies the data to it first.
///
/// ```
/// use cenote::{DType, UnifiedBuffer, host_pool::SyncState};
///
/// let mut buffer = UnifiedBuffer::new(&[2, 2], DType::F32)?;
/// buffer.host_mut::<f32>()?.fill(1.0);
/// assert_eq!(buffer.state(), SyncState::HostOnly);
///
/// buffer.device()?; // uploads
/// assert_eq!(buffer.state(), SyncState::InStep);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct UnifiedBuffer {
    /// None after the release.
    host: Option<Arc<Host>>,
    /// Whether the other holders of the host side are loans. If not, they are views.
    lent: bool,
    /// None until the device side is first used.
    memory: Option<Arc<dyn DeviceMemory>>,
    device: Arc<dyn DeviceAllocator>,
    layout: Layout,
    dtype: DType,
    state: SyncState,
    /// The number of its pool.
    pool: u64,
}

impl UnifiedBuffer {
    pub(crate) fn from_host(
        bytes: Buffer<u8>,
        layout: Layout,
        dtype: DType,
        pool: u64,
    ) -> UnifiedBuffer {
        UnifiedBuffer {
            host: Some(Arc::new(Host { bytes, pinned: false })),
            lent: false,
            memory: None,
            device: Arc::new(HostDevice),
            layout,
            dtype,
            state: SyncState::Uninitialized,
            pool,
        }
    }

    /// Puts the device side on `device`. Data that is newer on the earlier device is downloaded first.
    pub fn set_device(&mut self, device: Arc<dyn DeviceAllocator>) -> Result<()> {
        self.shared()?;
        if self.state != SyncState::Uninitialized {
            self.update_host()?;
            self.state = SyncState::HostOnly;
        }
        self.memory = None;
        self.device = device;
        Ok(())
    }

    /// Locks the host side in memory, if the system allows it.
    pub(crate) fn pin(&mut self) {
        if let Some(host) = self.host.as_mut().and_then(Arc::get_mut) {
            host.pinned = host.bytes.pin();
        }
    }

    /// The length of each dimension.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The shape, and the position of the elements in both sides.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The type of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of bytes in its elements.
    pub fn nbytes(&self) -> usize {
        self.layout.nbytes()
    }

    /// Which side holds the data.
    pub fn state(&self) -> SyncState {
        self.state
    }

    /// Whether the device side is on a device; false if it is host memory.
    pub fn is_device(&self) -> bool {
        self.device.is_device()
    }

    /// Whether the host side is locked in memory.
    pub fn is_pinned(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.pinned)
    }

    /// Whether it was released. Then it has no elements.
    pub fn is_released(&self) -> bool {
        self.host.is_none()
    }

    /// The elements on the host, downloaded if the device side is newer.
    pub fn host<T: Element>(&mut self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        cast(self.host_bytes()?)
    }

    /// The bytes on the host, downloaded if the device side is newer.
    pub fn host_bytes(&mut self) -> Result<&[u8]> {
        self.update_host()?;
        Ok(&self.shared()?.bytes)
    }

    /// The elements on the host for writing. Marks the host side as newer.
    pub fn host_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        check_dtype::<T>(self.dtype)?;
        self.write_host(cast_mut)
    }

    /// The bytes on the host for writing. Marks the host side as newer.
    pub fn host_bytes_mut(&mut self) -> Result<&mut [u8]> {
        self.write_host(|bytes| Ok(bytes))
    }

    /// Updates the host side and returns it through `cast`.
    fn write_host<V: ?Sized>(
        &mut self,
        cast: impl FnOnce(&mut [u8]) -> Result<&mut V>,
    ) -> Result<&mut V> {
        self.not_lent()?;
        if self.state != SyncState::Uninitialized {
            self.update_host()?;
        }
        let elements = cast(unshared(&mut self.host)?)?;
        // Marked only now: a borrow that fails writes nothing.
        let has_device = self.memory.is_some();
        self.state = if has_device { SyncState::HostDirty } else { SyncState::HostOnly };
        Ok(elements)
    }

    /// A read-only view of the host side. While views are alive the host side cannot be written, and
    /// the buffer cannot be released.
    pub fn view(&mut self) -> Result<HostView> {
        self.not_lent()?;
        self.update_host()?;
        Ok(HostView { host: Arc::clone(self.shared()?), dtype: self.dtype })
    }

    /// Lends the host side to code that writes by pointer. Any number of loans can be alive. While one
    /// is alive the host side counts as newer, so every use of the device side uploads. Neither side
    /// can be borrowed for writing then, and there are no [views](Self::view).
    pub fn lend(&mut self) -> Result<HostLoan> {
        if !self.is_lent() {
            self.host_bytes_mut()?;
            self.lent = true;
        }
        Ok(HostLoan::new(self.shared()?))
    }

    /// Whether a loan of the host side is alive.
    pub fn is_lent(&mut self) -> bool {
        let shared = |host: &mut Arc<Host>| Arc::get_mut(host).is_none();
        self.lent = self.lent && self.host.as_mut().is_some_and(shared);
        self.lent
    }

    fn not_lent(&mut self) -> Result<()> {
        if self.is_lent() { Err(Error::Lent) } else { Ok(()) }
    }

    /// The device side for reading, uploaded if the host side is newer. The buffer does not notice
    /// writes through its [handle](DeviceMemory::handle). For writing use
    /// [`device_mut`](UnifiedBuffer::device_mut).
    pub fn device(&mut self) -> Result<&dyn DeviceMemory> {
        self.update_device()?;
        self.memory.as_deref().ok_or(Error::Unwritten)
    }

    /// A read-only view of the device side, uploaded if the host side is newer. None if the host cannot
    /// read the memory of the device. While views are alive, uploads and writes go to new memory of the
    /// device.
    pub fn device_view(&mut self) -> Result<Option<DeviceView>> {
        self.update_device()?;
        Ok(self.memory.as_ref().and_then(DeviceView::new))
    }

    /// The device side for writing. Marks it as newer.
    pub fn device_mut(&mut self) -> Result<&mut dyn DeviceMemory> {
        self.shared()?;
        self.not_lent()?;
        if self.state != SyncState::Uninitialized {
            self.update_device()?;
            self.leave_views()?;
        }
        let state = match self.state {
            SyncState::Uninitialized | SyncState::DeviceOnly => SyncState::DeviceOnly,
            _ => SyncState::DeviceDirty,
        };
        let memory = own_memory(&mut self.memory, &*self.device, self.layout.nbytes())?;
        self.state = state;
        Ok(memory)
    }

    /// If the device side has views, leaves the memory to them and continues with a copy.
    fn leave_views(&mut self) -> Result<()> {
        if self.memory.as_mut().is_some_and(|memory| Arc::get_mut(memory).is_none()) {
            self.update_host()?;
            self.state = SyncState::HostDirty;
            self.update_device()?;
        }
        Ok(())
    }

    /// Copies the newer side to the older one.
    pub fn sync(&mut self) -> Result<()> {
        self.update_host()?;
        self.update_device()
    }

    fn update_host(&mut self) -> Result<()> {
        self.written()?;
        if !self.state.host_is_behind() {
            return Ok(());
        }
        let host = unshared(&mut self.host)?;
        let memory = self.memory.as_mut().ok_or(Error::Unwritten)?;
        match Arc::get_mut(memory) {
            Some(memory) => memory.download(host)?,
            None => read(&**memory, host)?,
        }
        copies::count(CopyReason::Download, host.len());
        self.state = SyncState::InStep;
        Ok(())
    }

    fn update_device(&mut self) -> Result<()> {
        self.written()?;
        if !self.state.device_is_behind() {
            return Ok(());
        }
        // Before the upload: meanwhile a loan may be dropped, but none can be made.
        let lent = self.is_lent();
        self.upload()?;
        self.state = if lent { SyncState::HostDirty } else { SyncState::InStep };
        Ok(())
    }

    fn upload(&mut self) -> Result<()> {
        let host = self.host.as_ref().ok_or(Error::Released)?;
        let memory = own_memory(&mut self.memory, &*self.device, self.layout.nbytes())?;
        memory.upload(&host.bytes)?;
        copies::count(CopyReason::Upload, host.bytes.len());
        Ok(())
    }

    fn written(&self) -> Result<()> {
        self.shared()?;
        if self.state == SyncState::Uninitialized { Err(Error::Unwritten) } else { Ok(()) }
    }

    fn shared(&self) -> Result<&Arc<Host>> {
        self.host.as_ref().ok_or(Error::Released)
    }

    /// Releases it to its pool, like [`MemoryPool::release`](crate::MemoryPool::release).
    pub fn release(&mut self) -> Result<()> {
        let host = self.host.take().ok_or(Error::Released)?;
        if let Err(host) = Arc::try_unwrap(host)
            && !self.lent
        {
            let views = views(&host);
            self.host = Some(host);
            return Err(Error::ViewsAlive { views });
        }
        self.memory = None;
        self.state = SyncState::Uninitialized;
        Ok(())
    }

    /// Like [`release`](UnifiedBuffer::release). Fails if it belongs to another pool.
    pub(crate) fn release_to(&mut self, pool: u64) -> Result<()> {
        self.shared()?;
        if self.pool == pool { self.release() } else { Err(Error::OtherPool) }
    }
}

/// The device memory of a buffer for writing. If it has views, new memory.
fn own_memory<'a>(
    memory: &'a mut Option<Arc<dyn DeviceMemory>>,
    device: &dyn DeviceAllocator,
    bytes: usize,
) -> Result<&'a mut (dyn DeviceMemory + 'static)> {
    if memory.as_mut().is_none_or(|memory| Arc::get_mut(memory).is_none()) {
        *memory = Some(device.allocate(bytes)?.into());
    }
    memory.as_mut().and_then(Arc::get_mut).ok_or(Error::Unwritten)
}

/// Copies from device memory that has views. It has views only if the host can read it.
fn read(memory: &dyn DeviceMemory, host: &mut [u8]) -> Result<()> {
    let bytes = memory.as_host_bytes().unwrap_or_default();
    if bytes.len() != host.len() {
        return Err(Error::TransferLen { device: bytes.len(), host: host.len() });
    }
    host.copy_from_slice(bytes);
    Ok(())
}

/// The number of views of a host side that is shared. At least 1: the last may be dropped meanwhile.
fn views(host: &Arc<Host>) -> usize {
    Arc::strong_count(host).saturating_sub(1).max(1)
}

/// The host bytes for writing. Fails if there are views.
fn unshared(host: &mut Option<Arc<Host>>) -> Result<&mut [u8]> {
    let host = host.as_mut().ok_or(Error::Released)?;
    let views = views(host);
    Ok(&mut Arc::get_mut(host).ok_or(Error::ViewsAlive { views })?.bytes)
}

impl fmt::Debug for UnifiedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnifiedBuffer")
            .field("shape", &self.shape())
            .field("dtype", &self.dtype)
            .field("state", &self.state)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
