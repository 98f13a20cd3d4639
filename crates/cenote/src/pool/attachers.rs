//! Everybody who is attached to a pool, as its owner sees them.
//!
//! Whatever an attacher does, its owner never waits for it: what cannot be sent at once is not
//! sent, and the attacher is "behind" until it asks.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::os::fork::GuardedSocket;
use crate::os::packet;
use crate::os::peer::{self, Peer};
use crate::pool::allocator::SegmentId;
use crate::pool::rows::RowId;
use crate::pool::segment::Segment;
use crate::pool::service::Watch;
use crate::pool::wire::{Kind, Packet};

/// The most segments that are sent to an attacher that reads none. Descriptors in flight count
/// against a limit that all processes of a user share.
const MAX_UNREAD: u32 = 16;

/// The most connections that have not said hello. One more, and one is dropped.
const MAX_STRANGERS: usize = 64;

/// The most connections that one process can have. It needs one.
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
    /// Segments sent since it was last seen to have read everything.
    unread: u32,
    watches: Vec<Watch>,
}

/// All connections, by number.
#[derive(Debug, Default)]
pub(crate) struct Attachers {
    all: HashMap<u64, Attacher>,
}

impl Attacher {
    pub(crate) fn new(connection: Arc<GuardedSocket>, peer: Peer, watches: Vec<Watch>) -> Self {
        Attacher { connection, peer, row: None, guest: false, unread: 0, watches }
    }

    /// Whether it has not said hello.
    fn is_stranger(&self) -> bool {
        self.row.is_none() && !self.guest
    }

    /// Keeps a watch for as long as the connection.
    pub(crate) fn keep(&mut self, watch: Watch) {
        self.watches.push(watch);
    }

    /// Sends a segment, unless that would have to wait or too many lie unread.
    fn push(&mut self, id: SegmentId, segment: &Segment) {
        if self.has_read_all() {
            self.unread = 0;
        }
        if self.unread < MAX_UNREAD {
            let packet = Packet::segment(Kind::Segment, id.0, segment.len);
            let sent = packet::send(self.fd(), bytemuck::bytes_of(&packet), &[segment.fd.as_fd()]);
            self.unread += u32::from(sent.is_ok());
        }
    }

    /// Whether nothing that we sent still lies in the socket. The kernel's word, not the peer's.
    fn has_read_all(&self) -> bool {
        peer::unread(self.fd()).is_ok_and(|bytes| bytes == 0)
    }

    /// Says that a segment is gone. If this is lost, the attacher keeps it mapped a while longer.
    fn forget(&self, id: SegmentId) {
        let packet = Packet::segment(Kind::Gone, id.0, 0);
        let _ = packet::send(self.fd(), bytemuck::bytes_of(&packet), &[]);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Whether the process has ended or hung up.
    fn is_gone(&self) -> bool {
        ended(self.fd(), PollFlags::empty())
            || self.peer.pidfd.as_ref().is_some_and(|pidfd| ended(pidfd.as_fd(), PollFlags::IN))
    }
}

/// Whether `fd` reports a hang-up, or one of `events`, right now.
fn ended(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
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
        self.attached().filter(|(_, attacher)| attacher.peer.pid == pid).count() >= MAX_OF_ONE
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

    /// Sends a new segment to everybody.
    pub(crate) fn push(&mut self, id: SegmentId, segment: &Segment) {
        for attacher in self.all.values_mut().filter(|attacher| attacher.row.is_some()) {
            attacher.push(id, segment);
        }
    }

    /// Sends to one that is behind every segment from number `first` on.
    pub(crate) fn catch_up(
        &mut self,
        number: u64,
        first: u32,
        segments: &HashMap<SegmentId, Segment>,
    ) {
        let Some(attacher) = self.all.get_mut(&number).filter(|a| a.row.is_some()) else { return };
        let mut wanted: Vec<_> = segments.iter().filter(|(id, _)| id.0 >= first).collect();
        wanted.sort_by_key(|(id, _)| **id);
        wanted.into_iter().for_each(|(id, segment)| attacher.push(*id, segment));
    }

    /// Tells everybody that a segment is no longer used.
    pub(crate) fn forget(&self, id: SegmentId) {
        self.attached().for_each(|(_, attacher)| attacher.forget(id));
    }

    /// Takes out everybody who has a row and has ended or hung up.
    pub(crate) fn take_gone(&mut self) -> Vec<Attacher> {
        self.take(|attacher| attacher.row.is_some() && attacher.is_gone())
    }

    /// Takes out everybody of whom this is true.
    pub(crate) fn take(&mut self, is: impl Fn(&Attacher) -> bool) -> Vec<Attacher> {
        self.all.extract_if(|_, attacher| is(attacher)).map(|(_, attacher)| attacher).collect()
    }
}
