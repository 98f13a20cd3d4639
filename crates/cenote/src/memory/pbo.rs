//! OpenGL pixel buffer objects.
//!
//! If the driver has `buffer_storage`, a buffer is mapped once, persistently and coherently, and to map it again is only
//! to count: [`Core::begin_map`]. With other drivers each map is a map of the driver, which begins and ends on the
//! context's thread. Readers share it, because a buffer has at most one.
//!
//! The driver executes commands later. So every use of a buffer by the GPU leaves a [`Fence`]: a CPU read waits for GPU
//! writes, and a CPU write waits for GPU reads and writes.
//!
//! # Contract
//! `address`, if there is one, is that of `len` bytes that stay mapped until the buffer is deleted. The buffer is deleted
//! after [`Pbo`] is dropped, or when the context is closed and every [`LiveMap`] is dropped. The bytes of a map of the
//! driver are valid until its [`Unmap`] is dropped. All bytes are written before a slice of them is made.
#![allow(unsafe_code, reason = "OpenGL hands out raw memory")]

use std::num::NonZeroU32;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use glow::{HasContext, NativeBuffer};

use crate::error::{Error, GlCode, GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::{Core, LiveMap, OwnedObject};
use crate::gl::driver::driver::Driver;
use crate::gl::driver::persistent::PERSISTENT;
use crate::gl::driver::saved_bindings::SavedBindings;
use crate::gl::fence::Fence;
use crate::gl::objects::Object;
use crate::gl::resources::Resources;
use crate::memory::budget::{Budget, Reservation};
use crate::memory::choose::request::{MIN_ALIGN, Request};
use crate::memory::choose::selection::Grants;
use crate::sync::{AtomicBool, AtomicU8, Ordering};

/// The target that a buffer is bound to while it is mapped.
const TARGET: u32 = glow::PIXEL_UNPACK_BUFFER;

/// A buffer of a context.
#[derive(Debug)]
pub(crate) struct Pbo {
    state: Arc<PboState>,
    /// The address of the persistent map.
    address: Option<Address>,
    len: usize,
    // Dropped in this order, so that the context still exists when the object is deleted.
    _owned: OwnedObject,
    core: Arc<Core>,
}

/// The part of a buffer that work on the context's thread needs. It does not keep the context alive.
#[derive(Debug)]
pub(crate) struct PboState {
    pub(crate) name: NonZeroU32,
    len: usize,
    /// The uses that have a fence, as bits of [`Use`].
    pending: AtomicU8,
    fences: Mutex<Fences>,
    map: Mutex<DriverMap>,
    /// The driver lost what was written through a map.
    content_lost: AtomicBool,
}

/// What the GPU does with a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Reads = 1,
    Writes = 2,
}

#[derive(Debug, Default)]
struct Fences {
    reads: Option<Fence>,
    writes: Option<Fence>,
}

impl Fences {
    fn slot(&mut self, by: Use) -> &mut Option<Fence> {
        match by {
            Use::Reads => &mut self.reads,
            Use::Writes => &mut self.writes,
        }
    }
}

/// The map of a buffer without a persistent one. Used only on the context's thread.
#[derive(Debug, Default)]
struct DriverMap {
    users: usize,
    address: Option<Address>,
    /// It covers the whole buffer, for reading only.
    shared: bool,
}

#[derive(Debug, Clone, Copy)]
struct Address(NonNull<u8>);

// SAFETY: an address is valid in every thread of the process. The contract of this module says when it may be used.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Whether a buffer has a persistent map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapPolicy {
    /// If the driver supports it.
    Kept,
    /// No: the driver must be told of each access, because other code uses the buffer by its name.
    Ended,
}

/// Allocates a buffer of zeros. Fails if the alignment is larger than OpenGL guarantees.
pub(crate) fn allocate(
    context: &GlContext,
    request: &Request<'_>,
    grants: &mut Grants,
) -> Result<(Pbo, Reservation)> {
    if request.align > MIN_ALIGN {
        return Err(Error::BadAlignment { given: request.align, max: MIN_ALIGN });
    }
    grants.refuse_all(request.advice);
    let reservation = Budget::reserve(request.len)?;
    let mut pbo = Pbo::new(context.core(), request.len, MapPolicy::Kept)?;
    pbo.write(0..request.len)?.clear();
    Ok((pbo, reservation))
}

