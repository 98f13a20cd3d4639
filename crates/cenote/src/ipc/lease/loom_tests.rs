//! The lease protocol in loom, as shipped, and with one piece taken away at a time.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib loom`
//!
//! loom tries every interleaving and every stale value that the memory model allows, here with at
//! most [`PREEMPTIONS`] switches away from a thread that could go on (the models below that must fail
//! do so with one; `LOOM_MAX_PREEMPTIONS=4` takes minutes and passes too). One loom thread stands for one process unless a
//! model says otherwise. The bytes of the slot are a loom `Cell`: a write that is not ordered after
//! every read under a lease fails the model, as does reading a content other than the leased one. Each
//! model ends by showing that the slot is not lost: when all have let go, it can be reused.

use std::marker::PhantomData;

use loom::cell::Cell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::ipc::lease::reader::{Leases, Orderings, Refused, Shipped};
use crate::ipc::lease::reclaim::RetiredSlots;
use crate::ipc::lease::rows::Rows;
use crate::ipc::lease::serial;
use crate::ipc::lease::serial::FIRST;
use crate::sync::{AtomicU64, Biased, Ordering, put_behind};

const PREEMPTIONS: usize = 3;
const SLOT: u32 = 0;

/// A row, and the lock of its process.
#[derive(Clone)]
struct Row(Arc<([AtomicU64; 1], Mutex<()>)>);

impl Row {
    fn new() -> Self {
        Row(Arc::new(([AtomicU64::new(0)], Mutex::new(()))))
    }

    fn locked<R>(&self, act: impl FnOnce() -> R) -> R {
        let _locked = self.0.1.lock().unwrap();
        act()
    }
}

impl AsRef<[AtomicU64]> for Row {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0.0
    }
}

/// The memory of a pool with one slot.
struct Shared {
    serials: [AtomicU64; 1],
    /// The serial whose content these bytes are.
    bytes: Cell<u64>,
    /// The owner's ring of one entry: the serial that it names, or 0 while it is overwritten.
    entry: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared {
            serials: [AtomicU64::new(FIRST)],
            bytes: Cell::new(FIRST),
            entry: AtomicU64::new(FIRST),
        })
    }
}

/// A process that reads.
struct Reader<O> {
    shared: Arc<Shared>,
    row: Row,
    orderings: PhantomData<O>,
}

impl<O: Orderings + 'static> Reader<O> {
    fn new(shared: &Arc<Shared>, row: &Row) -> Self {
        Reader { shared: shared.clone(), row: row.clone(), orderings: PhantomData }
    }

    fn leases(&self) -> Leases<'_, O> {
        Leases::new(self.row.as_ref(), &self.shared.serials)
    }

    fn read(&self, expected: u64) {
        assert_eq!(self.shared.bytes.get(), expected, "bytes changed under a lease");
    }

    /// A forwarded or imported descriptor of the first content.
    fn by_serial(&self) {
        if self.leases().by_serial(SLOT, FIRST).is_ok() {
            self.read(FIRST);
            self.leases().release(SLOT);
        }
    }

    /// What the owner's ring names now, if anything.
    fn by_entry(&self) {
        let entry = &self.shared.entry;
        let named = entry.load(Ordering::Acquire);
        let unchanged = || entry.load(Ordering::Relaxed) == named;
        if named != 0 && self.leases().by_entry(SLOT, unchanged).is_ok() {
            self.read(named);
            self.leases().release(SLOT);
        }
    }

    /// The same, by a process whose threads lease and give back under a lock.
    fn by_entry_locked(&self) {
        self.by_entry_alone(|act| self.row.locked(act));
    }

    /// By one whose threads do so as if they were alone.
    fn by_entry_unlocked(&self) {
        self.by_entry_alone(|act| act());
    }

    fn by_entry_alone(&self, locked: impl Fn(&mut dyn FnMut())) {
        let (entry, mut leased) = (&self.shared.entry, false);
        let named = entry.load(Ordering::Acquire);
        let unchanged = || entry.load(Ordering::Relaxed) == named;
        locked(&mut || leased = named != 0 && self.leases().by_entry(SLOT, unchanged).is_ok());
        if leased {
            self.read(named);
            locked(&mut || self.leases().release_alone(SLOT));
        }
    }

    fn spawn(self, act: impl FnOnce(&Self) + 'static) -> thread::JoinHandle<()> {
        thread::spawn(move || act(&self))
    }
}

