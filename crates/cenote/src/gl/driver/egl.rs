//! EGL, loaded at run time: a context without a window, and images of DMA-BUFs.
//!
//! # Contract
//! The library that is loaded by EGL's name is EGL, and the functions that it returns by the names of
//! extensions have the signatures of those. Displays belong to the whole process. We never terminate
//! them, because other code of the process may use them.
#![allow(unsafe_code, reason = "a C library loaded at run time")]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use khronos_egl as egl;

use crate::error::{GlCode, GlError};

type Instance = egl::DynamicInstance<egl::EGL1_4>;
type Result<T> = std::result::Result<T, GlError>;

const PLATFORM_SURFACELESS: c_uint = 0x31dd;
const OPENGL_ES3_BIT: c_int = 0x40;
const CONTEXT_MINOR_VERSION: c_int = 0x30fb;
const ROBUST_ACCESS_EXT: c_int = 0x30bf;
const RESET_STRATEGY_EXT: c_int = 0x3138;
const RESET_STRATEGY_KHR: c_int = 0x31bd;
const LOSE_CONTEXT_ON_RESET: c_int = 0x31bf;
const LINUX_DMA_BUF: c_uint = 0x3270;
const LINUX_DRM_FOURCC: c_int = 0x3271;
/// The attributes of a plane: fd, offset, pitch, low and high half of the modifier.
const PLANES: [[c_int; 5]; 3] = [
    [0x3272, 0x3273, 0x3274, 0x3443, 0x3444],
    [0x3275, 0x3276, 0x3277, 0x3445, 0x3446],
    [0x3278, 0x3279, 0x327a, 0x3447, 0x3448],
];

type GetPlatformDisplay =
    unsafe extern "system" fn(c_uint, *mut c_void, *const c_int) -> egl::EGLDisplay;
type CreateImage = unsafe extern "system" fn(
    egl::EGLDisplay,
    egl::EGLContext,
    c_uint,
    *mut c_void,
    *const c_int,
) -> *mut c_void;
type DestroyImage = unsafe extern "system" fn(egl::EGLDisplay, *mut c_void) -> c_uint;

/// The library. A failure is not cached: the library may be installed later.
fn library() -> Result<&'static Instance> {
    static LIBRARY: OnceLock<Instance> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    // SAFETY: the contract of this module. It is never unloaded (RTLD_NODELETE), and its
    // initialisers may run on any thread.
    let loaded = unsafe { Instance::load_required() }
        .map_err(|source| missing("there is no libEGL.so.1 with EGL 1.4", Some(source.into())))?;
    Ok(LIBRARY.get_or_init(|| loaded))
}

fn missing(
    missing: &'static str,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
) -> GlError {
    GlError::Missing { missing, source }
}

/// Looks up a function by name. Returns null if there is none.
pub(crate) fn proc_address(name: &CStr) -> *const c_void {
    let found = library().ok().and_then(|egl| egl.get_proc_address(name.to_str().ok()?));
    found.map_or(std::ptr::null(), |function| function as *const c_void)
}

fn refused(op: &'static str) -> impl FnOnce(egl::Error) -> GlError {
    move |error| GlError::Refused { op, code: GlCode(error.native().cast_unsigned()) }
}

/// A context without a surface. It is current on the thread that created it until it is dropped there.
#[derive(Debug)]
pub(crate) struct HeadlessContext {
    display: egl::Display,
    context: egl::Context,
}

impl HeadlessContext {
    /// Creates a context and makes it current on this thread. OpenGL ES is tried first, because small
    /// machines have only that. Fails without EGL or without a driver.
    pub(crate) fn new() -> Result<HeadlessContext> {
        let egl = library()?;
        let display = display(egl)?;
        egl.initialize(display).map_err(refused("eglInitialize"))?;
        let extensions = extensions(egl, Some(display));
        if !has(&extensions, "EGL_KHR_surfaceless_context") {
            return Err(missing("the driver has no EGL_KHR_surfaceless_context", None));
        }
        let robust = has(&extensions, "EGL_EXT_create_context_robustness");
        let context = es_context(egl, display, robust).or_else(|_| gl_context(egl, display))?;
        let created = HeadlessContext { display, context };
        egl.make_current(display, None, None, Some(context)).map_err(refused("eglMakeCurrent"))?;
        Ok(created)
    }
}

