//! `TensorPool`: allocates tensors in nanoseconds, which other processes can read.

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{Error, Holder, Result};
use crate::ipc::discovery::layout;
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::pool::descriptor::TensorDescriptor;
use crate::ipc::pool::owner::adopt;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::server::connection_handler::ConnectionHandler;
use crate::ipc::pool::owner::server::create;
use crate::ipc::pool::pool_tensor::lease_from;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::reader::connect;
use crate::ipc::pool::stats::PoolStats;
use crate::ipc::pool::{registry, slot_buffer, slot_home};
use crate::memory::choose::request::ROW_ALIGN;
use crate::memory::kind::TensorMemory;
use crate::sync::Biased;
use crate::tensor::Tensor;
use crate::tensor::buffer::buffer::BufferSlot;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::image::image_layout::ImageLayout;
use crate::types::dtype::DType;
use crate::types::layout::Layout;
use crate::types::pixel_format::PixelFormat;

/// The name of a pool: letters, digits, dots, dashes and underscores. A number is a name, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolName(String);

impl From<&str> for PoolName {
    fn from(name: &str) -> Self {
        PoolName(name.to_owned())
    }
}

impl From<String> for PoolName {
    fn from(name: String) -> Self {
        PoolName(name)
    }
}

impl From<u32> for PoolName {
    fn from(id: u32) -> Self {
        PoolName(id.to_string())
    }
}

impl PoolName {
    fn check(self) -> Result<String> {
        layout::check_name(&self.0)?;
        Ok(self.0)
    }
}

/// A pool of tensors in shared memory, or in DMA-BUFs.
///
/// The process that makes the pool owns it: only the owner allocates and writes; other processes attach and read.
/// Dropping a tensor returns its slot, once no reader holds it.
///
/// A tensor from a pool has the bytes of an earlier tensor.
///
/// ```
/// use cenote::{DType, TensorPool, TensorPoolConfig};
/// # let dir = std::env::temp_dir().join(format!("cenote-doc2-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
///
/// let pool = TensorPool::new("camera", TensorPoolConfig::small())?;
/// let mut frame = pool.alloc(&[1080, 1920, 3], DType::U8)?;
/// frame.map_mut()?.as_mut_slice::<u8>()?.fill(128);
/// println!("{:?}", pool.stats()?);
/// # drop((frame, pool)); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TensorPool {
    role: Role,
}

#[derive(Clone)]
enum Role {
    Owner(Arc<OwnedPool>),
    Attached(Arc<Attachment>),
}

/// A pool of this process. Dropping the last handle of the pool closes it; tensors may outlive it.
struct OwnedPool {
    owner: Arc<Owner>,
    /// The layout of the image that was allocated last.
    image_layout: Biased<Option<ImageLayout>>,
}

impl OwnedPool {
    /// The layout of an image of this size and format.
    #[inline]
    fn image_layout(&self, size: (usize, usize), format: PixelFormat) -> Result<ImageLayout> {
        match &*self.image_layout.lock() {
            Some(layout) if layout.is_for(size, format) => return Ok(layout.clone()),
            _ => {}
        }
        self.compute_layout(size, format)
    }

    #[cold]
    fn compute_layout(&self, size: (usize, usize), format: PixelFormat) -> Result<ImageLayout> {
        let dma = self.owner.config.memory == TensorMemory::Dma;
        let layout = ImageLayout::new(size, format, if dma { ROW_ALIGN } else { 1 })?;
        // The old layout is dropped without the lock.
        let _old = self.image_layout.lock().replace(layout.clone());
        Ok(layout)
    }
}

impl Drop for OwnedPool {
    fn drop(&mut self) {
        self.owner.close();
    }
}

impl TensorPool {
    fn of(owner: Arc<Owner>) -> TensorPool {
        let owned = OwnedPool { owner, image_layout: Biased::new(None) };
        TensorPool { role: Role::Owner(Arc::new(owned)) }
    }

