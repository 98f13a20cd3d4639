//! Runs jobs on the thread of a context.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::error::{GlError, GlGone, Result};
use crate::gl::thread::gl_thread::GlThread;
use crate::gl::thread::headless::HeadlessThread;
use crate::gl::thread::queue::{JobKind, Queue};
use crate::intervals::GL_THREAD_STEP;

/// The thread of a context, and the jobs that wait for it.
#[derive(Debug)]
pub(crate) struct Executor {
    thread: ContextThread,
    queue: Arc<Queue>,
}

enum ContextThread {
    Headless(Arc<HeadlessThread>),
    Application(Arc<dyn GlThread>),
}

impl ContextThread {
    fn get(&self) -> &dyn GlThread {
        match self {
            ContextThread::Headless(thread) => &**thread,
            ContextThread::Application(thread) => &**thread,
        }
    }
}

impl fmt::Debug for ContextThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextThread::Headless(thread) => thread.fmt(f),
            ContextThread::Application(_) => f.write_str("GlThread"),
        }
    }
}

impl Executor {
    /// Runs jobs on a headless thread of ours.
    pub(crate) fn headless(thread: Arc<HeadlessThread>) -> Executor {
        Executor { thread: ContextThread::Headless(thread), queue: Arc::default() }
    }

    /// Runs jobs on a thread of the application.
    pub(crate) fn application(thread: Arc<dyn GlThread>) -> Executor {
        Executor { thread: ContextThread::Application(thread), queue: Arc::default() }
    }

    /// Runs `work` on the context's thread and returns its result. When this returns, `work` has ended
    /// or never starts. On the context's thread `work` runs at once, after the posted jobs.
    ///
    /// Fails if the thread has ended, or does not start the job within its timeout. A panic of `work` is
    /// passed on.
    pub(crate) fn call<R: Send + 'static>(
        &self,
        op: &'static str,
        work: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let thread = self.thread.get();
        if thread.is_current() {
            self.queue.drain_posted();
            return work();
        }
        let (sender, receiver) = sync_channel(1);
        let job = self.queue.push(JobKind::Call, move || {
            // `work` is consumed here, so all that it captured is dropped before the caller gets the answer.
            let answer: thread::Result<Result<R>> = catch_unwind(AssertUnwindSafe(work));
            let _ = sender.send(answer);
        });
        let ticket = job.ticket();
        // If the thread has ended, it returns the job. Dropping that drops `sender` too, unless the job
        // has already run.
        drop(thread.submit(job));
        let answer = match wait(&receiver, thread.timeout()) {
            Err(waited) if self.queue.withdraw(ticket) => {
                return Err(GlError::NoAnswer { op, waited }.into());
            }
            // The job has started, and may use what the caller gets back: wait until it ends.
            Err(_) => receiver.recv().ok(),
            Ok(answer) => answer,
        };
        match answer.ok_or(GlError::Gone { why: GlGone::Thread })? {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Runs `work` on the context's thread at some later time; at once if this is that thread. If the
    /// thread has ended, `work` is dropped.
    pub(crate) fn post(&self, work: impl FnOnce() + Send + 'static) {
        let job = move || {
            // No caller waits that could receive the panic, and the thread may be the application's.
            let _ = catch_unwind(AssertUnwindSafe(work));
        };
        let work = self.queue.push(JobKind::Posted, job);
        if self.thread.get().is_current() {
            self.queue.drain_posted();
        } else {
            drop(self.thread.get().submit(work));
        }
    }

    /// Ends the thread if it is ours.
    pub(crate) fn end(&self) {
        if let ContextThread::Headless(thread) = &self.thread {
            thread.end();
        }
    }
}

/// Waits for an answer. Returns `None` if the sender was dropped, and the time waited as the error if
/// there is no answer after the timeout.
fn wait<T>(receiver: &Receiver<T>, timeout: Option<Duration>) -> Result<Option<T>, Duration> {
    let Some(timeout) = timeout else { return Ok(receiver.recv().ok()) };
    let mut waited = Duration::ZERO;
    loop {
        match receiver.recv_timeout(GL_THREAD_STEP.min(timeout)) {
            Ok(answer) => return Ok(Some(answer)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => waited += GL_THREAD_STEP.min(timeout),
        }
        if waited >= timeout {
            return Err(waited);
        }
    }
}