/// The process that owns the pool.
struct Owner<O> {
    shared: Arc<Shared>,
    rows: Rows<Row>,
    retired: RetiredSlots<O>,
}

impl<O: Orderings> Owner<O> {
    fn new(shared: &Arc<Shared>, rows: &[&Row]) -> Self {
        let mut owner =
            Owner { shared: shared.clone(), rows: Rows::new(), retired: RetiredSlots::new(1) };
        for row in rows {
            owner.rows.insert((*row).clone());
        }
        owner
    }

    /// Overwrites the ring entry and lets go of the slot.
    fn retire(&mut self) {
        self.shared.entry.store(0, Ordering::Relaxed);
        if self.retired.retire(SLOT, &self.shared.serials, &self.rows) {
            reuse(&self.shared);
        }
    }

    /// The same, but looks later.
    fn defer(&mut self) {
        self.shared.entry.store(0, Ordering::Relaxed);
        self.retired.defer(SLOT);
    }

    fn scan_deferred(&mut self) {
        let shared = &self.shared;
        let looked = |_, free| {
            if free {
                reuse(shared)
            }
        };
        self.retired.scan_deferred(&shared.serials, &self.rows, looked);
    }

    fn sweep(&mut self) {
        let shared = &self.shared;
        self.retired.sweep(1, &shared.serials, &self.rows, |_| reuse(shared));
    }

    /// All others have let go: the slot comes back, and exactly once.
    fn expect_reused(&mut self) {
        self.sweep();
        assert_eq!(self.retired.len(), 0, "a slot was lost");
        assert_eq!(self.shared.serials[0].load(Ordering::Relaxed), serial::next(FIRST));
        assert!(!self.rows.is_held::<O>(SLOT), "a lease was lost");
    }
}

/// Writes and publishes the next content.
fn reuse(shared: &Shared) {
    shared.bytes.set(serial::next(FIRST));
    shared.entry.store(serial::next(FIRST), Ordering::Release);
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(body);
}

/// Two readers, by `act`, in rows of their own or in one, against an owner that retires and sweeps.
fn two_readers<O: Orderings + 'static>(one_row: bool, act: fn(&Reader<O>)) {
    model(move || {
        let (shared, first) = (Shared::new(), Row::new());
        let second = if one_row { first.clone() } else { Row::new() };
        let readers = [&first, &second].map(|row| Reader::<O>::new(&shared, row).spawn(act));
        let rows = if one_row { &[&first][..] } else { &[&first, &second] };
        let mut owner = Owner::<O>::new(&shared, rows);
        owner.retire();
        owner.sweep();
        for reader in readers {
            reader.join().unwrap();
        }
        owner.expect_reused();
    });
}

/// One reader against an owner that retires: the smallest model that finds most bugs.
fn one_reader<O: Orderings + 'static>(act: fn(&Reader<O>)) {
    model(move || {
        let (shared, row) = (Shared::new(), Row::new());
        let reader = Reader::<O>::new(&shared, &row).spawn(act);
        let mut owner = Owner::<O>::new(&shared, &[&row]);
        owner.retire();
        reader.join().unwrap();
        owner.expect_reused();
    });
}

#[test]
fn two_threads_of_one_process_share_a_row() {
    two_readers::<Shipped>(true, Reader::by_serial);
    two_readers::<Shipped>(true, Reader::by_entry);
    two_readers::<Shipped>(true, Reader::by_entry_locked);
}

/// A slot that was put off can still be leased by its serial, until it is looked at.
#[test]
fn an_owner_that_looks_later() {
    for act in [Reader::<Shipped>::by_serial, Reader::by_entry] {
        model(move || {
            let (shared, row) = (Shared::new(), Row::new());
            let reader = Reader::new(&shared, &row).spawn(act);
            let mut owner = Owner::<Shipped>::new(&shared, &[&row]);
            owner.defer();
            owner.scan_deferred();
            reader.join().unwrap();
            owner.expect_reused();
        });
    }
}

