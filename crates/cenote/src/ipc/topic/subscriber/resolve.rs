//! Where a subscriber has the tensors of messages from: the pool of their publisher, or another, or its own process.

use std::sync::Arc;

use crate::error::Error;
use crate::ipc::pool::registry;
use crate::ipc::ring::codec::TensorEntry;
use crate::ipc::ring::cursor::Cursor;
use crate::ipc::ring::ring::RingEntry;
use crate::ipc::topic::message::{Tensors, Unread};
use crate::ipc::topic::subscriber::pools::Pools;
use crate::ipc::topic::subscriber::publisher_link::{From, Other};
use crate::ipc::topic::subscriber::wakeup::News;
use crate::tensor::buffer::handle::Handle;

/// Leases the tensors of a message that lie where earlier ones did.
pub(crate) struct Again<'a> {
    pub(crate) other: &'a Other,
    pub(crate) entry: RingEntry<'a>,
}

impl Tensors for Again<'_> {
    #[inline(always)]
    fn buffer(&mut self, packed: &TensorEntry<'_>) -> Result<Handle, Unread> {
        let leased = match &self.other.own_pool {
            Some(pool) if packed.pool == self.other.uid => {
                registry::lease_again(pool, packed.slot, packed.serial, || {
                    self.entry.is_unchanged()
                })
            }
            _ => None,
        };
        leased.ok_or_else(|| Unread::Later)
    }
}

/// Leases the tensors of a message.
pub(crate) struct Lender<'a> {
    pub(crate) from: &'a From,
    pub(crate) cursor: &'a Cursor,
    pub(crate) pools: &'a mut Pools,
    pub(crate) news: &'a Arc<News>,
}

impl Tensors for Lender<'_> {
    fn buffer(&mut self, packed: &TensorEntry<'_>) -> Result<Handle, Unread> {
        let other = match self.from {
            // Its publisher has a handle.
            From::Own(publisher) => {
                return publisher.held(self.cursor.next).ok_or(Unread::Passed);
            }
            From::Other(other) => other,
        };
        let pool = match &other.pool {
            Some(pool) if packed.pool == other.uid => pool,
            _ => self.pools.get(packed.pool, other, self.news)?,
        };
        // What it sent before it died can be had as soon as it is dead.
        if !pool.is_usable() && pool.may_be_dying() {
            return Err(Unread::Later);
        }
        // Asked first: what its owner sent last may come in while this looks for it.
        let alive = pool.is_alive();
        let own = pool.attached_of(&other.peer).is_some() && packed.pool == other.uid;
        let entry = self.cursor.entry();
        match registry::lease(pool, packed.slot, packed.serial, own, || entry.is_unchanged()) {
            Ok(leased) => Ok(leased),
            Err(error) => Err(self.unread(error, alive)),
        }
    }
}

impl Lender<'_> {
    /// Why a message was not read whose tensor could not be leased.
    #[cold]
    fn unread(&mut self, error: Error, alive: bool) -> Unread {
        match error {
            Error::Stale { .. } if !self.cursor.entry().is_unchanged() => Unread::Passed,
            // On its way.
            Error::NoSuchSegment { .. } if alive => Unread::Later,
            error => error.into(),
        }
    }
}
