//! When something was recorded, against now.

use rustix::time::{ClockId, clock_gettime};

/// What is older than this was not recorded by the clock it is compared with.
const OLDEST_NS: u64 = 60_000_000_000;

/// Now, by the clock that never jumps.
pub(crate) fn now_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// How long ago it was `stamp_ns`. Whoever records chooses the clock: the time since the machine was
/// started and the time of day are so far apart that it can be told which one it was. `None` if
/// neither.
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
    fn the_clock_is_found_out() {
        for clock in [ClockId::Monotonic, ClockId::Realtime] {
            let age = age_ns(read(clock) - 1_000_000).unwrap();
            assert!((1_000_000..OLDEST_NS).contains(&age), "{age}");
        }
        assert_eq!(age_ns(0), None);
        assert_eq!(age_ns(u64::MAX), None, "the future");
    }
}
