//! All pools that this process owns or is attached to, by uid. Ring entries and descriptors name pools by uid.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::Result;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::reader::connect;
use crate::ipc::pool::slot_buffer;
use crate::sys::fork::PerProcess;
use crate::sys::socket::peer::Peer;
use crate::tensor::buffer::handle::Handle;

/// A pool that this process owns or is attached to.
#[derive(Debug, Clone)]
pub(crate) enum RegisteredPool {
    Owned(Arc<Owner>),
    Attached(Arc<Attachment>),
}

impl RegisteredPool {
    /// Whether slots can be leased.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            RegisteredPool::Owned(owner) => !owner.is_inherited(),
            RegisteredPool::Attached(attachment) => attachment.is_usable(),
        }
    }

    /// Whether slots cannot be leased now, but possibly soon: the owner has disconnected and may be dying.
    pub(crate) fn may_be_dying(&self) -> bool {
        matches!(self, RegisteredPool::Attached(attachment) if attachment.may_be_dying())
    }

    /// Whether slots can be leased, now or possibly soon.
    pub(crate) fn may_lease(&self) -> bool {
        match self {
            RegisteredPool::Owned(owner) => !owner.is_inherited(),
            RegisteredPool::Attached(attachment) => attachment.may_lease(),
        }
    }

    /// Another pool of the same owner, which the owner has introduced.
    pub(crate) fn introduced(&self, uid: u64) -> Option<RegisteredPool> {
        match self {
            RegisteredPool::Owned(_) => None,
            RegisteredPool::Attached(attachment) => {
                attachment.introduced(uid).map(RegisteredPool::Attached)
            }
        }
    }

    /// Whether the owner lives and can send segments.
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            RegisteredPool::Owned(owner) => !owner.is_inherited(),
            RegisteredPool::Attached(attachment) => !attachment.is_disconnected(),
        }
    }

    /// The attachment, if `peer` is its owner. Process ids decide; 0 means unknown.
    pub(crate) fn attached_of(&self, peer: &Peer) -> Option<&Arc<Attachment>> {
        match self {
            RegisteredPool::Attached(attachment) if peer.pid != 0 => {
                Some(attachment).filter(|attachment| attachment.owner.pid == peer.pid)
            }
            _ => None,
        }
    }
}

/// A pool from the registry whose slots can be leased.
pub(crate) fn find(uid: u64) -> Option<RegisteredPool> {
    registry().find(uid)
}

/// A pool from the registry, also if its owner may be dying.
pub(crate) fn find_dying(uid: u64) -> Option<RegisteredPool> {
    find(uid).or_else(|| registry().find_dying(uid))
}

/// As [`find`], but attaches to the pool if it is not in the registry.
pub(crate) fn find_or_attach(uid: u64) -> Result<RegisteredPool> {
    if let Some(pool) = find(uid) {
        return Ok(pool);
    }
    let attachment = connect::by_uid(uid)?;
    register(&attachment);
    Ok(RegisteredPool::Attached(attachment))
}

/// Accepts new connections to a pool of this process on the calling thread, which saves waking the service thread.
pub(crate) fn accept_now(uid: u64) {
    if let Some(RegisteredPool::Owned(owner)) = find(uid) {
        owner.accept_now();
    }
}

/// Adds an attachment to the registry, which keeps it alive.
pub(crate) fn register(attachment: &Arc<Attachment>) {
    registry().register(attachment);
}

/// A pool of another process that this one is attached to.
pub(crate) fn attached(uid: u64) -> Option<Arc<Attachment>> {
    registry().attached(uid)
}

/// Adds a pool of this process to the registry.
pub(crate) fn register_owned(owner: &Arc<Owner>) {
    registry().register_owned(owner);
}

/// The buffer of a slot that a ring entry names. `unchanged` says whether the entry is still in the ring. That
/// validates the lease if the publisher of the ring owns the pool (`by_entry`); otherwise the serial does.
pub(crate) fn lease(
    pool: &RegisteredPool,
    slot: u32,
    serial: u64,
    by_entry: bool,
    unchanged: impl Fn() -> bool,
) -> Result<Handle> {
    match pool {
        RegisteredPool::Owned(owner) => {
            slot_buffer::leased_own(owner, owner.lease(slot, serial)?, serial)
        }
        RegisteredPool::Attached(attachment) => {
            let leased = match by_entry {
                true => attachment.try_lease_entry(slot, unchanged)?,
                false => attachment.try_lease(slot, serial)?,
            };
            slot_buffer::leased(attachment, leased, serial)
        }
    }
}

/// Frees the slots of all pools of this process that no reader holds any more.
#[cfg(all(feature = "camera", target_pointer_width = "64"))]
pub(crate) fn sweep_owned() {
    let owned: Vec<_> = registry().owned.values().filter_map(Weak::upgrade).collect();
    owned.iter().for_each(|owner| owner.sweep_now());
}

/// The pools that this process owns or is attached to.
#[derive(Default)]
struct Registry {
    owned: HashMap<u64, Weak<Owner>>,
    attached: HashMap<u64, Weak<Attachment>>,
}

impl Registry {
    fn register_owned(&mut self, owner: &Arc<Owner>) {
        self.remove_dropped();
        self.owned.insert(owner.endpoint.uid, Arc::downgrade(owner));
    }

    /// Registers an attachment. It replaces an earlier one, which is then no longer kept alive.
    fn register(&mut self, attachment: &Arc<Attachment>) {
        self.remove_dropped();
        attachment.keep_alive();
        let old = self.attached.insert(attachment.endpoint.uid, Arc::downgrade(attachment));
        let old = old.as_ref().and_then(Weak::upgrade);
        if let Some(old) = old.filter(|old| !Arc::ptr_eq(old, attachment)) {
            old.end_keep_alive();
        }
    }

    fn remove_dropped(&mut self) {
        self.owned.retain(|_, owner| owner.strong_count() > 0);
        self.attached.retain(|_, attachment| attachment.strong_count() > 0);
    }

    fn find(&mut self, uid: u64) -> Option<RegisteredPool> {
        self.remove_dropped();
        if let Some(owner) = self.owned.get(&uid).and_then(Weak::upgrade) {
            return Some(RegisteredPool::Owned(owner));
        }
        self.attached(uid).map(RegisteredPool::Attached)
    }

    fn attached(&self, uid: u64) -> Option<Arc<Attachment>> {
        self.attached.get(&uid).and_then(Weak::upgrade).filter(|found| found.is_usable())
    }

    fn find_dying(&self, uid: u64) -> Option<RegisteredPool> {
        let found = self.attached.get(&uid).and_then(Weak::upgrade);
        found.filter(|found| found.may_lease()).map(RegisteredPool::Attached)
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: PerProcess<Mutex<Registry>> = PerProcess::new();
    let Ok(pool) = REGISTRY.get(|| Ok::<_, Infallible>(Mutex::default()));
    // Insertions and removals are whole.
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}
