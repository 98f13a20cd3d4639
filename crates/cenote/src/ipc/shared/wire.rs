//! The packets between the owner of a pool and its readers, and the layout of the words that they share.
//!
//! | from | packet | carries | meaning |
//! |---|---|---|---|
//! | reader | `Attach` | | request to attach |
//! | owner | `Attached` | header, row, one descriptor for each segment | the request is granted |
//! | owner | `Refused` | | the request is refused, or the reader is expelled: it held too many slots |
//! | owner | `Segment` | its descriptor | a new segment |
//! | owner | `SegmentRemoved` | | the segment can be unmapped |
//! | owner | `Introduced` | a connection, the name of a pool | the reader is attached to another pool of this owner |
//! | reader | `SegmentRequest` | | the reader misses segments from this number on |
//! | reader | `Wake` | | the reader has ended a lease, and the owner's header says that it waits |
//! | any process | `ReportRequest` | | request for a report, instead of `Attach` |
//! | owner | `Report` | | see `ipc/pool/report.rs` |
//!
//! One packet is one message. Every word is input from another process, and not trusted.

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};

/// "cenote", and the version of this protocol. The version changes with everything that peers read: packets, rows,
/// headers, rings (`ipc/ring/ring.rs`) and ring entries (`ipc/ring/codec.rs`).
pub(crate) const MAGIC: [u8; 8] = *b"cenote\x02\x03";

/// The most segments that a pool makes.
pub(crate) const MAX_SEGMENTS: usize = 128;

/// The most slots that a pool has.
pub(crate) const MAX_SLOTS: u32 = 1 << 20;

/// The most pieces of memory that a pool adopts. Each is a segment with one slot.
pub(crate) const MAX_ADOPTED: u32 = 64;

/// The most segments that readers see: one packet can carry their descriptors, with those of header and row.
pub(crate) const MAX_SHARED: usize = MAX_SEGMENTS + MAX_ADOPTED as usize;

/// The most pools that an owner introduces to one reader. The reader attaches to others by itself.
pub(crate) const MAX_INTRODUCED: usize = 32;

/// The kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Attach = 1,
    Attached = 2,
    Refused = 3,
    Segment = 4,
    SegmentRemoved = 5,
    SegmentRequest = 6,
    Wake = 7,
    /// Packets of topics: see `ipc/topic/handshake.rs`.
    Subscribe = 8,
    Subscribed = 9,
    Mismatch = 10,
    DescribeRequest = 11,
    Description = 12,
    Introduced = 13,
    /// Requests of processes that do not attach.
    ReportRequest = 14,
    Report = 15,
}

impl Kind {
    fn from_code(code: u32) -> Option<Kind> {
        use Kind::*;
        [
            Attach,
            Attached,
            Refused,
            Segment,
            SegmentRemoved,
            SegmentRequest,
            Wake,
            Subscribe,
            Subscribed,
            Mismatch,
            DescribeRequest,
            Description,
            Introduced,
            ReportRequest,
            Report,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == code)
    }
}

/// Every packet but `Attached` is just this. After `Introduced`, the name of a pool follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Packet {
    pub(crate) magic: [u8; 8],
    kind: u32,
    /// The number of the segment.
    pub(crate) index: u32,
    /// The bytes of the segment, or the uid of the introduced pool.
    pub(crate) len: u64,
}

impl Packet {
    pub(crate) fn new(kind: Kind) -> Packet {
        Packet { magic: MAGIC, kind: kind as u32, index: 0, len: 0 }
    }

    pub(crate) fn segment(kind: Kind, index: u32, len: usize) -> Packet {
        Packet { index, len: len as u64, ..Packet::new(kind) }
    }

    /// A packet that carries a connection to another pool. An `Attached` packet waits in that connection.
    pub(crate) fn introduced(uid: u64) -> Packet {
        Packet { len: uid, ..Packet::new(Kind::Introduced) }
    }

    /// Reads the head of a packet and ignores what follows.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Kind, Packet)> {
        let bad = |what| Error::BadMessage { what };
        let head = bytes.get(..size_of::<Packet>()).ok_or(bad("it is too short"))?;
        let packet: Packet = bytemuck::pod_read_unaligned(head);
        if packet.magic != MAGIC {
            return Err(bad("it does not start like one, or is of another version"));
        }
        let kind = Kind::from_code(packet.kind).ok_or(bad("unknown kind of message"))?;
        Ok((kind, packet))
    }
}

/// The owner's answer to a request to attach.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Attached {
    pub(crate) head: Packet,
    pub(crate) uid: u64,
    pub(crate) max_slots: u32,
    /// How many slots the reader may hold.
    pub(crate) max_leases: u32,
    /// The number of segments. Their numbers and lengths are in the order of their descriptors.
    pub(crate) segments: u32,
    pub(crate) _pad: u32,
    pub(crate) segment: [SegmentInfo; MAX_SHARED],
}

