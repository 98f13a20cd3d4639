//! The handle of a context.

use std::sync::Arc;

use crate::error::Result;
use crate::gl::core::Core;
use crate::gl::fence::Fence;
use crate::gl::objects::Object;
use crate::gl::thread::GlThread;
use crate::sync::Ordering;

/// An OpenGL context: makes tensors in its buffers, and textures of tensors.
///
/// It is used from any thread. Tensors and textures keep it alive, as clones of the handle do, until
/// it is [closed](GlContext::close).
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

/// What a driver is, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlInfo {
    /// The version, as the driver tells it.
    pub version: String,
    /// What draws.
    pub renderer: String,
    /// Whether tensors stay mapped, so that mapping them again costs nothing.
    pub persistent_maps: bool,
    /// Whether DMA-BUFs can become textures.
    pub dma_buf_import: bool,
    /// Whether they may be tiled or compressed, as a modifier tells.
    pub dma_buf_modifiers: bool,
}

/// What a context holds, and what it has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct GlStats {
    /// Buffers: tensors, and device sides of unified buffers.
    pub buffers: usize,
    /// Textures.
    pub textures: usize,
    /// Framebuffers: at most one, by which textures are read.
    pub framebuffers: usize,
    /// Fences that nobody has waited for yet.
    pub fences: usize,
    /// Images of DMA-BUFs.
    pub images: usize,
    /// Maps that are alive.
    pub maps: usize,
    /// Fences that were waited for so far.
    pub fences_waited: u64,
    /// DMA-BUFs that became textures so far. One that is found again is not counted.
    pub imports: u64,
}

impl GlContext {
    /// A context of our own, without a window, on a thread of its own: OpenGL ES 3, else OpenGL 3.3.
    ///
    /// `libEGL.so.1` is loaded now; without it, or without a driver, this is an error.
    pub fn headless() -> Result<GlContext> {
        Ok(GlContext { core: Core::headless()? })
    }

    /// A context that the application has, on a thread of its own. It must be OpenGL ES 3.0, or
    /// OpenGL 3.3, or newer.
    pub fn on(thread: Arc<dyn GlThread>) -> Result<GlContext> {
        Ok(GlContext { core: Core::on(thread)? })
    }

    pub(crate) fn of(core: &Arc<Core>) -> GlContext {
        GlContext { core: Arc::clone(core) }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What the driver is.
    pub fn info(&self) -> GlInfo {
        let driver = &self.core.shared().driver;
        GlInfo {
            version: driver.version.clone(),
            renderer: driver.renderer.clone(),
            persistent_maps: driver.persistent,
            dma_buf_import: driver.images().is_some(),
            dma_buf_modifiers: driver.images().is_some_and(|images| images.modifiers),
        }
    }

    /// What it holds now.
    pub fn stats(&self) -> GlStats {
        let shared = self.core.shared();
        let objects = &shared.objects;
        GlStats {
            buffers: objects.count(|object| matches!(object, Object::Buffer(_))),
            textures: objects.count(|object| matches!(object, Object::Texture(_))),
            framebuffers: objects.count(|object| matches!(object, Object::Framebuffer(_))),
            fences: objects.count(|object| matches!(object, Object::Fence(_))),
            images: objects.count(|object| matches!(object, Object::Image(_))),
            maps: self.core.maps(),
            fences_waited: shared.fences_waited.load(Ordering::Relaxed),
            imports: shared.imported.load(Ordering::Relaxed),
        }
    }

    /// Calls `work` on the context's thread, with the context current, and waits for what it
    /// returns: to draw, say, with the [names](crate::GlTexture::name) of textures. A panic of
    /// `work` is passed on.
    ///
    /// What it binds stays bound; what cenote does binds what it needs, and puts back what was
    /// bound before.
    pub fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&glow::Context) -> R + Send + 'static,
    ) -> Result<R> {
        self.core.run("do the caller's work", |core| Ok(work(&core.shared().driver.gl)))
    }

    /// Waits until the GPU has done all that it was told to. It no longer holds the memory of textures
    /// that were dropped before.
    pub fn finish(&self) -> Result<()> {
        self.core.run("wait for the GPU", |core| {
            Fence::new(core)?.wait(core.shared())?;
            core.shared().let_go();
            Ok(())
        })
    }

    /// Ends the use of the context, whoever else has a handle: its buffers and textures are deleted,
    /// and from now on all that needs it is an error.
    ///
    /// Maps that are alive keep what they show. Then this is an error
    /// ([`MapsAlive`](crate::GlError::MapsAlive)), and the rest is done when the last of them is
    /// dropped. An application must not destroy its own context before this has returned `Ok`; it may
    /// be called again.
    pub fn close(&self) -> Result<()> {
        self.core.close()
    }

    /// Whether it can be used no more: closed, lost, or inherited through fork. (That the thread of an
    /// application has ended is found out by asking it for something.)
    pub fn is_gone(&self) -> bool {
        self.core.check().is_err()
    }
}
