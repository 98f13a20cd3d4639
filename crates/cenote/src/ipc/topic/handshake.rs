//! What publisher and subscriber say to each other when they meet.
//!
//! ```text
//!   subscriber → publisher   Subscribe             what it expects, and from where on
//!   publisher → subscriber   Subscribed + ring, row
//!                            Mismatch              what it sends instead
//!                            Refused
//!                            one byte              (there is something new)
//!   subscriber → publisher   Wake                  (I took something)
//! ```

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};
use crate::ipc::ring::ring::RingShape;
use crate::ipc::shared::wire::{Kind, Packet};
use crate::ipc::topic::signature::Signature;

/// A subscriber's first words.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Subscribe {
    pub(crate) head: Packet,
    pub(crate) signature: Signature,
    /// How many messages from before it came. `u64::MAX`: it was there first, and wants all.
    pub(crate) history: u64,
}

impl Subscribe {
    pub(crate) fn new(signature: Signature, history: u64) -> Subscribe {
        Subscribe { head: Packet::new(Kind::Subscribe), signature, history }
    }
}

/// A publisher's answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct Subscribed {
    pub(crate) head: Packet,
    /// The uid of the publisher, and of its pool.
    pub(crate) uid: u64,
    /// The sequence that the ring began with.
    pub(crate) first: u64,
    /// That of the subscriber's first message.
    pub(crate) start: u64,
    pub(crate) depth: u64,
    pub(crate) payload: u64,
    /// Non-zero: the publisher waits for its subscribers.
    pub(crate) waits: u64,
}

impl Subscribed {
    /// The ring, if there can be such a one.
    pub(crate) fn shape(&self) -> Result<RingShape> {
        let size = |size| usize::try_from(size).unwrap_or(usize::MAX);
        RingShape::new(size(self.depth), size(self.payload))
            .ok_or(Error::BadMessage { what: "a ring of impossible size" })
    }
}

/// A publisher's answer to somebody who expects something else.
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

/// Reads one of the above, which has been found to be of the right kind.
pub(crate) fn read<P: Pod>(bytes: &[u8]) -> Result<P> {
    bytemuck::try_pod_read_unaligned(bytes)
        .map_err(|_| Error::BadMessage { what: "it has the wrong length" })
}
