//! Finds the pool of a message's tensor, and leases its slot.
//!
//! | the tensor is in | how the slot is leased |
//! |---|---|
//! | the pool of the publisher, in a slot that was leased before | [`ResolveCached`]: without any lookup |
//! | the pool of the publisher | [`ResolveAny`]: by the ring entry, or by serial |
//! | another pool | [`ResolveAny`]: by serial, once the pool is introduced or attached |
//! | a pool of the same [`Topic`](crate::Topic) object | [`ResolveAny`]: the publisher has a handle |

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::Error;
use crate::ipc::pool::reader::background::{BackgroundAttach, Progress};
use crate::ipc::pool::registry::RegisteredPool;
use crate::ipc::pool::{registry, slot_buffer};
use crate::ipc::ring::codec::TensorEntry;
use crate::ipc::ring::cursor::Cursor;
use crate::ipc::ring::ring::RingEntry;
use crate::ipc::topic::message::{ResolveBuffer, Unread};
use crate::ipc::topic::notify::SubscriberNotify;
use crate::ipc::topic::subscriber::publisher_link::{ConnectedPublisher, Origin};
use crate::tensor::buffer::handle::Handle;

/// Leases a slot of the publisher's pool that was leased before. Any other is [`Unread::NotYet`].
pub(crate) struct ResolveCached<'a> {
    pub(crate) publisher: &'a ConnectedPublisher,
    pub(crate) entry: RingEntry<'a>,
}

impl ResolveBuffer for ResolveCached<'_> {
    #[inline(always)]
    fn resolve(&mut self, tensor: &TensorEntry<'_>) -> Result<Handle, Unread> {
        let buffer = match &self.publisher.own_pool {
            Some(pool) if tensor.pool == self.publisher.uid => {
                pool.lease_entry_again(tensor.slot, || self.entry.is_unchanged())
            }
            _ => None,
        };
        let leased = buffer.map(|buffer| slot_buffer::leased_again(buffer, tensor.serial));
        leased.ok_or_else(|| Unread::NotYet)
    }
}

/// Leases any slot.
pub(crate) struct ResolveAny<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) cursor: &'a Cursor,
    pub(crate) pools: &'a mut PoolTable,
    pub(crate) notify: &'a Arc<SubscriberNotify>,
}

impl ResolveBuffer for ResolveAny<'_> {
    fn resolve(&mut self, tensor: &TensorEntry<'_>) -> Result<Handle, Unread> {
        let publisher = match self.origin {
            Origin::Own(publisher) => {
                return publisher.held(self.cursor.next).ok_or(Unread::Overwritten);
            }
            Origin::Connected(publisher) => publisher,
        };
        let pool = match &publisher.pool {
            Some(pool) if tensor.pool == publisher.uid => pool,
            _ => self.pools.get(tensor.pool, publisher, self.notify)?,
        };
        // What the owner sent before it died can be leased as soon as its death is certain.
        if !pool.is_usable() && pool.may_be_dying() {
            return Err(Unread::NotYet);
        }
        // Read first: the last segments of the owner may arrive while this looks for them.
        let alive = pool.is_alive();
        let by_entry = pool.attached_of(&publisher.peer).is_some() && tensor.pool == publisher.uid;
        let entry = self.cursor.entry();
        registry::lease(pool, tensor.slot, tensor.serial, by_entry, || entry.is_unchanged())
            .map_err(|error| self.unread(error, alive))
    }
}

impl ResolveAny<'_> {
    /// Why a message is unread whose slot could not be leased.
    #[cold]
    fn unread(&self, error: Error, alive: bool) -> Unread {
        match error {
            Error::Stale { .. } if !self.cursor.entry().is_unchanged() => Unread::Overwritten,
            // The segment is on its way.
            Error::NoSuchSegment { .. } if alive => Unread::NotYet,
            error => error.into(),
        }
    }
}

/// The pools of messages, beside those of the publishers themselves.
#[derive(Debug, Default)]
pub(crate) struct PoolTable {
    /// By the uids of publisher and pool: a pool that one publisher introduced is not used for messages of another.
    found: HashMap<(u64, u64), RegisteredPool>,
    attaching: HashMap<u64, BackgroundAttach>,
}

impl PoolTable {
    /// The pool with this uid. If this process has not attached to it yet, it begins to, and `notify` is notified when that is
    /// done; until then the message is [`Unread::NotYet`].
    #[inline]
    fn get(
        &mut self,
        uid: u64,
        publisher: &ConnectedPublisher,
        notify: &Arc<SubscriberNotify>,
    ) -> Result<&RegisteredPool, Unread> {
        let key = (publisher.uid, uid);
        if !self.found.get(&key).is_some_and(RegisteredPool::may_lease) {
            let known = self.find(uid, publisher, notify)?;
            self.found.retain(|_, known| known.may_lease());
            self.found.insert(key, known);
        }
        self.found.get(&key).ok_or(Unread::NotYet)
    }

    /// Forgets the pools of messages from a publisher that has ended.
    #[cold]
    pub(crate) fn forget(&mut self, publisher: &ConnectedPublisher) {
        self.found.retain(|(from, _), _| *from != publisher.uid);
    }

    #[cold]
    fn find(
        &mut self,
        uid: u64,
        publisher: &ConnectedPublisher,
        notify: &Arc<SubscriberNotify>,
    ) -> Result<RegisteredPool, Unread> {
        let introduced = || publisher.pool.as_ref()?.introduced(uid);
        let begun = self.attaching.contains_key(&uid);
        let usable = || if begun { None } else { introduced().filter(RegisteredPool::is_usable) };
        if let Some(known) = registry::find(uid).or_else(usable) {
            self.attaching.remove(&uid);
            return Ok(known);
        }
        let begin = || {
            let notify = notify.clone();
            BackgroundAttach::begin(uid, move || notify.fd.notify())
        };
        let attaching = self.attaching.entry(uid).or_insert_with(begin);
        if attaching.is_idle() {
            attaching.restart(begin());
        }
        match attaching.progress() {
            Progress::Waiting => Err(Unread::NotYet),
            Progress::Attached(known) => {
                self.attaching.remove(&uid);
                Ok(known)
            }
            Progress::Failed(error) => {
                self.attaching.remove(&uid);
                // If the owner is dying, no process can attach; what it introduced before is enough.
                introduced().or_else(|| registry::find_dying(uid)).ok_or_else(|| error.into())
            }
        }
    }
}
