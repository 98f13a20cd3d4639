//! Pools of one process that are lent to whoever is attached to another of them.
//!
//! Whoever receives a descriptor of a pool that it knows nothing of attaches to it, which takes an owner
//! that lives. So before a publisher sends a tensor of another pool of its own process, it makes every
//! attacher of its own pool one of that pool, too: the other end of the connection, with the welcome in
//! it, is sent to the attacher. From then on it is an attacher like any other, with a row of its own,
//! which goes when its process does.

use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, Weak};

use crate::ipc::pool::owner::Owner;
use crate::ipc::pool::owner::readers::Attacher;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::seqpacket;

/// The most pools that are lent to one attacher. It attaches to others by itself.
pub(crate) const MAX_LENT: usize = 32;

/// The pools that are lent to every attacher.
#[derive(Debug, Default)]
pub(crate) struct Lent(Vec<Weak<Owner>>);

impl Lent {
    /// Whether a pool is among them. It is now, if there was room.
    fn add(&mut self, other: &Arc<Owner>) -> bool {
        if self.0.iter().any(|one| one.as_ptr() == Arc::as_ptr(other)) {
            return true;
        }
        self.0.retain(|one| one.strong_count() > 0);
        let room = self.0.len() < MAX_LENT;
        if room {
            self.0.push(Arc::downgrade(other));
        }
        room
    }

    fn all(&self) -> Vec<Arc<Owner>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Owner {
    /// Lends another pool of this process to all who are attached to this one. When it returns, they
    /// have it in their sockets, unless they read nothing or are not let in.
    pub(crate) fn lend(&self, other: &Arc<Owner>) {
        if self.is_inherited() {
            return;
        }
        let _lending = self.lending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let lacking = match state.lent.add(other) {
            true => state.attachers.lacking(other.entry.uid),
            false => Vec::new(),
        };
        drop(state);
        lacking.into_iter().for_each(|(number, peer)| self.lend_to(number, &peer, other));
    }

    /// Lends whatever is lent to somebody who has just attached.
    pub(crate) fn lend_all_to(&self, number: u64) {
        let _lending = self.lending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let (pools, attacher) = (state.lent.all(), state.attachers.get(number));
        let Some(peer) = attacher.map(|attacher| attacher.peer.clone()) else { return };
        drop(state);
        pools.iter().for_each(|other| self.lend_to(number, &peer, other));
    }

    fn lend_to(&self, number: u64, peer: &Peer, other: &Arc<Owner>) {
        let mut state = self.state();
        if !state.attachers.get(number).is_some_and(Attacher::has_room) {
            return;
        }
        drop(state);
        // One who is not let in is not tried again: should it ask, it is told why.
        let theirs = other.admit(peer);
        if let Some(attacher) = self.state().attachers.get(number) {
            attacher.lend(&other.entry, theirs.as_ref().map(GuardedSocket::as_fd));
        }
    }

    /// Lets in somebody who does not know yet; gives his end of the connection.
    fn admit(self: &Arc<Self>, peer: &Peer) -> Option<GuardedSocket> {
        if !self.config.access.admits(peer) {
            return None;
        }
        let (ours, theirs) = seqpacket::pair().ok()?;
        let number = self.take_in(Arc::new(ours), peer.try_clone().ok()?, true)?;
        match self.welcome(number) {
            Ok(()) => Some(theirs),
            Err(()) => {
                self.drop_attacher(number);
                None
            }
        }
    }
}
