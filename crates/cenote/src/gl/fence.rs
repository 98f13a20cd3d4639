//! Fences: when the driver has done what it was told to.

#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::sync::Arc;
use std::time::Duration;

use glow::HasContext;

use crate::error::GlError;
use crate::gl::core::{Core, Shared};
use crate::gl::driver::Driver;
use crate::gl::objects::{Object, Owned};
use crate::intervals::{GL_FENCE_STEP_NANOS, GL_FENCE_STEPS};
use crate::sync::Ordering;

/// Everything that the context was told to do until the fence was made.
#[derive(Debug)]
pub(crate) struct Fence {
    address: usize,
    _owned: Owned,
}

fn sync(address: usize) -> glow::NativeFence {
    glow::NativeFence(std::ptr::with_exposed_provenance_mut(address))
}

/// A fence, by its address. Called on the context's thread.
pub(crate) fn make(driver: &Driver) -> Option<usize> {
    // SAFETY: called on the context's thread, with the only condition there is.
    let made = unsafe { driver.gl.fence_sync(glow::SYNC_GPU_COMMANDS_COMPLETE, 0) };
    let address = made.map_or(0, |fence| fence.0.expose_provenance());
    // SAFETY: called on the context's thread. What is not flushed might never be done.
    unsafe { driver.gl.flush() };
    (address != 0).then_some(address)
}

/// Whether it is all done, or never will be because the context is lost. Called on the context's
/// thread, with a fence of `make` that was not deleted.
pub(crate) fn is_done(driver: &Driver, address: usize) -> bool {
    // SAFETY: the caller's promise.
    let seen = unsafe { driver.gl.client_wait_sync(sync(address), 0, 0) };
    seen != glow::TIMEOUT_EXPIRED
}

pub(crate) fn delete(driver: &Driver, address: usize) {
    // SAFETY: called on the context's thread; the fence came from `make`, and goes once.
    unsafe { driver.gl.delete_sync(sync(address)) };
}

impl Fence {
    /// Called on the context's thread.
    pub(crate) fn new(core: &Arc<Core>) -> Result<Fence, GlError> {
        let driver = &core.shared().driver;
        let Some(address) = make(driver) else {
            driver.check("glFenceSync")?;
            return Err(GlError::Refused { op: "glFenceSync", code: crate::error::GlCode(0) });
        };
        Ok(Fence { address, _owned: Owned::new(core, Object::Fence(address)) })
    }

    /// Waits until it is all done. Called on the context's thread.
    pub(crate) fn wait(&self, core: &Shared) -> Result<(), GlError> {
        for _ in 0..GL_FENCE_STEPS {
            // SAFETY: called on the context's thread; the fence is alive until `self` is dropped.
            let done = unsafe {
                let flush = glow::SYNC_FLUSH_COMMANDS_BIT;
                core.driver.gl.client_wait_sync(sync(self.address), flush, GL_FENCE_STEP_NANOS)
            };
            match done {
                glow::ALREADY_SIGNALED | glow::CONDITION_SATISFIED => {
                    core.fences_waited.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                glow::TIMEOUT_EXPIRED => {}
                _ => {
                    core.driver.check("glClientWaitSync")?;
                    break;
                }
            }
        }
        let waited = Duration::from_secs(GL_FENCE_STEPS.into());
        Err(GlError::NoAnswer { op: "finish what the GPU was told", waited })
    }
}
