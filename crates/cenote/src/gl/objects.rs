//! The OpenGL objects of a context that were created and not deleted yet.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use crate::sys::process_lock::ProcessLock;

/// The name of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Buffer(NonZeroU32),
    Texture(NonZeroU32),
    Framebuffer(NonZeroU32),
    /// The address of a `GLsync`.
    Fence(usize),
    /// The address of an `EGLImage`.
    Image(usize),
}

/// The objects that exist. Each is removed once, by the job that deletes it.
#[derive(Debug, Default)]
pub(crate) struct Objects(ProcessLock<BTreeSet<Object>>);

impl Objects {
    pub(crate) fn add(&self, object: Object) {
        if let Some(mut objects) = self.0.lock() {
            objects.insert(object);
        }
    }

    /// Removes an object. Returns whether it was there.
    pub(crate) fn remove(&self, object: Object) -> bool {
        self.0.lock().is_some_and(|mut objects| objects.remove(&object))
    }

    /// Removes and returns all objects.
    pub(crate) fn take(&self) -> BTreeSet<Object> {
        self.0.lock().map(|mut objects| std::mem::take(&mut *objects)).unwrap_or_default()
    }

    /// Counts the objects of a kind. A forked child has none.
    pub(crate) fn count(&self, is_kind: impl Fn(&Object) -> bool) -> usize {
        self.0.lock().map_or(0, |objects| objects.iter().filter(|object| is_kind(object)).count())
    }
}
