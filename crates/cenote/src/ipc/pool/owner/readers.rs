//! Everybody who is attached to a pool, as its owner sees them.
//!
//! Whatever an attacher does, its owner never waits for it: what cannot be sent at once is not
//! sent, and the attacher is "behind" until it asks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ipc::discovery::socket_dir::Entry;
use crate::ipc::lease::rows::RowId;
use crate::ipc::pool::owner::segment::Segment;
use crate::ipc::service_thread::Watch;
use crate::ipc::shared::wire::{Kind, Packet, Refusal};
use crate::memory::slot::SegmentId;
use crate::sys::fork::GuardedSocket;
use crate::sys::socket::peer::Peer;
use crate::sys::socket::{packet, peer};

/// The most segments that are sent to an attacher that reads none. Descriptors in flight count
/// against a limit that all processes of a user share.
const MAX_UNREAD: u32 = 16;

/// The most connections that have not said hello. One more, and one is dropped.
const MAX_STRANGERS: usize = 64;

/// The most connections that one process can have, and of those that it did not ask for. It needs one.
const MAX_OF_ONE: usize = 64;

/// A connection to the pool.
#[derive(Debug)]
pub(crate) struct Attacher {
    pub(crate) connection: Arc<GuardedSocket>,
    pub(crate) peer: Peer,
    /// Its row, once it has said hello.
    pub(crate) row: Option<RowId>,
    /// It is the guest of whoever shares the socket.
    pub(crate) guest: bool,
    /// It did not ask: the pool was lent to it by way of another.
    borrows: bool,
    /// The uids of other pools that were lent to it by way of this one, or cannot be.
    lent: BTreeSet<u64>,
    /// Segments sent since it was last seen to have read everything.
    unread: u32,
    /// Segments that it was sent, and not told that they are gone.
    has: BTreeSet<SegmentId>,
    /// Segments that are gone, of which it could not be told yet. It had them: no more than it has.
    untold: BTreeSet<SegmentId>,
    /// Of its process, which may end before it hangs up.
    _end: Option<Watch>,
    watch: Option<Watch>,
}

/// All connections, by number.
#[derive(Debug, Default)]
pub(crate) struct Attachers {
    all: HashMap<u64, Attacher>,
}

impl Attacher {
    pub(crate) fn new(
        connection: Arc<GuardedSocket>,
        peer: Peer,
        end: Option<Watch>,
        borrows: bool,
    ) -> Self {
        Attacher {
            connection,
            peer,
            row: None,
            guest: false,
            borrows,
            lent: BTreeSet::new(),
            unread: 0,
            has: BTreeSet::new(),
            untold: BTreeSet::new(),
            _end: end,
            watch: None,
        }
    }

    /// Whether it has not said hello.
    pub(crate) fn is_stranger(&self) -> bool {
        self.row.is_none() && !self.guest
    }

