//! A slot: the range of bytes in a segment of a pool that holds one tensor at a time.

/// The number of a segment. A pool does not reuse it soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(pub(crate) u32);

/// A range of bytes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Below `max_slots`. Stable until the slot is freed; then another range can get it.
    pub(crate) index: u32,
    pub(crate) segment: SegmentId,
    /// In bytes, a multiple of the alignment.
    pub(crate) offset: usize,
    /// In bytes, a multiple of the alignment, and at least the requested length.
    pub(crate) capacity: usize,
}