impl Pbo {
    /// Creates a buffer with undefined content.
    pub(crate) fn new(core: &Arc<Core>, len: usize, maps: MapPolicy) -> Result<Pbo> {
        let size = i32::try_from(len).map_err(|_| GlError::TooLarge { len, max: i32::MAX })?;
        let (owned, name, address) = core.run("make a buffer", move |core| {
            let kept = maps == MapPolicy::Kept && core.resources().driver.persistent;
            Ok(make(core, size, kept)?)
        })?;
        let state = PboState {
            name,
            len,
            pending: AtomicU8::new(0),
            fences: Mutex::default(),
            map: Mutex::default(),
            content_lost: AtomicBool::new(false),
        };
        Ok(Pbo { state: Arc::new(state), address, len, _owned: owned, core: Arc::clone(core) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn state(&self) -> &Arc<PboState> {
        &self.state
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// MapPolicy all bytes for reading, after the GPU has finished writing.
    pub(crate) fn read(&self) -> Result<Mapped<'_>> {
        let live_map = self.core().begin_map()?;
        self.wait_for_gpu(Use::Writes as u8)?;
        self.mapped(live_map, 0..self.len, glow::MAP_READ_BIT)
    }

    /// MapPolicy some bytes for reading and writing, after the GPU has finished using the buffer.
    pub(crate) fn write(&mut self, range: Range<usize>) -> Result<Mapped<'_>> {
        debug_assert!(range.start < range.end && range.end <= self.len);
        let live_map = self.core().begin_map()?;
        self.wait_for_gpu(Use::Reads as u8 | Use::Writes as u8)?;
        self.mapped(live_map, range, glow::MAP_READ_BIT | glow::MAP_WRITE_BIT)
    }

    /// Replaces all bytes. For a buffer without a persistent map.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Result<()> {
        debug_assert_eq!(bytes.len(), self.len);
        let live_map = self.core().begin_map()?;
        let access = glow::MAP_WRITE_BIT | glow::MAP_INVALIDATE_BUFFER_BIT;
        let mapped = self.mapped(live_map, 0..self.len, access)?;
        // SAFETY: as many bytes are mapped for writing, and no other code accesses them.
        unsafe {
            mapped.address.0.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        };
        drop(mapped);
        let state = Arc::clone(&self.state);
        // After the end of the map: only then the driver reports whether the bytes arrived.
        self.core().run("store bytes", move |_| Ok(state.check_content()?))
    }

    /// Copies all bytes out.
    pub(crate) fn load(&self, bytes: &mut [u8]) -> Result<()> {
        let mapped = self.read()?;
        // SAFETY: the slice is used only before `mapped` is dropped.
        bytes.copy_from_slice(unsafe { mapped.bytes() });
        Ok(())
    }

    fn mapped<'a>(
        &'a self,
        live_map: LiveMap<'a>,
        range: Range<usize>,
        access: u32,
    ) -> Result<Mapped<'a>> {
        let (start, len) = (range.start, range.len());
        if let Some(address) = self.address {
            // SAFETY: the range lies in the buffer, and the whole buffer is mapped.
            let address = Address(unsafe { address.0.add(start) });
            return Ok(Mapped { address, len, start, _unmap: None, _live_map: live_map });
        }
        let state = Arc::clone(&self.state);
        let (address, unmap) = self.core().run("map a buffer", move |core| {
            let address = state.map(&core.resources().driver, range, access)?;
            Ok((address, Unmap { state, core: Arc::clone(core) }))
        })?;
        Ok(Mapped { address, len, start, _unmap: Some(unmap), _live_map: live_map })
    }

    /// Waits until the GPU has finished these uses.
    fn wait_for_gpu(&self, uses: u8) -> Result<()> {
        // Acquire, pairs with the Release of `wait_for_gpu` on the context's thread: a thread that finds no pending use
        // sees what the GPU had written when the bit was cleared.
        if self.state.pending.load(Ordering::Acquire) & uses == 0 {
            return Ok(());
        }
        let state = Arc::clone(&self.state);
        self.core()
            .run("wait for the GPU", move |core| Ok(state.wait_for_gpu(core.resources(), uses)?))
    }
}

