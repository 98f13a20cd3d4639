//! The ring protocol in loom: as shipped, and with one step left out at a time. `ipc/lease/loom_tests.rs` says how to
//! run it and what it means.
//!
//! A connection is a flag: 1 is an unread byte. A model ends when one side sleeps. Then that side must have an unread
//! byte, or the event that it waits for must not have happened.

use loom::cell::Cell;
use loom::sync::Arc;
use loom::thread;

use crate::ipc::lease::reader::Leases;
use crate::ipc::lease::reclaim::RetiredSlots;
use crate::ipc::lease::rows::Rows;
use crate::ipc::lease::serial::FIRST;
use crate::ipc::lease::{reader, serial};
use crate::ipc::ring::orderings::{Orderings, Shipped};
use crate::ipc::ring::ring::{Found, RingReader, RingShape, RingWriter};
use crate::ipc::ring::subscriber_row;
use crate::ipc::ring::subscriber_row::SubscriberRow;
use crate::sync::{AtomicU64, Ordering};

const PREEMPTIONS: usize = 3;

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(body);
}

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// A ring of one entry, a row, and whether each side has an unread byte.
struct Shared {
    shape: RingShape,
    ring: Vec<AtomicU64>,
    row: Vec<AtomicU64>,
    to_subscriber: AtomicU64,
    to_publisher: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let shape = RingShape::new(1, 1).unwrap();
        let shared = Shared {
            shape,
            ring: words(shape.words()),
            row: words(subscriber_row::WORDS),
            to_subscriber: AtomicU64::new(0),
            to_publisher: AtomicU64::new(0),
        };
        shared.writer().start(0);
        Arc::new(shared)
    }

    fn writer(&self) -> RingWriter<'_> {
        RingWriter::new(&self.ring, self.shape)
    }

    fn reader(&self) -> RingReader<'_> {
        RingReader::new(&self.ring, self.shape)
    }

    fn row(&self) -> SubscriberRow<'_> {
        SubscriberRow::new(&self.row)
    }

    /// What a publisher does: it publishes a message, and sends a byte to a subscriber that sleeps.
    fn publish<R: Orderings>(&self, sequence: u64, woken: &mut u64) {
        self.writer().publish::<R>(sequence, &[sequence], 1);
        if self.row().needs_wake(woken) {
            self.to_subscriber.store(1, Ordering::Relaxed);
        }
    }

    /// What a subscriber does when it has taken a message.
    fn take<O: Orderings>(&self, taken: u64) {
        self.row().set_taken::<O>(taken, true);
        if self.reader().publisher_waits() {
            self.to_publisher.store(1, Ordering::Relaxed);
        }
    }
}

// ---- A subscriber that sleeps -----------------------------------------------------------------

/// A subscriber looks, arms, looks again and sleeps, for each of two messages. `R` and `O` are the
/// publisher's orderings and the subscriber's.
fn sleeping_subscriber<R: Orderings + 'static, O: Orderings + 'static>() {
    model(|| {
        let shared = Shared::new();
        let theirs = shared.clone();
        let subscriber = thread::spawn(move || {
            for (cursor, number) in [(0, 1), (1, 2)] {
                subscriber_row::arm::<O>(std::iter::once(theirs.row()), number);
                if theirs.reader().entry(cursor).peek() == Found::NotYet {
                    return Some(cursor); // asleep
                }
                theirs.row().disarm();
            }
            None
        });
        let mut woken = 0;
        for sequence in 0..2 {
            shared.publish::<R>(sequence, &mut woken);
        }
        // Both messages are there, so a subscriber that sleeps must have been woken.
        if subscriber.join().unwrap().is_some() {
            let woken = shared.to_subscriber.load(Ordering::Relaxed);
            assert_eq!(woken, 1, "a subscriber sleeps through a message");
        }
    });
}

#[test]
fn a_subscriber_does_not_sleep_through_a_message() {
    sleeping_subscriber::<Shipped, Shipped>();
}

struct NoWakeFence;
impl Orderings for NoWakeFence {
    const WAKE_FENCE: bool = false;
}

struct NoArmFence;
impl Orderings for NoArmFence {
    const ARM_FENCE: bool = false;
}

#[test]
#[should_panic(expected = "a subscriber sleeps through a message")]
fn without_the_publishers_fence_a_subscriber_sleeps_through_a_message() {
    sleeping_subscriber::<NoWakeFence, Shipped>();
}

#[test]
#[should_panic(expected = "a subscriber sleeps through a message")]
fn without_its_own_fence_a_subscriber_sleeps_through_a_message() {
    sleeping_subscriber::<Shipped, NoArmFence>();
}

// ---- A publisher that waits -------------------------------------------------------------------

/// A publisher has filled its ring and waits for the subscriber to take the message in it.
fn waiting_publisher<R: Orderings + 'static, O: Orderings + 'static>() {
    model(|| {
        let shared = Shared::new();
        shared.writer().publish::<Shipped>(0, &[0], 1);
        let theirs = shared.clone();
        let subscriber = thread::spawn(move || {
            let mut payload = [9];
            let found = theirs.reader().entry(0).read::<Shipped>(&mut payload);
            assert_eq!((found, payload), (Found::Message(1), [0]), "overwritten");
            theirs.take::<O>(1);
        });
        shared.writer().wait::<R>();
        let sleeps = shared.row().taken() == 0;
        if sleeps {
            subscriber.join().unwrap();
            let woken = shared.to_publisher.load(Ordering::Relaxed);
            assert_eq!(woken, 1, "a publisher sleeps although its ring has room");
            assert_eq!(shared.row().taken(), 1);
        } else {
            // Meanwhile the subscriber may still be about to read WAITING.
            shared.writer().stop_waiting();
            shared.writer().publish::<Shipped>(1, &[1], 1);
            subscriber.join().unwrap();
        }
    });
}

