//! What jobs on the context's thread work with: the driver, and the objects created in the context.

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use std::num::NonZeroU32;
use std::sync::OnceLock;

use glow::HasContext;

use crate::error::{Error, GlCode, GlError, GlGone, Result};
use crate::gl::deferred_drops::DeferredDrops;
use crate::gl::driver::driver::Driver;
use crate::gl::objects::{Object, Objects};

/// The driver and the objects of a context. It does not keep the context alive.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) driver: Driver,
    pub(crate) objects: Objects,
    deferred_drops: DeferredDrops,
    /// How many fences were waited for.
    pub(crate) fences_waited: AtomicU64,
    /// How many DMA-BUFs became textures.
    pub(crate) imported: AtomicU64,
    /// All objects were deleted.
    is_deleted: AtomicBool,
    /// The framebuffer that textures are read through, once one was read.
    framebuffer: OnceLock<NonZeroU32>,
    /// The driver has reported that the context is lost.
    is_lost: AtomicBool,
}

impl Resources {
    pub(crate) fn new(driver: Driver) -> Resources {
        Resources {
            driver,
            objects: Objects::default(),
            deferred_drops: DeferredDrops::default(),
            fences_waited: AtomicU64::new(0),
            imported: AtomicU64::new(0),
            is_deleted: AtomicBool::new(false),
            framebuffer: OnceLock::new(),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Returns the framebuffer that textures are read through. The first call creates it. Called on the
    /// context's thread.
    #[allow(unsafe_code, reason = "OpenGL is a C interface")]
    pub(crate) fn framebuffer(&self) -> Result<NonZeroU32, GlError> {
        if let Some(name) = self.framebuffer.get() {
            return Ok(*name);
        }
        // SAFETY: called on the context's thread.
        let created = unsafe { self.driver.gl.create_framebuffer() };
        let op = "glGenFramebuffers";
        let refused = |_| GlError::Refused { op, code: GlCode(glow::OUT_OF_MEMORY) };
        let name = created.map_err(refused)?.0;
        self.objects.add(Object::Framebuffer(name));
        Ok(*self.framebuffer.get_or_init(|| name))
    }

    /// Deletes an object, unless it was deleted before. Called on the context's thread.
    pub(crate) fn delete(&self, object: Object) {
        if self.objects.remove(object) {
            self.driver.delete(object);
        }
    }

    /// Deletes all objects, once the GPU has finished. Called on the context's thread.
    pub(crate) fn delete_all(&self) {
        if !self.is_deleted.swap(true, Ordering::AcqRel) {
            self.drop_all();
            self.objects.take().into_iter().for_each(|object| self.driver.delete(object));
        }
    }

    /// Drops `memory` when the GPU has executed all commands issued so far. Called on the context's
    /// thread.
    pub(crate) fn drop_when_finished(&self, memory: Box<dyn Send>) {
        if self.is_deleted.load(Ordering::Acquire) {
            return;
        }
        match self.driver.create_fence() {
            Some(fence) => {
                self.objects.add(Object::Fence(fence));
                self.deferred_drops.add(fence, memory);
            }
            None => self.wait_for_gpu(),
        }
        self.drop_finished();
    }

    /// Drops the deferred memory that the GPU no longer uses. Called on the context's thread.
    pub(crate) fn drop_finished(&self) {
        let is_done = |fence| self.driver.is_fence_done(fence);
        while let Some((fence, memory)) = self.deferred_drops.take_if(is_done) {
            self.delete(Object::Fence(fence));
            drop(memory);
        }
    }

    /// Waits for the GPU, then drops all deferred memory.
    fn drop_all(&self) {
        let mut next = self.deferred_drops.take_if(|_| true);
        if next.is_some() {
            self.wait_for_gpu();
        }
        while let Some((fence, memory)) = next {
            self.delete(Object::Fence(fence));
            drop(memory);
            next = self.deferred_drops.take_if(|_| true);
        }
    }

    #[allow(unsafe_code, reason = "OpenGL is a C interface")]
    fn wait_for_gpu(&self) {
        // SAFETY: called on the context's thread.
        unsafe { self.driver.gl.finish() };
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Marks the context as lost if `result` says so.
    pub(crate) fn note_loss<R>(&self, result: &Result<R>) {
        if matches!(result, Err(Error::Gl(GlError::Gone { why: GlGone::Lost }))) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}
