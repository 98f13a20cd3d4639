//! Contexts that are lost while they are used: to a reset, to a thread that takes no work; and bytes that
//! a driver loses. The driver's functions that tell of it are those of an application here.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::sync::mpsc::channel;

use cenote::{DType, Error, GlContext, GlError, GlGone, UnifiedBuffer};

use super::application::Application;
use super::{gone, is_fallback, noise};

const GUILTY_CONTEXT_RESET: u32 = 0x8253;

type Unmap = unsafe extern "system" fn(u32) -> u8;

thread_local! {
    /// What the driver says of resets.
    static RESET: Cell<u32> = const { Cell::new(0) };
    /// The driver loses what was written.
    static LOSES: Cell<bool> = const { Cell::new(false) };
    static UNMAP: Cell<*const c_void> = const { Cell::new(std::ptr::null()) };
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

/// Has something set where the driver's functions are called.
fn set(application: &Application, set: impl FnOnce() + Send + 'static) {
    let (tell, told) = channel();
    application.call(move |_| {
        set();
        tell.send(()).unwrap();
    });
    told.recv().unwrap();
}

fn lost<T>(result: cenote::Result<T>) -> bool {
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

/// What was under way when it happened is told that, and not what the driver said on the way.
pub(super) fn reset_in_the_middle_of_something() {
    let (_application, gl) = start();
    let refused = gl.with(|_| RESET.set(GUILTY_CONTEXT_RESET));
    refused.unwrap();
    assert_eq!(gone(gl.with(|_| ())), GlGone::Lost);
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
        // It stays mapped, so nobody has to be asked.
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

/// Only what is unmapped can be lost that way: buffers that stay mapped never are.
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
    assert!(lost(unified.device()), "the device side did not get the bytes");
    drop(maps);
    gl.with(|_| ()).unwrap();
    set(&application, || LOSES.set(false));
    unified.device().unwrap();
    if is_fallback() {
        assert!(lost(tensor.map()));
        assert!(lost(gl.upload(&tensor)));
        let mut part = other.narrow(0, 1, 2).unwrap();
        drop(other);
        assert!(lost(part.map_mut()), "the rest would still be lost");
        tensor.map_mut().unwrap().as_mut_bytes().unwrap().fill(5);
    }
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [5; 64]);
    gl.upload(&tensor).unwrap();
    gl.close().unwrap();
}
