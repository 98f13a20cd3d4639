//! All connections to a pool, as its owner sees them.
//!
//! The owner never waits for a reader. It does not send what cannot be sent at once; the reader then requests it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ipc::discovery::socket_dir::Endpoint;
use crate::ipc::lease::rows::RowId;
use crate::ipc::pool::owner::segment::Segment;
use crate::ipc::service_thread::Watch;
use crate::ipc::shared::wire::{Kind, Packet, Refusal};
use crate::memory::slot::SegmentId;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::{packet, peer};

/// The most packets with descriptors that lie unread at a reader. The kernel counts descriptors in flight against
/// a limit that all processes of a user share.
const MAX_UNREAD: u32 = 16;

/// The most connections that have not sent a request. For one more, the owner drops one of them.
const MAX_PENDING: usize = 64;

/// The most connections of one process that it made, and the most that were made to introduce the pool. It needs one.
const MAX_PER_PROCESS: usize = 64;

/// A connection to the pool.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Arc<GuardedSocket>,
    pub(crate) peer: Peer,
    /// The row of an attached reader.
    pub(crate) row: Option<RowId>,
    /// The connection belongs to the [handler](super::connection_handler), not to a reader.
    pub(crate) is_subscriber: bool,
    /// The owner made the connection, to introduce the pool.
    introduced: bool,
    /// The uids of other pools that were introduced over this connection, or cannot be.
    introduced_pools: BTreeSet<u64>,
    /// Packets with descriptors that were sent since the reader was last seen to have read everything.
    unread: u32,
    /// Segments that the reader has: sent, and not reported as removed.
    segments: BTreeSet<SegmentId>,
    /// Removed segments that the reader still has to be sent. They were among `segments`, which limits them.
    unsent_removals: BTreeSet<SegmentId>,
    /// On the process, which may end before the connection does.
    _process: Option<Watch>,
    watch: Option<Watch>,
}

/// All connections, by number.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    all: HashMap<u64, Connection>,
}

impl Connection {
    pub(crate) fn new(
        socket: Arc<GuardedSocket>,
        peer: Peer,
        process: Option<Watch>,
        introduced: bool,
    ) -> Self {
        Connection {
            socket,
            peer,
            row: None,
            is_subscriber: false,
            introduced,
            introduced_pools: BTreeSet::new(),
            unread: 0,
            segments: BTreeSet::new(),
            unsent_removals: BTreeSet::new(),
            _process: process,
            watch: None,
        }
    }

