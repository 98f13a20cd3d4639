//! Models of the lease protocol in loom: as it ships, and with one part taken away at a time.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib loom`
//!
//! loom tries every interleaving and every stale value that the memory model allows, with at most [`PREEMPTIONS`]
//! switches away from a runnable thread. The models below that must fail do so with one. `LOOM_MAX_PREEMPTIONS=4`
//! takes minutes and passes, too. One loom thread stands for one process, unless a model says otherwise.
//!
//! The bytes of the slot are a loom `Cell`. A model fails if a write is not ordered after every read under a lease, or
//! if a read finds another content than the leased one. Each model ends with a check that the slot is not lost: once
//! all leases have ended, the owner can reuse it.

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

/// A reading process.
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

    /// Leases by a forwarded or imported descriptor of the first content.
    fn by_serial(&self) {
        if self.leases().by_serial(SLOT, FIRST).is_ok() {
            self.read(FIRST);
            self.leases().release(SLOT);
        }
    }

    /// Leases the slot that the owner's ring names now, if it names one.
    fn by_entry(&self) {
        let entry = &self.shared.entry;
        let named = entry.load(Ordering::Acquire);
        let unchanged = || entry.load(Ordering::Relaxed) == named;
        if named != 0 && self.leases().by_entry(SLOT, unchanged).is_ok() {
            self.read(named);
            self.leases().release(SLOT);
        }
    }

    /// As `by_entry`, in a process whose threads lease and release under a lock.
    fn by_entry_locked(&self) {
        self.by_entry_alone(|act| self.row.locked(act));
    }

    /// As `by_entry_locked`, without the lock.
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

    /// Overwrites the ring entry and retires the slot.
    fn retire(&mut self) {
        self.shared.entry.store(0, Ordering::Relaxed);
        if self.retired.retire(SLOT, &self.shared.serials, &self.rows) {
            reuse(&self.shared);
        }
    }

    /// Overwrites the ring entry and defers the scan.
    fn defer(&mut self) {
        self.shared.entry.store(0, Ordering::Relaxed);
        self.retired.defer(SLOT);
    }

    fn scan_deferred(&mut self) {
        let shared = &self.shared;
        let scanned = |_, free| {
            if free {
                reuse(shared)
            }
        };
        self.retired.scan_deferred(&shared.serials, &self.rows, scanned);
    }

    fn sweep(&mut self) {
        let shared = &self.shared;
        self.retired.sweep(1, &shared.serials, &self.rows, |_| reuse(shared));
    }

    /// All leases have ended: the owner can reuse the slot, exactly once.
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

/// Two readers that `act`, in two rows or in one, against an owner that retires and sweeps.
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

/// A reader can still lease a deferred slot by its serial, until the owner scans it.
#[test]
fn an_owner_that_defers_its_scan() {
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

/// The owner's process reads its own topic in another thread. It has a row like every reader, and its threads
/// retire and sweep under the owner's lock.
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

/// B leases by the owner's serial and forwards the slot to C through B's ring. Then B overwrites its entry and releases
/// its lease. C checks what `validate` checks. C's row comes first in the scan: in this order the scan can miss a
/// lease that moves from B to C.
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

/// C has the descriptor from B, and B releases its lease while C validates.
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

/// A reader dies with its lease. The service thread notices (here: joins the thread) and drops the row, while another
/// thread of the owner retires and sweeps.
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

/// A value that returns to its own cell, and was written before.
struct Value {
    cell: std::sync::Arc<Biased<ShutCell>>,
    bytes: Cell<u64>,
}

/// Keeps a value, unless it is shut.
#[derive(Default)]
struct ShutCell {
    value: Option<std::sync::Arc<Value>>,
    shut: bool,
}

impl ShutCell {
    fn room(&mut self) -> Option<&mut Option<std::sync::Arc<Value>>> {
        (!self.shut).then_some(&mut self.value)
    }

    fn shut(&mut self) -> Option<std::sync::Arc<Value>> {
        self.shut = true;
        self.value.take()
    }
}

/// The thread that takes a value has it alone, and sees all earlier writes to it.
fn use_it(value: &Value) {
    assert_ne!(value.bytes.get(), 0);
    value.bytes.set(value.bytes.get() + 1);
}

/// A cell is shut while other threads put a value into it and take one out. Nothing stays in the cell, no value is
/// lost, and no two threads have the same value.
#[test]
fn a_shut_cell_keeps_nothing() {
    model(|| {
        let cell = std::sync::Arc::new(Biased::new(ShutCell::default()));
        let value = Value { cell: cell.clone(), bytes: Cell::new(0) };
        let value = std::sync::Arc::new(value);
        let alive = std::sync::Arc::downgrade(&value);
        let user = thread::spawn(move || {
            value.bytes.set(1);
            let put = put_behind(value, |value| Some(&*value.cell), ShutCell::room);
            put.unwrap_or_else(Some).iter().for_each(|value| use_it(value));
        });
        let other = {
            let cell = cell.clone();
            thread::spawn(move || {
                let taken = cell.lock().value.take();
                taken.iter().for_each(|value| use_it(value));
            })
        };
        let shut = cell.lock().shut();
        shut.iter().for_each(|value| use_it(value));
        drop(shut);
        user.join().unwrap();
        other.join().unwrap();
        assert!(cell.lock().value.is_none());
        assert_eq!(alive.strong_count(), 0);
    });
}

// The following models must fail, each because of the bytes and of nothing else.

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
