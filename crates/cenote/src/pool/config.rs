//! How a pool is made.

use crate::error::{Error, Result};
use crate::memory::TensorMemory;
use crate::pool::access::PoolAccess;
use crate::pool::wire::{MAX_SEGMENTS, MAX_SLOTS};

/// The configuration of a pool.
///
/// ```
/// use cenote::TensorPoolConfig;
///
/// let config = TensorPoolConfig { max_slots: 64, ..TensorPoolConfig::small() };
/// assert_eq!(config.pool_size, 64 << 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPoolConfig {
    /// The most bytes that the pool reserves, all segments together.
    pub pool_size: usize,
    /// The most tensors at a time.
    pub max_slots: usize,
    /// The alignment of every tensor, a power of two of at least 64.
    pub slot_alignment: usize,
    /// The kind of memory: `Shm`.
    pub memory: TensorMemory,
    /// The bytes of a segment. Memory is reserved segment by segment as it is needed; a tensor
    /// larger than this gets a segment of its own. 0 chooses a 64th of `pool_size`, and at least
    /// 8 MiB.
    pub growth: usize,
    /// Make all pages of a segment present when it is reserved. A wish: see
    /// [`PoolStats::not_granted`](crate::PoolStats::not_granted).
    pub prefault: bool,
    /// Keep all pages in memory. A wish.
    pub mlock: bool,
    /// Use huge pages. A wish.
    pub huge_pages: bool,
    /// Overwrite a slot with zeros when it is released.
    pub scrub: bool,
    /// Who may attach.
    pub access: PoolAccess,
    /// The most slots that one attached process may hold at a time. 0 means half of `max_slots`.
    pub max_leases: usize,
}

impl Default for TensorPoolConfig {
    /// 1 GiB, 1024 slots.
    fn default() -> Self {
        TensorPoolConfig {
            pool_size: 1 << 30,
            max_slots: 1024,
            slot_alignment: 64,
            memory: TensorMemory::Shm,
            growth: 0,
            prefault: false,
            mlock: false,
            huge_pages: false,
            scrub: false,
            access: PoolAccess::SameUser,
            max_leases: 0,
        }
    }
}

impl TensorPoolConfig {
    /// 64 MiB, 256 slots.
    pub fn small() -> Self {
        TensorPoolConfig { pool_size: 64 << 20, max_slots: 256, ..Self::default() }
    }

    /// 4 GiB, 4096 slots.
    pub fn large() -> Self {
        TensorPoolConfig { pool_size: 4 << 30, max_slots: 4096, ..Self::default() }
    }

    /// The number of slots, after checking that the whole configuration makes sense.
    pub(crate) fn check(&self) -> Result<u32> {
        let bad = |field, rule| Error::BadConfig { field, rule };
        if self.pool_size == 0 || self.pool_size > isize::MAX.unsigned_abs() {
            return Err(bad("pool_size", "it must be at least 1 byte and fit the address space"));
        }
        if !self.slot_alignment.is_power_of_two() || !(64..=1 << 21).contains(&self.slot_alignment)
        {
            return Err(bad("slot_alignment", "it must be a power of two from 64 to 2 MiB"));
        }
        if self.memory != TensorMemory::Shm {
            return Err(bad("memory", "a pool can be made of shm memory only"));
        }
        u32::try_from(self.max_slots)
            .ok()
            .filter(|slots| (1..=MAX_SLOTS).contains(slots))
            .ok_or(bad("max_slots", "it must be from 1 to 1048576"))
    }

    /// The bytes of a segment for a slot of `len` bytes.
    ///
    /// Large enough that the number of segments stays below its limit.
    pub(crate) fn segment_len(&self, len: usize) -> usize {
        let least = self.pool_size.div_ceil(MAX_SEGMENTS / 2);
        let step = match self.growth {
            0 => least.max(8 << 20),
            growth => growth.max(least),
        };
        // A whole number of slots, so that no segment ends with a piece that is too short for one.
        let slot = len.max(1).checked_next_multiple_of(self.slot_alignment).unwrap_or(usize::MAX);
        let whole = match step.checked_next_multiple_of(slot) {
            Some(whole) if slot > step / 64 => whole,
            _ => step.max(len),
        };
        whole.checked_next_multiple_of(self.slot_alignment.max(4096)).unwrap_or(usize::MAX)
    }

    pub(crate) fn lease_limit(&self) -> usize {
        if self.max_leases == 0 { self.max_slots.div_ceil(2) } else { self.max_leases }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_holds_a_whole_number_of_slots() {
        let config = TensorPoolConfig::small();
        assert_eq!(config.segment_len(1), 8 << 20);
        let frames = config.segment_len(6_000_000);
        assert!((12_000_000..12_000_000 + 4096).contains(&frames), "{frames}");
        assert_eq!(config.segment_len(9 << 20), 9 << 20);
    }

    #[test]
    fn a_segment_of_impossible_size_does_not_overflow() {
        let most = isize::MAX.unsigned_abs();
        let config = TensorPoolConfig { pool_size: most, growth: most, ..Default::default() };
        assert!(config.segment_len(most) >= most);
    }
}
