//! Where a context lives, and the work that is done there.

use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::intervals::GL_THREAD_TIMEOUT;
use crate::sync::{AtomicU64, Ordering};

/// The thread that an OpenGL context is current on. Applications that have one implement this, and
/// make a [`GlContext`](crate::GlContext) of it with [`GlContext::on`](crate::GlContext::on).
///
/// Usually it has a queue that the application's loop takes [`GlWork`] from, once a frame or whenever
/// there is some. Work binds what it needs, and leaves everything bound as it was.
///
/// # Safety
/// - `is_current` is true on one thread only, the one where work is run.
/// - Work is run there with the context current, in the order of `submit`, or dropped.
/// - `proc_address`, which is called there, gives OpenGL's function of that name, or null.
/// - The context lives until the `GlThread` is dropped, or [`GlContext::close`] has returned `Ok`.
///
/// [`GlContext::close`]: crate::GlContext::close
#[allow(unsafe_code, reason = "where OpenGL calls go cannot be checked")]
pub unsafe trait GlThread: Send + Sync {
    /// Whether the calling thread is the context's.
    fn is_current(&self) -> bool;

    /// Hands work over, without waiting for it. Given back if there is no such thread any more.
    /// (Not called on the context's thread, where work is done at once.)
    fn submit(&self, work: GlWork) -> Result<(), GlWork>;

    /// Looks an OpenGL function up, as `eglGetProcAddress` does.
    fn proc_address(&self, name: &CStr) -> *const c_void;

    /// How long others wait for the thread to come to their work before it is an error. `None` is
    /// for ever. Work that it came to in time is waited for until it is done, and work that it did
    /// not come to is never done.
    fn patience(&self) -> Option<Duration> {
        Some(GL_THREAD_TIMEOUT)
    }
}

/// Work for the thread of a context. Dropped without having been run, it fails for whoever waits.
pub struct GlWork {
    /// None once it was run.
    queue: Option<Arc<Queue>>,
    ticket: u64,
}

impl GlWork {
    /// Does it. To be called on the context's thread, with the context current.
    pub fn run(mut self) {
        if let Some(queue) = self.queue.take() {
            queue.drain();
        }
    }

    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }
}

impl Drop for GlWork {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.withdraw(self.ticket);
        }
    }
}

impl fmt::Debug for GlWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlWork({})", self.ticket)
    }
}

/// Whose a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Somebody waits for it. It may be the caller's own code.
    Asked,
    /// Ours, and short: the end of a map, or of an object. Nobody waits for it.
    Posted,
}

struct Job {
    ticket: u64,
    kind: Kind,
    work: Box<dyn FnOnce() + Send>,
}

/// What is to be done on the thread of a context, in order. Beside the thread's own queue, so that
/// work which comes from the thread itself does not overtake what others have posted.
///
/// On the thread itself that is done first, and what others ask for is not: whoever is at work there
/// may have things bound, or locks taken, that somebody else's code must not meet. Nothing is out of
/// order by that: who asks waits, and has posted nothing since.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    next: AtomicU64,
}

impl Queue {
    /// Adds a job; what stands for it is for the thread.
    pub(crate) fn push(
        self: &Arc<Self>,
        kind: Kind,
        work: impl FnOnce() + Send + 'static,
    ) -> GlWork {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.jobs().push_back(Job { ticket, kind, work: Box::new(work) });
        GlWork { queue: Some(Arc::clone(self)), ticket }
    }

    /// Takes the first job that is like this.
    fn take(&self, like: impl Fn(&Job) -> bool) -> Option<Job> {
        let mut jobs = self.jobs();
        let at = jobs.iter().position(like)?;
        jobs.remove(at)
    }

    /// Takes a job back. Whether it had not begun: then it never will.
    pub(crate) fn withdraw(&self, ticket: u64) -> bool {
        // Dropped outside the lock: what it holds may ask for work in turn.
        self.take(|job| job.ticket == ticket).is_some()
    }

    /// Does all there is to do. Called on the context's thread.
    pub(crate) fn drain(&self) {
        while let Some(job) = self.take(|_| true) {
            (job.work)();
        }
    }

    /// Does what was posted. Called on the context's thread.
    pub(crate) fn drain_posted(&self) {
        while let Some(job) = self.take(|job| job.kind == Kind::Posted) {
            (job.work)();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        // Pushing and popping are whole, and no job runs under the lock.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({})", self.jobs().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicUsize;

    #[test]
    fn jobs_run_in_order_and_a_dropped_one_takes_only_itself_along() {
        let queue = Arc::new(Queue::default());
        let sum = Arc::new(AtomicUsize::new(0));
        let job = |digit: usize| {
            let sum = Arc::clone(&sum);
            move || sum.store(sum.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed)
        };
        let push = |digit| queue.push(Kind::Asked, job(digit));
        let (first, second, third) = (push(1), push(2), push(3));
        drop(second);
        third.run();
        assert_eq!(sum.load(Ordering::Relaxed), 13);
        let fourth = push(4);
        first.run();
        assert!(!queue.withdraw(fourth.ticket()), "it was done");
        drop(fourth);
        assert_eq!(sum.load(Ordering::Relaxed), 134);
        let fifth = push(5);
        assert!(queue.withdraw(fifth.ticket()));
        fifth.run();
        assert_eq!(sum.load(Ordering::Relaxed), 134, "it was withdrawn");
        assert_eq!(Arc::strong_count(&sum), 1, "jobs that are done hold nothing");
    }

    #[test]
    fn what_was_posted_is_done_without_what_others_ask_for() {
        let queue = Arc::new(Queue::default());
        let sum = Arc::new(AtomicUsize::new(0));
        let job = |digit: usize| {
            let sum = Arc::clone(&sum);
            move || sum.store(sum.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed)
        };
        let works = [(Kind::Posted, 1), (Kind::Asked, 2), (Kind::Posted, 3), (Kind::Asked, 4)]
            .map(|(kind, digit)| queue.push(kind, job(digit)));
        queue.drain_posted();
        assert_eq!(sum.load(Ordering::Relaxed), 13);
        works.into_iter().for_each(GlWork::run);
        assert_eq!(sum.load(Ordering::Relaxed), 1324);
    }
}
