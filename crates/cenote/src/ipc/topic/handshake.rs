//! The packets between a publisher and a subscriber.
//!
//! ```text
//!   subscriber → publisher   Subscribe              its type, and how many earlier messages it wants
//!   publisher → subscriber   Subscribed + ring, row
//!                            Mismatch               the type that the publisher sends
//!                            Refused                the reason
//!   afterwards
//!   publisher → subscriber   one byte               wakes a subscriber that sleeps
//!   subscriber → publisher   Wake                   wakes a publisher that waits for subscribers
//! ```

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};
use crate::ipc::ring::ring::RingShape;
use crate::ipc::shared::wire::{Kind, Packet};
use crate::ipc::topic::signature::Signature;

/// The first packet of a subscriber.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Subscribe {
    pub(crate) head: Packet,
    pub(crate) signature: Signature,
    /// How many earlier messages it wants. `u64::MAX`: all, because the subscriber was there before the publisher.
    pub(crate) history: u64,
}

impl Subscribe {
    pub(crate) fn new(signature: Signature, history: u64) -> Subscribe {
        Subscribe { head: Packet::new(Kind::Subscribe), signature, history }
    }
}

/// The answer of a publisher that accepts the subscriber.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Subscribed {
    pub(crate) head: Packet,
    /// The uid of the publisher and of its pool.
    pub(crate) uid: u64,
    /// The sequence of the publisher's first message.
    pub(crate) first: u64,
    /// The sequence of the subscriber's first message.
    pub(crate) start: u64,
    pub(crate) depth: u64,
    pub(crate) payload: u64,
    /// Non-zero: the publisher waits for its subscribers.
    pub(crate) waits: u64,
}

impl Subscribed {
    /// The shape of the ring. Fails if it is outside the limits.
    pub(crate) fn shape(&self) -> Result<RingShape> {
        let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
        RingShape::new(size(self.depth), size(self.payload))
            .ok_or(Error::BadMessage { what: "a ring of impossible size" })
    }
}

/// The answer of a publisher that sends another type.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Mismatch {
    pub(crate) head: Packet,
    pub(crate) signature: Signature,
}

impl Mismatch {
    pub(crate) fn new(signature: Signature) -> Mismatch {
        Mismatch { head: Packet::new(Kind::Mismatch), signature }
    }
}

/// Reads one of these packets, after its kind was checked. Fails if its length is wrong.
pub(crate) fn read<P: Pod>(bytes: &[u8]) -> Result<P> {
    bytemuck::try_pod_read_unaligned(bytes)
        .map_err(|_| Error::BadMessage { what: "it has the wrong length" })
}
