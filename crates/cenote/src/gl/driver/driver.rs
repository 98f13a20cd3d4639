//! The driver's functions and features.
//!
//! # Contract
//! Functions are called only on the thread of the context that they were looked up for. They have the
//! signatures of OpenGL's registry.
#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fmt;

use glow::HasContext;

use crate::error::{GlCode, GlError, GlGone};
use crate::gl::driver::egl::{DmaBufAttributes, Images};
use crate::gl::objects::Object;

type Result<T> = std::result::Result<T, GlError>;

const CONTEXT_LOST: u32 = 0x0507;

/// The most errors that are read in a row. A driver that has lost the context may report errors without
/// end.
const MAX_ERRORS: usize = 32;

type UnmapBuffer = unsafe extern "system" fn(c_uint) -> u8;
type ResetStatus = unsafe extern "system" fn() -> c_uint;
type ImageTargetTexture = unsafe extern "system" fn(c_uint, *mut c_void);

pub(crate) struct Driver {
    pub(crate) gl: glow::Context,
    /// The version, as the driver reports it.
    pub(crate) version: String,
    pub(crate) renderer: String,
    /// Whether buffers can stay mapped while the GPU uses them (`persistent.rs`).
    pub(crate) persistent: bool,
    /// OpenGL rather than OpenGL ES. Then every format can be read back as it is.
    pub(crate) is_desktop: bool,
    /// Unlike glow's function, it returns whether the contents were lost.
    unmap: UnmapBuffer,
    /// Returns whether the context was reset. Not every driver has it.
    reset: Option<ResetStatus>,
    images: Option<(Images, ImageTargetTexture)>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({} {}, persistent: {})", self.renderer, self.version, self.persistent)
    }
}

impl Driver {
    /// Looks up the functions of the current context. Fails if there is none, or its version is too old.
    /// Called on its thread. `persistent` is false until the caller sets it.
    pub(crate) fn load(proc_address: impl Fn(&CStr) -> *const c_void) -> Result<Driver> {
        let version = version(&proc_address)?;
        let is_desktop = check_version(&version)?;
        let unmap = proc_address(c"glUnmapBuffer");
        if unmap.is_null() {
            return Err(GlError::TooOld { found: version.into() });
        }
        // SAFETY: the contract of this module; the check above found a version in the form that glow
        // expects.
        let gl = unsafe { glow::Context::from_loader_function_cstr(&proc_address) };
        // SAFETY: a context is current, and the name is one that every context has.
        let renderer = unsafe { gl.get_parameter_string(glow::RENDERER) };
        Ok(Driver {
            version,
            renderer,
            persistent: false,
            is_desktop,
            // SAFETY: not null, and OpenGL's function of this name.
            unmap: unsafe { std::mem::transmute::<*const c_void, UnmapBuffer>(unmap) },
            reset: reset_status(&gl, is_desktop, &proc_address),
            images: images(&gl, &proc_address),
            gl,
        })
    }

    /// Returns whether the driver has an extension: `es` for OpenGL ES, `desktop` for OpenGL.
    pub(crate) fn has_extension(&self, es: &str, desktop: &str) -> bool {
        let extensions = self.gl.supported_extensions();
        extensions.contains(if self.is_desktop { desktop } else { es })
    }

    /// The functions for images of DMA-BUFs, if the driver has them.
    pub(crate) fn images(&self) -> Option<&Images> {
        self.images.as_ref().map(|(images, _)| images)
    }

    /// Creates an image of a DMA-BUF. `None` if the driver has no such images.
    pub(crate) fn create_image(&self, attributes: &DmaBufAttributes) -> Option<Result<usize>> {
        self.images().map(|images| images.create(attributes))
    }

    /// Makes an image the contents of the bound texture.
    pub(crate) fn image_to_texture(&self, target: u32, image: usize) {
        if let Some((_, bind)) = &self.images {
            // SAFETY: the image is alive, and a texture is bound; the driver refuses a target that
            // it does not have.
            unsafe { bind(target, std::ptr::with_exposed_provenance_mut(image)) };
        }
    }

    /// Unmaps the buffer bound to the target. Returns false if the contents were lost.
    pub(crate) fn unmap(&self, target: u32) -> bool {
        // SAFETY: called on the context's thread; for a target with nothing mapped OpenGL reports an
        // error.
        unsafe { (self.unmap)(target) != 0 }
    }

    /// Fails if the context was reset. Its objects then have names but no contents.
    pub(crate) fn check_reset(&self) -> Result<()> {
        // SAFETY: called on the context's thread.
        match self.reset.map_or(glow::NO_ERROR, |status| unsafe { status() }) {
            glow::NO_ERROR => Ok(()),
            _ => Err(GlError::Gone { why: GlGone::Lost }),
        }
    }

    /// Discards the errors of earlier commands, so that the next error is that of ours.
    pub(crate) fn clear_errors(&self) {
        for _ in 0..MAX_ERRORS {
            // SAFETY: called on the context's thread.
            if unsafe { self.gl.get_error() } == glow::NO_ERROR {
                return;
            }
        }
    }