#[test]
fn a_publisher_does_not_sleep_when_its_ring_has_room() {
    waiting_publisher::<Shipped, Shipped>();
}

struct NoWaitFence;
impl Orderings for NoWaitFence {
    const WAIT_FENCE: bool = false;
}

struct NoTakeFence;
impl Orderings for NoTakeFence {
    const TAKE_FENCE: bool = false;
}

#[test]
#[should_panic(expected = "a publisher sleeps although its ring has room")]
fn without_its_own_fence_a_publisher_sleeps_on() {
    waiting_publisher::<NoWaitFence, Shipped>();
}

#[test]
#[should_panic(expected = "a publisher sleeps although its ring has room")]
fn without_the_subscribers_fence_a_publisher_sleeps_on() {
    waiting_publisher::<Shipped, NoTakeFence>();
}

// ---- A slot that an entry names ---------------------------------------------------------------

const SLOT: u32 = 0;

/// A pool with one slot, whose content an entry of the ring names by its serial.
struct Slot {
    shared: Arc<Shared>,
    serials: [AtomicU64; 1],
    /// The serial whose content these bytes are.
    bytes: Cell<u64>,
}

#[derive(Clone)]
struct LeaseRow(Arc<[AtomicU64; 1]>);

impl AsRef<[AtomicU64]> for LeaseRow {
    fn as_ref(&self) -> &[AtomicU64] {
        &*self.0
    }
}

/// The publisher of one message in a ring of depth one. It then overwrites the message with another one in the same
/// slot, as soon as the slot is free.
struct Publisher<L> {
    slot: Arc<Slot>,
    rows: Rows<LeaseRow>,
    retired: RetiredSlots<L>,
}

impl<L: reader::Orderings> Publisher<L> {
    /// What `send` does with a message that has no tensor, when it overwrites one that has.
    fn overwrite(&mut self) {
        let writer = self.slot.shared.writer();
        writer.retract_oldest(1);
        writer.publish::<Shipped>(1, &[0], 1);
        if self.retired.retire(SLOT, &self.slot.serials, &self.rows) {
            self.reuse();
        }
    }

    fn sweep(&mut self) {
        let mut free = false;
        self.retired.sweep(1, &self.slot.serials, &self.rows, |_| free = true);
        if free {
            self.reuse();
        }
    }

    /// Writes the next content, and publishes the message that names it.
    fn reuse(&self) {
        let next = serial::next(FIRST);
        self.slot.bytes.set(next);
        self.slot.shared.writer().retract_oldest(2);
        self.slot.shared.writer().publish::<Shipped>(2, &[next], 1);
    }
}

/// What `recv` does at cursor `sequence`.
fn recv<L: reader::Orderings>(slot: &Slot, row: &LeaseRow, sequence: u64) {
    let (entry, mut payload) = (slot.shared.reader().entry(sequence), [0]);
    if entry.read::<Shipped>(&mut payload) != Found::Message(1) || payload == [0] {
        return;
    }
    let leases: Leases<'_, L> = Leases::new(row.as_ref(), &slot.serials);
    if leases.by_entry(SLOT, || entry.is_unchanged()).is_ok() {
        assert_eq!(slot.bytes.get(), payload[0], "bytes changed under a lease");
        leases.release(SLOT);
    }
}

/// A subscriber receives message `sequence` while the publisher overwrites it and reuses its slot.
fn overwritten<L: reader::Orderings + 'static>(sequence: u64) {
    model(move || {
        let shared = Shared::new();
        shared.writer().publish::<Shipped>(0, &[FIRST], 1);
        let serials = [AtomicU64::new(FIRST)];
        let slot = Arc::new(Slot { shared, serials, bytes: Cell::new(FIRST) });
        let row = LeaseRow(Arc::new([AtomicU64::new(0)]));
        let mut rows = Rows::new();
        rows.insert(row.clone());
        let theirs = slot.clone();
        let subscriber = thread::spawn(move || recv::<L>(&theirs, &row, sequence));
        let mut publisher = Publisher::<L> { slot, rows, retired: RetiredSlots::new(1) };
        publisher.overwrite();
        publisher.sweep();
        subscriber.join().unwrap();
        publisher.sweep();
        assert_eq!(publisher.retired.len(), 0, "a slot was lost");
        assert_eq!(publisher.slot.serials[0].load(Ordering::Relaxed), serial::next(FIRST));
        assert_eq!(publisher.slot.shared.reader().head(), 3);
    });
}

#[test]
fn a_slot_that_an_entry_names_is_not_reused_under_its_reader() {
    overwritten::<reader::Shipped>(0);
    overwritten::<reader::Shipped>(2);
}

/// The owner's fence is not needed here: publishing has one after the entry is overwritten.
#[test]
fn the_fence_of_publishing_stands_in_for_the_owners() {
    struct NoOwnerFence;
    impl reader::Orderings for NoOwnerFence {
        const CLAIM_FENCE: bool = false;
    }
    overwritten::<NoOwnerFence>(0);
}

struct NoReaderFence;
impl reader::Orderings for NoReaderFence {
    const READER_FENCE: bool = false;
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_the_readers_fence_its_slot_is_reused() {
    overwritten::<NoReaderFence>(0);
}
