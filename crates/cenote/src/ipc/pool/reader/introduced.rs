//! Pools that an owner introduces: the reader's half of `ipc/pool/owner/server/introduce.rs`.
//!
//! A reader uses an introduced pool only for messages of the same owner. It does not trust the uid any further: any
//! process could claim it.

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
    /// Another pool of the same owner, if it was introduced before this call. Also one whose owner may be dying.
    pub(crate) fn introduced(&self, uid: u64) -> Option<Arc<Attachment>> {
        let found = || self.state().introduced.get(&uid).cloned();
        found().filter(|pool| pool.is_usable()).or_else(|| {
            if !self.is_inherited() {
                self.receive(PACKETS_AT_ONCE);
            }
            found().filter(|pool| pool.may_lease())
        })
    }

    /// Attaches to an introduced pool. Ignores invalid packets.
    pub(crate) fn attach_introduced(&self, uid: u64, name: &[u8], connection: OwnedFd) {
        if self.state().max_introduced == 0 {
            return;
        }
        let Ok(pool) = self.connect_introduced(uid, name, connection) else { return };
        let mut state = self.state();
        // The pools of a dying owner stay of use until all its messages are received.
        state.introduced.retain(|_, pool| pool.may_lease());
        if state.introduced.len() >= state.max_introduced {
            state.introduced.retain(|_, pool| !pool.is_disconnected());
        }
        let room = state.introduced.len() < state.max_introduced;
        let old = if room { state.introduced.insert(uid, pool.clone()) } else { None };
        // Kept alive as long as this attachment: `end_keep_alive` finds the pool under this lock.
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
            return Err(bad("a pool of another process"));
        }
        let mut bytes = vec![0; size_of::<Attached>()];
        let (len, fds) = packet::recv(connection.as_fd(), &mut bytes).map_err(error)?;
        bytes.truncate(len);
        let endpoint = Endpoint { name: name.to_owned(), uid };
        // It introduces no further pools.
        Self::new(endpoint, Answer { peer, connection: Arc::new(connection), bytes, fds }, 0)
    }
}
