//! The configuration of a pool.

use crate::error::{Error, Result};
use crate::ipc::discovery::access::PoolAccess;
use crate::ipc::pool::owner::tlsf::allocator::Allocator;
use crate::ipc::shared::wire::{MAX_SEGMENTS, MAX_SLOTS};
use crate::memory::kind::TensorMemory;

/// The least size of a pool: memory comes in pages.
const LEAST_POOL: usize = 4096;

/// The length of a segment, if the configuration does not say.
const FIRST_STEP: usize = 64 << 10;
const LEAST_STEP: usize = 8 << 20;
const MOST_STEP: usize = 256 << 20;

/// The most slots of which each is a segment.
#[allow(clippy::cast_possible_truncation, reason = "it is small")]
const MAX_WHOLE: u32 = MAX_SEGMENTS as u32;

/// The lengths that a new segment can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The length that the configuration asks for.
    pub(crate) most: usize,
    /// The length that the slot needs.
    pub(crate) least: usize,
}

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
    /// The most bytes that the pool reserves, in all segments.
    pub pool_size: usize,
    /// The most tensors at a time. A pool of `Dma` memory has at most 128.
    pub max_slots: usize,
    /// The alignment of every tensor, a power of two of at least 64.
    pub slot_alignment: usize,
    /// The kind of memory: `Shm`, or `Dma`, which devices can use as well. DMA-BUFs are made of memory that the kernel
    /// protects from writing by other processes (udmabuf), unless `unprotected` is set. Each tensor has its own DMA-BUF.
    pub memory: TensorMemory,
    /// Take DMA-BUFs from heaps where there are any. An attached process could write those; only a convention
    /// protects them: [`Tensor::protection`](crate::Tensor::protection).
    pub unprotected: bool,
    /// The bytes of a segment of `Shm` memory. The pool reserves memory segment by segment when needed. A tensor that is
    /// larger than this gets its own segment. If the system refuses a segment of this length, a tensor gets one of just
    /// the length that it needs. 0 chooses a 64th of `pool_size`, from 8 MiB to 256 MiB, and more once the pool is
    /// large. Then the first tensor waits for its own bytes or 64 KiB only, and the rest is reserved ahead of need if
    /// tensors are of one size. With `prefault`, `mlock` or `huge_pages`, and in pools no larger than a segment, the
    /// first tensor waits for a whole segment.
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
    /// Which processes may attach.
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
            unprotected: false,
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

    /// The configuration as it is carried out, and the number of slots. Fails if it makes no sense.
    pub(crate) fn checked(mut self) -> Result<(TensorPoolConfig, u32)> {
        let slots = self.check()?;
        self.max_slots = slots as usize;
        Ok((self, slots))
    }

    /// The number of slots. Fails if the configuration makes no sense.
    pub(crate) fn check(&self) -> Result<u32> {
        let bad = |field, rule| Error::BadConfig { field, rule };
        if !self.slot_alignment.is_power_of_two() || !(64..=1 << 21).contains(&self.slot_alignment)
        {
            return Err(bad("slot_alignment", "it must be a power of two from 64 to 2 MiB"));
        }
        let least = self.slot_alignment.max(LEAST_POOL);
        if !(least..=isize::MAX.unsigned_abs()).contains(&self.pool_size) {
            let rule = "it must be at least 4096 bytes and one slot, and fit the address space";
            return Err(bad("pool_size", rule));
        }
        if self.access == PoolAccess::Group(u32::MAX) {
            return Err(bad("access", "no group has that number"));
        }
        if !matches!(self.memory, TensorMemory::Shm | TensorMemory::Dma) {
            return Err(bad("memory", "a pool can be made of shm or dma memory only"));
        }
        u32::try_from(self.max_slots)
            .ok()
            .filter(|slots| (1..=MAX_SLOTS).contains(slots))
            .map(|slots| if self.is_whole() { slots.min(MAX_WHOLE) } else { slots })
            .ok_or(bad("max_slots", "it must be from 1 to 1048576"))
    }

    /// Whether each slot is a segment: devices use whole segments.
    fn is_whole(&self) -> bool {
        self.memory == TensorMemory::Dma
    }

    /// The allocator of the slots.
    pub(crate) fn allocator(&self, max_slots: u32) -> Allocator {
        if self.is_whole() {
            return Allocator::whole(max_slots, self.slot_alignment.max(LEAST_POOL));
        }
        Allocator::new(max_slots, self.slot_alignment)
    }

    /// Whether a slot of `len` bytes fits into an empty pool.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.slot_len(len) <= self.pool_size
    }

    /// The lengths that a segment for `len` bytes can have, in a pool with this many bytes and segments. `None` if the
    /// pool has less than `len` bytes left.
    pub(crate) fn step(&self, len: usize, reserved: usize, segments: usize) -> Option<Step> {
        let left = self.pool_size.saturating_sub(reserved);
        let slot = self.slot_len(len);
        if slot > left {
            return None;
        }
        let least = self.page_len(slot).min(left);
        if self.is_whole() {
            return Some(Step { most: least, least });
        }
        let most = self.whole(slot, self.wanted(left, reserved, segments)).min(left);
        Some(Step { most, least })
    }

    /// Whether a pool of this many bytes has only the segment for its first tensor.
    pub(crate) fn has_just_begun(&self, reserved: usize) -> bool {
        self.begins_small() && reserved < self.usual_step()
    }

    /// Whether the first segment is short. Not if the first tensor shall wait for the memory of later ones, nor with huge
    /// pages, nor if the pool has only one segment.
    fn begins_small(&self) -> bool {
        let pays_ahead = self.prefault || self.mlock || self.huge_pages;
        self.growth == 0 && !pays_ahead && !self.is_whole() && self.pool_size > self.usual_step()
    }

    /// The length of a segment in a pool that is not large yet.
    fn usual_step(&self) -> usize {
        (self.pool_size / 64).clamp(LEAST_STEP, MOST_STEP)
    }

    /// The length of the next segment, without regard to the slot. The first one and the second are together as long as
    /// a later one.
    fn wanted(&self, left: usize, reserved: usize, segments: usize) -> usize {
        let wanted = match self.growth {
            0 if self.has_just_begun(reserved) && reserved == 0 => FIRST_STEP,
            0 if self.has_just_begun(reserved) => self.usual_step() - reserved,
            0 => self.usual_step().max(reserved / 16),
            growth => growth,
        };
        // The number of segments is limited: what is left must fit into the second half of them.
        match MAX_SEGMENTS.saturating_sub(segments) {
            few if few <= MAX_SEGMENTS / 2 => wanted.max(left.div_ceil(few.max(1))),
            _ => wanted,
        }
    }

    /// Rounds to a whole number of slots, so that no segment ends with a piece that is too short for one.
    fn whole(&self, slot: usize, wanted: usize) -> usize {
        match wanted.checked_next_multiple_of(slot) {
            Some(whole) if slot > wanted / 64 => self.page_len(whole),
            _ => self.page_len(wanted.max(slot)),
        }
    }

    fn slot_len(&self, len: usize) -> usize {
        len.max(1).checked_next_multiple_of(self.slot_alignment).unwrap_or(usize::MAX)
    }

    fn page_len(&self, len: usize) -> usize {
        len.checked_next_multiple_of(self.slot_alignment.max(4096)).unwrap_or(usize::MAX)
    }

    pub(crate) fn lease_limit(&self) -> usize {
        if self.max_leases == 0 { self.max_slots.div_ceil(2) } else { self.max_leases }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(config: &TensorPoolConfig, len: usize, reserved: usize, segments: usize) -> usize {
        config.step(len, reserved, segments).unwrap().most
    }

    #[test]
    fn presets_are_what_they_say() {
        let size = |config: TensorPoolConfig| (config.pool_size, config.max_slots);
        assert_eq!(size(TensorPoolConfig::small()), (64 << 20, 256));
        assert_eq!(size(TensorPoolConfig::default()), (1 << 30, 1024));
        assert_eq!(size(TensorPoolConfig::large()), (4 << 30, 4096));
        assert_eq!(TensorPoolConfig::default().slot_alignment, 64);
    }

    #[test]
    fn a_segment_holds_a_whole_number_of_slots() {
        let config = TensorPoolConfig::small();
        assert_eq!(most(&config, 1, 8 << 20, 1), 8 << 20);
        let frames = most(&config, 6_000_000, 12 << 20, 1);
        assert!((12_000_000..12_000_000 + 4096).contains(&frames), "{frames}");
        assert_eq!(most(&config, 9 << 20, 9 << 20, 1), 9 << 20);
    }

    #[test]
    fn the_first_tensor_waits_for_no_more_than_its_own_and_the_next_segment_is_the_rest() {
        let config = TensorPoolConfig::default();
        assert_eq!(most(&config, 1, 0, 0), 64 << 10);
        assert_eq!(most(&config, 1, 64 << 10, 1), (16 << 20) - (64 << 10));
        let frame = most(&config, 6_000_000, 0, 0);
        assert!((6_000_000..6_000_000 + 4096).contains(&frame), "{frame}");
        let rest = most(&config, 6_000_000, frame, 1);
        assert!((12_000_000..12_000_000 + 4096).contains(&rest), "{rest}");
        assert!(config.has_just_begun(frame) && !config.has_just_begun(frame + rest));
        // More than one segment.
        assert_eq!(most(&config, 20 << 20, 0, 0), 20 << 20);
        assert!(!config.has_just_begun(20 << 20));
        let asked_for = TensorPoolConfig { growth: 16 << 20, ..config.clone() };
        let huge = TensorPoolConfig { huge_pages: true, ..config };
        for config in [asked_for, huge] {
            assert_eq!(most(&config, 1, 0, 0), 16 << 20);
            assert!(!config.has_just_begun(0));
        }
    }

    #[test]
    fn a_segment_can_be_as_small_as_its_slot_and_no_larger_than_what_is_left() {
        let config = TensorPoolConfig { growth: 32 << 20, ..TensorPoolConfig::small() };
        assert_eq!(config.step(100, 0, 0), Some(Step { most: 32 << 20, least: 4096 }));
        let left = config.step(100, (64 << 20) - 8192, 1);
        assert_eq!(left, Some(Step { most: 8192, least: 4096 }));
        assert_eq!(config.step(8193, (64 << 20) - 8192, 1), None);
        assert!(config.fits(64 << 20) && !config.fits((64 << 20) + 1));
    }

    #[test]
    fn large_pools_start_with_moderate_steps_and_reach_their_size() {
        for size in [1_usize << 30, 32 << 30, 1 << 40, 1 << 46] {
            for growth in [0, 1 << 20] {
                let config = TensorPoolConfig { pool_size: size, growth, ..Default::default() };
                assert!(most(&config, 1, 0, 0) <= 256 << 20);
                let (mut reserved, mut segments) = (0, 0);
                while let Some(step) = config.step(1, reserved, segments) {
                    (reserved, segments) = (reserved + step.most, segments + 1);
                }
                assert!(segments <= MAX_SEGMENTS && reserved == size, "{size} {segments}");
            }
        }
    }

    #[test]
    fn a_segment_of_impossible_size_does_not_overflow() {
        let most = isize::MAX.unsigned_abs();
        let config = TensorPoolConfig { pool_size: most, growth: most, ..Default::default() };
        assert!(config.step(most - 64, 0, 0).is_some());
        assert_eq!(config.step(usize::MAX, 0, 0), None);
        assert!(!config.fits(usize::MAX));
    }

    #[test]
    fn each_tensor_that_devices_use_has_a_segment_of_its_own() {
        let config = TensorPoolConfig { memory: TensorMemory::Dma, ..TensorPoolConfig::small() };
        assert_eq!(config.step(5000, 0, 127), Some(Step { most: 8192, least: 8192 }));
        let (config, slots) = config.checked().unwrap();
        assert_eq!((slots, config.max_slots), (128, 128), "there are no more segments");
        assert_eq!(config.lease_limit(), 64);
    }

    #[test]
    fn senseless_configurations_are_errors_that_name_the_field() {
        let small = TensorPoolConfig::small;
        for (field, config) in [
            ("pool_size", TensorPoolConfig { pool_size: 0, ..small() }),
            ("pool_size", TensorPoolConfig { pool_size: 1, ..small() }),
            ("pool_size", TensorPoolConfig { pool_size: usize::MAX, ..small() }),
            (
                "pool_size",
                TensorPoolConfig { pool_size: 1 << 20, slot_alignment: 1 << 21, ..small() },
            ),
            ("slot_alignment", TensorPoolConfig { slot_alignment: 0, ..small() }),
            ("slot_alignment", TensorPoolConfig { slot_alignment: 96, ..small() }),
            ("max_slots", TensorPoolConfig { max_slots: 0, ..small() }),
            ("max_slots", TensorPoolConfig { max_slots: usize::MAX, ..small() }),
            ("memory", TensorPoolConfig { memory: TensorMemory::Mem, ..small() }),
            ("access", TensorPoolConfig { access: PoolAccess::Group(u32::MAX), ..small() }),
        ] {
            let error = config.check().unwrap_err();
            assert!(matches!(error, Error::BadConfig { field: f, .. } if f == field), "{error}");
        }
        assert!(TensorPoolConfig { pool_size: 4096, ..small() }.check().is_ok());
    }
}
