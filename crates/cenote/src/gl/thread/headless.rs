//! A context without a window, on a thread that we start.

use std::ffi::{CStr, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle, ThreadId};
use std::time::Duration;

use crate::error::{Error, GlError, GlGone, Result};
use crate::gl::driver::egl;
use crate::gl::driver::egl::HeadlessContext;
use crate::gl::thread::gl_thread::GlThread;
use crate::gl::thread::queue::GlWork;
use crate::sys;
use crate::sys::fork::Creator;

/// The thread of a headless context. Dropping it ends both, and waits for that.
#[derive(Debug)]
pub(crate) struct HeadlessThread {
    id: ThreadId,
    /// `None` once `end` was called.
    running: Mutex<Option<Running>>,
    creator: Creator,
}

#[derive(Debug)]
struct Running {
    work: Sender<GlWork>,
    thread: JoinHandle<()>,
}

impl HeadlessThread {
    /// Starts the thread and creates the context on it. Fails if either fails.
    pub(crate) fn start() -> Result<Arc<HeadlessThread>> {
        let creator = Creator::this_process();
        let (work, queue) = channel();
        let (created_sender, created) = channel();
        let thread = sys::thread::spawn(Builder::new().name("cenote-gl".into()), move || {
            serve(&queue, &created_sender);
        })
        .map_err(|source| Error::os("starting a thread", source))?;
        let id = thread.thread().id();
        let running = Mutex::new(Some(Running { work, thread }));
        let started = Arc::new(HeadlessThread { id, running, creator });
        created.recv().unwrap_or(Err(GlError::Gone { why: GlGone::Thread }))?;
        Ok(started)
    }

    /// Ends the thread. Waits for that, unless this is that thread.
    pub(crate) fn end(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { work, thread }) = running else { return };
        drop(work);
        if thread::current().id() != self.id {
            // The caller of the job that panicked has received the panic.
            let _ = thread.join();
        }
    }
}

/// Creates the context, reports the result to `created`, and runs work until the sender is dropped.
fn serve(queue: &Receiver<GlWork>, created: &Sender<std::result::Result<(), GlError>>) {
    let context = match HeadlessContext::new() {
        Ok(context) => context,
        Err(error) => return drop(created.send(Err(error))),
    };
    if created.send(Ok(())).is_ok() {
        queue.iter().for_each(GlWork::run);
    }
    drop(context);
}

impl Drop for HeadlessThread {
    fn drop(&mut self) {
        if !self.creator.is_inherited() {
            return self.end();
        }
        // A forked child does not have the thread, and locks that it held are never released.
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(running.take());
    }
}

// SAFETY: the thread has one id. It runs work in the order of its channel, with its context current
// from before the first until after the last. Functions come from EGL. The context ends after the
// sender was dropped, which happens in `drop` and, when the context is closed, in `end`.
#[allow(unsafe_code, reason = "the trait's promises, kept above")]
unsafe impl GlThread for HeadlessThread {
    fn is_current(&self) -> bool {
        thread::current().id() == self.id
    }

    fn submit(&self, work: GlWork) -> std::result::Result<(), GlWork> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &*running {
            Some(running) => running.work.send(work).map_err(|error| error.0),
            None => Err(work),
        }
    }

    fn proc_address(&self, name: &CStr) -> *const c_void {
        egl::proc_address(name)
    }

    /// No limit: the thread does nothing else.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}
