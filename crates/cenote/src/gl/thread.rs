//! Where a context lives, and the work that is done there.

use std::collections::VecDeque;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    /// for ever.
    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_secs(10))
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
}

impl Drop for GlWork {
    fn drop(&mut self) {
        // The job is dropped outside the lock: what it holds may ask for work in turn.
        drop(self.queue.take().and_then(|queue| queue.withdraw(self.ticket)));
    }
}

impl fmt::Debug for GlWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GlWork({})", self.ticket)
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// What is to be done on the thread of a context, in order. Beside the thread's own queue, so that
/// work which comes from the thread itself does not overtake what others have asked for.
#[derive(Default)]
pub(super) struct Queue {
    jobs: Mutex<VecDeque<(u64, Job)>>,
    next: AtomicU64,
}

impl Queue {
    /// Adds a job; what stands for it is for the thread.
    pub(super) fn push(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> GlWork {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.jobs().push_back((ticket, Box::new(job)));
        GlWork { queue: Some(Arc::clone(self)), ticket }
    }

    fn pop(&self) -> Option<Job> {
        self.jobs().pop_front().map(|(_, job)| job)
    }

    fn withdraw(&self, ticket: u64) -> Option<Job> {
        let mut jobs = self.jobs();
        let at = jobs.iter().position(|&(other, _)| other == ticket)?;
        jobs.remove(at).map(|(_, job)| job)
    }

    /// Does all there is to do. Called on the context's thread.
    pub(super) fn drain(&self) {
        while let Some(job) = self.pop() {
            job();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, VecDeque<(u64, Job)>> {
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
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn jobs_run_in_order_and_a_dropped_one_takes_only_itself_along() {
        let queue = Arc::new(Queue::default());
        let sum = Arc::new(AtomicUsize::new(0));
        let job = |digit: usize| {
            let sum = Arc::clone(&sum);
            move || sum.store(sum.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed)
        };
        let (first, second, third) = (queue.push(job(1)), queue.push(job(2)), queue.push(job(3)));
        drop(second);
        third.run();
        assert_eq!(sum.load(Ordering::Relaxed), 13);
        let fourth = queue.push(job(4));
        first.run();
        drop(fourth);
        assert_eq!(sum.load(Ordering::Relaxed), 134);
        assert_eq!(Arc::strong_count(&sum), 1, "jobs that are done hold nothing");
    }
}
