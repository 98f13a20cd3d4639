//! What owner and attacher say to each other, once, and when segments come and go.
//!
//! ```text
//!   attacher → owner   Attach
//!   owner → attacher   Attached  + header, row, and a descriptor for each segment
//!                      Refused                        (also later: held too much)
//!                      Segment  + its descriptor      (a new one)
//!                      SegmentRemoved                           (trimmed: it can be unmapped)
//!                      Introduced     + a connection        (to another pool of the owner's; a name follows)
//!   attacher → owner   SegmentRequest                           (I need segments that I do not have)
//!                      Wake                           (I let go of something)
//!   anybody → owner    ReportRequest                            (once, instead of a hello)
//!   owner → anybody    Report                        (see `ipc/pool/report.rs`)
//! ```
//!
//! One packet is one message. Every word is input from a stranger.

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};

/// "cenote", and the version of this protocol. It changes with whatever peers read: packets, rows, headers,
/// rings (`ipc/ring/ring.rs`) and the words of messages (`ipc/ring/codec.rs`).
pub(crate) const MAGIC: [u8; 8] = *b"cenote\x02\x03";

/// The most segments that a pool makes.
pub(crate) const MAX_SEGMENTS: usize = 128;

/// The most slots that a pool has.
pub(crate) const MAX_SLOTS: u32 = 1 << 20;

/// The most pieces of memory that it shares beside those. Each is a segment, and has a slot.
pub(crate) const MAX_ADOPTED: u32 = 64;

/// All segments that others see: one packet can carry so many, besides header and row.
pub(crate) const MAX_SHARED: usize = MAX_SEGMENTS + MAX_ADOPTED as usize;

/// The most pools that an owner introduces to one reader. The reader attaches to others by itself.
pub(crate) const MAX_INTRODUCED: usize = 32;

/// What a packet is about.
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
    /// What topics say: see `ipc/topic/handshake.rs`.
    Subscribe = 8,
    Subscribed = 9,
    Mismatch = 10,
    DescribeRequest = 11,
    Description = 12,
    Introduced = 13,
    /// What anybody may ask a pool's owner.
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

/// Every message but `Attached` is just this; after `Introduced`, the name of a pool follows.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Packet {
    pub(crate) magic: [u8; 8],
    kind: u32,
    /// The number of the segment.
    pub(crate) index: u32,
    /// Its bytes; of a pool that is lent, its uid.
    pub(crate) len: u64,
}

impl Packet {
    pub(crate) fn new(kind: Kind) -> Packet {
        Packet { magic: MAGIC, kind: kind as u32, index: 0, len: 0 }
    }

    pub(crate) fn segment(kind: Kind, index: u32, len: usize) -> Packet {
        Packet { index, len: len as u64, ..Packet::new(kind) }
    }

    /// Says that a connection to another pool comes along. The answer to a hello waits in it.
    pub(crate) fn introduced(uid: u64) -> Packet {
        Packet { len: uid, ..Packet::new(Kind::Introduced) }
    }

    /// Reads a packet's head, whatever follows it.
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

/// The owner's answer to a hello.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Attached {
    pub(crate) head: Packet,
    pub(crate) uid: u64,
    pub(crate) max_slots: u32,
    /// How many slots this attacher may hold.
    pub(crate) max_leases: u32,
    /// Segments in use: their numbers and lengths, in the order of their descriptors.
    pub(crate) segments: u32,
    pub(crate) _pad: u32,
    pub(crate) segment: [SegmentInfo; MAX_SHARED],
}

/// A segment in a welcome.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct SegmentInfo {
    pub(crate) index: u32,
    pub(crate) _pad: u32,
    pub(crate) len: u64,
}

