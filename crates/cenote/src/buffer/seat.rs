//! Seats: a small number for each thread, so that no two of the first [`SEATS`] share a shard.
//!
//! A seat is taken by a thread's first use of any pool and is free again when the thread ends.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

/// Seats there are. More threads than this share them.
pub(super) const SEATS: usize = 64;

const UNSEATED: usize = usize::MAX;

/// Bit `n` is set while seat `n` is taken.
static TAKEN: Mutex<u64> = Mutex::new(0);

thread_local! {
    // Without a destructor, so that reading it is one load, and allowed until the thread is gone.
    static NUMBER: Cell<usize> = const { Cell::new(UNSEATED) };
    static SEAT: Option<Seat> = Seat::take();
}

struct Seat(usize);

impl Seat {
    fn take() -> Option<Seat> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = taken.trailing_ones() as usize;
        (number < SEATS).then(|| {
            *taken |= 1 << number;
            Seat(number)
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.0);
        NUMBER.set(UNSEATED);
    }
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
    // A thread that finds no seat, or is past its destructors, squeezes in at the address of its
    // own stack: any number is correct, only slower.
    let squeezed = (&raw const TAKEN as usize ^ stack_page()) % SEATS;
    let number = SEAT.try_with(|seat| seat.as_ref().map(|seat| seat.0));
    match number {
        Ok(number) => {
            NUMBER.set(number.unwrap_or(squeezed));
            NUMBER.get()
        }
        Err(_) => squeezed,
    }
}

fn stack_page() -> usize {
    let here = 0_u8;
    (&raw const here as usize) >> 16
}

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

    // One test, because all tests of this process share the seats.
    #[test]
    fn threads_sit_apart_while_there_are_seats() {
        let mut seats = seats_of(8);
        seats.sort_unstable();
        seats.dedup();
        assert_eq!(seats.len(), 8);
        assert!(seats_of(2 * SEATS).into_iter().all(|seat| seat < SEATS));
    }
}