#[test]
fn two_processes_and_an_owner_that_reuses() {
    two_readers::<Shipped>(false, Reader::by_serial);
    two_readers::<Shipped>(false, Reader::by_entry);
}

/// The owner's process reads its own topic in another thread: it has a row like everybody else, and
/// what its threads do to slots they do under its lock.
#[test]
fn the_owner_reads_through_a_row_of_its_own() {
    model(|| {
        let (shared, own) = (Shared::new(), Row::new());
        let owner = Arc::new(Mutex::new(Owner::<Shipped>::new(&shared, &[&own])));
        let subscriber = {
            let (owner, reader) = (owner.clone(), Reader::<Shipped>::new(&shared, &own));
            thread::spawn(move || {
                reader.by_entry();
                owner.lock().unwrap().sweep();
            })
        };
        owner.lock().unwrap().retire();
        subscriber.join().unwrap();
        owner.lock().unwrap().expect_reused();
    });
}

/// B leases at the owner's serial and forwards to C through its own ring, then overwrites its entry and
/// lets go. C checks what `validate` checks. C's row comes first in the scan, which is the order that
/// can miss a lease that moves from B to C.
fn forwarder(validate: fn(&Reader<Shipped>, &AtomicU64) -> Result<(), Refused>) {
    model(move || {
        let (shared, b, c) = (Shared::new(), Row::new(), Row::new());
        let ring_of_b = Arc::new(AtomicU64::new(0));
        let forwarder = {
            let ring = ring_of_b.clone();
            Reader::<Shipped>::new(&shared, &b).spawn(move |b| {
                if b.leases().by_serial(SLOT, FIRST).is_ok() {
                    ring.store(FIRST, Ordering::Release);
                    b.read(FIRST);
                    ring.store(0, Ordering::Relaxed);
                    b.leases().release(SLOT);
                }
            })
        };
        let reader = Reader::<Shipped>::new(&shared, &c).spawn(move |c| {
            let named = ring_of_b.load(Ordering::Acquire) == FIRST;
            if named && validate(c, &ring_of_b).is_ok() {
                c.read(FIRST);
                c.leases().release(SLOT);
            }
        });
        let mut owner = Owner::<Shipped>::new(&shared, &[&c, &b]);
        owner.retire();
        forwarder.join().unwrap();
        reader.join().unwrap();
        owner.expect_reused();
    });
}

#[test]
fn a_forwarded_slot_is_validated_at_the_owners_serial() {
    forwarder(|c, _| c.leases().by_serial(SLOT, FIRST));
}

/// C has the descriptor from B, and B lets go while C validates.
#[test]
fn a_forwarder_releases_while_the_next_reader_validates() {
    model(|| {
        let (shared, b, c) = (Shared::new(), Row::new(), Row::new());
        let forwarder = Reader::<Shipped>::new(&shared, &b);
        forwarder.leases().by_serial(SLOT, FIRST).unwrap();
        let reader = Reader::<Shipped>::new(&shared, &c).spawn(Reader::by_serial);
        let forwarder = forwarder.spawn(|b| {
            b.read(FIRST);
            b.leases().release(SLOT);
        });
        let mut owner = Owner::<Shipped>::new(&shared, &[&c, &b]);
        owner.retire();
        owner.sweep();
        forwarder.join().unwrap();
        reader.join().unwrap();
        owner.expect_reused();
    });
}

/// A reader dies with its lease. The service thread learns of it (the join is the hang-up) and drops
/// the row, while another thread of the owner retires and sweeps.
#[test]
fn a_row_is_dropped_during_a_retire() {
    model(|| {
        let (shared, row) = (Shared::new(), Row::new());
        let mut owner = Owner::<Shipped>::new(&shared, &[]);
        let id = owner.rows.insert(row.clone());
        let owner = Arc::new(Mutex::new(owner));
        let dying = Reader::<Shipped>::new(&shared, &row).spawn(|reader| {
            if reader.leases().by_serial(SLOT, FIRST).is_ok() {
                reader.read(FIRST);
            }
        });
        let service = {
            let owner = owner.clone();
            thread::spawn(move || {
                dying.join().unwrap();
                owner.lock().unwrap().rows.remove(id);
            })
        };
        owner.lock().unwrap().retire();
        owner.lock().unwrap().sweep();
        service.join().unwrap();
        owner.lock().unwrap().expect_reused();
    });
}

