//! Publishing the endpoint of a pool, and accepting the connections of other processes.
//!
//! The service thread calls [`Owner::ready`](Served::ready) for each event.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::intervals::{ACCEPT_RETRY, SOCKET_ATTEMPTS};
use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::server::connections::Connection;
use crate::ipc::pool::owner::server::refusal::refuse;
use crate::ipc::pool::owner::server::server;
use crate::ipc::pool::owner::server::server::{
    DIRECTORY, FIRST_CONNECTION, GROWTH, LISTENER, Server,
};
use crate::ipc::service_thread;
use crate::ipc::service_thread::Served;
use crate::ipc::shared::wire::Refusal;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::seqpacket;

/// How many connections the service thread accepts before it serves other events.
const ACCEPTED_AT_ONCE: usize = 32;

/// How many connections [`Owner::accept_now`] accepts: its caller waits, and blocks the service thread meanwhile.
const ACCEPTED_NOW: usize = 4;

impl Owner {
    fn served(self: &Arc<Self>) -> Weak<dyn Served> {
        Arc::downgrade(&(self.clone() as Arc<dyn Served>))
    }

    /// Publishes the endpoint and starts to serve it.
    pub(crate) fn serve(self: &Arc<Self>, socket_dir: SocketDir) -> Result<()> {
        // Should the endpoint be removed at once, the service thread waits for this lock and finds the server.
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let server = self.start_server(socket_dir)?;
        self.state().server = Some(server);
        drop(serving);
        self.check_endpoint();
        Ok(())
    }

    fn start_server(self: &Arc<Self>, socket_dir: SocketDir) -> Result<Server> {
        Server::start(socket_dir, &self.endpoint, self.config.access, self.served())
    }

    /// Replaces a server whose endpoint was removed. If the pool was closed meanwhile, drops the new server, and
    /// its endpoint with it.
    fn replace_server(&self, mut server: Server) {
        let mut state = self.state();
        if let Some(old) = &mut state.server {
            server.next_connection = old.next_connection;
            server.waker = old.waker.clone(); // it may have been used
            old.endpoint = None; // it belongs to the new server
            std::mem::swap(old, &mut server);
        }
        drop(state);
        drop(server);
    }

    /// Accepts waiting connections on the calling thread: it has just connected to a pool of the same process.
    /// Does nothing if the service thread is accepting.
    pub(crate) fn accept_now(self: &Arc<Self>) {
        let Ok(_accepting) = self.accepting.try_lock() else { return };
        for _ in 0..ACCEPTED_NOW {
            let Some(listener) = self.listener() else { return };
            let Ok(Some(connection)) = seqpacket::accept(&listener) else { return };
            self.accept(connection);
        }
    }

    fn listener(&self) -> Option<Arc<GuardedSocket>> {
        self.state().server.as_ref().map(|server| server.listener.clone())
    }

    /// Accepts some of the waiting connections. Epoll reports the others again.
    fn accept_some(self: &Arc<Self>) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.listener() else { return };
            match seqpacket::accept(&listener) {
                Ok(Some(connection)) => self.accept(connection),
                Ok(None) => return,
                Err(_) => return self.refuse_one(&listener),
            }
        }
    }

    /// Refuses a connection when there are no file descriptors left. Without that its process would wait in vain, and
    /// epoll would report it for ever.
    fn refuse_one(&self, listener: &GuardedSocket) {
        let Some(socket_dir) = self.state().server.as_ref().map(Server::socket_dir) else { return };
        let mut reserve = server::reserve_fd();
        *reserve = None;
        match seqpacket::accept(listener) {
            Ok(Some(connection)) => refuse(connection.as_fd(), Refusal::Descriptors),
            Ok(None) => {}
            // Another thread took the descriptor. The pause keeps epoll from spinning.
            Err(_) => std::thread::sleep(ACCEPT_RETRY),
        }
        *reserve = socket_dir.open_again().ok();
    }

    /// Checks the peer of a connection and handles what it has already sent.
    fn accept(self: &Arc<Self>, connection: GuardedSocket) {
        let Ok(peer) = Peer::of(connection.as_fd()) else { return };
        if peer.has_ended() {
            return; // another process has its socket now, of unknown rights
        }
        if !self.config.access.admits(&peer) {
            return refuse(connection.as_fd(), Refusal::Access);
        }
        if let Some(number) = self.add_connection(Arc::new(connection), peer, false) {
            // Most send their request at once. It is handled before other connections can push this one out.
            self.receive_from(number);
        }
    }

    /// Watches a connection. Returns its number, or `None` if the pool is closed.
    pub(crate) fn add_connection(
        self: &Arc<Self>,
        socket: Arc<GuardedSocket>,
        peer: Peer,
        introduced: bool,
    ) -> Option<u64> {
        let mut state = self.state();
        let server = state.server.as_mut()?;
        let number = server.next_connection;
        server.next_connection += 1;
        drop(state);
        let served = self.served();
        let token = FIRST_CONNECTION + 2 * number;
        let pidfd = peer.pidfd.as_ref();
        let process =
            pidfd.and_then(|pidfd| service_thread::watch(pidfd, served.clone(), token + 1).ok());
        // Inserted before it is watched, so that the first event finds it.
        let fd = socket.clone();
        let connection = Connection::new(socket, peer, process, introduced);
        self.state().connections.insert(number, connection);
        let Ok(watch) = service_thread::watch(&fd, served, token) else {
            self.drop_connection(number);
            return None;
        };
        if let Some(connection) = self.state().connections.get(number) {
            connection.keep(watch);
        }
        Some(number)
    }

    /// Makes the endpoint again if it was removed. Called when the directory has changed.
    fn check_endpoint(self: &Arc<Self>) {
        let _serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        // Other processes may hold the directory's lock for long, so this works without it. Then a process that
        // cleans up may take the new socket for a dead one, and the endpoint may go before it is watched: hence
        // several attempts. If all fail, the pool goes on for the readers that are attached.
        for _ in 0..SOCKET_ATTEMPTS {
            let Some(socket_dir) = self.dir_without_endpoint() else { return };
            match socket_dir.and_then(|socket_dir| self.start_server(socket_dir)) {
                Ok(server) => self.replace_server(server),
                // The directory was removed as soon as it was open: it is made again, too.
                Err(Error::Directory { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(_) => return,
            }
        }
    }

    /// The directory, opened again, if the endpoint is not in it.
    fn dir_without_endpoint(&self) -> Option<Result<SocketDir>> {
        let socket_dir = self.state().server.as_ref()?.socket_dir();
        (!socket_dir.has(&self.endpoint)).then(|| socket_dir.reopen(self.config.access))
    }
}

impl Served for Owner {
    fn ready(self: Arc<Self>, token: u64) {
        match token {
            DIRECTORY => self.check_endpoint(),
            GROWTH => self.grow_ahead(),
            token => {
                // One thread at a time, so that a connection is accepted, read and dropped in this order.
                let _accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
                match token {
                    LISTENER => self.accept_some(),
                    even if even.is_multiple_of(2) => {
                        self.receive_from((even - FIRST_CONNECTION) / 2);
                    }
                    odd => self.drop_connection((odd - FIRST_CONNECTION) / 2),
                }
            }
        }
    }
}
