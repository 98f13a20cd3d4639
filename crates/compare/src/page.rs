//! A page that two processes share: the floor, which is a bare round trip over it, and the orders for
//! the other process.
#![allow(
    unsafe_code,
    reason = "maps memory that another process writes; it is only accessed atomically"
)]

use std::hint::spin_loop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::Result;
use crate::samples::median;

const BYTES: usize = 4096;

/// Enough for 5,000 round trips of 10 µs.
const FLOOR: Duration = Duration::from_millis(50);

/// Words of payload each way, 128 bytes: two lines. The word that is spun on is the next.
const PAYLOAD: usize = 16;
/// From one way to the other: no line belongs to both.
const LANE: usize = 32;
const THERE: usize = 0;
const BACK: usize = LANE;

// Each in lines of its own.
const ORDER: usize = 4 * LANE;
const SEEN: usize = 6 * LANE;
const ARRIVED: usize = 8 * LANE;

/// The words, and the file they are in.
#[derive(Debug)]
pub(crate) struct Page {
    words: &'static [AtomicU64],
    fd: OwnedFd,
}

impl Page {
    /// A new one, which children inherit.
    pub(crate) fn new() -> Result<Page> {
        let fd = memfd_create("compare", MemfdFlags::empty())?;
        ftruncate(&fd, BYTES as u64)?;
        Page::map(fd)
    }

    /// That of the parent.
    pub(crate) fn inherited(fd: RawFd) -> Result<Page> {
        // SAFETY: the parent left the descriptor to this process, and nothing else here knows of it.
        Page::map(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn map(fd: OwnedFd) -> Result<Page> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let at = unsafe { mmap(std::ptr::null_mut(), BYTES, prot, MapFlags::SHARED, &fd, 0) }?;
        // SAFETY: the file has that size, it is page-aligned, the mapping stays until the process ends,
        // and it is only accessed atomically.
        let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), BYTES / 8) };
        Ok(Page { words, fd })
    }

    /// What a child is told.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The payload, and the word.
    fn lane(&self, lane: usize) -> (&[AtomicU64], &AtomicU64) {
        let lane = &self.words[lane..][..=PAYLOAD];
        (&lane[..PAYLOAD], &lane[PAYLOAD])
    }

    fn put(&self, lane: usize, value: u64) {
        let (payload, word) = self.lane(lane);
        payload.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        word.store(value, Ordering::Release);
    }

    /// What was put there, once all of it is there.
    fn take(&self, lane: usize, old: u64) -> Option<u64> {
        let (payload, word) = self.lane(lane);
        let value = word.load(Ordering::Acquire);
        let differ = |sum: u64, word: &AtomicU64| sum | (word.load(Ordering::Relaxed) ^ value);
        (value != old).then(|| value | payload.iter().fold(0, differ))
    }

    /// Bare round trips, and what one takes: the median. Fewer where others keep a core busy.
    pub(crate) fn floor(&self, trips: usize) -> f64 {
        let first = self.words[THERE + PAYLOAD].load(Ordering::Relaxed);
        let start = Instant::now();
        let mut samples = Vec::with_capacity(trips);
        while samples.is_empty() || (samples.len() < trips && start.elapsed() < FLOOR) {
            samples.push(self.trip(first + samples.len() as u64));
        }
        median(&samples).unwrap_or(0.0)
    }

    fn trip(&self, before: u64) -> f64 {
        let began = Instant::now();
        self.put(THERE, before + 1);
        let mut spins = 0_u32;
        while self.take(BACK, before).is_none() {
            spin_loop();
            spins += 1;
            // Whoever is dead does not answer, which is noticed elsewhere.
            if spins.is_multiple_of(1 << 20) && began.elapsed() > FLOOR {
                break;
            }
        }
        nanos(began)
    }

    /// The other side of the floor, until there is another order.
    pub(crate) fn answer(&self, order: u64) {
        let mut seen = self.words[BACK + PAYLOAD].load(Ordering::Relaxed);
        while self.order() == order {
            if let Some(value) = self.take(THERE, seen) {
                self.put(BACK, value);
                seen = value;
            }
            spin_loop();
        }
    }

    /// What the other process has to do.
    pub(crate) fn order(&self) -> u64 {
        self.words[ORDER].load(Ordering::Acquire)
    }

    /// Asks for something else.
    pub(crate) fn set_order(&self, order: u64) {
        self.words[ORDER].store(order, Ordering::Release);
    }

    /// What it is at.
    pub(crate) fn seen(&self) -> u64 {
        self.words[SEEN].load(Ordering::Acquire)
    }

    /// Says what this process is at.
    pub(crate) fn set_seen(&self, order: u64) {
        self.words[SEEN].store(order, Ordering::Release);
    }

    /// Says when the message came.
    pub(crate) fn set_arrived(&self, value: u64, at: u64) {
        self.words[ARRIVED + 1].store(at, Ordering::Relaxed);
        self.words[ARRIVED].store(value, Ordering::Release);
    }

    /// When the message came, if it did.
    pub(crate) fn arrived(&self, value: u64) -> Option<u64> {
        let there = self.words[ARRIVED].load(Ordering::Acquire) == value;
        there.then(|| self.words[ARRIVED + 1].load(Ordering::Relaxed))
    }
}

/// Nanoseconds since then.
pub(crate) fn nanos(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64
}

/// Nanoseconds of a clock that all processes share.
#[allow(clippy::cast_sign_loss, reason = "the clock starts at zero")]
pub(crate) fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