impl Attached {
    /// Reads a welcome and checks that its numbers can be true.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Attached> {
        let bad = |what| Error::BadMessage { what };
        let welcome: Attached = bytemuck::try_pod_read_unaligned(bytes)
            .map_err(|_| bad("the owner's answer has the wrong length"))?;
        if welcome.max_slots == 0 || welcome.max_slots > MAX_SLOTS + MAX_ADOPTED {
            return Err(bad("the owner says an impossible number of slots"));
        }
        if welcome.segments as usize > MAX_SHARED {
            return Err(bad("the owner says an impossible number of segments"));
        }
        Ok(welcome)
    }

    pub(crate) fn segments(&self) -> &[SegmentInfo] {
        &self.segment[..(self.segments as usize).min(MAX_SHARED)]
    }
}

/// A process, as one tells another of it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct NamedProcess {
    /// 0 if whoever tells cannot see it.
    pub(crate) pid: i32,
    len: u32,
    program: [u8; 16],
}

impl NamedProcess {
    /// What is too long of a program's name is cut.
    pub(crate) fn new(pid: i32, program: &str) -> NamedProcess {
        let mut named = NamedProcess { pid, ..NamedProcess::zeroed() };
        let bytes = program.as_bytes();
        let len = bytes.len().min(named.program.len());
        named.program[..len].copy_from_slice(&bytes[..len]);
        named.len = u32::try_from(len).unwrap_or(0);
        named
    }

    /// The program, as a stranger says; people read it.
    pub(crate) fn program(&self) -> String {
        let len = (self.len as usize).min(self.program.len());
        String::from_utf8_lossy(&self.program[..len]).replace(char::is_control, "?")
    }
}

/// Why an owner refuses to let somebody attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Refusal {
    /// It belongs to another user.
    Access = 1,
    /// Too many are attached.
    TooMany = 2,
    /// The owner has no memory for another row.
    Memory = 3,
    /// It was attached, and held too much.
    Leases = 4,
    /// The owner has no file descriptors left.
    Descriptors = 5,
}

impl Refusal {
    pub(crate) fn packet(self) -> Packet {
        Packet { index: self as u32, ..Packet::new(Kind::Refused) }
    }

    /// Tells an attacher that it held too many slots, and how many it may.
    pub(crate) fn leases(held: usize, max: usize) -> Packet {
        let word = |count| u64::from(u32::try_from(count).unwrap_or(u32::MAX));
        Packet { len: word(held) << 32 | word(max), ..Refusal::Leases.packet() }
    }

    /// How many slots were held, and how many may be, if that is the reason.
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
            1 => "the pool belongs to another user, who has not let this one in",
            2 => "too many processes are attached",
            3 => "its owner has no memory for another attacher",
            4 => "this process held too many slots",
            5 => {
                "its owner has no file descriptors left for another attacher, or the user too many unread"
            }
            _ => "its owner does not say why",
        }
    }
}

/// The words of a row: a line for what is not a lease, then a count of leases for each slot.
pub(crate) mod row {
    /// Where the leases start: on a cache line of their own.
    pub(crate) const LEASES: usize = 8;

    pub(crate) fn words(max_slots: u32) -> usize {
        LEASES + max_slots as usize
    }
}

/// The words of a pool's header: a serial for each slot, after one line of flags, and where it is.
pub(crate) mod header {
    /// Non-zero: the owner waits for a slot, and wants a `Wake` when a lease is given back.
    pub(crate) const WAITING: usize = 0;
    /// Where the serials start: on a cache line of their own.
    pub(crate) const SERIALS: usize = 8;

    pub(crate) fn words(max_slots: u32) -> usize {
        locations(max_slots) + WORDS_PER_LOCATION * max_slots as usize
    }

    /// Where the locations start, behind the serials: segment, offset and capacity of each slot. They
    /// are of interest only while the slot is leased, and then they do not change.
    pub(crate) fn locations(max_slots: u32) -> usize {
        SERIALS + max_slots as usize
    }

    pub(crate) const WORDS_PER_LOCATION: usize = 3;
}
