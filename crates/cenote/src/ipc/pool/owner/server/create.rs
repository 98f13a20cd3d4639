//! Creating a pool that other processes can find: alone under its name, or as the pool of a publisher.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Error, Result};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::pool::config::TensorPoolConfig;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::server::connection_handler::ConnectionHandler;
use crate::sys::socket::peer::Peer;

/// Creates a pool that other processes find under `name`. Fails if a living process owns one of this name.
pub(crate) fn create(name: &str, config: TensorPoolConfig) -> Result<Arc<Owner>> {
    let (config, max_slots) = config.checked()?;
    let socket_dir = SocketDir::open("pools", config.access)?;
    let locked = socket_dir.lock()?;
    let names = socket_dir.file_names()?;
    take_over(&socket_dir, &names, name)?;
    socket_dir.remove_hidden(&names, &locked);
    let endpoint = Endpoint { name: name.to_owned(), uid: random_uid()? };
    let owner = Arc::new(Owner::new(endpoint, config, max_slots)?);
    owner.serve(socket_dir)?;
    Ok(owner)
}

/// Creates a pool whose socket is shared with the handler that `handler` makes. Other pools of the same name may be in
/// `socket_dir`. Removes those endpoints among `names` whose owners are dead.
pub(crate) fn create_shared<H: ConnectionHandler + 'static>(
    (socket_dir, names): (SocketDir, &[String]),
    endpoint: Endpoint,
    config: TensorPoolConfig,
    handler: impl FnOnce(&Arc<Owner>) -> Result<Arc<H>>,
) -> Result<Arc<H>> {
    let (config, max_slots) = config.checked()?;
    let (socket_dir, locked) = socket_dir.locked(config.access)?;
    socket_dir.remove_left(names, &locked);
    let owner = Arc::new(Owner::new(endpoint, config, max_slots)?);
    let handler = handler(&owner)?;
    let weak: Weak<H> = Arc::downgrade(&handler);
    let _ = owner.handler.set(weak);
    owner.serve(socket_dir)?;
    Ok(handler)
}

/// Removes the endpoints of dead owners of this name. Fails if an owner of this name is alive.
fn take_over(socket_dir: &SocketDir, names: &[String], name: &str) -> Result<()> {
    let endpoints = socket_dir.endpoints_among(names).into_iter();
    for endpoint in endpoints.filter(|endpoint| endpoint.name == name) {
        match socket_dir.connect(&endpoint) {
            Ok(connection) => match Peer::of(connection.as_fd()) {
                // A process that was forked off the dead owner has the socket, and owns nothing.
                Ok(owner) if owner.has_ended() => socket_dir.remove(&endpoint),
                owner => return Err(exists(name, owner.ok())),
            },
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                socket_dir.remove(&endpoint);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // The backlog of a listening socket is full, so its owner is alive.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(exists(name, None));
            }
            Err(source) => return Err(Error::Connect { pool: name.to_owned(), source }),
        }
    }
    Ok(())
}

fn exists(name: &str, owner: Option<Peer>) -> Error {
    let (pid, program) = match owner {
        Some(owner) => (owner.pid, owner.program()),
        None => (0, "unknown".to_owned()),
    };
    Error::PoolExists { pool: name.to_owned(), pid, program }
}

pub(crate) fn random_uid() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())
        .map_err(|source| Error::os("getrandom", source))?;
    // 0 stands for "no pool".
    Ok(u64::from_ne_bytes(bytes).max(1))
}
