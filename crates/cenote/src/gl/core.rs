//! What all handles of a context share, and the objects that they own.
//!
//! The last handle ends the thread, if that is ours, and deletes all objects of the context.

use crate::sync::{Ordering, StaticU64};
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use crate::error::{Error, GlError, GlGone, Result};
use crate::gl::driver::driver::Driver;
use crate::gl::driver::persistent;
use crate::gl::live_maps::LiveMaps;
use crate::gl::objects::Object;
use crate::gl::resources::Resources;
use crate::gl::texture_cache::TextureCache;
use crate::gl::thread::executor::Executor;
use crate::gl::thread::gl_thread::GlThread;
use crate::gl::thread::headless::HeadlessThread;
use crate::sys::fork::Creator;

/// A context, as its handles, tensors and textures share it.
#[derive(Debug)]
pub(crate) struct Core {
    resources: Arc<Resources>,
    executor: Executor,
    live_maps: LiveMaps,
    /// The textures of DMA-BUFs that are alive.
    pub(crate) imports: TextureCache<OwnedTexture>,
    /// Unique among the contexts of this process.
    pub(crate) id: u64,
    /// The process that made the context.
    creator: Creator,
}

impl Core {
    /// Makes a context without a window, on a thread that it starts.
    pub(crate) fn headless() -> Result<Arc<Core>> {
        let thread = HeadlessThread::start()?;
        let executor = Executor::headless(Arc::clone(&thread));
        Core::new(executor, thread)
    }

    /// Takes a context that is current on a thread of the application.
    pub(crate) fn on(thread: Arc<dyn GlThread>) -> Result<Arc<Core>> {
        let executor = Executor::application(Arc::clone(&thread));
        Core::new(executor, thread)
    }

    fn new(executor: Executor, thread: Arc<dyn GlThread>) -> Result<Arc<Core>> {
        static NEXT_ID: StaticU64 = StaticU64::new(1);
        let creator = Creator::this_process();
        let driver = executor.call("look up its functions", move || load_driver(&*thread))?;
        Ok(Arc::new(Core {
            resources: Arc::new(Resources::new(driver)),
            executor,
            live_maps: LiveMaps::default(),
            imports: TextureCache::default(),
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            creator,
        }))
    }

    pub(crate) fn resources(&self) -> &Arc<Resources> {
        &self.resources
    }

    /// Fails if the context was closed or lost, or belongs to the parent process of this one.
    pub(crate) fn check(&self) -> Result<()> {
        let why = if self.is_inherited() {
            GlGone::Forked
        } else if self.live_maps.is_closed() {
            GlGone::Closed
        } else if self.resources.is_lost() {
            GlGone::Lost
        } else {
            return Ok(());
        };
        Err(GlError::Gone { why }.into())
    }

    fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }

    /// Counts a map, which keeps the context alive until the guard is dropped. Fails as
    /// [`check`](Core::check) does.
    pub(crate) fn begin_map(&self) -> Result<LiveMap<'_>> {
        if !self.live_maps.begin() {
            self.check()?;
            return Err(GlError::Gone { why: GlGone::Closed }.into());
        }
        let map = LiveMap(self);
        // Not by `check`: the context may have been closed since the map was counted, and this map
        // began before that.
        let why = if self.is_inherited() {
            GlGone::Forked
        } else if self.resources.is_lost() {
            GlGone::Lost
        } else {
            return Ok(map);
        };
        Err(GlError::Gone { why }.into())
    }

    /// Returns how many maps exist.
    pub(crate) fn map_count(&self) -> usize {
        self.live_maps.count()
    }

    /// Runs `work` on the context's thread and returns its result. Fails as [`check`](Core::check) and
    /// [`Executor::call`] do.
    pub(crate) fn run<R: Send + 'static>(
        self: &Arc<Self>,
        op: &'static str,
        work: impl FnOnce(&Arc<Core>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.check()?;
        let core = Arc::clone(self);
        // `call` drops the job before it answers, so the caller drops the last handle, not the job.
        self.executor.call(op, move || {
            core.check()?;
            let check_reset = || Ok(core.resources.driver.check_reset()?);
            core.resources.drop_finished();
            // If `work` fails, a reset may be the cause. Then the reset is the error to report.
            let result = check_reset()
                .and_then(|()| work(&core))
                .or_else(|error| check_reset().and(Err(error)));
            core.resources.note_loss(&result);
            result
        })
    }

    /// Runs `work` on the context's thread at some later time. Does nothing in a forked child.
    ///
    /// `work` gets [`Resources`] rather than the context: a posted job must not hold the last handle.
    pub(crate) fn post(&self, work: impl FnOnce(&Resources) + Send + 'static) {
        if !self.is_inherited() {
            let resources = Arc::clone(&self.resources);
            self.executor.post(move || work(&resources));
        }
    }

    /// Refuses new maps, and deletes all objects. Fails if maps exist: then the last of them deletes the
    /// objects when it ends.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if self.is_inherited() {
            return Err(GlError::Gone { why: GlGone::Forked }.into());
        }
        match self.live_maps.close() {
            0 => {}
            maps => return Err(GlError::MapsAlive { maps }.into()),
        }
        self.imports.clear();
        let resources = Arc::clone(&self.resources);
        let done = self.executor.call("delete its objects", move || {
            resources.delete_all();
            Ok(())
        });
        self.executor.end();
        match done {
            // The thread has ended, or the context was closed before.
            Err(Error::Gl(GlError::Gone { .. })) => Ok(()),
            done => done,
        }
    }

    /// Deletes all objects without waiting for that, and ends the thread if it is ours.
    fn finish(&self) {
        if !self.is_inherited() {
            self.imports.clear();
            self.post(Resources::delete_all);
            self.executor.end();
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Looks up the driver's functions and features. Called on the context's thread.
fn load_driver(thread: &dyn GlThread) -> Result<Driver> {
    let mut driver = Driver::load(|name| thread.proc_address(name)).map_err(Error::Gl)?;
    driver.persistent = persistent::is_supported(&driver);
    Ok(driver)
}

/// One map of a context's memory, until dropped. The last one of a closed context deletes its objects.
#[derive(Debug)]
pub(crate) struct LiveMap<'a>(&'a Core);

impl Drop for LiveMap<'_> {
    fn drop(&mut self) {
        if self.0.live_maps.end() {
            self.0.finish();
        }
    }
}

/// An object that is deleted when this is dropped, on any thread.
///
/// It does not keep the context alive, because the context keeps some of these itself. An object that
/// still exists when the context ends is deleted then.
#[derive(Debug)]
pub(crate) struct OwnedObject {
    core: Weak<Core>,
    object: Object,
}

impl OwnedObject {
    /// Takes ownership of an object that was just created.
    pub(crate) fn new(core: &Arc<Core>, object: Object) -> OwnedObject {
        core.resources.objects.add(object);
        OwnedObject { core: Arc::downgrade(core), object }
    }
}

impl Drop for OwnedObject {
    fn drop(&mut self) {
        let object = self.object;
        if let Some(core) = self.core.upgrade() {
            core.post(move |resources| resources.delete(object));
        }
    }
}

/// A texture, with the EGL image that it shows if its memory is a DMA-BUF.
#[derive(Debug)]
pub(crate) struct OwnedTexture {
    pub(crate) name: NonZeroU32,
    pub(crate) target: u32,
    pub(crate) _texture: OwnedObject,
    pub(crate) image: Option<OwnedObject>,
}
