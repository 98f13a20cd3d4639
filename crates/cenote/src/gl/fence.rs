//! A fence: marks a point in the commands of a context, to wait until the GPU has reached it.

#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use crate::sync::Ordering;
use std::sync::Arc;
use std::time::Duration;

use glow::HasContext;

use crate::error::{GlCode, GlError};
use crate::gl::core::{Core, OwnedObject};
use crate::gl::driver::driver::native_fence;
use crate::gl::objects::Object;
use crate::gl::resources::Resources;
use crate::intervals::{GL_FENCE_STEP_NANOS, GL_FENCE_STEPS};

/// All commands that were issued to the context before the fence was created.
#[derive(Debug)]
pub(crate) struct Fence {
    address: usize,
    _owned: OwnedObject,
}

impl Fence {
    /// Called on the context's thread.
    pub(crate) fn new(core: &Arc<Core>) -> Result<Fence, GlError> {
        let driver = &core.resources().driver;
        let Some(address) = driver.create_fence() else {
            driver.check("glFenceSync")?;
            return Err(GlError::Refused { op: "glFenceSync", code: GlCode(0) });
        };
        Ok(Fence { address, _owned: OwnedObject::new(core, Object::Fence(address)) })
    }

    /// Waits until the GPU has executed the commands. Fails after 30 s, or if the context is lost. Called
    /// on the context's thread.
    pub(crate) fn wait(&self, resources: &Resources) -> Result<(), GlError> {
        let driver = &resources.driver;
        for _ in 0..GL_FENCE_STEPS {
            // SAFETY: called on the context's thread; the fence is alive until `self` is dropped.
            let status = unsafe {
                let flush = glow::SYNC_FLUSH_COMMANDS_BIT;
                driver.gl.client_wait_sync(native_fence(self.address), flush, GL_FENCE_STEP_NANOS)
            };
            match status {
                glow::ALREADY_SIGNALED | glow::CONDITION_SATISFIED => {
                    resources.fences_waited.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                glow::TIMEOUT_EXPIRED => {}
                _ => {
                    driver.check("glClientWaitSync")?;
                    break;
                }
            }
        }
        let waited = Duration::from_secs(GL_FENCE_STEPS.into());
        Err(GlError::NoAnswer { op: "finish the commands of the GPU", waited })
    }
}
