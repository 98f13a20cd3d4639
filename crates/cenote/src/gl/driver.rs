//! The driver's functions, and what it can do.
//!
//! # Contract
//! Functions are called on the thread of the context that they were looked up for, and only there;
//! they have the signatures that OpenGL's registry gives.
#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fmt;

use glow::HasContext;

use crate::error::{GlCode, GlError, GlGone};
use crate::gl::egl::{DmaBufAttributes, Images};
use crate::gl::objects::Object;

type Result<T> = std::result::Result<T, GlError>;

const CONTEXT_LOST: u32 = 0x0507;

/// A driver that says there are errors for ever has lost the context.
const MOST_ERRORS: usize = 32;

type UnmapBuffer = unsafe extern "system" fn(c_uint) -> u8;
type ResetStatus = unsafe extern "system" fn() -> c_uint;
type ImageTargetTexture = unsafe extern "system" fn(c_uint, *mut c_void);

pub(crate) struct Driver {
    pub(crate) gl: glow::Context,
    /// What its maker calls it.
    pub(crate) version: String,
    pub(crate) renderer: String,
    /// Whether buffers can stay mapped while they are used.
    pub(crate) persistent: bool,
    /// Whether every format can be read back as it is.
    pub(crate) is_desktop: bool,
    /// Unlike glow's, it tells whether the contents were lost.
    unmap: UnmapBuffer,
    /// Whether the context was reset. Not every driver tells.
    reset: Option<ResetStatus>,
    images: Option<(Images, ImageTargetTexture)>,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Driver({} {}, persistent: {})", self.renderer, self.version, self.persistent)
    }
}

impl Driver {
    /// Looks the functions of the current context up. To be called on its thread.
    pub(crate) fn load(proc_address: impl Fn(&CStr) -> *const c_void) -> Result<Driver> {
        let version = version(&proc_address)?;
        let is_desktop = check_version(&version)?;
        let unmap = proc_address(c"glUnmapBuffer");
        if unmap.is_null() {
            return Err(GlError::TooOld { found: version.into() });
        }
        // SAFETY: the contract of this module; that there is a version, in the form that glow
        // expects, was checked above.
        let gl = unsafe { glow::Context::from_loader_function_cstr(&proc_address) };
        // SAFETY: a context is current, and the name is one that every context has.
        let renderer = unsafe { gl.get_parameter_string(glow::RENDERER) };
        let mut driver = Driver {
            version,
            renderer,
            persistent: false,
            is_desktop,
            // SAFETY: not null, and OpenGL's by this name.
            unmap: unsafe { std::mem::transmute::<*const c_void, UnmapBuffer>(unmap) },
            reset: reset_status(&gl, is_desktop, &proc_address),
            images: images(&gl, &proc_address),
            gl,
        };
        driver.persistent = driver.has("GL_EXT_buffer_storage", "GL_ARB_buffer_storage")
            && crate::gl::state::try_persistent(&driver);
        Ok(driver)
    }

    /// Whether there is an extension, the one of OpenGL ES or that of OpenGL.
    fn has(&self, es: &str, desktop: &str) -> bool {
        let extensions = self.gl.supported_extensions();
        extensions.contains(if self.is_desktop { desktop } else { es })
    }

    pub(crate) fn images(&self) -> Option<&Images> {
        self.images.as_ref().map(|(images, _)| images)
    }

    /// Makes an image of a DMA-BUF. None if this driver cannot.
    pub(crate) fn create_image(&self, attributes: &DmaBufAttributes) -> Option<Result<usize>> {
        self.images().map(|images| images.create(attributes))
    }

    /// Makes an image the contents of the texture that is bound.
    pub(crate) fn image_to_texture(&self, target: u32, image: usize) {
        if let Some((_, bind)) = &self.images {
            // SAFETY: the image is alive, and a texture is bound; a target that the driver does not
            // have is refused.
            unsafe { bind(target, std::ptr::with_exposed_provenance_mut(image)) };
        }
    }

