//! Contexts that are lost while they are used, by a reset or by a thread that takes no work, and bytes that a
//! driver loses. The driver functions that report this are replaced through the context of an application.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::mpsc::channel;

use cenote::glow::{self, HasContext};
use cenote::{DType, Error, GlContext, GlError, GlGone, UnifiedBuffer};

use super::application_context::Application;
use super::{gone, is_fallback, noise};

const GUILTY_CONTEXT_RESET: u32 = 0x8253;

type Unmap = unsafe extern "system" fn(u32) -> u8;
type ReadPixels = unsafe extern "system" fn(i32, i32, i32, i32, u32, u32, *mut c_void);

thread_local! {
    /// The reset status that the driver reports.
    static RESET: Cell<u32> = const { Cell::new(0) };
    /// The driver loses written bytes.
    static LOSES: Cell<bool> = const { Cell::new(false) };
    static UNMAP: Cell<*const c_void> = const { Cell::new(std::ptr::null()) };
    /// A reset happens while pixels are read.
    static RESETS: Cell<bool> = const { Cell::new(false) };
    /// Pixels are requested in an invalid format.
    static ASKS_WRONG: Cell<bool> = const { Cell::new(false) };
    static READ_PIXELS: Cell<*const c_void> = const { Cell::new(std::ptr::null()) };
}

#[allow(unsafe_code, reason = "a C interface")]
extern "system" fn read_pixels(
    x: i32,
    y: i32,
    width: i32,
    height: i32,
    format: u32,
    kind: u32,
    pixels: *mut c_void,
) {
    // SAFETY: what was looked up under this function's name.
    let read = unsafe { std::mem::transmute::<*const c_void, ReadPixels>(READ_PIXELS.get()) };
    if RESETS.get() {
        RESET.set(GUILTY_CONTEXT_RESET);
    }
    let format = if ASKS_WRONG.get() { 0 } else { format };
    // SAFETY: called as this function was; a wrong format is refused.
    unsafe { read(x, y, width, height, format, kind, pixels) };
}

extern "system" fn reset_status() -> u32 {
    RESET.get()
}

#[allow(unsafe_code, reason = "a C interface")]
extern "system" fn unmap(target: u32) -> u8 {
    // SAFETY: what was looked up under this function's name.
    let unmap = unsafe { std::mem::transmute::<*const c_void, Unmap>(UNMAP.get()) };
    // SAFETY: called as this function was.
    let kept = unsafe { unmap(target) };
    if LOSES.get() { 0 } else { kept }
}

fn instead(name: &CStr, found: *const c_void) -> *const c_void {
    match name.to_bytes() {
        b"glGetGraphicsResetStatus" | b"glGetGraphicsResetStatusARB" => {
            reset_status as *const c_void
        }
        b"glReadPixels" => {
            READ_PIXELS.set(found);
            read_pixels as *const c_void
        }
        b"glUnmapBuffer" => {
            UNMAP.set(found);
            unmap as *const c_void
        }
        _ => found,
    }
}

fn start() -> (Application, GlContext) {
    let application = Application::with(instead);
    let gl = application.context().unwrap();
    (application, gl)
}

/// Sets something on the thread that calls the driver.
pub(super) fn set(application: &Application, set: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = channel();
    application.call(move |_| {
        set();
        sender.send(()).unwrap();
    });
    receiver.recv().unwrap();
}

fn lost<T>(result: &cenote::Result<T>) -> bool {
    matches!(result, Err(Error::Gl(GlError::ContentLost)))
}

pub(super) fn reset_while_a_map_is_alive() {
    let (application, gl) = start();
    let tensor = gl.options().create_from_slice(&noise(64), &[4, 4, 4]).unwrap();
    let mut written = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    let map = tensor.map().unwrap();
    set(&application, || RESET.set(GUILTY_CONTEXT_RESET));
    assert_eq!(gone(gl.finish()), GlGone::Lost);
    assert!(gl.is_gone());
    assert_eq!(gone(tensor.map()), GlGone::Lost);
    assert_eq!(gone(written.map_mut()), GlGone::Lost);
    assert_eq!(gone(texture.read(&mut written)), GlGone::Lost);
    assert_eq!(gone(gl.upload(&tensor)), GlGone::Lost);
    assert_eq!(gone(gl.tensor(&[4], DType::U8)), GlGone::Lost);
    assert_eq!(map.as_bytes().unwrap(), noise(64), "what is mapped stays");
    let refused = gl.close();
    assert!(matches!(refused, Err(Error::Gl(GlError::MapsAlive { maps: 1 }))), "{refused:?}");
    drop(map);
    gl.close().unwrap();
    assert_eq!((gl.stats().buffers, gl.stats().textures), (0, 0));
}

