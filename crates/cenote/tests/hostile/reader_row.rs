//! Readers that write garbage into the one thing they can write: their lease row.

use cenote::{DType, Error, Tensor, TensorPool, TensorPoolConfig};

use super::Test;
use super::reader::works;
use crate::support::raw::pool::{REFUSED, RawReader, SEGMENT, kind, packet};
use crate::support::{Random, SetOnDrop, all_are, eventually, filled, pool, unique};

pub(crate) const TESTS: &[Test] = &[
    ("a_reader_over_its_limit_learns_how_much_it_holds", expelled),
    ("a_reader_slightly_over_its_limit_stays_attached", lenient),
    ("garbage_in_a_lease_row_only_holds_slots", garbage),
    ("garbage_that_changes_all_the_time_only_holds_slots", changing_garbage),
    ("a_lease_row_with_punched_holes_reads_as_zeros", punched),
    ("an_unpublished_slot_is_reused_whatever_a_lease_row_says", unpublished),
];

const SLOTS: usize = 16;

fn published(pool: &TensorPool, count: usize) -> Vec<Tensor> {
    let all: Vec<Tensor> = (0..count).map(|_| filled(pool, 1000, 5)).collect();
    for tensor in &all {
        tensor.descriptor().unwrap();
    }
    all
}

/// Asserts that all slots are free, once the reader is disconnected.
fn all_free(pool: &TensorPool) {
    eventually("the lease row was dropped", || pool.stats().unwrap().attachers == 0);
    drop(published(pool, SLOTS));
    assert_eq!(pool.stats().unwrap().retired, 0);
}

fn expelled() {
    let pool = pool(SLOTS);
    let attached = RawReader::to(pool.name());
    attached.write_row(|slot| u64::from(slot < 13));
    drop(published(&pool, SLOTS));
    // The limit is half of the slots. A full pool expels a reader that also holds half of the others.
    let _all = published(&pool, SLOTS);
    let (bytes, _) = attached.raw.recv().unwrap();
    // The first segment may have been sent before.
    let bytes = if kind(&bytes) == SEGMENT { attached.raw.recv().unwrap().0 } else { bytes };
    assert_eq!(bytes, packet(REFUSED, 4, 13 << 32 | 8));
    assert!(attached.raw.is_disconnected());
}

/// Threads of an honest reader that release slots during the count can make it seem to hold a few more.
fn lenient() {
    for (slots, limit, bound) in [(16, 8, 12), (16, 14, 15), (512, 256, 320)] {
        let config = TensorPoolConfig {
            max_slots: slots,
            max_leases: limit,
            growth: 8 << 20,
            ..TensorPoolConfig::small()
        };
        let pool = TensorPool::new(unique(), config).unwrap();
        let attached = RawReader::to(pool.name());
        let full = |held: usize| {
            attached.write_row(|_| 0);
            let all = published(&pool, slots);
            attached.write_row(|slot| u64::from(slot < held));
            drop(all);
            let _rest: Vec<Tensor> = (held..slots).map(|_| filled(&pool, 10, 0)).collect();
            pool.alloc(&[1], DType::U8).map(drop)
        };
        full(bound).unwrap_err();
        assert_eq!(pool.stats().unwrap().attachers, 1, "{limit} of {slots}");
        full(bound + 1).unwrap();
        assert_eq!(pool.stats().unwrap().attachers, 0, "{limit} of {slots}");
    }
}

fn garbage() {
    let mut random = Random(1);
    let words: [&mut dyn FnMut(usize) -> u64; 5] = [
        &mut |_| u64::MAX,
        &mut |_| random.next() | 1,
        &mut |slot| (-1 - i64::try_from(slot).unwrap()).cast_unsigned(),
        &mut |_| 1 << 63,
        &mut |_| 1 << 32,
    ];
    for word in words {
        let pool = pool(SLOTS);
        let attached = RawReader::to(pool.name());
        let kept = published(&pool, SLOTS / 2);
        attached.write_row(word);
        let descriptor = kept[0].descriptor().unwrap();
        assert!(all_are(&Tensor::from_descriptor(&descriptor).unwrap(), 5));
        drop(kept);
        assert_eq!(pool.stats().unwrap().retired, SLOTS / 2);
        let rest: Vec<Tensor> = (0..SLOTS / 2).map(|_| filled(&pool, 10, 0)).collect();
        let error = pool.alloc(&[1], DType::U8).unwrap_err();
        let Error::PoolFull { holders, .. } = &error else { panic!("{error}") };
        // The raw reader, which has the pid of this process, and this process itself.
        assert_eq!(holders.len(), 2, "{error}");
        assert_eq!(holders[0].pid, std::process::id().cast_signed());
        assert_eq!((holders[0].slots, holders[0].retired_slots), (SLOTS, SLOTS / 2));
        assert_eq!((holders[1].slots, holders[1].retired_slots), (SLOTS / 2, 0));
        drop((attached, rest));
        all_free(&pool);
    }
}

fn changing_garbage() {
    let pool = pool(SLOTS);
    let attached = RawReader::to(pool.name());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(7);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                attached.write_row(|_| random.next() & 1);
            }
        });
        let _stop = SetOnDrop(&stop);
        for round in 0..2000 {
            let Ok(mut tensor) = pool.alloc(&[100], DType::U8) else { continue };
            let value = u8::try_from(round % 251).unwrap();
            tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(value);
            let same = Tensor::from_descriptor(&tensor.descriptor().unwrap()).unwrap();
            assert!(all_are(&same, value) && all_are(&tensor, value));
        }
    });
    drop(attached);
    all_free(&pool);
}

fn punched() {
    use rustix::fs::FallocateFlags;
    let pool = pool(SLOTS);
    let attached = RawReader::to(pool.name());
    attached.write_row(|_| 3);
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&attached.row, how, 0, 1 << 20).unwrap();
    drop(published(&pool, SLOTS));
    assert_eq!(pool.stats().unwrap().retired, 0);
    works(&pool);
}

fn unpublished() {
    let pool = pool(SLOTS);
    let attached = RawReader::to(pool.name());
    attached.write_row(|_| u64::MAX);
    for _ in 0..10 {
        let _all: Vec<Tensor> = (0..SLOTS).map(|_| filled(&pool, 10, 1)).collect();
    }
    drop(attached);
    all_free(&pool);
}