    /// Keeps the watch of the connection.
    pub(crate) fn keep(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// It has said hello, and is about to be sent all segments.
    pub(crate) fn attach(&mut self, row: RowId, segments: &BTreeMap<SegmentId, Segment>) {
        self.row = Some(row);
        self.has = segments.keys().copied().collect();
    }

    /// Sends a segment, unless that would have to wait or too many lie unread.
    fn push(&mut self, id: SegmentId, segment: &Segment) {
        if self.has_read_all() {
            self.unread = 0;
        }
        if self.unread < MAX_UNREAD {
            let packet = Packet::segment(Kind::Segment, id.0, segment.len);
            let sent = packet::send(self.fd(), bytemuck::bytes_of(&packet), &[segment.fd.as_fd()]);
            if sent.is_ok() {
                self.unread += 1;
                self.has.insert(id);
            }
        }
    }

    /// Whether more may be sent to it: not if much of what was is unread.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.has_read_all() {
            self.unread = 0;
        }
        self.unread < MAX_UNREAD
    }

    /// Sends a connection to another pool, unless that would have to wait or too much lies unread: then
    /// it is tried again.
    pub(crate) fn lend(&mut self, pool: &Entry, connection: Option<BorrowedFd<'_>>) {
        if let Some(connection) = connection {
            let mut packet = bytemuck::bytes_of(&Packet::lent(pool.uid)).to_vec();
            packet.extend_from_slice(pool.name.as_bytes());
            if !self.has_room() || packet::send(self.fd(), &packet, &[connection]).is_err() {
                return;
            }
            self.unread += 1;
        }
        self.lent.insert(pool.uid);
    }

    /// Says that a segment is gone, now or as soon as there is room for it.
    fn forget(&mut self, id: SegmentId) {
        if self.has.remove(&id) {
            self.untold.insert(id);
            self.tell();
        }
    }

    /// Says what could not be said before. Epoll calls when there is room for more.
    pub(crate) fn tell(&mut self) {
        let mut full = false;
        while let Some(id) = self.untold.first() {
            let packet = Packet::segment(Kind::Gone, id.0, 0);
            match packet::send(self.fd(), bytemuck::bytes_of(&packet), &[]) {
                Ok(()) => drop(self.untold.pop_first()),
                Err(error) => {
                    full = error.kind() == io::ErrorKind::WouldBlock;
                    break;
                }
            }
        }
        self.watch.iter_mut().for_each(|watch| watch.mind_writing(full));
    }

    /// Whether nothing that we sent still lies in the socket. The kernel's word, not the peer's.
    fn has_read_all(&self) -> bool {
        peer::unread(self.fd()).is_ok_and(|bytes| bytes == 0)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Whether the process has ended or hung up.
    fn is_gone(&self) -> bool {
        is_hung_up(self.fd()) || self.peer.has_ended()
    }
}

fn is_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

impl Attachers {
    pub(crate) fn insert(&mut self, number: u64, attacher: Attacher) {
        let strangers = self.all.values().filter(|attacher| attacher.is_stranger());
        if strangers.count() >= MAX_STRANGERS {
            self.drop_a_stranger();
        }
        self.all.insert(number, attacher);
    }

    /// Drops the oldest stranger of the process that has most of them.
    fn drop_a_stranger(&mut self) {
        let strangers = || self.all.iter().filter(|(_, attacher)| attacher.is_stranger());
        let mut of: HashMap<i32, usize> = HashMap::new();
        strangers().for_each(|(_, stranger)| *of.entry(stranger.peer.pid).or_default() += 1);
        let crowd = of.into_iter().max_by_key(|(_, count)| *count).map(|(pid, _)| pid);
        let ones = strangers().filter(|(_, stranger)| Some(stranger.peer.pid) == crowd);
        let oldest = ones.map(|(number, _)| *number).min();
        oldest.and_then(|oldest| self.all.remove(&oldest));
    }