/// A thing that goes to a place of its own, and has been written before.
struct Thing {
    place: std::sync::Arc<Biased<Place>>,
    bytes: Cell<u64>,
}

/// Keeps a thing unless it is shut.
#[derive(Default)]
struct Place {
    thing: Option<std::sync::Arc<Thing>>,
    shut: bool,
}

impl Place {
    fn room(&mut self) -> Option<&mut Option<std::sync::Arc<Thing>>> {
        (!self.shut).then_some(&mut self.thing)
    }

    fn shut(&mut self) -> Option<std::sync::Arc<Thing>> {
        self.shut = true;
        self.thing.take()
    }
}

/// Whoever takes a thing has it alone, and sees what was done to it.
fn use_it(thing: &Thing) {
    assert_ne!(thing.bytes.get(), 0);
    thing.bytes.set(thing.bytes.get() + 1);
}

/// A place for a spare that is shut while others put into it and take from it: nothing stays in it,
/// nothing is lost, and nobody has what another has.
#[test]
fn a_place_that_is_shut_keeps_nothing() {
    model(|| {
        let place = std::sync::Arc::new(Biased::new(Place::default()));
        let thing = Thing { place: place.clone(), bytes: Cell::new(0) };
        let thing = std::sync::Arc::new(thing);
        let alive = std::sync::Arc::downgrade(&thing);
        let user = thread::spawn(move || {
            thing.bytes.set(1);
            let put = put_behind(thing, |thing| Some(&*thing.place), Place::room);
            put.unwrap_or_else(Some).iter().for_each(|thing| use_it(thing));
        });
        let other = {
            let place = place.clone();
            thread::spawn(move || {
                let taken = place.lock().thing.take();
                taken.iter().for_each(|thing| use_it(thing));
            })
        };
        let shut = place.lock().shut();
        shut.iter().for_each(|thing| use_it(thing));
        drop(shut);
        user.join().unwrap();
        other.join().unwrap();
        assert!(place.lock().thing.is_none());
        assert_eq!(alive.strong_count(), 0);
    });
}

// From here on: models that must fail, each on the bytes and on nothing else.

struct NoReaderFence;
impl Orderings for NoReaderFence {
    const READER_FENCE: bool = false;
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_the_readers_fence_a_serial_does_not_protect() {
    one_reader::<NoReaderFence>(Reader::by_serial);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_the_readers_fence_an_entry_does_not_protect() {
    one_reader::<NoReaderFence>(Reader::by_entry);
}

struct NoClaimFence;
impl Orderings for NoClaimFence {
    const CLAIM_FENCE: bool = false;
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_the_owners_claim_fence_a_serial_does_not_protect() {
    one_reader::<NoClaimFence>(Reader::by_serial);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_the_owners_claim_fence_an_entry_does_not_protect() {
    one_reader::<NoClaimFence>(Reader::by_entry);
}

#[test]
#[should_panic(expected = "a lease was lost")]
fn without_the_lock_two_threads_that_store_lose_a_lease() {
    two_readers::<Shipped>(true, Reader::by_entry_unlocked);
}

struct RelaxedRelease;
impl Orderings for RelaxedRelease {
    const RELEASE: Ordering = Ordering::Relaxed;
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_release_the_owner_writes_before_a_read_is_done() {
    one_reader::<RelaxedRelease>(Reader::by_serial);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_release_a_store_does_not_suffice_either() {
    one_reader::<RelaxedRelease>(Reader::by_entry_locked);
}

struct RelaxedScan;
impl Orderings for RelaxedScan {
    const SCAN: Ordering = Ordering::Relaxed;
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn without_acquire_the_owner_writes_before_a_read_is_done() {
    one_reader::<RelaxedScan>(Reader::by_serial);
}

#[test]
#[should_panic(expected = "Causality violation: Concurrent read and write accesses")]
fn a_reader_that_checks_only_the_forwarders_ring_is_not_protected() {
    forwarder(|c, ring| c.leases().by_entry(SLOT, || ring.load(Ordering::Relaxed) == FIRST));
}
