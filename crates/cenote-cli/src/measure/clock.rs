//! The age of a message, from its time stamp.

use rustix::time::{ClockId, clock_gettime};

/// A stamp that is older than this on a clock comes from another clock.
const OLDEST_NS: u64 = 60_000_000_000;

/// The time since the machine was started, in nanoseconds. This clock never jumps.
pub(crate) fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// The age of a stamp, in nanoseconds; `None` if it fits neither clock.
///
/// The publisher chooses the clock: the time since the machine was started, or the time of day. They are so far
/// apart that at most one of them makes the stamp recent.
pub(crate) fn age_ns(stamp_ns: u64) -> Option<u64> {
    let clocks = [ClockId::Monotonic, ClockId::Realtime];
    let ages = clocks.into_iter().map(|clock| read(clock).checked_sub(stamp_ns));
    ages.flatten().find(|age| stamp_ns != 0 && *age < OLDEST_NS)
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanos) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_right_for_stamps_of_either_clock() {
        for clock in [ClockId::Monotonic, ClockId::Realtime] {
            let age = age_ns(read(clock) - 1_000_000).unwrap();
            assert!((1_000_000..OLDEST_NS).contains(&age), "{age}");
        }
        assert_eq!(age_ns(0), None);
        assert_eq!(age_ns(u64::MAX), None, "a stamp in the future");
    }
}