impl PboState {
    /// Notes that a command to use the buffer was sent to the GPU. Called on the context's thread.
    pub(crate) fn note_use(&self, core: &Arc<Core>, by: Use) -> Result<(), GlError> {
        let fence = Fence::new(core)?;
        // The GPU executes commands in order, so a later fence includes all earlier ones.
        let before = self.fences().slot(by).replace(fence);
        self.pending.fetch_or(by as u8, Ordering::Release);
        drop(before);
        Ok(())
    }

    /// Fails if the GPU must not use the buffer, because it is mapped or its content is lost. Called on the context's thread.
    pub(crate) fn check_unmapped(&self) -> Result<(), GlError> {
        self.check_content()?;
        if self.driver_map().users > 0 { Err(GlError::Mapped) } else { Ok(()) }
    }

    /// Fails if the driver lost what was written. Called on the context's thread.
    fn check_content(&self) -> Result<(), GlError> {
        let lost = self.content_lost.load(Ordering::Acquire);
        if lost { Err(GlError::ContentLost) } else { Ok(()) }
    }

    fn wait_for_gpu(&self, resources: &Resources, uses: u8) -> Result<(), GlError> {
        for by in [Use::Reads, Use::Writes].into_iter().filter(|&by| uses & by as u8 != 0) {
            // Not under the lock: dropping a fence is work that may call this function again.
            let Some(fence) = self.fences().slot(by).take() else { continue };
            if let Err(error) = fence.wait(resources) {
                *self.fences().slot(by) = Some(fence);
                return Err(error);
            }
            self.pending.fetch_and(!(by as u8), Ordering::Release);
        }
        Ok(())
    }

    fn fences(&self) -> MutexGuard<'_, Fences> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn driver_map(&self) -> MutexGuard<'_, DriverMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// MapPolicy the buffer, or counts one more reader. Called on the context's thread.
    fn map(&self, driver: &Driver, range: Range<usize>, access: u32) -> Result<Address, GlError> {
        let mut map = self.driver_map();
        // Readers map the whole buffer and share the map. A writer is alone. (If another map still exists, the
        // application has dropped the work that ends it.)
        let shared = access == glow::MAP_READ_BIT;
        if let Some(address) = map.address {
            if !shared || !map.shared {
                return Err(GlError::Mapped);
            }
            map.users += 1;
            return Ok(address);
        }
        // To write the whole buffer repairs lost content. Any other access would see it.
        let writes_all = access & glow::MAP_WRITE_BIT != 0 && range == (0..self.len);
        if !writes_all {
            self.check_content()?;
        }
        let address = map_range(driver, self.name, range, access)?;
        *map = DriverMap { users: 1, address: Some(address), shared };
        self.content_lost.store(false, Ordering::Release);
        Ok(address)
    }

    /// Counts one user less. The last one unmaps the buffer. Called on the context's thread.
    fn unmap(&self, driver: &Driver) {
        let mut map = self.driver_map();
        map.users = map.users.saturating_sub(1);
        if map.users > 0 || map.address.take().is_none() {
            return;
        }
        let _saved = SavedBindings::new(driver);
        bind(driver, TARGET, self.name);
        if !driver.unmap(TARGET) {
            self.content_lost.store(true, Ordering::Release);
        }
    }
}

/// Binds a buffer. Called on the context's thread.
pub(crate) fn bind(driver: &Driver, target: u32, name: NonZeroU32) {
    // SAFETY: called on the context's thread, with a buffer of the context.
    unsafe { driver.gl.bind_buffer(target, Some(NativeBuffer(name))) };
}

