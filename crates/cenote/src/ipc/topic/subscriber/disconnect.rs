//! Whether a publisher has disconnected.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Watch};
use crate::ipc::topic::notify::SubscriberNotify;
use crate::sync::{AtomicBool, Ordering};
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;

/// Set by the service thread when a publisher closes its connection or dies. The subscriber can still take what is in
/// the ring.
#[derive(Debug)]
pub(crate) struct DisconnectFlag {
    disconnected: AtomicBool,
    notify: Arc<SubscriberNotify>,
    watches: Mutex<Vec<Watch>>,
}

impl DisconnectFlag {
    /// A flag that the end of the connection, or of the process at its other end, sets.
    pub(crate) fn watch(
        peer: &Peer,
        connection: &Arc<GuardedSocket>,
        notify: &Arc<SubscriberNotify>,
    ) -> Result<Arc<DisconnectFlag>> {
        let error = |source| Error::os("watching a socket", source);
        let flag = Arc::new(DisconnectFlag {
            disconnected: AtomicBool::new(false),
            notify: notify.clone(),
            watches: Mutex::default(),
        });
        let served: Weak<dyn Served> = Arc::downgrade(&(flag.clone() as Arc<dyn Served>));
        let mut watches = Vec::new();
        if let Some(pidfd) = &peer.pidfd {
            watches.push(service_thread::watch(pidfd, served.clone(), 0).map_err(error)?);
        }
        watches.push(service_thread::watch_end(connection, served, 0).map_err(error)?);
        *flag.watches() = watches;
        Ok(flag)
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Watch>> {
        // No code under this lock panics.
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }
}

impl Served for DisconnectFlag {
    fn ready(self: Arc<Self>, _token: u64) {
        self.disconnected.store(true, Ordering::Release);
        let watches = std::mem::take(&mut *self.watches());
        drop(watches);
        self.notify.notify_change();
    }
}
