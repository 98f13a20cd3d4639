//! What a pool tells about itself.

use crate::memory::selection::Wish;

/// The state of a pool at one moment. Costs the same however large the pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Tensors that this process holds. Shared memory that a topic sent as it was counts as well,
    /// here and in `retired`; its bytes do not, for they are not the pool's.
    pub slots_in_use: usize,
    /// Slots that this process let go of, and that wait for others to do so.
    pub retired: usize,
    /// The most slots there can be.
    pub max_slots: usize,
    /// Bytes of slots in use and retired.
    pub bytes_in_use: usize,
    /// Bytes of all segments.
    pub bytes_reserved: usize,
    /// The most bytes that will be reserved.
    pub pool_size: usize,
    /// The most bytes that were ever in use.
    pub peak_bytes: usize,
    /// Bytes in use that nobody asked for: alignment, and slots reused for a smaller tensor.
    pub waste_bytes: usize,
    /// Segments reserved.
    pub segments: usize,
    /// Connections of attached processes. A pool that this process opened by name, though it owns
    /// it, counts: it leases by a row of its own, as anybody's.
    pub attachers: usize,
    /// Whether the pool would notice that its socket was removed, and make it anew. That takes
    /// inotify(7), which a system may have run out of; all else works without.
    pub socket_watched: bool,
    /// Tensors allocated since the pool was made.
    pub allocations: u64,
    /// How often an allocation failed, because the pool was full or could not grow.
    pub failures: u64,
    /// Bytes of other tensors that were copied into the pool (`stage`).
    pub bytes_copied: u64,
    /// Wishes of the configuration that were not granted for some segment, each once.
    pub not_granted: Vec<Wish>,
}
