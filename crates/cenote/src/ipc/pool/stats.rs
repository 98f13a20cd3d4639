//! The numbers that a pool reports about itself.

use crate::memory::choose::selection::Wish;

/// The state of a pool at one moment. Costs the same however large the pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Tensors that this process holds. Adopted memory, which a topic sent without a copy, counts here and in `retired`; its
    /// bytes do not count, because they are not the pool's.
    pub slots_in_use: usize,
    /// Slots that this process has retired and that readers still hold.
    pub retired: usize,
    /// The most slots that the pool can have.
    pub max_slots: usize,
    /// Bytes of slots in use and retired.
    pub bytes_in_use: usize,
    /// Bytes of all segments.
    pub bytes_reserved: usize,
    /// The most bytes that will be reserved.
    pub pool_size: usize,
    /// The most bytes that were ever in use.
    pub peak_bytes: usize,
    /// Bytes in use that were not requested: alignment, and slots reused for a smaller tensor.
    pub waste_bytes: usize,
    /// Segments reserved.
    pub segments: usize,
    /// Connections of attached processes. If this process opened its own pool by name, that counts: it then has a row
    /// like any other reader.
    pub attachers: usize,
    /// Whether the pool notices that its socket was removed, and makes it again. That needs inotify(7), of which the system
    /// may have run out. Everything else works without.
    pub socket_watched: bool,
    /// Tensors allocated since the pool was made.
    pub allocations: u64,
    /// How often an allocation failed, because the pool was full or could not grow.
    pub failures: u64,
    /// Bytes of other tensors that were copied into the pool (`stage`).
    pub bytes_copied: u64,
    /// Wishes of the configuration that were not granted for a segment, each once.
    pub not_granted: Vec<Wish>,
}
