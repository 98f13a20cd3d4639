//! The jobs that wait for a context's thread, in order.

use crate::sync::{AtomicU64, Ordering};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Work for the thread of a context. If it is dropped without having been run, the call that submitted
/// it fails.
pub struct GlWork {
    /// `None` once the work was run.
    queue: Option<Arc<Queue>>,
    ticket: u64,
}

impl GlWork {
    /// Does the work. Call it on the context's thread, with the context current.
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

/// Whether a caller waits for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// A caller waits for the result. The job may be code of the application.
    Call,
    /// No caller waits. The job is ours and short: it ends a map or deletes an object.
    Posted,
}

struct Job {
    ticket: u64,
    kind: JobKind,
    work: Box<dyn FnOnce() + Send>,
}

/// The jobs for the thread of a context, in order. The thread has a queue too, of [`GlWork`]. This one
/// exists so that a job which the context's thread submits itself does not overtake posted jobs.
///
/// The context's thread runs posted jobs before its own job, but not the calls of other threads: the code
/// that is running there may have objects bound or locks taken, which code of the application must not
/// see. The order is kept all the same: a caller waits for its call, and has posted nothing since.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    next: AtomicU64,
}

impl Queue {
    /// Adds a job. Returns the work that the context's thread runs for it.
    pub(crate) fn push(
        self: &Arc<Self>,
        kind: JobKind,
        work: impl FnOnce() + Send + 'static,
    ) -> GlWork {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        self.jobs().push_back(Job { ticket, kind, work: Box::new(work) });
        GlWork { queue: Some(Arc::clone(self)), ticket }
    }

    /// Removes and returns the first job that matches.
    fn take(&self, matches: impl Fn(&Job) -> bool) -> Option<Job> {
        let mut jobs = self.jobs();
        let index = jobs.iter().position(matches)?;
        jobs.remove(index)
    }

    /// Removes a job. Returns whether it had not started; then it never runs.
    pub(crate) fn withdraw(&self, ticket: u64) -> bool {
        // The job is dropped outside the lock: what it captures may submit jobs when it is dropped.
        self.take(|job| job.ticket == ticket).is_some()
    }

    /// Runs all jobs. Called on the context's thread.
    pub(crate) fn drain(&self) {
        while let Some(job) = self.take(|_| true) {
            (job.work)();
        }
    }

    /// Runs the posted jobs. Called on the context's thread.
    pub(crate) fn drain_posted(&self) {
        while let Some(job) = self.take(|job| job.kind == JobKind::Posted) {
            (job.work)();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, VecDeque<Job>> {
        // A poisoned lock is safe to use: no job runs under it, and pushing and removing are atomic.
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
    use crate::sync::AtomicUsize;

    use super::*;

    #[test]
    fn jobs_run_in_order_and_dropping_one_removes_only_that_one() {
        let queue = Arc::new(Queue::default());
        let sum = Arc::new(AtomicUsize::new(0));
        let job = |digit: usize| {
            let sum = Arc::clone(&sum);
            move || sum.store(sum.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed)
        };
        let push = |digit| queue.push(JobKind::Call, job(digit));
        let (first, second, third) = (push(1), push(2), push(3));
        drop(second);
        third.run();
        assert_eq!(sum.load(Ordering::Relaxed), 13);
        let fourth = push(4);
        first.run();
        assert!(!queue.withdraw(fourth.ticket()), "it has run");
        drop(fourth);
        assert_eq!(sum.load(Ordering::Relaxed), 134);
        let fifth = push(5);
        assert!(queue.withdraw(fifth.ticket()));
        fifth.run();
        assert_eq!(sum.load(Ordering::Relaxed), 134, "it was withdrawn");
        assert_eq!(Arc::strong_count(&sum), 1, "jobs that have run hold nothing");
    }

    #[test]
    fn drain_posted_runs_posted_jobs_and_no_calls() {
        let queue = Arc::new(Queue::default());
        let sum = Arc::new(AtomicUsize::new(0));
        let job = |digit: usize| {
            let sum = Arc::clone(&sum);
            move || sum.store(sum.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed)
        };
        let works =
            [(JobKind::Posted, 1), (JobKind::Call, 2), (JobKind::Posted, 3), (JobKind::Call, 4)]
                .map(|(kind, digit)| queue.push(kind, job(digit)));
        queue.drain_posted();
        assert_eq!(sum.load(Ordering::Relaxed), 13);
        works.into_iter().for_each(GlWork::run);
        assert_eq!(sum.load(Ordering::Relaxed), 1324);
    }
}
