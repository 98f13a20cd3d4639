//! Attaching to a pool: finding its endpoint, sending the request to its owner, and waiting for the answer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use std::{io, iter};

use crate::error::{Error, Result};
use crate::intervals::{ATTACH_ATTEMPTS, CONNECT_RETRY, HANDSHAKE_TIMEOUT};
use crate::ipc::discovery::handshake::{Answer, Connecting};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::pool::reader::attachment;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::shared::wire::{Attached, Kind, Packet};
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::{packet, seqpacket};

/// An endpoint and its directory.
type Found = (Arc<SocketDir>, Endpoint);

/// Attaches to the pool of this name, unless `registered` finds its uid.
pub(crate) fn by_name(
    name: &str,
    registered: impl Fn(u64) -> Option<Arc<Attachment>>,
) -> Result<Arc<Attachment>> {
    let found = find_in("pools", |endpoint| endpoint.name == name)?;
    attach(found, registered, || Error::NoSuchPool { pool: name.to_owned() })
}

/// Attaches to the pool with this uid.
pub(crate) fn by_uid(uid: u64) -> Result<Arc<Attachment>> {
    let missing = || Error::NoSuchPool { pool: format!("uid {uid:016x}") };
    attach(find(uid)?, |_| None, missing)
}

/// Starts to attach to the pool with this uid. The service thread calls `then`.
pub(crate) fn begin(
    uid: u64,
    then: impl FnOnce(Result<Arc<Attachment>>) + Send + 'static,
) -> Result<Connecting> {
    let Some((socket_dir, endpoint)) = find(uid)?.into_iter().next() else {
        return Ok(Connecting::Closed);
    };
    attachment::begin_at(&socket_dir, &endpoint, then)?.watched_by_service()
}

/// The endpoints with this uid, which may be that of a topic's publisher. Skips a directory that this user may not open,
/// and fails with that only if the uid is in no other.
fn find(uid: u64) -> Result<Vec<Found>> {
    let topics = topics();
    let kinds = topics.iter().flatten().map(|topic| format!("topics/{topic}"));
    let kinds: Vec<String> = iter::once("pools".to_owned()).chain(kinds).collect();
    let mut failed = topics.err();
    for kind in kinds {
        match find_in(&kind, |endpoint| endpoint.uid == uid) {
            Ok(found) if !found.is_empty() => return Ok(found),
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(Vec::new()), Err)
}

fn topics() -> Result<Vec<String>> {
    SocketDir::find("topics")?.map_or(Ok(Vec::new()), |topics| topics.directories())
}

/// The wanted endpoints of a directory.
fn find_in(kind: &str, wanted: impl Fn(&Endpoint) -> bool) -> Result<Vec<Found>> {
    let Some(socket_dir) = SocketDir::find(kind)?.map(Arc::new) else { return Ok(Vec::new()) };
    let entries = socket_dir.endpoints()?.into_iter().filter(wanted);
    Ok(entries.map(|endpoint| (socket_dir.clone(), endpoint)).collect())
}

fn attach(
    found: Vec<Found>,
    registered: impl Fn(u64) -> Option<Arc<Attachment>>,
    missing: impl Fn() -> Error,
) -> Result<Arc<Attachment>> {
    for (socket_dir, endpoint) in found {
        for attempt in 1.. {
            let Some((owner, connection)) = connect(&socket_dir, &endpoint)? else { break };
            // The connection shows that the owner lives.
            if let Some(registered) =
                registered(endpoint.uid).filter(|registered| !registered.is_disconnected())
            {
                return Ok(registered);
            }
            match handshake(endpoint.clone(), owner, connection) {
                // Other connections may have pushed this one out.
                Err(Error::Disconnected { .. }) if attempt < ATTACH_ATTEMPTS => {}
                done => return done,
            }
        }
    }
    Err(missing())
}

/// Connects to the owner. Returns `None` if no process serves the endpoint. Waits if the owner's backlog is full.
fn connect(socket_dir: &SocketDir, endpoint: &Endpoint) -> Result<Option<(Peer, GuardedSocket)>> {
    let start = Instant::now();
    let error = |source| Error::Connect { pool: endpoint.name.clone(), source };
    loop {
        let source = match socket_dir.connect(endpoint) {
            Ok(connection) => {
                let owner = Peer::of(connection.as_fd()).map_err(error)?;
                if !owner.has_ended() {
                    return Ok(Some((owner, connection)));
                }
                io::ErrorKind::ConnectionRefused.into()
            }
            Err(source) => source,
        };
        match source.kind() {
            io::ErrorKind::ConnectionRefused => {
                socket_dir.remove_dead(endpoint);
                return Ok(None);
            }
            io::ErrorKind::NotFound => return Ok(None), // removed a moment ago
            io::ErrorKind::WouldBlock if start.elapsed() < HANDSHAKE_TIMEOUT => {
                std::thread::sleep(CONNECT_RETRY);
            }
            io::ErrorKind::WouldBlock => {
                let pool = endpoint.name.clone();
                return Err(Error::NoAnswer { pool, pid: 0, waited: HANDSHAKE_TIMEOUT });
            }
            _ => return Err(error(source)),
        }
    }
}

/// Sends the request to attach and waits for the answer.
fn handshake(
    endpoint: Endpoint,
    owner: Peer,
    connection: GuardedSocket,
) -> Result<Arc<Attachment>> {
    let error = |source| Error::Connect { pool: endpoint.name.clone(), source };
    let request = Packet::new(Kind::Attach);
    match packet::send(connection.as_fd(), bytemuck::bytes_of(&request), &[]) {
        // The owner has refused already: its answer has the reason.
        Err(error) if is_disconnect(&error) => {}
        sent => sent.map_err(error)?,
    }
    let mut bytes = vec![0; size_of::<Attached>()];
    let (len, fds) = await_reply(&endpoint, &owner, &connection, &mut bytes)?;
    bytes.truncate(len);
    attachment::answered(
        endpoint,
        Answer { peer: owner, connection: Arc::new(connection), bytes, fds },
    )
}

fn await_reply(
    endpoint: &Endpoint,
    owner: &Peer,
    connection: &GuardedSocket,
    bytes: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>)> {
    let error = |source| Error::Connect { pool: endpoint.name.clone(), source };
    let start = Instant::now();
    while let Some(left) = HANDSHAKE_TIMEOUT.checked_sub(start.elapsed()) {
        if !seqpacket::wait_readable(connection, left).map_err(error)? {
            continue;
        }
        match packet::recv(connection.as_fd(), bytes) {
            Ok((0, _)) => return Err(Error::Disconnected { mid_message: false }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The kernel reports this once. What was sent before can still be read.
            Err(error) if is_disconnect(&error) => {}
            answer => return answer.map_err(error),
        }
    }
    Err(Error::NoAnswer { pool: endpoint.name.clone(), pid: owner.pid, waited: HANDSHAKE_TIMEOUT })
}

fn is_disconnect(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