    /// Whether it has not sent a request yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.row.is_none() && !self.is_subscriber
    }

    /// Keeps the watch of the connection.
    pub(crate) fn keep(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Notes that the reader has a row and is about to be sent all segments.
    pub(crate) fn attach(&mut self, row: RowId, segments: &BTreeMap<SegmentId, Segment>) {
        self.row = Some(row);
        self.segments = segments.keys().copied().collect();
    }

    /// Sends a segment, unless the socket is full or too many packets lie unread.
    fn send_segment(&mut self, id: SegmentId, segment: &Segment) {
        if self.has_room() {
            let packet = Packet::segment(Kind::Segment, id.0, segment.len);
            let sent = packet::send(self.fd(), bytemuck::bytes_of(&packet), &[segment.fd.as_fd()]);
            if sent.is_ok() {
                self.unread += 1;
                self.segments.insert(id);
            }
        }
    }

    /// Whether another packet with descriptors may be sent.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.has_read_all() {
            self.unread = 0;
        }
        self.unread < MAX_UNREAD
    }

    /// Sends a connection to another pool. If the socket is full or too many packets lie unread, the owner tries
    /// again with the next message. Without a connection, the pool is marked as impossible to introduce.
    pub(crate) fn introduce(&mut self, pool: &Endpoint, connection: Option<BorrowedFd<'_>>) {
        if let Some(connection) = connection {
            let mut packet = bytemuck::bytes_of(&Packet::introduced(pool.uid)).to_vec();
            packet.extend_from_slice(pool.name.as_bytes());
            if !self.has_room() || packet::send(self.fd(), &packet, &[connection]).is_err() {
                return;
            }
            self.unread += 1;
        }
        self.introduced_pools.insert(pool.uid);
    }

    /// Reports that a segment was removed, now or as soon as the socket has room.
    fn remove_segment(&mut self, id: SegmentId) {
        if self.segments.remove(&id) {
            self.unsent_removals.insert(id);
            self.send_removals();
        }
    }

    /// Sends the removals that could not be sent before. Epoll reports when the socket has room for more.
    pub(crate) fn send_removals(&mut self) {
        let mut full = false;
        while let Some(id) = self.unsent_removals.first() {
            let packet = Packet::segment(Kind::SegmentRemoved, id.0, 0);
            match packet::send(self.fd(), bytemuck::bytes_of(&packet), &[]) {
                Ok(()) => drop(self.unsent_removals.pop_first()),
                Err(error) => {
                    full = error.kind() == io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        self.watch.iter_mut().for_each(|watch| watch.mind_writing(full));
    }

    /// Whether no packet of ours lies in the socket. The kernel answers this, not the peer.
    fn has_read_all(&self) -> bool {
        peer::unread(self.fd()).is_ok_and(|bytes| bytes == 0)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the process has ended or disconnected.
    fn has_ended(&self) -> bool {
        is_disconnected(self.fd()) || self.peer.has_ended()
    }
}

fn is_disconnected(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

impl Connections {
    pub(crate) fn insert(&mut self, number: u64, connection: Connection) {
        let pending = self.all.values().filter(|connection| connection.is_pending());
        if pending.count() >= MAX_PENDING {
            self.drop_pending();
        }
        self.all.insert(number, connection);
    }

    /// Drops the oldest pending connection of the process that has most of them.
    fn drop_pending(&mut self) {
        let pending = || self.all.iter().filter(|(_, connection)| connection.is_pending());
        let mut counts: HashMap<i32, usize> = HashMap::new();
        pending().for_each(|(_, one)| *counts.entry(one.peer.pid).or_default() += 1);
        let process = counts.into_iter().max_by_key(|(_, count)| *count).map(|(pid, _)| pid);
        let of_process = pending().filter(|(_, one)| Some(one.peer.pid) == process);
        let oldest = of_process.map(|(number, _)| *number).min();
        oldest.and_then(|oldest| self.all.remove(&oldest));
    }

    /// Whether the process of this connection is attached too often. Processes of another pid namespace all show pid 0,
    /// so only the limit for all connections applies to them.
    pub(crate) fn has_too_many_of_process(&self, number: u64) -> bool {
        let Some(one) = self.all.get(&number).filter(|one| one.peer.pid != 0) else { return false };
        let (pid, introduced) = (one.peer.pid, one.introduced);
        let alike = |other: &Connection| other.peer.pid == pid && other.introduced == introduced;
        self.attached().filter(|(_, other)| alike(other)).count() >= MAX_PER_PROCESS
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Connection> {
        self.all.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Connection> {
        self.all.remove(&number)
    }

    /// The attached readers.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (RowId, &Connection)> {
        self.all.values().filter_map(|connection| Some((connection.row?, connection)))
    }

    /// The readers to which another pool was not introduced yet. Skips readers to which this pool itself was
    /// introduced: the pool that they attached to does that.
    pub(crate) fn not_introduced_to(&self, pool: u64) -> Vec<(u64, Peer)> {
        let wanted = |one: &Connection| {
            one.row.is_some() && !one.introduced && !one.introduced_pools.contains(&pool)
        };
        let found = self.all.iter().filter(|(_, connection)| wanted(connection));
        found.map(|(number, connection)| (*number, connection.peer.clone())).collect()
    }

    /// Sends a new segment to all readers.
    pub(crate) fn send_segment(&mut self, id: SegmentId, segment: &Segment) {
        for connection in self.all.values_mut().filter(|connection| connection.row.is_some()) {
            connection.send_segment(id, segment);
        }
    }

    /// Sends a reader every segment from number `first` on, if it has read everything. Otherwise the segment that it
    /// misses may be unread in its socket; the reader requests it again.
    pub(crate) fn send_missing(
        &mut self,
        number: u64,
        first: u32,
        segments: &BTreeMap<SegmentId, Segment>,
    ) {
        let ready = |one: &&mut Connection| one.row.is_some() && one.has_read_all();
        let Some(connection) = self.all.get_mut(&number).filter(ready) else { return };
        let wanted = segments.range(SegmentId(first)..);
        wanted.for_each(|(id, segment)| connection.send_segment(*id, segment));
    }

    /// Reports to all readers that a segment was removed.
    pub(crate) fn remove_segment(&mut self, id: SegmentId) {
        self.all.values_mut().for_each(|connection| connection.remove_segment(id));
    }

    /// Takes out the readers that have ended or disconnected.
    pub(crate) fn take_ended(&mut self) -> Vec<Connection> {
        self.take(|connection| connection.row.is_some() && connection.has_ended())
    }

    /// Takes out the readers with these rows, which hold more than `max` slots, and sends them the reason.
    pub(crate) fn expel(&mut self, held: &HashMap<RowId, usize>, max: usize) -> Vec<Connection> {
        let count = |connection: &Connection| held.get(&connection.row?).copied();
        let expelled = self.take(|connection| count(connection).is_some());
        for connection in &expelled {
            let why = Refusal::leases(count(connection).unwrap_or(0), max);
            let _ = packet::send(connection.fd(), bytemuck::bytes_of(&why), &[]);
        }
        expelled
    }

    fn take(&mut self, is: impl Fn(&Connection) -> bool) -> Vec<Connection> {
        self.all.extract_if(|_, connection| is(connection)).map(|(_, found)| found).collect()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::set_socket_send_buffer_size;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn removals_that_did_not_fit_into_the_socket_are_sent_later() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        set_socket_send_buffer_size(&ours, 1).unwrap();
        let ours = Arc::new(GuardedSocket::open(|| Ok(ours)).unwrap());
        let peer = Peer::of(ours.as_fd()).unwrap();
        let mut connection = Connection::new(ours, peer, None, false);
        connection.segments = (0..100).map(SegmentId).collect();
        (0..100).for_each(|id| connection.remove_segment(SegmentId(id)));
        connection.remove_segment(SegmentId(100)); // the reader never had it
        assert!(connection.segments.is_empty() && !connection.unsent_removals.is_empty());
        let (mut received, mut bytes) = (Vec::new(), [0; 64]);
        while received.len() < 100 {
            let (len, _) = packet::recv(theirs.as_fd(), &mut bytes).unwrap();
            let (kind, packet) = Packet::parse(&bytes[..len]).unwrap();
            assert_eq!(kind, Kind::SegmentRemoved);
            received.push(packet.index);
            connection.send_removals();
        }
        assert_eq!(received, (0..100).collect::<Vec<u32>>());
        assert!(packet::recv(theirs.as_fd(), &mut bytes).is_err(), "nothing is sent twice");
    }
}
