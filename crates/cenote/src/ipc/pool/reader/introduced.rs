//! Pools that an owner lends to its attachers: the other half of `ipc/pool/owner/introduce.rs`.
//!
//! What an owner says of a pool that it lends is believed for what comes from that same owner, and not
//! otherwise: anybody can say that a pool has this uid or that.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::discovery::handshake::Answer;
use crate::ipc::discovery::layout;
use crate::ipc::discovery::socket_dir::Endpoint;
use crate::ipc::pool::reader::attachment::{Attachment, PACKETS_AT_ONCE};
use crate::ipc::shared::wire::Attached;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::packet;
use crate::sys::socket::peer::Peer;

impl Attachment {
    /// Another pool of the owner's, if it was lent. Whatever was lent before this was asked is found; one
    /// whose owner may be dying, too.
    pub(crate) fn introduced(&self, uid: u64) -> Option<Arc<Attachment>> {
        let found = || self.state().introduced.get(&uid).cloned();
        found().filter(|pool| pool.is_usable()).or_else(|| {
            if !self.is_inherited() {
                self.receive(PACKETS_AT_ONCE);
            }
            found().filter(|pool| pool.may_lease())
        })
    }

    /// Attaches to a pool that the owner lends. What makes no sense is passed over, as always.
    pub(crate) fn attach_introduced(&self, uid: u64, name: &[u8], connection: OwnedFd) {
        if self.state().max_introduced == 0 {
            return;
        }
        let Ok(pool) = self.connect_introduced(uid, name, connection) else { return };
        let mut state = self.state();
        // What was lent by an owner that dies is of use until all that it sent is taken.
        state.introduced.retain(|_, pool| pool.may_lease());
        if state.introduced.len() >= state.max_introduced {
            state.introduced.retain(|_, pool| !pool.is_disconnected());
        }
        let room = state.introduced.len() < state.max_introduced;
        let old = if room { state.introduced.insert(uid, pool.clone()) } else { None };
        // As long as this one: what is let go of is looked for under this lock, too.
        if room && state.kept_alive.is_some() {
            pool.keep_alive();
        }
        drop(state);
        old.inspect(|old| old.end_keep_alive());
    }

    fn connect_introduced(&self, uid: u64, name: &[u8], connection: OwnedFd) -> Result<Arc<Self>> {
        let error = |source| Error::os("attaching to a pool that was introduced", source);
        let bad = |what| Error::BadMessage { what };
        let name = str::from_utf8(name).map_err(|_| bad("a pool without a name"))?;
        layout::check_name(name)?;
        let connection = GuardedSocket::open(|| Ok(connection)).map_err(error)?;
        let peer = Peer::of(connection.as_fd()).map_err(error)?;
        if peer.pid != self.owner.pid {
            return Err(bad("a pool that is somebody else's"));
        }
        let mut bytes = vec![0; size_of::<Attached>()];
        let (len, fds) = packet::recv(connection.as_fd(), &mut bytes).map_err(error)?;
        bytes.truncate(len);
        let endpoint = Endpoint { name: name.to_owned(), uid };
        // It lends nothing in turn.
        Self::new(endpoint, Answer { peer, connection: Arc::new(connection), bytes, fds }, 0)
    }
}
