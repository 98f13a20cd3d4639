//! The serial of a slot: it tells the successive contents of the slot apart.
//!
//! There is one word for each slot, in the header of the pool. Only the owner writes it. An even serial is stable. An
//! odd one means that the owner is claiming the slot: it found no lease, and scans once more before it takes the slot.
//! Zero is the value of fresh shared memory, so it stands for a slot that was never allocated. The first serial is 2.

/// The serial of a slot's first content.
pub(crate) const FIRST: u64 = 2;

/// Whether a descriptor may carry this serial. Zero and the odd ones come only from a faulty peer.
pub(crate) fn is_stable(serial: u64) -> bool {
    serial >= FIRST && serial & 1 == 0
}

/// The serial that readers see while the owner claims the slot.
pub(crate) fn claiming(serial: u64) -> u64 {
    serial | 1
}

/// The serial from before the claim, for a slot that turned out to be leased.
pub(crate) fn restored(claiming: u64) -> u64 {
    claiming & !1
}

/// The serial of the next content. Skips zero, after 2^63 reuses of one slot.
pub(crate) fn next(serial: u64) -> u64 {
    (serial & !1).wrapping_add(2).max(FIRST)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_next_serial_is_stable_and_different() {
        for serial in [0, 1, FIRST, 3, 4, u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX] {
            assert!(is_stable(next(serial)), "{serial}");
            assert_ne!(next(serial), serial);
        }
    }

    #[test]
    fn claiming_is_odd_and_never_stable() {
        for serial in [0, FIRST, 4, u64::MAX - 1, u64::MAX] {
            assert_eq!(claiming(serial) & 1, 1);
            assert!(!is_stable(claiming(serial)));
        }
        assert!(!is_stable(0), "fresh memory is no content");
    }
}
