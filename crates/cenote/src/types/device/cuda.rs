//! Counts CUDA GPUs with the library of the driver, if it is installed.
//!
//! # Contract
//! The two functions looked up are part of the CUDA driver API, whose signatures NVIDIA keeps:
//! `CUresult cuInit(unsigned)` and `CUresult cuDeviceGetCount(int *)`, `CUresult` being an `int`.
#![allow(unsafe_code, reason = "a C library loaded at run time")]

use std::ffi::{c_int, c_uint};
use std::sync::OnceLock;

use libloading::{Library, Symbol};

#[cfg(windows)]
const DRIVER: &str = "nvcuda.dll";
#[cfg(not(windows))]
const DRIVER: &str = "libcuda.so.1";

/// Whether there is a CUDA GPU that can be used.
pub fn cuda_available() -> bool {
    cuda_device_count() > 0
}

/// How many CUDA GPUs can be used: 0 without a driver.
///
/// The driver is called once.
pub fn cuda_device_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| ask_driver().unwrap_or(0))
}

fn ask_driver() -> Option<usize> {
    // SAFETY: the initialisers of NVIDIA's driver library may run on any thread.
    let driver = unsafe { Library::new(DRIVER) }.ok()?;
    // SAFETY: the signature is the one this module's contract gives.
    let init: Symbol<'_, unsafe extern "C" fn(c_uint) -> c_int> =
        unsafe { driver.get(b"cuInit\0") }.ok()?;
    // SAFETY: as above.
    let get_count: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
        unsafe { driver.get(b"cuDeviceGetCount\0") }.ok()?;
    // SAFETY: `cuInit` takes flags, which must be 0, and may be called at any time.
    let initialised = unsafe { init(0) };
    let mut count = 0;
    // SAFETY: the pointer is to a live `c_int`; before a successful `cuInit` this only reports.
    let counted = unsafe { get_count(&raw mut count) };
    let found = initialised == 0 && counted == 0;
    // An initialised driver runs threads, so the library must stay loaded.
    std::mem::forget(driver);
    usize::try_from(count).ok().filter(|_| found)
}
