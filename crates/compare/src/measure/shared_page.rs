//! A page of memory that the measuring process shares with its helper. The floor is a bare round trip over it, and the
//! orders for the helper are on it.
#![allow(
    unsafe_code,
    reason = "maps memory that another process writes, and accesses it atomically only"
)]

use std::hint::spin_loop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::Result;
use crate::measure::samples::{median, nanos_since};

const BYTES: usize = 4096;

/// The longest time for a floor: enough for 5,000 round trips of 10 µs.
const MAX_FLOOR_TIME: Duration = Duration::from_millis(50);

/// The words of payload in each direction: 128 bytes, two cache lines. The reader spins on the word after them.
const PAYLOAD: usize = 16;
/// The distance of the two lanes in words, such that they share no cache line.
const LANE: usize = 32;
const REQUEST: usize = 0;
const REPLY: usize = LANE;

// The words below have separate cache lines.
const ORDER: usize = 4 * LANE;
const STARTED: usize = 6 * LANE;
const ARRIVED: usize = 8 * LANE;

/// The page, and its shared memory file.
#[derive(Debug)]
pub(crate) struct SharedPage {
    words: &'static [AtomicU64],
    fd: OwnedFd,
}

impl SharedPage {
    /// Creates a page. Children inherit its file.
    pub(crate) fn new() -> Result<SharedPage> {
        let fd = memfd_create("compare", MemfdFlags::empty())?;
        ftruncate(&fd, BYTES as u64)?;
        SharedPage::map(fd)
    }

    /// Maps the page of the parent, whose file this process inherited.
    pub(crate) fn inherited(fd: RawFd) -> Result<SharedPage> {
        // SAFETY: this process inherited the descriptor, and nothing else in it uses the descriptor.
        SharedPage::map(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn map(fd: OwnedFd) -> Result<SharedPage> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null address the kernel chooses an unused address.
        let at = unsafe { mmap(std::ptr::null_mut(), BYTES, prot, MapFlags::SHARED, &fd, 0) }?;
        // SAFETY: the file has this size, the mapping is page-aligned and lives until the process ends, and all
        // accesses are atomic.
        let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), BYTES / 8) };
        Ok(SharedPage { words, fd })
    }

    /// The descriptor, as an argument for a child.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The payload of a lane, and the word that signals it.
    fn lane(&self, lane: usize) -> (&[AtomicU64], &AtomicU64) {
        let lane = &self.words[lane..][..=PAYLOAD];
        (&lane[..PAYLOAD], &lane[PAYLOAD])
    }

    fn write(&self, lane: usize, value: u64) {
        let (payload, word) = self.lane(lane);
        payload.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        word.store(value, Ordering::Release);
    }

    /// The value that was written after `old`; `None` if there is none yet. Reads the payload, too.
    fn read(&self, lane: usize, old: u64) -> Option<u64> {
        let (payload, word) = self.lane(lane);
        let value = word.load(Ordering::Acquire);
        let differ = |sum: u64, word: &AtomicU64| sum | (word.load(Ordering::Relaxed) ^ value);
        (value != old).then(|| value | payload.iter().fold(0, differ))
    }

    /// Makes bare round trips, and returns their median in nanoseconds. Makes fewer on a busy machine.
    pub(crate) fn floor(&self, trips: usize) -> f64 {
        let first = self.words[REQUEST + PAYLOAD].load(Ordering::Relaxed);
        let start = Instant::now();
        let mut samples = Vec::with_capacity(trips);
        while samples.is_empty() || (samples.len() < trips && start.elapsed() < MAX_FLOOR_TIME) {
            samples.push(self.trip(first + samples.len() as u64));
        }
        median(&samples).unwrap_or(0.0)
    }

    fn trip(&self, before: u64) -> f64 {
        let began = Instant::now();
        self.write(REQUEST, before + 1);
        let mut spins = 0_u32;
        while self.read(REPLY, before).is_none() {
            spin_loop();
            spins += 1;
            // A dead helper does not reply; `SpinWait` reports that.
            if spins.is_multiple_of(1 << 20) && began.elapsed() > MAX_FLOOR_TIME {
                break;
            }
        }
        nanos_since(began)
    }

    /// In the helper: replies to round trips of the floor until the order changes.
    pub(crate) fn answer_floor(&self, order: u64) {
        let mut seen = self.words[REPLY + PAYLOAD].load(Ordering::Relaxed);
        while self.order() == order {
            if let Some(value) = self.read(REQUEST, seen) {
                self.write(REPLY, value);
                seen = value;
            }
            spin_loop();
        }
    }

    /// The current order.
    pub(crate) fn order(&self) -> u64 {
        self.words[ORDER].load(Ordering::Acquire)
    }

    /// Gives the helper an order.
    pub(crate) fn set_order(&self, order: u64) {
        self.words[ORDER].store(order, Ordering::Release);
    }

    /// The order that the helper has started.
    pub(crate) fn started(&self) -> u64 {
        self.words[STARTED].load(Ordering::Acquire)
    }

    /// In the helper: reports the order that it has started.
    pub(crate) fn set_started(&self, order: u64) {
        self.words[STARTED].store(order, Ordering::Release);
    }

    /// In the helper: reports when a message arrived.
    pub(crate) fn set_arrived(&self, value: u64, at: u64) {
        self.words[ARRIVED + 1].store(at, Ordering::Relaxed);
        self.words[ARRIVED].store(value, Ordering::Release);
    }

    /// When the message with this value arrived; `None` if it has not.
    pub(crate) fn arrived(&self, value: u64) -> Option<u64> {
        let there = self.words[ARRIVED].load(Ordering::Acquire) == value;
        there.then(|| self.words[ARRIVED + 1].load(Ordering::Relaxed))
    }
}

/// The monotonic clock in nanoseconds, which all processes share.
#[allow(clippy::cast_sign_loss, reason = "the clock starts at zero")]
pub(crate) fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
