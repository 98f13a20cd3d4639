//! What was made in a context: each object is deleted once, on the context's thread.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use crate::gl::core::Core;
use crate::sys::process_lock::ProcessLock;

/// The name of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Object {
    Buffer(NonZeroU32),
    Texture(NonZeroU32),
    Framebuffer(NonZeroU32),
    /// The address that stands for it.
    Fence(usize),
    /// The address that stands for it.
    Image(usize),
}

/// The objects that are alive.
#[derive(Debug, Default)]
pub(crate) struct Objects(ProcessLock<BTreeSet<Object>>);

impl Objects {
    pub(crate) fn add(&self, object: Object) {
        if let Some(mut all) = self.0.lock() {
            all.insert(object);
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&self, object: Object) -> bool {
        self.0.lock().is_some_and(|mut all| all.remove(&object))
    }

    /// All of them, none of which is alive any more.
    pub(crate) fn take(&self) -> BTreeSet<Object> {
        self.0.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default()
    }

    /// Those of a kind. A forked child has none.
    pub(crate) fn count(&self, kind: impl Fn(&Object) -> bool) -> usize {
        self.0.lock().map_or(0, |all| all.iter().filter(|object| kind(object)).count())
    }
}

/// An object that is deleted when this is dropped, wherever that is. It does not keep the context
/// alive, which may hold some itself; what is alive when the context ends is deleted then.
#[derive(Debug)]
pub(crate) struct Owned {
    core: Weak<Core>,
    object: Object,
}

impl Owned {
    /// Takes care of an object that was just made.
    pub(crate) fn new(core: &Arc<Core>, object: Object) -> Owned {
        core.shared().objects.add(object);
        Owned { core: Arc::downgrade(core), object }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let object = self.object;
        if let Some(core) = self.core.upgrade() {
            core.post(move |shared| shared.delete(object));
        }
    }
}

/// A texture, and the image that it shows if its memory is a DMA-BUF.
#[derive(Debug)]
pub(crate) struct TextureName {
    pub(crate) name: NonZeroU32,
    pub(crate) target: u32,
    pub(crate) _texture: Owned,
    pub(crate) image: Option<Owned>,
}
