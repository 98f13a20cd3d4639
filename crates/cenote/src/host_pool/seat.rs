//! Seats: a small number for each thread, so that no two of the first [`SEATS`] share a shard, and
//! more than that share them evenly.
//!
//! A seat is taken by a thread's first use of any pool and is left when the thread ends.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::decay;
use super::gate::{self, Entry};

/// Seats there are. More threads than this share them.
pub(super) const SEATS: usize = 64;

const UNSEATED: usize = usize::MAX;

/// The threads on each seat. Looked at inside the gate only, or by a forked child.
static SITTING: Mutex<[u32; SEATS]> = Mutex::new([0; SEATS]);

fn sitting(_inside: &Entry) -> MutexGuard<'static, [u32; SEATS]> {
    SITTING.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    // Without a destructor, so that reading it is one load, and allowed until the thread is gone.
    static NUMBER: Cell<usize> = const { Cell::new(UNSEATED) };
    /// The seat that this thread is counted on. Unlike `NUMBER` it is known to a forked child before
    /// it has sat down, which may be when it forks in turn.
    static COUNTED: Cell<usize> = const { Cell::new(UNSEATED) };
    static SEAT: Seat = Seat::take();
}

struct Seat(usize);

impl Seat {
    fn take() -> Seat {
        let inside = gate::enter();
        let mut sitting = sitting(&inside);
        let number = emptiest(&sitting);
        sitting[number] += 1;
        COUNTED.set(number);
        Seat(number)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        sitting(&gate::enter())[self.0] -= 1;
        COUNTED.set(UNSEATED);
        NUMBER.set(UNSEATED);
    }
}

/// The first of those that have the fewest threads.
fn emptiest(sitting: &[u32; SEATS]) -> usize {
    (0..SEATS).min_by_key(|&seat| sitting[seat]).unwrap_or(0)
}

/// The number of this thread's seat.
#[inline]
pub(super) fn number() -> usize {
    match NUMBER.get() {
        UNSEATED => sit_down(),
        number => number,
    }
}

#[cold]
fn sit_down() -> usize {
    decay::revive(&gate::enter());
    match SEAT.try_with(|seat| seat.0) {
        Ok(number) => {
            NUMBER.set(number);
            number
        }
        // A thread past its destructors has no seat to leave: it is a guest, and does not count.
        Err(_) => emptiest(&sitting(&gate::enter())),
    }
}

/// In a forked child all seats but that of its one thread are empty. It looks for its own again, so
/// that [`sit_down`] is the first thing it does in any pool.
#[cfg(all(target_os = "linux", not(all(test, loom))))]
pub(super) fn inherit(inside: &Entry) {
    let mut seats = sitting(inside);
    *seats = [0; SEATS];
    if let Some(own) = seats.get_mut(COUNTED.get()) {
        *own = 1;
    }
    NUMBER.set(UNSEATED);
}

/// The threads on this thread's seat.
#[cfg(all(test, target_os = "linux", not(loom)))]
pub(super) fn neighbours() -> u32 {
    let own = number();
    sitting(&gate::enter())[own]
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn seats_of(threads: usize) -> Vec<usize> {
        let barrier = Barrier::new(threads);
        let sit = || {
            let seat = number();
            barrier.wait();
            seat
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(sit)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    // One test, because all tests of this process share the seats: threads of others sit among ours,
    // and come and go. Ours alone would make two to a seat.
    #[test]
    fn threads_sit_apart_while_there_are_seats_and_evenly_then() {
        let mut seats = seats_of(8);
        seats.sort_unstable();
        seats.dedup();
        assert_eq!(seats.len(), 8);

        let mut sitting = [0; SEATS];
        seats_of(2 * SEATS).into_iter().for_each(|seat| sitting[seat] += 1);
        assert!(sitting.iter().all(|&threads| threads <= 4), "{sitting:?}");
    }

    #[test]
    fn the_emptiest_seat_is_taken_first() {
        let mut sitting = [3; SEATS];
        sitting[7] = 1;
        sitting[9] = 1;
        assert_eq!(emptiest(&sitting), 7);
    }
}
