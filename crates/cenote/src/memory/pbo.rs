//! OpenGL pixel buffer objects.
//!
//! Where the driver can, a buffer is mapped once, for good and coherently (`buffer_storage`), and
//! mapping it is counting: [`Core::begin_map`]. Elsewhere every map is one of the driver's, made and ended
//! on the context's thread; readers share it, for a buffer has one map at most.
//!
//! What the driver was told to do with a buffer it does later. So every use leaves a [`Fence`]: whoever
//! reads waits for what writes, and whoever writes waits for both.
//!
//! # Contract
//! `place`, if there is one, is `len` bytes that stay mapped until the buffer is deleted, which is not
//! before [`Pbo`] is dropped and, when the context is closed, every [`LiveMap`] is. The bytes of a map of
//! the driver's are there until its [`Unmap`] is dropped. All bytes were written before a slice is
//! made of them.
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
use crate::memory::request::{MIN_ALIGN, Request};
use crate::memory::selection::Grants;
use crate::sync::{AtomicBool, AtomicU8, Ordering};

/// Where buffers are bound while we map them.
const TARGET: u32 = glow::PIXEL_UNPACK_BUFFER;

/// A buffer of a context.
#[derive(Debug)]
pub(crate) struct Pbo {
    state: Arc<State>,
    /// Where it stays mapped.
    place: Option<Place>,
    len: usize,
    // Dropped in this order, so that there is a context to be told.
    _owned: OwnedObject,
    core: Arc<Core>,
}

/// What work on the context's thread needs of a buffer, without keeping the context alive.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: NonZeroU32,
    len: usize,
    /// The uses of which there are fences.
    pending: AtomicU8,
    fences: Mutex<Fences>,
    map: Mutex<DriverMap>,
    /// What was written through a map did not arrive.
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

/// The map of a buffer that does not stay mapped. Touched on the context's thread only.
#[derive(Debug, Default)]
struct DriverMap {
    users: usize,
    place: Option<Place>,
    /// All of it, and only to be read.
    shared: bool,
}

#[derive(Debug, Clone, Copy)]
struct Place(NonNull<u8>);

// SAFETY: the address of memory that belongs to the process; who may use it, and when, is the
// contract of this module.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

/// Whether a buffer stays mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Maps {
    /// If the driver can.
    Kept,
    /// No: the driver is to know of every access, because others use the buffer by its name.
    Ended,
}

/// Allocates a buffer of zeros.
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
    let mut pbo = Pbo::new(context.core(), request.len, Maps::Kept)?;
    pbo.write(0..request.len)?.clear();
    Ok((pbo, reservation))
}

impl Pbo {
    /// A buffer that holds anything.
    pub(crate) fn new(core: &Arc<Core>, len: usize, maps: Maps) -> Result<Pbo> {
        let size = i32::try_from(len).map_err(|_| GlError::TooLarge { len, max: i32::MAX })?;
        let (owned, name, place) = core.run("make a buffer", move |core| {
            let kept = maps == Maps::Kept && core.resources().driver.persistent;
            Ok(make(core, size, kept)?)
        })?;
        let state = State {
            name,
            len,
            pending: AtomicU8::new(0),
            fences: Mutex::default(),
            map: Mutex::default(),
            content_lost: AtomicBool::new(false),
        };
        Ok(Pbo { state: Arc::new(state), place, len, _owned: owned, core: Arc::clone(core) })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All bytes, to be read.
    pub(crate) fn read(&self) -> Result<Mapped<'_>> {
        let live_map = self.core().begin_map()?;
        self.settle(Use::Writes as u8)?;
        self.mapped(live_map, 0..self.len, glow::MAP_READ_BIT)
    }