    /// Whether the process at this connection is attached too often. Those that cannot be told
    /// apart, being in another pid namespace, are only limited together with all others.
    pub(crate) fn too_many_of_one(&self, number: u64) -> bool {
        let Some(pid) = self.all.get(&number).map(|a| a.peer.pid).filter(|pid| *pid != 0) else {
            return false;
        };
        let borrows = self.all.get(&number).is_some_and(|attacher| attacher.borrows);
        let alike = |one: &Attacher| one.peer.pid == pid && one.borrows == borrows;
        self.attached().filter(|(_, attacher)| alike(attacher)).count() >= MAX_OF_ONE
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Attacher> {
        self.all.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Attacher> {
        self.all.remove(&number)
    }

    /// Those that have said hello.
    pub(crate) fn attached(&self) -> impl Iterator<Item = (RowId, &Attacher)> {
        self.all.values().filter_map(|attacher| Some((attacher.row?, attacher)))
    }

    /// Those to whom another pool was not lent yet. Not those to whom this one was: what they get comes
    /// from yet another, which lends to them itself.
    pub(crate) fn lacking(&self, pool: u64) -> Vec<(u64, Peer)> {
        let lacks = |attacher: &Attacher| {
            attacher.row.is_some() && !attacher.borrows && !attacher.lent.contains(&pool)
        };
        let lacking = self.all.iter().filter(|(_, attacher)| lacks(attacher));
        lacking.map(|(number, attacher)| (*number, attacher.peer.clone())).collect()
    }

    /// Sends a new segment to everybody.
    pub(crate) fn push(&mut self, id: SegmentId, segment: &Segment) {
        for attacher in self.all.values_mut().filter(|attacher| attacher.row.is_some()) {
            attacher.push(id, segment);
        }
    }

    /// Sends to one that is behind every segment from number `first` on. Nothing while there is
    /// something that it has not read: what it misses may be there, and it asks again.
    pub(crate) fn catch_up(
        &mut self,
        number: u64,
        first: u32,
        segments: &BTreeMap<SegmentId, Segment>,
    ) {
        let behind = |attacher: &&mut Attacher| attacher.row.is_some() && attacher.has_read_all();
        let Some(attacher) = self.all.get_mut(&number).filter(behind) else { return };
        let wanted = segments.range(SegmentId(first)..);
        wanted.for_each(|(id, segment)| attacher.push(*id, segment));
    }

    /// Tells everybody that a segment is no longer used.
    pub(crate) fn forget(&mut self, id: SegmentId) {
        self.all.values_mut().for_each(|attacher| attacher.forget(id));
    }

    /// Takes out everybody who has a row and has ended or hung up.
    pub(crate) fn take_gone(&mut self) -> Vec<Attacher> {
        self.take(|attacher| attacher.row.is_some() && attacher.is_gone())
    }

    /// Takes out everybody whose row is among these, for holding so many slots, and tells them.
    pub(crate) fn expel(&mut self, held: &HashMap<RowId, usize>, max: usize) -> Vec<Attacher> {
        let count = |attacher: &Attacher| held.get(&attacher.row?).copied();
        let expelled = self.take(|attacher| count(attacher).is_some());
        for attacher in &expelled {
            let why = Refusal::leases(count(attacher).unwrap_or(0), max);
            let _ = packet::send(attacher.fd(), bytemuck::bytes_of(&why), &[]);
        }
        expelled
    }

    /// Takes out everybody of whom this is true.
    fn take(&mut self, is: impl Fn(&Attacher) -> bool) -> Vec<Attacher> {
        self.all.extract_if(|_, attacher| is(attacher)).map(|(_, attacher)| attacher).collect()
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::set_socket_send_buffer_size;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn what_could_not_be_said_is_said_later() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        set_socket_send_buffer_size(&ours, 1).unwrap();
        let ours = Arc::new(GuardedSocket::open(|| Ok(ours)).unwrap());
        let peer = Peer::of(ours.as_fd()).unwrap();
        let mut attacher = Attacher::new(ours, peer, None, false);
        attacher.has = (0..100).map(SegmentId).collect();
        (0..100).for_each(|id| attacher.forget(SegmentId(id)));
        attacher.forget(SegmentId(100)); // of which it never heard
        assert!(attacher.has.is_empty() && !attacher.untold.is_empty());
        let (mut heard, mut bytes) = (Vec::new(), [0; 64]);
        while heard.len() < 100 {
            let (len, _) = packet::recv(theirs.as_fd(), &mut bytes).unwrap();
            let (kind, packet) = Packet::parse(&bytes[..len]).unwrap();
            assert_eq!(kind, Kind::Gone);
            heard.push(packet.index);
            attacher.tell();
        }
        assert_eq!(heard, (0..100).collect::<Vec<u32>>());
        assert!(packet::recv(theirs.as_fd(), &mut bytes).is_err(), "nothing is said twice");
    }
}