    /// Fails if a command since the last check failed. `op` is its name.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        // SAFETY: called on the context's thread.
        match unsafe { self.gl.get_error() } {
            glow::NO_ERROR => Ok(()),
            CONTEXT_LOST => Err(GlError::Gone { why: GlGone::Lost }),
            code => Err(GlError::Refused { op, code: GlCode(code) }),
        }
    }

    /// Creates a fence after all commands issued so far, and returns its address. `None` if the driver
    /// refuses. Called on the context's thread.
    pub(crate) fn create_fence(&self) -> Option<usize> {
        // SAFETY: called on the context's thread, with the only condition that OpenGL defines.
        let created = unsafe { self.gl.fence_sync(glow::SYNC_GPU_COMMANDS_COMPLETE, 0) };
        let address = created.map_or(0, |fence| fence.0.expose_provenance());
        // SAFETY: called on the context's thread. Commands that are not flushed might never be executed.
        unsafe { self.gl.flush() };
        (address != 0).then_some(address)
    }

    /// Returns whether the GPU has passed a fence, or never will because the context is lost. Called on
    /// the context's thread, with a fence of [`create_fence`](Driver::create_fence) that is not deleted.
    pub(crate) fn is_fence_done(&self, address: usize) -> bool {
        // SAFETY: the caller's promise.
        let status = unsafe { self.gl.client_wait_sync(native_fence(address), 0, 0) };
        status != glow::TIMEOUT_EXPIRED
    }

    /// Deletes an object. Called on the context's thread, once for each object.
    pub(crate) fn delete(&self, object: Object) {
        match object {
            // SAFETY: it names an object of this context, which is deleted only here, once.
            Object::Buffer(name) => unsafe { self.gl.delete_buffer(glow::NativeBuffer(name)) },
            // SAFETY: as above.
            Object::Texture(name) => unsafe { self.gl.delete_texture(glow::NativeTexture(name)) },
            Object::Framebuffer(name) => {
                // SAFETY: as above.
                unsafe { self.gl.delete_framebuffer(glow::NativeFramebuffer(name)) }
            }
            // SAFETY: as above; the fence came from `create_fence`.
            Object::Fence(address) => unsafe { self.gl.delete_sync(native_fence(address)) },
            Object::Image(address) => {
                if let Some((images, _)) = &self.images {
                    images.destroy(address);
                }
            }
        }
    }
}

/// The version that the current context reports.
fn version(proc_address: impl Fn(&CStr) -> *const c_void) -> Result<String> {
    let nothing = GlError::Missing { missing: "no context is current on its thread", source: None };
    let function = proc_address(c"glGetString");
    if function.is_null() {
        return Err(nothing);
    }
    type GetString = unsafe extern "system" fn(c_uint) -> *const c_char;
    // SAFETY: not null, and OpenGL's function of this name.
    let get = unsafe { std::mem::transmute::<*const c_void, GetString>(function) };
    // SAFETY: called on the context's thread with a name that every context has.
    let text = unsafe { get(glow::VERSION) };
    if text.is_null() {
        return Err(nothing);
    }
    // SAFETY: OpenGL's strings end with NUL and are never freed.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

/// Returns whether it is OpenGL rather than OpenGL ES. Fails if it is too old, or no version at all.
fn check_version(version: &str) -> Result<bool> {
    let too_old = || GlError::TooOld { found: version.into() };
    let embedded = version.strip_prefix("OpenGL ES ");
    let numbers = embedded.unwrap_or(version);
    let mut parts = numbers.split([' ', '.']);
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    let found = number().zip(number()).ok_or_else(too_old)?;
    let needed = if embedded.is_some() { (3, 0) } else { (3, 3) };
    if found < needed { Err(too_old()) } else { Ok(embedded.is_none()) }
}

/// The function that returns whether the context was reset, by the name that the driver's extension
/// gives it. (A driver may return functions for the other names too, which do nothing.)
fn reset_status(
    gl: &glow::Context,
    is_desktop: bool,
    proc_address: impl Fn(&CStr) -> *const c_void,
) -> Option<ResetStatus> {
    let names = match is_desktop {
        true => [
            ("GL_KHR_robustness", c"glGetGraphicsResetStatus"),
            ("GL_ARB_robustness", c"glGetGraphicsResetStatusARB"),
        ],
        false => [
            ("GL_KHR_robustness", c"glGetGraphicsResetStatusKHR"),
            ("GL_EXT_robustness", c"glGetGraphicsResetStatusEXT"),
        ],
    };
    let extensions = gl.supported_extensions();
    let (_, name) = names.into_iter().find(|(extension, _)| extensions.contains(*extension))?;
    let function = proc_address(name);
    // SAFETY: not null, and the function of the extension above.
    (!function.is_null())
        .then(|| unsafe { std::mem::transmute::<*const c_void, ResetStatus>(function) })
}

/// The functions for images of DMA-BUFs, if the driver has all of them.
fn images(
    gl: &glow::Context,
    proc_address: impl Fn(&CStr) -> *const c_void,
) -> Option<(Images, ImageTargetTexture)> {
    if !gl.supported_extensions().contains("GL_OES_EGL_image") {
        return None;
    }
    let function = proc_address(c"glEGLImageTargetTexture2DOES");
    let images = Images::of_current()?;
    // SAFETY: not null, and the function of the extension above.
    let target = (!function.is_null())
        .then(|| unsafe { std::mem::transmute::<*const c_void, ImageTargetTexture>(function) })?;
    Some((images, target))
}

/// The fence at an address that [`Driver::create_fence`] returned.
pub(crate) fn native_fence(address: usize) -> glow::NativeFence {
    glow::NativeFence(std::ptr::with_exposed_provenance_mut(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_old_ones_refused() {
        for (version, desktop) in [
            ("OpenGL ES 3.2 Mesa 22.3.6", false),
            ("OpenGL ES 3.0", false),
            ("4.5 (Core Profile) Mesa 22.3.6", true),
            ("3.3.0 NVIDIA 390.87", true),
        ] {
            assert_eq!(check_version(version).unwrap(), desktop, "{version}");
        }
        for version in
            ["OpenGL ES 2.0 Mesa", "3.2", "2.1 Mesa", "", "OpenGL ES", "x.y", "99999999999.0"]
        {
            assert!(check_version(version).is_err(), "{version}");
        }
    }
}
