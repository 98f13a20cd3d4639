//! Functions that run when the process exits.
#![allow(unsafe_code, reason = "atexit")]

/// Calls `f` when the process exits, once for each call of this function. A process that is killed does not call it; a
/// forked child that exits does.
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: `f` is an `extern "C"` function without arguments, so it does not unwind: a panic in it aborts. If
    // atexit(3) fails for want of memory, `f` is not called. Callers must expect that anyway: a process can be killed.
    unsafe { libc::atexit(f) };
}
