//! The serial of a slot: which of its successive contents a descriptor means.
//!
//! One word per slot, in the owner's header; only the owner writes it. Even is stable. Odd means that
//! the owner is claiming the slot: it found no lease, and looks once more before it takes it. Zero is
//! what fresh shared memory holds, so it stands for a slot that was never handed out, and the first
//! serial is 2.

/// The serial of a slot's first content.
pub(crate) const FIRST: u64 = 2;

/// Whether a descriptor may carry this serial. Zero and the odd ones come only from a faulty peer.
pub(crate) fn is_stable(serial: u64) -> bool {
    serial >= FIRST && serial & 1 == 0
}

/// What a slot shows while its owner claims it.
pub(crate) fn claiming(serial: u64) -> u64 {
    serial | 1
}

/// What it shows again if somebody turned out to hold it.
pub(crate) fn restored(claiming: u64) -> u64 {
    claiming & !1
}

/// The serial of the next content. Passes over zero after 2^63 reuses of one slot.
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