impl Drop for HeadlessContext {
    fn drop(&mut self) {
        let Ok(egl) = library() else { return };
        // Errors are ignored: the driver owns the objects, and there is nothing else to try.
        let _ = egl.make_current(self.display, None, None, None);
        let _ = egl.destroy_context(self.display, self.context);
        let _ = egl.release_thread();
    }
}

fn display(egl: &Instance) -> Result<egl::Display> {
    let extensions = extensions(egl, None);
    let found = if has(&extensions, "EGL_MESA_platform_surfaceless") {
        surfaceless(egl)
    } else {
        // SAFETY: the default display is always a valid argument.
        unsafe { egl.get_display(egl::DEFAULT_DISPLAY) }
    };
    found.ok_or_else(|| missing("EGL has no display without a window system", None))
}

fn surfaceless(egl: &Instance) -> Option<egl::Display> {
    let function = egl.get_proc_address("eglGetPlatformDisplayEXT")?;
    // SAFETY: EGL_EXT_platform_base, which every platform extension needs, gives this signature.
    let get = unsafe { std::mem::transmute::<extern "system" fn(), GetPlatformDisplay>(function) };
    // SAFETY: this platform takes no native display, and null is an empty list of attributes.
    let display = unsafe { get(PLATFORM_SURFACELESS, std::ptr::null_mut(), std::ptr::null()) };
    // SAFETY: EGL has just returned it.
    (display != egl::NO_DISPLAY).then(|| unsafe { egl::Display::from_ptr(display) })
}

/// The names of extensions: those of a display, or those of EGL itself.
fn extensions(egl: &Instance, display: Option<egl::Display>) -> String {
    let names = egl.query_string(display, egl::EXTENSIONS);
    names.map(|names| names.to_string_lossy().into_owned()).unwrap_or_default()
}

fn has(extensions: &str, name: &str) -> bool {
    extensions.split_ascii_whitespace().any(|extension| extension == name)
}

fn es_context(egl: &Instance, display: egl::Display, robust: bool) -> Result<egl::Context> {
    egl.bind_api(egl::OPENGL_ES_API).map_err(refused("eglBindAPI"))?;
    let config = config(egl, display, OPENGL_ES3_BIT)?;
    let plain = [egl::CONTEXT_CLIENT_VERSION, 3, egl::NONE];
    if robust {
        let (access, strategy) = (ROBUST_ACCESS_EXT, RESET_STRATEGY_EXT);
        let [version, three, _] = plain;
        let attributes = [version, three, access, 1, strategy, LOSE_CONTEXT_ON_RESET, egl::NONE];
        if let Ok(context) = egl.create_context(display, config, None, &attributes) {
            return Ok(context);
        }
    }
    egl.create_context(display, config, None, &plain).map_err(refused("eglCreateContext"))
}

fn gl_context(egl: &Instance, display: egl::Display) -> Result<egl::Context> {
    egl.bind_api(egl::OPENGL_API).map_err(refused("eglBindAPI"))?;
    let config = config(egl, display, egl::OPENGL_BIT)?;
    let newest = [egl::CONTEXT_MAJOR_VERSION, 3, CONTEXT_MINOR_VERSION, 3, egl::NONE];
    let with_reset = [
        egl::CONTEXT_MAJOR_VERSION,
        3,
        CONTEXT_MINOR_VERSION,
        3,
        RESET_STRATEGY_KHR,
        LOSE_CONTEXT_ON_RESET,
        egl::NONE,
    ];
    egl.create_context(display, config, None, &with_reset)
        .or_else(|_| egl.create_context(display, config, None, &newest))
        // An old version too, so that the error can name it.
        .or_else(|_| egl.create_context(display, config, None, &[egl::NONE]))
        .map_err(refused("eglCreateContext"))
}

/// A configuration for this kind of context, without surfaces. (EGL's default would be windows.)
fn config(egl: &Instance, display: egl::Display, renderable: c_int) -> Result<egl::Config> {
    let wanted = [egl::SURFACE_TYPE, 0, egl::RENDERABLE_TYPE, renderable, egl::NONE];
    let found = egl.choose_first_config(display, &wanted).map_err(refused("eglChooseConfig"))?;
    found.ok_or_else(|| missing("EGL has no configuration for OpenGL", None))
}