    /// Some bytes, to be written, and read.
    pub(crate) fn write(&mut self, range: Range<usize>) -> Result<Mapped<'_>> {
        debug_assert!(range.start < range.end && range.end <= self.len);
        let live_map = self.core().begin_map()?;
        self.settle(Use::Reads as u8 | Use::Writes as u8)?;
        self.mapped(live_map, range, glow::MAP_READ_BIT | glow::MAP_WRITE_BIT)
    }

    /// Replaces all bytes. For a buffer whose maps are ended.
    pub(crate) fn store(&mut self, bytes: &[u8]) -> Result<()> {
        debug_assert_eq!(bytes.len(), self.len);
        let live_map = self.core().begin_map()?;
        let access = glow::MAP_WRITE_BIT | glow::MAP_INVALIDATE_BUFFER_BIT;
        let mapped = self.mapped(live_map, 0..self.len, access)?;
        // SAFETY: as many bytes are mapped, to be written by nobody else.
        unsafe {
            mapped.place.0.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        };
        drop(mapped);
        let state = Arc::clone(&self.state);
        // After the end of the map, which tells whether the bytes arrived.
        self.core().run("store bytes", move |_| Ok(state.check_content()?))
    }

    /// Copies all bytes out.
    pub(crate) fn load(&self, bytes: &mut [u8]) -> Result<()> {
        let mapped = self.read()?;
        // SAFETY: `mapped` is dropped after this.
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
        if let Some(place) = self.place {
            // SAFETY: the range lies in the buffer, all of which is mapped.
            let place = Place(unsafe { place.0.add(start) });
            return Ok(Mapped { place, len, start, _unmap: None, _live_map: live_map });
        }
        let state = Arc::clone(&self.state);
        let (place, unmap) = self.core().run("map a buffer", move |core| {
            let place = state.map(&core.resources().driver, range, access)?;
            Ok((place, Unmap { state, core: Arc::clone(core) }))
        })?;
        Ok(Mapped { place, len, start, _unmap: Some(unmap), _live_map: live_map })
    }

    /// Waits for what the GPU still does with it.
    fn settle(&self, uses: u8) -> Result<()> {
        // Acquire: whoever finds nothing pending sees what was there when that was cleared.
        if self.state.pending.load(Ordering::Acquire) & uses == 0 {
            return Ok(());
        }
        let state = Arc::clone(&self.state);
        self.core().run("wait for the GPU", move |core| Ok(state.settle(core.resources(), uses)?))
    }
}

impl State {
    /// Notes that the GPU was told to use the buffer. Called on the context's thread.
    pub(crate) fn used(&self, core: &Arc<Core>, by: Use) -> Result<(), GlError> {
        let fence = Fence::new(core)?;
        // A later fence stands for all earlier ones.
        let before = self.fences().slot(by).replace(fence);
        self.pending.fetch_or(by as u8, Ordering::Release);
        drop(before);
        Ok(())
    }

    /// Whether the GPU may use the buffer now. Called on the context's thread.
    pub(crate) fn check_unmapped(&self) -> Result<(), GlError> {
        self.check_content()?;
        if self.driver_map().users > 0 { Err(GlError::Mapped) } else { Ok(()) }
    }

    /// Whether what was written is there. Called on the context's thread.
    fn check_content(&self) -> Result<(), GlError> {
        let lost = self.content_lost.load(Ordering::Acquire);
        if lost { Err(GlError::ContentLost) } else { Ok(()) }
    }

