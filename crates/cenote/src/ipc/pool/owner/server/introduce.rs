//! Introducing a pool of this process to the readers of another of its pools.
//!
//! A reader that receives a descriptor of an unknown pool attaches to that pool, which needs a living owner. So
//! before a publisher sends a tensor of another pool of its process, it attaches every reader of its pool to the
//! other pool as well:
//!
//! 1. The owner makes a pair of connected sockets and treats one end as a connection to the other pool. It sends the
//!    `Attached` packet into it.
//! 2. It sends the other end to the reader, in an `Introduced` packet on the connection that the reader has.
//! 3. From then on the reader is attached to the other pool like any other, with its own row.
//!
//! Without this, messages whose bytes lie in another pool do not arrive if their sender ends soon after.

use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};

use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::server::connections::Connection;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::seqpacket;

impl Owner {
    /// Introduces another pool of this process to all readers of this one. When it returns, the packets are in their
    /// sockets, except those of readers that do not read or that the other pool does not admit.
    pub(crate) fn introduce(&self, other: &Arc<Owner>) {
        if self.is_inherited() {
            return;
        }
        let mut introduced = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        let readers = match introduced.add(other) {
            true => self.state().connections.not_introduced_to(other.endpoint.uid),
            false => Vec::new(),
        };
        readers.into_iter().for_each(|(number, peer)| self.introduce_to(number, &peer, other));
    }

    /// Introduces all pools in the list to a reader that has just attached.
    pub(crate) fn introduce_all_to(&self, number: u64) {
        let introduced = self.introduced.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = self.state().connections.get(number).map(|found| found.peer.clone());
        let (pools, Some(peer)) = (introduced.all(), peer) else { return };
        pools.iter().for_each(|other| self.introduce_to(number, &peer, other));
    }

    fn introduce_to(&self, number: u64, peer: &Peer, other: &Arc<Owner>) {
        let mut state = self.state();
        if !state.connections.get(number).is_some_and(Connection::has_room) {
            return;
        }
        drop(state);
        // A reader that is not admitted is not tried again. If it attaches by itself, it gets the reason.
        let theirs = other.connect_for(peer);
        if let Some(connection) = self.state().connections.get(number) {
            connection.introduce(&other.endpoint, theirs.as_ref().map(GuardedSocket::as_fd));
        }
    }

    /// Attaches a process that has not asked for it. Returns its end of the connection.
    fn connect_for(self: &Arc<Self>, peer: &Peer) -> Option<GuardedSocket> {
        if !self.config.access.admits(peer) {
            return None;
        }
        let (ours, theirs) = seqpacket::pair().ok()?;
        let number = self.add_connection(Arc::new(ours), peer.try_clone().ok()?, true)?;
        match self.attach_reader(number) {
            Ok(()) => Some(theirs),
            Err(()) => {
                self.drop_connection(number);
                None
            }
        }
    }
}
