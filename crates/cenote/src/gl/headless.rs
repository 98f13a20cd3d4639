//! A context of our own, without a window, on a thread of its own.

use std::ffi::{CStr, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle, ThreadId};
use std::time::Duration;

use crate::error::{Error, GlError, GlGone, Result};
use crate::gl::egl;
use crate::gl::egl::Headless;
use crate::gl::thread::{GlThread, GlWork};
use crate::sys;
use crate::sys::fork;

/// The thread of a headless context. Dropping it ends both, and waits until they have.
#[derive(Debug)]
pub(crate) struct OwnThread {
    id: ThreadId,
    /// None once it was ended.
    running: Mutex<Option<Running>>,
    epoch: u64,
}

#[derive(Debug)]
struct Running {
    work: Sender<GlWork>,
    thread: JoinHandle<()>,
}

impl OwnThread {
    pub(crate) fn start() -> Result<Arc<OwnThread>> {
        let epoch = fork::epoch_from_now_on();
        let (work, queue) = channel();
        let (tell, told) = channel();
        let thread = sys::thread::spawn(Builder::new().name("cenote-gl".into()), move || {
            serve(&queue, &tell);
        })
        .map_err(|source| Error::os("starting a thread", source))?;
        let id = thread.thread().id();
        let running = Mutex::new(Some(Running { work, thread }));
        let started = Arc::new(OwnThread { id, running, epoch });
        told.recv().unwrap_or(Err(GlError::Gone { why: GlGone::Thread }))?;
        Ok(started)
    }

    /// Ends the thread, and waits for that unless it is this one.
    pub(crate) fn end(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { work, thread }) = running else { return };
        drop(work);
        if thread::current().id() != self.id {
            // A panic on it has been seen by whoever waited.
            let _ = thread.join();
        }
    }
}

fn serve(queue: &Receiver<GlWork>, tell: &Sender<std::result::Result<(), GlError>>) {
    let context = match Headless::new() {
        Ok(context) => context,
        Err(error) => return drop(tell.send(Err(error))),
    };
    if tell.send(Ok(())).is_ok() {
        queue.iter().for_each(GlWork::run);
    }
    drop(context);
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if self.epoch == fork::epoch() {
            return self.end();
        }
        // There is no such thread in a forked child, and its locks may be held for ever.
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(running.take());
    }
}

// SAFETY: the thread has one id; it runs work in the order of its channel, with its context current
// from before the first until after the last; functions come from EGL; the context ends after the
// sender was dropped, which `drop` and, when it is closed, `end` do.
#[allow(unsafe_code, reason = "the trait's promises, kept above")]
unsafe impl GlThread for OwnThread {
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

    /// It does nothing else.
    fn patience(&self) -> Option<Duration> {
        None
    }
}