    /// Makes a pool that this process owns.
    ///
    /// Fails if a living process owns a pool of this name. Takes over the name of a dead owner.
    pub fn new(name: impl Into<PoolName>, config: TensorPoolConfig) -> Result<TensorPool> {
        let owner = create::create(&name.into().check()?, config)?;
        registry::register_owned(&owner);
        Ok(TensorPool::of(owner))
    }

    /// Makes the pool of a publisher, in the directory of its topic. `handler` makes the publisher.
    pub(crate) fn for_topic<H: ConnectionHandler + 'static>(
        socket_dir: (SocketDir, &[String]),
        endpoint: Endpoint,
        config: TensorPoolConfig,
        handler: impl FnOnce(TensorPool) -> Result<Arc<H>>,
    ) -> Result<Arc<H>> {
        create::create_shared(socket_dir, endpoint, config, |owner| {
            registry::register_owned(owner);
            handler(TensorPool::of(owner.clone()))
        })
    }

    /// Attaches to a pool by its name. The owner may be another process or this one.
    pub fn open(name: impl Into<PoolName>) -> Result<TensorPool> {
        let name = name.into().check()?;
        let attachment = connect::by_name(&name, registry::attached)?;
        registry::register(&attachment);
        Ok(TensorPool { role: Role::Attached(attachment) })
    }

    /// The name.
    pub fn name(&self) -> &str {
        match &self.role {
            Role::Owner(owned) => &owned.owner.endpoint.name,
            Role::Attached(attachment) => &attachment.endpoint.name,
        }
    }

    /// The number by which descriptors name the pool. A new pool of the same name has another one.
    #[inline]
    pub fn uid(&self) -> u64 {
        match &self.role {
            Role::Owner(owned) => owned.owner.endpoint.uid,
            Role::Attached(attachment) => attachment.endpoint.uid,
        }
    }

    /// Whether this process owns the pool.
    pub fn is_owner(&self) -> bool {
        matches!(self.role, Role::Owner(_))
    }

    /// Whether the owner is alive and this process can use the pool. A forked child cannot; it opens the pool again.
    pub fn is_alive(&self) -> bool {
        match &self.role {
            Role::Owner(owned) => !owned.owner.is_inherited(),
            Role::Attached(attachment) => {
                !attachment.is_inherited() && !attachment.is_disconnected()
            }
        }
    }

    /// Allocates a tensor. Its bytes are those of an earlier tensor. `Bool` tensors are zeros, because not every byte is a
    /// valid `bool`.
    #[inline(always)]
    pub fn alloc(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.alloc_with(shape, dtype, none)
    }

    /// As [`alloc`](TensorPool::alloc). If the pool is full, calls `make_room` and tries again if that returned `true`.
    #[inline(always)]
    pub(crate) fn alloc_with(
        &self,
        shape: &[usize],
        dtype: DType,
        make_room: impl FnMut() -> bool,
    ) -> Result<Tensor> {
        let owner = self.owner("alloc")?;
        let len = Tensor::packed_len(shape, dtype)?;
        Tensor::packed(slot_buffer::alloc(owner, len, make_room)?, len, shape, dtype)
    }

    /// Allocates an image. Its bytes are those of an earlier tensor. In a pool of DMA-BUFs its rows start at multiples of
    /// 64 bytes.
    ///
    /// ```
    /// use cenote::{PixelFormat, TensorPool, TensorPoolConfig};
    /// # let dir = std::env::temp_dir().join(format!("cenote-doc4-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
    ///
    /// let pool = TensorPool::new("camera", TensorPoolConfig::small())?;
    /// let frame = pool.image(1920, 1080, PixelFormat::Nv12)?;
    /// assert_eq!(frame.shape(), [1620, 1920]);
    /// # drop((frame, pool)); std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn image(&self, width: usize, height: usize, format: PixelFormat) -> Result<Tensor> {
        self.image_with((width, height), format, none)
    }

    /// As [`image`](TensorPool::image). If the pool is full, calls `make_room` and tries again if that returned `true`.
    #[inline]
    pub(crate) fn image_with(
        &self,
        size: (usize, usize),
        format: PixelFormat,
        make_room: impl FnMut() -> bool,
    ) -> Result<Tensor> {
        let owned = self.owned("image")?;
        let image = owned.image_layout(size, format)?;
        let buffer = slot_buffer::alloc(&owned.owner, image.bytes(), make_room)?;
        image.over(buffer)
    }

    /// Whether this pool has allocated the slot of a buffer.
    #[inline]
    pub(crate) fn has_allocated(&self, buffer: &Handle) -> bool {
        let Role::Owner(owned) = &self.role else { return false };
        let owner = &owned.owner;
        buffer.slot_ref().is_some_and(|slot_ref| slot_home::is_allocated_by(slot_ref, owner))
    }

    /// Allocates a tensor. Waits for a slot if the pool is full, or for memory if it cannot grow.
    pub fn alloc_timeout(
        &self,
        shape: &[usize],
        dtype: DType,
        timeout: Duration,
    ) -> Result<Tensor> {
        let go_on = || ControlFlow::<Infallible>::Continue(());
        let ControlFlow::Continue(tensor) =
            self.alloc_waiting("alloc_timeout", shape, dtype, timeout, go_on)?;
        Ok(tensor)
    }

    /// Like [`alloc_timeout`](TensorPool::alloc_timeout), but calls `go_on` now and then while it waits. Returns `None`
    /// once that returns `false`. [`stats`](TensorPool::stats) counts a failure only if the time has passed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cenote::{DType, TensorPool, TensorPoolConfig};
    /// # let dir = std::env::temp_dir().join(format!("cenote-while-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
    ///
    /// let config = TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::default() };
    /// let pool = TensorPool::new("while", config)?;
    /// let only = pool.alloc(&[4], DType::U8)?;
    /// let none = pool.alloc_while(&[4], DType::U8, Duration::from_secs(600), || false)?;
    /// assert!(none.is_none() && pool.stats()?.failures == 0);
    /// drop(only);
    /// assert!(pool.alloc_while(&[4], DType::U8, Duration::ZERO, || false)?.is_some());
    /// # drop(pool); std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn alloc_while(
        &self,
        shape: &[usize],
        dtype: DType,
        timeout: Duration,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<Tensor>> {
        let go_on = || if go_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        let waited = self.alloc_waiting("alloc_while", shape, dtype, timeout, go_on)?;
        Ok(waited.continue_value())
    }

    fn alloc_waiting<B>(
        &self,
        op: &'static str,
        shape: &[usize],
        dtype: DType,
        timeout: Duration,
        go_on: impl FnMut() -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, Tensor>> {
        let owner = self.owner(op)?;
        let layout = Layout::contiguous(shape, dtype.size())?;
        let len = layout.nbytes();
        let granted = match owner.alloc_timeout(len, timeout, go_on)? {
            ControlFlow::Continue(granted) => granted,
            ControlFlow::Break(why) => return Ok(ControlFlow::Break(why)),
        };
        let tensor = Tensor::over(slot_buffer::allocated(owner, granted, len)?, layout, dtype)?;
        let tensor = if dtype == DType::Bool { tensor.cleared()? } else { tensor };
        Ok(ControlFlow::Continue(tensor))
    }

    /// Copies any tensor into this pool, so that it can be sent. [`stats`](TensorPool::stats) and
    /// [`copies`](crate::copies) count it.
    ///
    /// An image keeps its format. A tensor that is in the pool already needs no copy.
    pub fn stage(&self, tensor: &Tensor) -> Result<Tensor> {
        self.stage_with(tensor, none)
    }

    /// As [`stage`](TensorPool::stage). If the pool is full, calls `make_room` and tries again if that returned `true`.
    pub(crate) fn stage_with(
        &self,
        tensor: &Tensor,
        make_room: impl FnMut() -> bool,
    ) -> Result<Tensor> {
        let owner = self.owner("stage")?;
        let (layout, len) = tensor.copy_layout()?;
        let staged =
            Tensor::over(slot_buffer::alloc(owner, len, make_room)?, layout, tensor.dtype)?;
        let (staged, bytes) = staged.filled_from(tensor)?;
        owner.count_copy(bytes);
        copies::count(CopyReason::Staged, bytes);
        Ok(staged)
    }

    /// The tensor that a descriptor names, of this pool or any other. See
    /// [`Tensor::from_descriptor`].
    pub fn import(&self, descriptor: &TensorDescriptor) -> Result<Tensor> {
        match &self.role {
            Role::Attached(attachment) if attachment.endpoint.uid == descriptor.pool => {
                lease_from(attachment, descriptor)
            }
            _ => Tensor::from_descriptor(descriptor),
        }
    }

    /// Adopts the shared memory of a tensor: it becomes part of this pool, without a copy. Returns `None` if the memory is
    /// not sealed or not fully reserved, or if too much memory is adopted already.
    pub(crate) fn adopt(&self, tensor: &Tensor) -> Result<Option<Tensor>> {
        let owner = self.owner("adopt")?;
        let Some((fd, map)) = adopt::shareable(&tensor.buffer)? else { return Ok(None) };
        let Some(slot) = owner.adopt(fd, map.clone())? else { return Ok(None) };
        let buffer = slot_buffer::adopted(owner, slot, map)?;
        Ok(Some(Tensor { buffer, ..tensor.clone() }))
    }

    /// Introduces the pool of a tensor to the readers of this one, if this process owns both. Then they have it even if
    /// this process ends now.
    #[inline]
    pub(crate) fn introduce_pool_of(&self, tensor: &Tensor) {
        let Some(slot_ref) = tensor.buffer.slot_ref() else { return };
        if slot_home::uid(slot_ref) != self.uid() {
            self.introduce(slot_ref);
        }
    }

    #[cold]
    fn introduce(&self, slot_ref: &BufferSlot) {
        if let (Role::Owner(this), Some(other)) = (&self.role, slot_home::shared_owner(slot_ref)) {
            this.owner.introduce(&other);
        }
    }

    /// Drops a handle, most likely the last one of a slot of this pool.
    #[inline]
    pub(crate) fn take_back(&self, handle: Handle) {
        if let Role::Owner(owned) = &self.role
            && let Some(buffer) =
                handle.last_of(|slot_ref| slot_home::is_allocated_by(slot_ref, &owned.owner))
        {
            owned.owner.retire_deferred(buffer);
        }
    }

    /// Closes the pool: no process can attach any more, and tensors stay valid. Returns the directory of its endpoint.
    pub(crate) fn close(&self) -> Option<Arc<SocketDir>> {
        match &self.role {
            Role::Owner(owned) => owned.owner.close(),
            Role::Attached(_) => None,
        }
    }

    /// Frees every segment without a tensor in it. Returns how many bytes that are. The system gets the memory back once
    /// every attached process has unmapped it, which they do by themselves.
    pub fn trim(&self) -> Result<usize> {
        self.owner("trim")?.trim()
    }

    /// The present state of the pool, as numbers.
    pub fn stats(&self) -> Result<PoolStats> {
        Ok(self.owner("stats")?.stats())
    }

    /// The processes that hold tensors of this pool: this one, and attached ones. First come the holders of most slots
    /// which the owner has retired.
    pub fn holders(&self) -> Result<Vec<Holder>> {
        Ok(self.owner("holders")?.holders())
    }

    #[inline]
    fn owner(&self, op: &'static str) -> Result<&Arc<Owner>> {
        Ok(&self.owned(op)?.owner)
    }

    /// The part of a pool that only its owner has. Fails in other processes.
    #[inline]
    fn owned(&self, op: &'static str) -> Result<&OwnedPool> {
        match &self.role {
            Role::Owner(owned) => {
                owned.owner.check_process()?;
                Ok(owned)
            }
            Role::Attached(attachment) => Err(Error::NotOwner {
                op,
                pool: attachment.endpoint.name.clone(),
                pid: attachment.owner.pid,
            }),
        }
    }
}

/// Makes no room.
fn none() -> bool {
    false
}

impl fmt::Debug for TensorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorPool")
            .field("name", &self.name())
            .field("owner", &self.is_owner())
            .field("alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}
