//! How a pool gets memory and returns it: segment by segment, and ahead of need where possible.
//!
//! Reserving memory takes milliseconds, so it happens without the lock of the pool. A thread that lives only for this
//! reserves ahead of need: the service thread has other pools and topics to serve.

use std::sync::{Arc, MutexGuard, PoisonError};

use crate::error::Result;
use crate::ipc::pool::config::Step;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::segment::Segment;
use crate::ipc::pool::owner::state::OwnerState;
use crate::ipc::service_thread::Waker;
use crate::ipc::shared::wire::MAX_SEGMENTS;
use crate::memory::budget::Budget;
use crate::memory::choose::selection::Wish;
use crate::memory::slot::SegmentId;
use crate::sync::Ordering;
use crate::sys::thread;

/// The memory that the last segments leave to the rest of the system.
const FOR_OTHERS: usize = 1 << 20;

/// The stack of the growing thread: it makes system calls, and reads a few small files.
const STACK: usize = 256 << 10;

/// The result of an attempt to grow.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Grown {
    /// The pool has another segment.
    More,
    /// The pool has reached its size.
    No,
}

impl Owner {
    /// Requests another segment, unless one was requested already or refused lately.
    #[cold]
    pub(crate) fn grow_soon(&self, len: usize) {
        if self.wanted.load(Ordering::Relaxed) != 0 || !self.state().growth_backoff.is_due() {
            return;
        }
        if self.wanted.swap(len, Ordering::Relaxed) == 0 {
            let waker = self.state().server.as_ref().map(|server| server.waker.clone());
            waker.iter().for_each(Waker::wake);
        }
    }

    /// Starts a thread that reserves the segment which [`Owner::grow_soon`] requested. If it does not start, the next
    /// allocation that needs a segment reserves it.
    pub(crate) fn grow_ahead(self: &Arc<Self>) {
        let owner = self.clone();
        if thread::start(c"cenote-growth", STACK, move || owner.grow_now()).is_err() {
            self.wanted.store(0, Ordering::Relaxed);
        }
    }

    /// Reserves segments until the pool is no longer low: other threads go on allocating meanwhile. If it fails, the next
    /// allocation that needs a segment reports the reason.
    fn grow_now(&self) {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        while self.is_low() {
            let grown =
                self.add_segment(self.wanted.load(Ordering::Relaxed), |step| [step.most; 2]);
            let mut state = self.state();
            match grown {
                Ok(Grown::More) => state.growth_backoff.granted(),
                Ok(Grown::No) | Err(_) => {
                    state.growth_backoff.refused();
                    break;
                }
            }
        }
        self.wanted.store(0, Ordering::Relaxed);
    }

    /// Whether the requested segment is still missing and the pool still needs it.
    fn is_low(&self) -> bool {
        let len = self.wanted.load(Ordering::Relaxed);
        let state = self.state();
        len > 0 && !state.closed && state.is_low(len, &self.config)
    }

    /// Adds a segment with room for `len` bytes: of the first of two sizes, or of the second if the system refuses the
    /// first. The caller holds `growing`.
    pub(crate) fn add_segment(&self, len: usize, sizes: fn(Step) -> [usize; 2]) -> Result<Grown> {
        let (reserved, segments) = {
            let state = self.state();
            (state.allocator.stats().reserved, state.own_segments())
        };
        let Some(step) = self.config.step(len, reserved, segments) else { return Ok(Grown::No) };
        if segments == MAX_SEGMENTS {
            return Ok(Grown::No);
        }
        let [first, second] = sizes(step);
        let made = self.make_segment(first);
        let (segment, refused) = match made {
            Err(_) if second < first => self.make_last_segment(second)?,
            made => made?,
        };
        let mut state = self.state();
        for wish in refused {
            if !state.not_granted.contains(&wish) {
                state.not_granted.push(wish);
            }
        }
        let Some(id) = state.allocator.add_segment(segment.len) else { return Ok(Grown::No) };
        state.connections.send_segment(id, &segment);
        state.segments.insert(id, segment);
        Ok(Grown::More)
    }

    /// As `make_segment`, but leaves some memory: each reader needs a row.
    fn make_last_segment(&self, size: usize) -> Result<(Segment, Vec<Wish>)> {
        drop(Budget::reserve(size.saturating_add(FOR_OTHERS))?);
        self.make_segment(size)
    }

    fn make_segment(&self, size: usize) -> Result<(Segment, Vec<Wish>)> {
        let mut refused = Vec::new();
        let segment =
            Segment::create(&self.endpoint.name, size, &self.config, |wish, _| refused.push(wish))?;
        Ok((segment, refused))
    }

    /// Frees every segment without a slot in use. Returns how many bytes that are. The system gets the memory back once
    /// every reader has unmapped it.
    pub(crate) fn trim(&self) -> Result<usize> {
        self.check_process()?;
        self.flush_free_cache();
        self.state().scan_deferred(self.serials());
        let state = self.swept(usize::MAX);
        Ok(self.trim_locked(state))
    }

    pub(crate) fn trim_locked(&self, mut state: MutexGuard<'_, OwnerState>) -> usize {
        let empty: Vec<SegmentId> = state.allocator.empty_segments().collect();
        let mut freed = Vec::new();
        for id in empty {
            if state.allocator.remove_segment(id) {
                state.connections.remove_segment(id);
                freed.extend(state.segments.remove(&id));
            }
        }
        let kept = state.take_kept_of_unused();
        drop(state);
        drop(kept);
        freed.iter().map(|segment| segment.len).sum()
    }
}
