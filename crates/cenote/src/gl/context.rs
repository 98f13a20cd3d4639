//! The public handle of a context.

use crate::sync::Ordering;
use std::sync::Arc;

use crate::error::Result;
use crate::gl::core::Core;
use crate::gl::fence::Fence;
use crate::gl::objects::Object;
use crate::gl::thread::gl_thread::GlThread;

/// An OpenGL context: allocates tensors in its buffers, and makes textures of tensors.
///
/// Any thread may use it. Tensors and textures keep it alive, as clones of the handle do, until it is
/// [closed](GlContext::close).
///
/// ```no_run
/// use cenote::{GlContext, PixelFormat};
///
/// let gl = GlContext::headless()?;
/// let mut frame = gl.image(1920, 1080, PixelFormat::Rgba8)?;
/// frame.map_mut()?.as_mut_slice::<u8>()?.fill(128);
/// let texture = gl.upload(&frame)?; // from the buffer, without a copy by the CPU
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct GlContext {
    core: Arc<Core>,
}

/// The driver of a context, and its features.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlInfo {
    /// The version, as the driver reports it.
    pub version: String,
    /// The renderer, as the driver reports it.
    pub renderer: String,
    /// Whether tensors stay mapped, so that mapping them again costs nothing.
    pub persistent_maps: bool,
    /// Whether DMA-BUFs can become textures.
    pub dma_buf_import: bool,
    /// Whether such DMA-BUFs may be tiled or compressed, as a DRM modifier says.
    pub dma_buf_modifiers: bool,
}

/// The objects of a context, and counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GlStats {
    /// Buffers: tensors, and device sides of unified buffers.
    pub buffers: usize,
    /// Textures.
    pub textures: usize,
    /// Framebuffers: at most one, which textures are read through.
    pub framebuffers: usize,
    /// Fences that were not waited for yet.
    pub fences: usize,
    /// Images of DMA-BUFs.
    pub images: usize,
    /// Maps that exist.
    pub maps: usize,
    /// Fences that were waited for so far.
    pub fences_waited: u64,
    /// DMA-BUFs that became textures so far. A texture that is found again is not counted.
    pub imports: u64,
}

impl GlContext {
    /// Creates a context without a window, on a thread that it starts: OpenGL ES 3, else OpenGL 3.3.
    ///
    /// Loads `libEGL.so.1`. Fails without it, or without a driver.
    pub fn headless() -> Result<GlContext> {
        Ok(GlContext { core: Core::headless()? })
    }

    /// Uses a context that the application owns, on its thread. Fails if the version is older than OpenGL
    /// ES 3.0 or OpenGL 3.3.
    pub fn on(thread: Arc<dyn GlThread>) -> Result<GlContext> {
        Ok(GlContext { core: Core::on(thread)? })
    }

    pub(crate) fn of(core: &Arc<Core>) -> GlContext {
        GlContext { core: Arc::clone(core) }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns the driver and its features.
    pub fn info(&self) -> GlInfo {
        let driver = &self.core.resources().driver;
        GlInfo {
            version: driver.version.clone(),
            renderer: driver.renderer.clone(),
            persistent_maps: driver.persistent,
            dma_buf_import: driver.images().is_some(),
            dma_buf_modifiers: driver.images().is_some_and(|images| images.modifiers),
        }
    }

    /// Returns the objects that exist now, and counters.
    pub fn stats(&self) -> GlStats {
        let resources = self.core.resources();
        let objects = &resources.objects;
        GlStats {
            buffers: objects.count(|object| matches!(object, Object::Buffer(_))),
            textures: objects.count(|object| matches!(object, Object::Texture(_))),
            framebuffers: objects.count(|object| matches!(object, Object::Framebuffer(_))),
            fences: objects.count(|object| matches!(object, Object::Fence(_))),
            images: objects.count(|object| matches!(object, Object::Image(_))),
            maps: self.core.map_count(),
            fences_waited: resources.fences_waited.load(Ordering::Relaxed),
            imports: resources.imported.load(Ordering::Relaxed),
        }
    }

    /// Calls `work` on the context's thread, with the context current, and returns its result. It can
    /// draw with the [names](crate::GlTexture::name) of textures. A panic of `work` is passed on.
    ///
    /// What `work` binds stays bound. cenote restores every binding that its own commands change.
    pub fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&glow::Context) -> R + Send + 'static,
    ) -> Result<R> {
        self.core.run("run the caller's function", |core| Ok(work(&core.resources().driver.gl)))
    }

    /// Waits until the GPU has executed all commands issued so far. After that the memory of textures that
    /// were dropped before is released.
    pub fn finish(&self) -> Result<()> {
        self.core.run("wait for the GPU", |core| {
            Fence::new(core)?.wait(core.resources())?;
            core.resources().drop_finished();
            Ok(())
        })
    }

    /// Closes the context for all handles: deletes its buffers and textures. Every later call that needs
    /// the context fails.
    ///
    /// Maps that exist stay valid. Then this fails with [`MapsAlive`](crate::GlError::MapsAlive), and the
    /// objects are deleted when the last map is dropped. It may be called again. An application must not
    /// destroy its own context before this has returned `Ok`.
    pub fn close(&self) -> Result<()> {
        self.core.close()
    }

    /// Returns whether the context can no longer be used: it was closed or lost, or belongs to the parent
    /// process. (That an application's thread has ended is noticed only by a call that needs the thread.)
    pub fn is_gone(&self) -> bool {
        self.core.check().is_err()
    }
}
