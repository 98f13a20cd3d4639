//! The report of a publisher about itself: the answer to a query of a process that lists or observes topics.

use std::os::fd::OwnedFd;

use bytemuck::{Pod, Zeroable};

use crate::ipc::ring::cursor::MappedRing;
use crate::ipc::shared::wire::{Kind, NamedProcess, Packet};
use crate::ipc::topic::signature::Signature;
use crate::ipc::topic::stats::REASONS;

/// The most subscribers in a report: as many as fit a packet.
const MAX_SUBSCRIBERS: usize = 512;

/// The most bytes of a report.
pub(crate) const MAX_BYTES: usize =
    size_of::<ReportHead>() + MAX_SUBSCRIBERS * size_of::<ReportedSubscriber>();

/// The report on the publisher. The subscribers follow it in the packet.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct ReportHead {
    packet: Packet,
    pub(crate) sent: u64,
    pub(crate) signature: Signature,
    /// The sequence of the first message.
    pub(crate) first: u64,
    pub(crate) depth: u64,
    /// The most words of a message.
    pub(crate) payload: u64,
    /// Non-zero: the publisher waits for its subscribers.
    pub(crate) waits: u64,
    /// Number and bytes of staged copies, in the order of [`REASONS`].
    pub(crate) copies: [[u64; 2]; REASONS.len()],
}

/// One subscriber in a report.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub(crate) struct ReportedSubscriber {
    /// How many messages it has not taken yet.
    pub(crate) behind: u64,
    pub(crate) process: NamedProcess,
}

impl ReportHead {
    pub(crate) fn new(
        signature: Signature,
        sent: u64,
        ring: &MappedRing,
        waits: bool,
        copies: [[u64; 2]; REASONS.len()],
    ) -> ReportHead {
        ReportHead {
            packet: Packet::new(Kind::Description),
            sent,
            signature,
            first: ring.first,
            depth: ring.shape.depth,
            payload: ring.shape.payload() as u64,
            waits: waits.into(),
            copies,
        }
    }
}

impl ReportedSubscriber {
    pub(crate) fn new(pid: i32, program: &str, behind: u64) -> ReportedSubscriber {
        ReportedSubscriber { behind, process: NamedProcess::new(pid, program) }
    }
}

/// The bytes of a report. Subscribers beyond the limit are left out.
pub(crate) fn encode(
    head: &ReportHead,
    subscribers: impl Iterator<Item = ReportedSubscriber>,
) -> Vec<u8> {
    let mut bytes = bytemuck::bytes_of(head).to_vec();
    let subscribers = subscribers.take(MAX_SUBSCRIBERS);
    subscribers.for_each(|one| bytes.extend_from_slice(bytemuck::bytes_of(&one)));
    bytes
}

/// A report, as it arrived.
#[derive(Debug)]
pub(crate) struct PublisherReport {
    pub(crate) head: ReportHead,
    pub(crate) subscribers: Vec<ReportedSubscriber>,
    /// The ring of the publisher, for an observer.
    pub(crate) ring: Option<OwnedFd>,
}

impl PublisherReport {
    /// Decodes a report. `None` if the bytes are not one.
    pub(crate) fn decode(bytes: &[u8], mut fds: Vec<OwnedFd>) -> Option<PublisherReport> {
        let (head, subscribers) = bytes.split_at_checked(size_of::<ReportHead>())?;
        let (Kind::Description, _) = Packet::parse(head).ok()? else { return None };
        let subscribers = subscribers.chunks_exact(size_of::<ReportedSubscriber>());
        let subscribers = subscribers.map(bytemuck::pod_read_unaligned).collect();
        let head = bytemuck::pod_read_unaligned(head);
        Some(PublisherReport { head, subscribers, ring: fds.pop() })
    }
}
