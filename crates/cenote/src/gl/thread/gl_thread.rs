//! The interface to a thread that an OpenGL context is current on.

use std::ffi::{CStr, c_void};
use std::time::Duration;

use crate::gl::thread::queue::GlWork;
use crate::intervals::GL_THREAD_TIMEOUT;

/// The thread that an OpenGL context is current on. An application that owns a context implements this
/// and makes a [`GlContext`](crate::GlContext) of it with [`GlContext::on`](crate::GlContext::on).
///
/// Usually the application keeps a queue of [`GlWork`], which its loop runs once a frame. Work restores
/// every binding that it changes.
///
/// # Safety
/// - `is_current` is true on one thread only, the one where work is run.
/// - Work is run there with the context current, in the order of `submit`, or dropped.
/// - `proc_address`, which is called there, returns OpenGL's function of that name, or null.
/// - The context lives until the `GlThread` is dropped, or [`GlContext::close`] has returned `Ok`.
///
/// [`GlContext::close`]: crate::GlContext::close
#[allow(unsafe_code, reason = "where OpenGL calls go cannot be checked")]
pub unsafe trait GlThread: Send + Sync {
    /// Returns whether the calling thread is the context's thread.
    fn is_current(&self) -> bool;

    /// Queues work for the context's thread and returns at once. Returns the work if the thread has
    /// ended. (Not called on the context's thread, where work runs at once.)
    fn submit(&self, work: GlWork) -> Result<(), GlWork>;

    /// Looks up an OpenGL function, as `eglGetProcAddress` does.
    fn proc_address(&self, name: &CStr) -> *const c_void;

    /// How long a caller waits for the thread to start its work before the call fails. `None` waits
    /// without limit.
    ///
    /// Work that has started in time is waited for until it is done. Work that has not started is
    /// withdrawn and never runs.
    fn timeout(&self) -> Option<Duration> {
        Some(GL_THREAD_TIMEOUT)
    }
}
