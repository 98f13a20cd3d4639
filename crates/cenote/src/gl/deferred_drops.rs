//! Memory that was dropped while the GPU may still use it.
//!
//! Drivers execute commands later, so the GPU may still draw with a texture that was dropped. Not every
//! driver reports by the fences of a DMA-BUF when it has finished. So the memory is kept until a fence of
//! ours is done. The fences are checked whenever the context is used.

use std::collections::VecDeque;
use std::fmt;

use crate::sys::process_lock::ProcessLock;

/// The memory, with the address of the fence that it waits for. The oldest is first.
#[derive(Default)]
pub(crate) struct DeferredDrops(ProcessLock<VecDeque<(usize, Box<dyn Send>)>>);

impl DeferredDrops {
    pub(crate) fn add(&self, fence: usize, memory: Box<dyn Send>) {
        if let Some(mut queue) = self.0.lock() {
            queue.push_back((fence, memory));
        }
    }

    /// Removes and returns the oldest if `is_done` holds for its fence. The caller drops it outside the
    /// lock: it may own a texture, which is deleted at once.
    pub(crate) fn take_if(
        &self,
        is_done: impl Fn(usize) -> bool,
    ) -> Option<(usize, Box<dyn Send>)> {
        let mut queue = self.0.lock()?;
        queue.front().is_some_and(|&(fence, _)| is_done(fence)).then(|| queue.pop_front())?
    }
}

impl fmt::Debug for DeferredDrops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeferredDrops({})", self.0.lock().map_or(0, |queue| queue.len()))
    }
}