/// A segment in an `Attached` packet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct SegmentInfo {
    pub(crate) index: u32,
    pub(crate) _pad: u32,
    pub(crate) len: u64,
}

impl Attached {
    /// Reads the packet and checks that its numbers are possible.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Attached> {
        let bad = |what| Error::BadMessage { what };
        let welcome: Attached = bytemuck::try_pod_read_unaligned(bytes)
            .map_err(|_| bad("the owner's answer has the wrong length"))?;
        if welcome.max_slots == 0 || welcome.max_slots > MAX_SLOTS + MAX_ADOPTED {
            return Err(bad("the owner sent an impossible number of slots"));
        }
        if welcome.segments as usize > MAX_SHARED {
            return Err(bad("the owner sent an impossible number of segments"));
        }
        Ok(welcome)
    }

    pub(crate) fn segments(&self) -> &[SegmentInfo] {
        &self.segment[..(self.segments as usize).min(MAX_SHARED)]
    }
}

/// A process id and a program name, in a packet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct NamedProcess {
    /// 0 if the sender cannot see the process.
    pub(crate) pid: i32,
    len: u32,
    program: [u8; 16],
}

impl NamedProcess {
    /// Cuts a program name that is too long.
    pub(crate) fn new(pid: i32, program: &str) -> NamedProcess {
        let mut named = NamedProcess { pid, ..NamedProcess::zeroed() };
        let bytes = program.as_bytes();
        let len = bytes.len().min(named.program.len());
        named.program[..len].copy_from_slice(&bytes[..len]);
        named.len = u32::try_from(len).unwrap_or(0);
        named
    }

    /// The program name. The sender is not trusted and people read the name, so control characters are replaced.
    pub(crate) fn program(&self) -> String {
        let len = (self.len as usize).min(self.program.len());
        String::from_utf8_lossy(&self.program[..len]).replace(char::is_control, "?")
    }
}

/// Why an owner refuses a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Refusal {
    /// The process belongs to a user who is not admitted.
    Access = 1,
    /// Too many processes are attached.
    TooMany = 2,
    /// The owner has no memory for another row.
    Memory = 3,
    /// The process was attached and held too many slots.
    Leases = 4,
    /// The owner has no file descriptors left.
    Descriptors = 5,
}

impl Refusal {
    pub(crate) fn packet(self) -> Packet {
        Packet { index: self as u32, ..Packet::new(Kind::Refused) }
    }

    /// The packet for a reader that held too many slots, with the number that it may hold.
    pub(crate) fn leases(held: usize, max: usize) -> Packet {
        let word = |count| u64::from(u32::try_from(count).unwrap_or(u32::MAX));
        Packet { len: word(held) << 32 | word(max), ..Refusal::Leases.packet() }
    }

    /// How many slots the reader held and how many it may hold, if that is the reason.
    #[allow(clippy::cast_possible_truncation, reason = "each half is a number")]
    pub(crate) fn too_many(packet: Packet) -> Option<(u32, u32)> {
        let numbers = ((packet.len >> 32) as u32, packet.len as u32);
        (packet.index == Refusal::Leases as u32).then_some(numbers)
    }

    pub(crate) fn text(self) -> &'static str {
        Refusal::why(self as u32)
    }

    pub(crate) fn why(code: u32) -> &'static str {
        match code {
            1 => "the pool belongs to another user, who does not admit this one",
            2 => "too many processes are attached",
            3 => "its owner has no memory for another reader",
            4 => "this process held too many slots",
            5 => {
                "its owner has no file descriptors left for another reader, or too many of this user lie unread in sockets"
            }
            _ => "its owner gives no reason",
        }
    }
}

/// The words of a row: one cache line that is reserved, then a count of leases for each slot.
pub(crate) mod row {
    /// The index of the first lease count: at the start of a cache line.
    pub(crate) const LEASES: usize = 8;

    pub(crate) fn words(max_slots: u32) -> usize {
        LEASES + max_slots as usize
    }
}

/// The words of a pool's header: one cache line of flags, then a serial for each slot, then the locations of the slots.
pub(crate) mod header {
    /// Not zero: the owner waits for a slot and wants a `Wake` when a lease ends.
    pub(crate) const WAITING: usize = 0;
    /// The index of the first serial: at the start of a cache line.
    pub(crate) const SERIALS: usize = 8;

    pub(crate) fn words(max_slots: u32) -> usize {
        locations(max_slots) + WORDS_PER_LOCATION * max_slots as usize
    }

    /// The index of the first location, after the serials: segment, offset and capacity of each slot. Readers use it only
    /// while they lease the slot, and it does not change meanwhile.
    pub(crate) fn locations(max_slots: u32) -> usize {
        SERIALS + max_slots as usize
    }

    pub(crate) const WORDS_PER_LOCATION: usize = 3;
}