    fn settle(&self, resources: &Resources, uses: u8) -> Result<(), GlError> {
        for by in [Use::Reads, Use::Writes].into_iter().filter(|&by| uses & by as u8 != 0) {
            // Not under the lock: dropping a fence is work that may come here again.
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

    /// Maps the buffer, or counts one more reader. Called on the context's thread.
    fn map(&self, driver: &Driver, range: Range<usize>, access: u32) -> Result<Place, GlError> {
        let mut map = self.driver_map();
        // Readers ask for all of it. (A writer has the buffer for himself; another user is there if the
        // application has dropped the work that was to end his map.)
        let shared = access == glow::MAP_READ_BIT;
        if let Some(place) = map.place {
            if !shared || !map.shared {
                return Err(GlError::Mapped);
            }
            map.users += 1;
            return Ok(place);
        }
        // Who is about to write all of it mends what was lost; anybody else would meet the rest.
        let writes_all = access & glow::MAP_WRITE_BIT != 0 && range == (0..self.len);
        if !writes_all {
            self.check_content()?;
        }
        let place = map_range(driver, self.name, range, access)?;
        *map = DriverMap { users: 1, place: Some(place), shared };
        self.content_lost.store(false, Ordering::Release);
        Ok(place)
    }

    /// Counts one user less, and unmaps the buffer with the last one. Called on the context's thread.
    fn unmap(&self, driver: &Driver) {
        let mut map = self.driver_map();
        map.users = map.users.saturating_sub(1);
        if map.users > 0 || map.place.take().is_none() {
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
) -> Result<(OwnedObject, NonZeroU32, Option<Place>), GlError> {
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
        // SAFETY: called on the context's thread; there is no data to read.
        unsafe { gl.buffer_data_size(TARGET, size, glow::STREAM_READ) };
        driver.check("glBufferData")?;
        return Ok((owned, name, None));
    }
    // SAFETY: as above.
    unsafe { gl.buffer_storage(TARGET, size, None, PERSISTENT) };
    driver.check("glBufferStorage")?;
    let place = map_bound(driver, 0, size, PERSISTENT)?;
    Ok((owned, name, Some(place)))
}

fn map_range(
    driver: &Driver,
    name: NonZeroU32,
    range: Range<usize>,
    access: u32,
) -> Result<Place, GlError> {
    let _saved = SavedBindings::new(driver);
    bind(driver, TARGET, name);
    let fits = |number| i32::try_from(number).unwrap_or(i32::MAX);
    map_bound(driver, fits(range.start), fits(range.len()), access)
}

/// Maps part of the buffer that is bound.
fn map_bound(driver: &Driver, start: i32, len: i32, access: u32) -> Result<Place, GlError> {
    // SAFETY: called on the context's thread; what does not fit the buffer is refused.
    let place = unsafe { driver.gl.map_buffer_range(TARGET, start, len, access) };
    driver.check("glMapBufferRange")?;
    let refused = GlError::Refused { op: "glMapBufferRange", code: GlCode(glow::OUT_OF_MEMORY) };
    NonNull::new(place).map(Place).ok_or(refused)
}

/// Bytes of a buffer that the CPU can reach, until dropped.
#[derive(Debug)]
pub(crate) struct Mapped<'a> {
    place: Place,
    len: usize,
    /// Where in the buffer they begin.
    start: usize,
    // Dropped in this order: the context stays until the buffer was told to be unmapped.
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
    /// The slice is not used after `self` was dropped.
    pub(crate) unsafe fn bytes<'b>(&self) -> &'b [u8] {
        // SAFETY: the contract of this module: mapped and written. Nobody in this process writes
        // while it is mapped to be read, for writing takes `&mut Pbo`; the GPU has been waited for,
        // and telling it to write takes `&mut` as well.
        unsafe { std::slice::from_raw_parts(self.place.0.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    ///
    /// # Safety
    /// `self` came from [`Pbo::write`]; the slice is the only one, and is not used after `self` was
    /// dropped.
    pub(crate) unsafe fn bytes_mut<'b>(&mut self) -> &'b mut [u8] {
        // SAFETY: as above; `Pbo::write` took the buffer for itself, and maps it to be written.
        unsafe { std::slice::from_raw_parts_mut(self.place.0.as_ptr(), self.len) }
    }

    /// Writes zeros.
    fn clear(&mut self) {
        // SAFETY: the bytes are mapped to be written, and nobody else has them.
        unsafe { self.place.0.write_bytes(0, self.len) };
    }
}

/// A user of a buffer's map.
#[derive(Debug)]
struct Unmap {
    state: Arc<State>,
    core: Arc<Core>,
}

impl Drop for Unmap {
    fn drop(&mut self) {
        let state = Arc::clone(&self.state);
        self.core.post(move |resources| state.unmap(&resources.driver));
    }
}