/// The operation in progress returns the loss, and not the error of the driver.
pub(super) fn reset_in_the_middle_of_something() {
    let (application, gl) = start();
    let mut tensor = gl.options().create_from_slice(&noise(64), &[4, 4, 4]).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    set(&application, || {
        RESETS.set(true);
        ASKS_WRONG.set(true);
    });
    assert_eq!(gone(texture.read(&mut tensor)), GlGone::Lost);
    assert!(gl.is_gone());
    gl.close().unwrap();
}

pub(super) fn a_thread_that_takes_no_work_while_a_map_is_alive() {
    let (application, gl) = start();
    let tensor = gl.options().create_from_slice(&noise(64), &[4, 4, 4]).unwrap();
    let map = tensor.map().unwrap();
    application.refuse(true);
    assert_eq!(gone(gl.upload(&tensor)), GlGone::Thread);
    assert_eq!(gone(gl.tensor(&[4], DType::U8)), GlGone::Thread);
    match tensor.map() {
        // The buffer stays mapped, so no work is needed.
        Ok(again) => assert!(!is_fallback() && again.as_bytes().unwrap() == noise(64)),
        Err(Error::Gl(GlError::Gone { why: GlGone::Thread })) => assert!(is_fallback()),
        Err(other) => panic!("{other}"),
    }
    assert_eq!(map.as_bytes().unwrap(), noise(64), "what is mapped stays");
    drop(map);
    application.refuse(false);
    gl.close().unwrap();
    assert_eq!(gl.stats().buffers, 0);
}

/// Only unmapping can lose bytes that way: buffers that stay mapped never do.
pub(super) fn bytes_that_the_driver_lost_are_an_error_until_all_are_written_again() {
    let (application, gl) = start();
    let mut unified = UnifiedBuffer::new(&[4], DType::U8).unwrap();
    unified.set_device(Arc::new(gl.clone())).unwrap();
    unified.host_mut::<u8>().unwrap().fill(1);
    let make = || gl.options().create_from_slice(&noise(64), &[4, 4, 4]).unwrap();
    let (mut tensor, mut other) = (make(), make());
    let mut maps = [tensor.map_mut().unwrap(), other.map_mut().unwrap()];
    maps.iter_mut().for_each(|map| map.as_mut_bytes().unwrap().fill(5));
    set(&application, || LOSES.set(true));
    assert!(lost(&unified.device()), "the device side did not get the bytes");
    drop(maps);
    gl.with(|_| ()).unwrap();
    set(&application, || LOSES.set(false));
    unified.device().unwrap();
    if is_fallback() {
        assert!(lost(&tensor.map()));
        assert!(lost(&gl.upload(&tensor)));
        let mut part = other.narrow(0, 1, 2).unwrap();
        drop(other);
        assert!(lost(&part.map_mut()), "the rest would still be lost");
        tensor.map_mut().unwrap().as_mut_bytes().unwrap().fill(5);
    }
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [5; 64]);
    gl.upload(&tensor).unwrap();
    gl.close().unwrap();
}

/// The driver may have begun anyway, and a texture that stays attached is never freed.
pub(super) fn a_transfer_that_fails_is_fenced_and_leaves_nothing_attached() {
    let (application, gl) = start();
    let mut tensor = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    let texture = gl.texture((4, 4), DType::U8, 4).unwrap();
    set(&application, || ASKS_WRONG.set(true));
    let refused = texture.read(&mut tensor);
    assert!(matches!(refused, Err(Error::Gl(GlError::Refused { .. }))), "{refused:?}");
    assert_eq!(gl.stats().fences, 1, "what is under way is waited for");
    let mut heap = cenote::Tensor::from_vec(vec![0u8; 64], &[4, 4, 4]).unwrap();
    let refused = texture.read(&mut heap);
    assert!(matches!(refused, Err(Error::Gl(GlError::Refused { .. }))), "{refused:?}");
    assert_eq!((gl.stats().framebuffers, gl.with(attached).unwrap()), (1, vec![0]));
    set(&application, || ASKS_WRONG.set(false));
    texture.read(&mut tensor).unwrap();
    tensor.map_mut().unwrap();
    gl.close().unwrap();
}

/// The names of the textures that are attached to framebuffers.
#[allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, reason = "OpenGL is a C interface")]
fn attached(gl: &glow::Context) -> Vec<i32> {
    let names = (1..100).filter_map(std::num::NonZeroU32::new).map(glow::NativeFramebuffer);
    // SAFETY: called where the context is current.
    let found = names.filter(|&name| unsafe { gl.is_framebuffer(name) });
    let of = |name| {
        let (target, place) = (glow::READ_FRAMEBUFFER, glow::COLOR_ATTACHMENT0);
        let asked = glow::FRAMEBUFFER_ATTACHMENT_OBJECT_TYPE;
        // SAFETY: as above; what was bound is bound again.
        unsafe {
            gl.bind_framebuffer(target, Some(name));
            let kind = gl.get_framebuffer_attachment_parameter_i32(target, place, asked);
            gl.bind_framebuffer(target, None);
            kind
        }
    };
    found.map(of).collect()
}
