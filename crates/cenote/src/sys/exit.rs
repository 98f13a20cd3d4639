//! What is done when the process ends by itself.
#![allow(unsafe_code, reason = "atexit")]

/// Has `f` called when the process exits (not when it is killed), once for each time this is
/// called. A forked child that exits calls it, too.
pub(crate) fn at_exit(f: extern "C" fn()) {
    // SAFETY: `f` is an `extern "C"` function that takes nothing, and so cannot unwind: a panic
    // in it aborts. If there is no memory for the entry it is not called, which callers must
    // expect anyway: a process can be killed.
    unsafe { libc::atexit(f) };
}
