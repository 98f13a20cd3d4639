//! What the GPU may still use though nobody has it any more: memory that textures were made of.
//!
//! A texture that is dropped may still be drawn with: drivers do later what they were told, and not
//! every one tells the memory's other users when it has (by fences of the DMA-BUF). So the memory is
//! held behind a fence of ours. The fences are looked at when the context is next used.

#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::collections::VecDeque;
use std::fmt;

use glow::HasContext;

use crate::gl::core::Shared;
use crate::gl::fence;
use crate::gl::objects::Object;
use crate::sys::process_lock::ProcessLock;

/// Each with the fence that it waits for, the oldest first.
#[derive(Default)]
pub(crate) struct Held(ProcessLock<VecDeque<(usize, Box<dyn Send>)>>);

impl Held {
    fn add(&self, fence: usize, kept: Box<dyn Send>) {
        if let Some(mut all) = self.0.lock() {
            all.push_back((fence, kept));
        }
    }

    /// The oldest, if its fence is like this. Dropped by the caller, without the lock: that may be the
    /// end of a texture, which is deleted at once.
    fn take(&self, is_like: impl Fn(usize) -> bool) -> Option<(usize, Box<dyn Send>)> {
        let mut all = self.0.lock()?;
        all.front().is_some_and(|&(fence, _)| is_like(fence)).then(|| all.pop_front())?
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({})", self.0.lock().map_or(0, |all| all.len()))
    }
}

impl Shared {
    /// Holds something until the GPU has done what it was told so far. Called on the context's thread.
    pub(crate) fn hold(&self, kept: Box<dyn Send>) {
        if self.is_torn_down() {
            return;
        }
        match fence::make(&self.driver) {
            Some(fence) => {
                self.objects.add(Object::Fence(fence));
                self.held.add(fence, kept);
            }
            None => self.wait_for_all(),
        }
        self.let_go();
    }

    /// Lets go of what the GPU uses no more. Called on the context's thread.
    pub(crate) fn let_go(&self) {
        while let Some((fence, kept)) = self.held.take(|fence| fence::is_done(&self.driver, fence))
        {
            self.delete(Object::Fence(fence));
            drop(kept);
        }
    }

    /// Lets go of everything, when the GPU has done all of it. Called on the context's thread.
    pub(crate) fn let_all_go(&self) {
        let mut next = self.held.take(|_| true);
        if next.is_some() {
            self.wait_for_all();
        }
        while let Some((fence, kept)) = next {
            self.delete(Object::Fence(fence));
            drop(kept);
            next = self.held.take(|_| true);
        }
    }

    fn wait_for_all(&self) {
        // SAFETY: called on the context's thread.
        unsafe { self.driver.gl.finish() };
    }
}
