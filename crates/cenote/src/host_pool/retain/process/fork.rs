//! Pools in a forked child, see [`process`](super).

use std::cell::Cell;
use std::mem::{ManuallyDrop, forget};

use super::registry::{Registry, registry};
use crate::host_pool::retain::free_cache::Frozen;
use crate::sync::LockGuard;
use crate::sys::fork::Hooks;

pub(super) static HOOKS: Hooks = Hooks::new(prepare, parent, child);

/// All locks of all pools.
struct Locks {
    caches: Vec<Frozen>,
    registry: LockGuard<'static, Registry>,
}

thread_local! {
    /// The locks, while this thread forks. Never dropped by the end of a thread: it has no
    /// destructor, so it exists until the thread has ended.
    static LOCKS: Cell<Option<ManuallyDrop<Locks>>> = const { Cell::new(None) };
}

extern "C" fn prepare() {
    // Hooks that were installed twice run twice. The second run finds the locks taken.
    let locks = LOCKS.take().unwrap_or_else(|| {
        let registry = registry();
        ManuallyDrop::new(Locks { caches: registry.freeze(), registry })
    });
    LOCKS.set(Some(locks));
}

extern "C" fn parent() {
    drop(LOCKS.take().map(ManuallyDrop::into_inner));
}

extern "C" fn child() {
    let Some(mut locks) = LOCKS.take().map(ManuallyDrop::into_inner) else { return };
    locks.registry.inherit();
    let Locks { mut caches, registry } = locks;
    caches.clear();
    forget(caches);
    drop(registry);
}