/// The memory of an image, as EGL's list of attributes.
#[derive(Debug)]
pub(crate) struct DmaBufAttributes {
    list: Vec<c_int>,
    /// The descriptors in the list, kept open until EGL reads them.
    fds: Vec<OwnedFd>,
}

impl DmaBufAttributes {
    /// `None` if a number does not fit EGL's 31 bits.
    pub(crate) fn new(width: usize, height: usize, fourcc: u32) -> Option<Self> {
        let (width, height) = (c_int::try_from(width).ok()?, c_int::try_from(height).ok()?);
        let fourcc = fourcc.cast_signed();
        let list = vec![egl::WIDTH, width, egl::HEIGHT, height, LINUX_DRM_FOURCC, fourcc];
        Some(DmaBufAttributes { list, fds: Vec::new() })
    }

    /// Adds a plane. `None` if it is the fourth, or a number does not fit.
    pub(crate) fn plane(
        &mut self,
        index: usize,
        fd: OwnedFd,
        (offset, stride): (usize, usize),
        modifier: Option<u64>,
    ) -> Option<()> {
        let [fd_name, offset_name, pitch, low, high] = *PLANES.get(index)?;
        let (offset, stride) = (c_int::try_from(offset).ok()?, c_int::try_from(stride).ok()?);
        self.list.extend([fd_name, fd.as_raw_fd(), offset_name, offset, pitch, stride]);
        if let Some(modifier) = modifier {
            let [a, b, c, d, e, f, g, h] = modifier.to_le_bytes();
            let halves = [[a, b, c, d], [e, f, g, h]].map(c_int::from_le_bytes);
            self.list.extend([low, halves[0], high, halves[1]]);
        }
        self.fds.push(fd);
        Some(())
    }
}

/// The functions that create images of DMA-BUFs, on the display of the current context.
#[derive(Debug)]
pub(crate) struct Images {
    display: egl::Display,
    create: CreateImage,
    destroy: DestroyImage,
    /// Whether an image may be tiled or compressed, as a DRM modifier says.
    pub(crate) modifiers: bool,
}

// SAFETY: a display and functions, which every thread may use.
unsafe impl Send for Images {}
// SAFETY: as above; nothing here changes.
unsafe impl Sync for Images {}

impl Images {
    /// The functions for the context that is current on this thread. `None` if it is not EGL's, or EGL
    /// has no such images.
    pub(crate) fn of_current() -> Option<Images> {
        let egl = library().ok()?;
        let display = egl.get_current_display()?;
        let extensions = extensions(egl, Some(display));
        if !has(&extensions, "EGL_EXT_image_dma_buf_import") {
            return None;
        }
        let create = egl.get_proc_address("eglCreateImageKHR")?;
        let destroy = egl.get_proc_address("eglDestroyImageKHR")?;
        Some(Images {
            display,
            // SAFETY: EGL_KHR_image_base, which the import needs, gives this signature.
            create: unsafe { std::mem::transmute::<extern "system" fn(), CreateImage>(create) },
            // SAFETY: as above.
            destroy: unsafe { std::mem::transmute::<extern "system" fn(), DestroyImage>(destroy) },
            modifiers: has(&extensions, "EGL_EXT_image_dma_buf_import_modifiers"),
        })
    }

    /// Creates an image. EGL keeps the memory alive; the descriptors may be closed afterwards.
    pub(crate) fn create(&self, attributes: &DmaBufAttributes) -> Result<usize> {
        let mut list = attributes.list.clone();
        list.push(egl::NONE);
        // SAFETY: the display is initialised; this target takes no context and no buffer; the list
        // ends with EGL_NONE and outlives the call. EGL refuses descriptors that are no DMA-BUF.
        let image = unsafe {
            (self.create)(
                self.display.as_ptr(),
                egl::NO_CONTEXT,
                LINUX_DMA_BUF,
                std::ptr::null_mut(),
                list.as_ptr(),
            )
        };
        if image.is_null() {
            let code = library().ok().and_then(Instance::get_error);
            let code = GlCode(code.map_or(0, |code| code.native().cast_unsigned()));
            return Err(GlError::Refused { op: "eglCreateImageKHR", code });
        }
        Ok(image.expose_provenance())
    }

    pub(crate) fn destroy(&self, image: usize) {
        // SAFETY: the image came from `create` of this display, and is destroyed once.
        unsafe {
            (self.destroy)(self.display.as_ptr(), std::ptr::with_exposed_provenance_mut(image))
        };
    }
}