fn make(
    core: &Arc<Core>,
    size: i32,
    kept: bool,
) -> Result<(OwnedObject, NonZeroU32, Option<Address>), GlError> {
    let driver = &core.resources().driver;
    let _saved = SavedBindings::new(driver);
    let gl = &driver.gl;
    // SAFETY: called on the context's thread.
    let made = unsafe { gl.create_buffer() };
    let Ok(NativeBuffer(name)) = made else {
        return Err(GlError::Refused { op: "glGenBuffers", code: GlCode(glow::OUT_OF_MEMORY) });
    };
    let owned = OwnedObject::new(core, Object::Buffer(name));
    bind(driver, TARGET, name);
    if !kept {
        // SAFETY: called on the context's thread; the driver reads no data.
        unsafe { gl.buffer_data_size(TARGET, size, glow::STREAM_READ) };
        driver.check("glBufferData")?;
        return Ok((owned, name, None));
    }
    // SAFETY: as above.
    unsafe { gl.buffer_storage(TARGET, size, None, PERSISTENT) };
    driver.check("glBufferStorage")?;
    let address = map_bound(driver, 0, size, PERSISTENT)?;
    Ok((owned, name, Some(address)))
}

fn map_range(
    driver: &Driver,
    name: NonZeroU32,
    range: Range<usize>,
    access: u32,
) -> Result<Address, GlError> {
    let _saved = SavedBindings::new(driver);
    bind(driver, TARGET, name);
    let fits = |number| i32::try_from(number).unwrap_or(i32::MAX);
    map_bound(driver, fits(range.start), fits(range.len()), access)
}

/// MapPolicy part of the bound buffer.
fn map_bound(driver: &Driver, start: i32, len: i32, access: u32) -> Result<Address, GlError> {
    // SAFETY: called on the context's thread; the driver refuses a range that is not in the buffer.
    let address = unsafe { driver.gl.map_buffer_range(TARGET, start, len, access) };
    driver.check("glMapBufferRange")?;
    let refused = GlError::Refused { op: "glMapBufferRange", code: GlCode(glow::OUT_OF_MEMORY) };
    NonNull::new(address).map(Address).ok_or(refused)
}

/// Mapped bytes of a buffer. Dropping it ends the map.
#[derive(Debug)]
pub(crate) struct Mapped<'a> {
    address: Address,
    len: usize,
    /// Where in the buffer they begin.
    start: usize,
    // Dropped in this order: the context exists until the buffer is unmapped.
    _unmap: Option<Unmap>,
    _live_map: LiveMap<'a>,
}

impl Mapped<'_> {
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The bytes.
    ///
    /// # Safety
    /// The slice is not used after `self` is dropped.
    pub(crate) unsafe fn bytes<'b>(&self) -> &'b [u8] {
        // SAFETY: the contract of this module: mapped and written. No code of this process writes while it is mapped for
        // reading, because writing takes `&mut Pbo`. The GPU has finished, and a new command to write takes `&mut`, too.
        unsafe { std::slice::from_raw_parts(self.address.0.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    /// `self` came from [`Pbo::write`]. The slice is the only one, and is not used after `self` is dropped.
    pub(crate) unsafe fn bytes_mut<'b>(&mut self) -> &'b mut [u8] {
        // SAFETY: as above; `Pbo::write` borrowed the buffer mutably, and mapped it for writing.
        unsafe { std::slice::from_raw_parts_mut(self.address.0.as_ptr(), self.len) }
    }

    /// Writes zeros.
    fn clear(&mut self) {
        // SAFETY: the bytes are mapped for writing, and no other code accesses them.
        unsafe { self.address.0.write_bytes(0, self.len) };
    }
}

/// A user of the map of a buffer. Dropping it ends the use.
#[derive(Debug)]
struct Unmap {
    state: Arc<PboState>,
    core: Arc<Core>,
}

impl Drop for Unmap {
    fn drop(&mut self) {
        let state = Arc::clone(&self.state);
        self.core.post(move |resources| state.unmap(&resources.driver));
    }
}
