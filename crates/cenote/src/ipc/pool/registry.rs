//! The pools that this process owns or is attached to, by uid: what words and descriptors from others name.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::Result;
use crate::ipc::pool::owner::Owner;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::reader::connect;
use crate::ipc::pool::slot_buffer;
use crate::sys::fork::PerProcess;
use crate::sys::socket::peer::Peer;
use crate::tensor::buffer::handle::Handle;

/// A pool that this process owns or is attached to.
#[derive(Debug, Clone)]
pub(crate) enum Known {
    Owned(Arc<Owner>),
    Attached(Arc<Attachment>),
}

impl Known {
    /// Whether leases can be had.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Known::Owned(owner) => !owner.is_inherited(),
            Known::Attached(attachment) => attachment.is_usable(),
        }
    }

    /// Whether leases may be had soon, though not now.
    pub(crate) fn may_be_dying(&self) -> bool {
        matches!(self, Known::Attached(attachment) if attachment.may_be_dying())
    }

    /// Either of the two.
    pub(crate) fn may_serve(&self) -> bool {
        match self {
            Known::Owned(owner) => !owner.is_inherited(),
            Known::Attached(attachment) => attachment.may_serve(),
        }
    }

    /// Another pool of the same owner, which it has lent.
    pub(crate) fn lent(&self, uid: u64) -> Option<Known> {
        match self {
            Known::Owned(_) => None,
            Known::Attached(attachment) => attachment.lent(uid).map(Known::Attached),
        }
    }

    /// Whether its owner lives and can be asked for segments.
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Known::Owned(owner) => !owner.is_inherited(),
            Known::Attached(attachment) => !attachment.is_gone(),
        }
    }

    /// What is attached to, if `peer` owns it, as far as can be told.
    pub(crate) fn attached_of(&self, peer: &Peer) -> Option<&Arc<Attachment>> {
        match self {
            Known::Attached(attachment) if peer.pid != 0 => {
                Some(attachment).filter(|attachment| attachment.owner.pid == peer.pid)
            }
            _ => None,
        }
    }
}

/// A pool that this process has to do with already.
pub(crate) fn find(uid: u64) -> Option<Known> {
    known().find(uid)
}

/// The same; one whose owner may be dying, too.
pub(crate) fn find_dying(uid: u64) -> Option<Known> {
    find(uid).or_else(|| known().find_dying(uid))
}

/// The same as [`find`], attaching to it if need be.
pub(crate) fn find_or_attach(uid: u64) -> Result<Known> {
    if let Some(known) = find(uid) {
        return Ok(known);
    }
    let attachment = connect::by_uid(uid)?;
    remember(&attachment);
    Ok(Known::Attached(attachment))
}

/// Lets in who has just come to a pool, if it is of this very process: that need not wake up for it.
pub(crate) fn let_in_now(uid: u64) {
    if let Some(Known::Owned(owner)) = find(uid) {
        owner.let_in_now();
    }
}

/// Has an attachment found from here on.
pub(crate) fn remember(attachment: &Arc<Attachment>) {
    known().remember(attachment);
}

/// A pool of somebody else's that this process is attached to.
pub(crate) fn attached(uid: u64) -> Option<Arc<Attachment>> {
    known().attached(uid)
}

/// Has a pool of this process found from here on.
pub(crate) fn remember_owned(owner: &Arc<Owner>) {
    known().remember_owned(owner);
}

/// The buffer that words from a ring name, of the pool of the ring's publisher, if it was leased before. `None`
/// if there is more to it.
#[inline(always)]
pub(crate) fn lease_again(
    own_pool: &Attachment,
    slot: u32,
    serial: u64,
    unchanged: impl Fn() -> bool,
) -> Option<Handle> {
    let spare = own_pool.lease_entry_again(slot, &unchanged)?;
    Some(slot_buffer::leased_again(spare, serial))
}

/// The buffer of a slot that a ring entry names. `unchanged` says whether the entry is still in the ring. That
/// validates the lease if the publisher of the ring owns the pool (`by_entry`); otherwise the serial does.
pub(crate) fn lease(
    pool: &Known,
    slot: u32,
    serial: u64,
    by_entry: bool,
    unchanged: impl Fn() -> bool,
) -> Result<Handle> {
    match pool {
        Known::Owned(owner) => slot_buffer::leased_own(owner, owner.lease(slot, serial)?, serial),
        Known::Attached(attachment) => {
            let leased = match by_entry {
                true => attachment.try_lease_entry(slot, unchanged)?,
                false => attachment.try_lease(slot, serial)?,
            };
            slot_buffer::leased(attachment, leased, serial)
        }
    }
}

/// Looks which tensors of the pools that this process owns are still held by others, and lets go of the
/// rest.
#[cfg(all(feature = "camera", target_pointer_width = "64"))]
pub(crate) fn sweep_owned() {
    let owned: Vec<_> = known().owned.values().filter_map(Weak::upgrade).collect();
    owned.iter().for_each(|owner| owner.look_again());
}

/// The pools that this process owns or is attached to.
#[derive(Default)]
struct KnownPools {
    owned: HashMap<u64, Weak<Owner>>,
    attached: HashMap<u64, Weak<Attachment>>,
}

impl KnownPools {
    fn remember_owned(&mut self, owner: &Arc<Owner>) {
        self.forget_gone();
        self.owned.insert(owner.entry.uid, Arc::downgrade(owner));
    }

    /// Attached once, it stays so until its owner dies, or somebody attaches anew.
    fn remember(&mut self, attachment: &Arc<Attachment>) {
        self.forget_gone();
        attachment.stay();
        let old = self.attached.insert(attachment.entry.uid, Arc::downgrade(attachment));
        let old = old.as_ref().and_then(Weak::upgrade);
        if let Some(old) = old.filter(|old| !Arc::ptr_eq(old, attachment)) {
            old.let_go();
        }
    }

    fn forget_gone(&mut self) {
        self.owned.retain(|_, owner| owner.strong_count() > 0);
        self.attached.retain(|_, attachment| attachment.strong_count() > 0);
    }

    fn find(&mut self, uid: u64) -> Option<Known> {
        self.forget_gone();
        if let Some(owner) = self.owned.get(&uid).and_then(Weak::upgrade) {
            return Some(Known::Owned(owner));
        }
        self.attached(uid).map(Known::Attached)
    }

    fn attached(&self, uid: u64) -> Option<Arc<Attachment>> {
        self.attached.get(&uid).and_then(Weak::upgrade).filter(|found| found.is_usable())
    }

    fn find_dying(&self, uid: u64) -> Option<Known> {
        let found = self.attached.get(&uid).and_then(Weak::upgrade);
        found.filter(|found| found.may_serve()).map(Known::Attached)
    }
}

fn known() -> MutexGuard<'static, KnownPools> {
    static KNOWN: PerProcess<Mutex<KnownPools>> = PerProcess::new();
    let Ok(known) = KNOWN.get(|| Ok::<_, Infallible>(Mutex::default()));
    // Insertions and removals are whole.
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