    /// Unmaps what is bound to the target. Whether the contents are as they were written.
    pub(crate) fn unmap(&self, target: u32) -> bool {
        // SAFETY: called on the context's thread; a target with nothing mapped is an error of
        // OpenGL's, not ours.
        unsafe { (self.unmap)(target) != 0 }
    }

    /// An error if the context was reset: its objects are there in name only.
    pub(crate) fn check_reset(&self) -> Result<()> {
        // SAFETY: called on the context's thread.
        match self.reset.map_or(glow::NO_ERROR, |status| unsafe { status() }) {
            glow::NO_ERROR => Ok(()),
            _ => Err(GlError::Gone { why: GlGone::Lost }),
        }
    }

    /// Forgets errors of others, so that the next one is ours.
    pub(crate) fn forget_errors(&self) {
        for _ in 0..MOST_ERRORS {
            // SAFETY: called on the context's thread.
            if unsafe { self.gl.get_error() } == glow::NO_ERROR {
                return;
            }
        }
    }

    /// The error of what was done last, if there is one.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        // SAFETY: called on the context's thread.
        match unsafe { self.gl.get_error() } {
            glow::NO_ERROR => Ok(()),
            CONTEXT_LOST => Err(GlError::Gone { why: GlGone::Lost }),
            code => Err(GlError::Refused { op, code: GlCode(code) }),
        }
    }

    pub(crate) fn delete(&self, object: Object) {
        match object {
            // SAFETY: the name is that of an object of this context, and is given up with this, once.
            Object::Buffer(name) => unsafe { self.gl.delete_buffer(glow::NativeBuffer(name)) },
            // SAFETY: as above.
            Object::Texture(name) => unsafe { self.gl.delete_texture(glow::NativeTexture(name)) },
            Object::Framebuffer(name) => {
                // SAFETY: as above.
                unsafe { self.gl.delete_framebuffer(glow::NativeFramebuffer(name)) }
            }
            Object::Fence(address) => crate::gl::fence::delete(self, address),
            Object::Image(address) => {
                if let Some((images, _)) = &self.images {
                    images.destroy(address);
                }
            }
        }
    }
}

/// What the current context says of its version.
fn version(proc_address: impl Fn(&CStr) -> *const c_void) -> Result<String> {
    let nothing = GlError::Missing { missing: "no context is current on its thread", source: None };
    let function = proc_address(c"glGetString");
    if function.is_null() {
        return Err(nothing);
    }
    type GetString = unsafe extern "system" fn(c_uint) -> *const c_char;
    // SAFETY: not null, and OpenGL's by this name.
    let get = unsafe { std::mem::transmute::<*const c_void, GetString>(function) };
    // SAFETY: called on the context's thread with a name that every context has.
    let text = unsafe { get(glow::VERSION) };
    if text.is_null() {
        return Err(nothing);
    }
    // SAFETY: a string of OpenGL's ends with NUL and stays.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

/// Whether it is OpenGL rather than OpenGL ES. An error if it is too old, or no version at all.
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

/// The function that tells of a reset, under the name that the driver's extension gives it. (It may be
/// looked up under other names as well, and do nothing.)
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
    // SAFETY: not null, and that of the extension above.
    (!function.is_null())
        .then(|| unsafe { std::mem::transmute::<*const c_void, ResetStatus>(function) })
}

fn images(
    gl: &glow::Context,
    proc_address: impl Fn(&CStr) -> *const c_void,
) -> Option<(Images, ImageTargetTexture)> {
    if !gl.supported_extensions().contains("GL_OES_EGL_image") {
        return None;
    }
    let function = proc_address(c"glEGLImageTargetTexture2DOES");
    let images = Images::of_current()?;
    // SAFETY: not null, and that of the extension above.
    let target = (!function.is_null())
        .then(|| unsafe { std::mem::transmute::<*const c_void, ImageTargetTexture>(function) })?;
    Some((images, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_understood_or_refused() {
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
