//! Models of the free cache in loom, as shipped: the cap is never exceeded and no part of it is lost.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib loom`
//!
//! loom's threads are one thread of the system, so they name their shards.

use loom::{model, thread};
use std::sync::Arc;
use std::time::Duration;

use super::amount::Amount;
use super::block::{Extras, Fill, Fit};
use super::process;
use super::raw_buffer::RawBuffer;
use super::settings::Settings;
use super::store::Store;

/// Every block in these models has this size.
const SIZE: usize = 64;

/// A pool with shards 0 and 1 that retains at most `blocks` blocks.
fn store(blocks: usize) -> Arc<Store> {
    let settings = Settings {
        largest_retained: usize::MAX,
        extras: Extras::default(),
        idle: Some(Duration::from_secs(1)),
        limit: usize::MAX,
        on_limit: None,
    };
    Arc::new(Store::new(Amount { bytes: blocks * SIZE, blocks: usize::MAX }, settings))
}

fn acquire(store: &Store, shard: usize) -> RawBuffer {
    store.acquire_from(shard, SIZE, Fill::Uninit).unwrap()
}

/// The cap holds, and is the sum of its parts. Holds at every moment, so also at a fork.
fn check_frozen(store: &Store, blocks: usize) {
    let frozen = store.cache().freeze();
    let (cap, parts) = frozen.cap_and_parts();
    assert_eq!((cap.bytes, parts.bytes), (blocks * SIZE, blocks * SIZE));
    assert!(frozen.retained().blocks <= blocks);
}

/// No block is in use, the cap holds, and is the sum of its parts.
fn check(store: &Store, blocks: usize) {
    check_frozen(store, blocks);
    let stats = store.stats();
    assert_eq!((stats.live, stats.live_bytes), (0, 0));
    assert!(stats.retained <= blocks, "{} of {blocks} blocks", stats.retained);
    assert_eq!(store.cache().allocated(), stats.retained_bytes);
    let frozen = store.cache().freeze();
    if !frozen.is_watched() {
        assert_eq!((stats.retained, frozen.shares()), (0, Amount::default()));
    }
}

#[test]
fn two_threads_compete_for_the_last_of_the_cap() {
    model(|| {
        let store = store(1);
        let (one, two) = (acquire(&store, 0), acquire(&store, 1));
        let other = thread::spawn(move || drop(two));
        drop(one);
        other.join().unwrap();
        check(&store, 1);
        assert_eq!(store.stats().retained, 1);
    });
}

#[test]
fn a_buffer_is_dropped_by_another_thread_while_its_shard_is_used() {
    model(|| {
        let store = store(2);
        let buffer = acquire(&store, 0);
        let other = thread::spawn(move || drop(buffer));
        drop(acquire(&store, 0));
        other.join().unwrap();
        check(&store, 2);
    });
}

#[test]
fn a_thread_takes_what_the_other_returns() {
    model(|| {
        let store = store(1);
        drop(acquire(&store, 0));
        let taker = Arc::clone(&store);
        let other = thread::spawn(move || drop(acquire(&taker, 1)));
        drop(acquire(&store, 0));
        other.join().unwrap();
        check(&store, 1);
    });
}

#[test]
fn three_threads_take_return_and_steal() {
    let mut builder = model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(|| {
        let store = store(1);
        let buffer = acquire(&store, 0);
        drop(acquire(&store, 1));
        let dropper = thread::spawn(move || drop(buffer));
        let taker = Arc::clone(&store);
        let taker = thread::spawn(move || drop(acquire(&taker, 1)));
        drop(acquire(&store, 0));
        dropper.join().unwrap();
        taker.join().unwrap();
        check(&store, 1);
    });
}

#[test]
fn a_release_beside_a_lower_cap_respects_it() {
    model(|| {
        let store = store(2);
        drop(acquire(&store, 0));
        let buffer = acquire(&store, 1);
        let second = acquire(&store, 0);
        let other = thread::spawn(move || drop((buffer, second)));
        store.set_cap(SIZE);
        other.join().unwrap();
        check(&store, 1);
    });
}

#[test]
fn a_buffer_outlives_its_pool() {
    model(|| {
        let store = store(2);
        let (one, two) = (acquire(&store, 0), acquire(&store, 0));
        let other = thread::spawn(move || drop(one));
        drop(store);
        other.join().unwrap();
        drop(two);
    });
}

#[test]
fn a_search_for_idle_blocks_runs_beside_a_release() {
    model(|| {
        let store = store(2);
        let (one, two) = (acquire(&store, 0), acquire(&store, 1));
        drop(one);
        let other = thread::spawn(move || drop(two));
        store.cache().decay();
        store.cache().decay();
        other.join().unwrap();
        check(&store, 2);
        // After two more searches nothing is left to search for.
        store.cache().decay();
        assert!(!store.cache().decay());
        assert_eq!(store.stats().retained, 0);
        check(&store, 2);
    });
}

#[test]
fn a_search_for_idle_blocks_runs_beside_a_take() {
    model(|| {
        let store = store(1);
        drop(acquire(&store, 0));
        store.cache().decay();
        let taker = Arc::clone(&store);
        let other = thread::spawn(move || drop(acquire(&taker, 1)));
        store.cache().decay();
        other.join().unwrap();
        check(&store, 1);
    });
}

#[test]
fn a_fork_sees_the_cap_whole_while_a_block_moves_between_shards() {
    model(|| {
        let store = store(1);
        drop(acquire(&store, 0));
        let taker = Arc::clone(&store);
        let other = thread::spawn(move || drop(acquire(&taker, 1)));
        check_frozen(&store, 1);
        other.join().unwrap();
        check(&store, 1);
    });
}

#[test]
#[should_panic(expected = "assertion `left == right` failed")]
fn without_the_lock_of_the_ledger_a_fork_misses_a_part_of_the_cap() {
    model(|| {
        let store = store(1);
        drop(acquire(&store, 0));
        let taker = Arc::clone(&store);
        let other = thread::spawn(move || {
            let block = taker.cache().move_to(1, Fit::new(SIZE).unwrap());
            drop(block.map(RawBuffer::new));
        });
        check_frozen(&store, 1);
        other.join().unwrap();
    });
}

#[test]
fn a_cache_is_free_once_when_pool_and_buffers_end_at_once() {
    model(|| {
        let store = store(1);
        let cache = store.cache();
        let (one, two) = (acquire(&store, 0), acquire(&store, 0));
        let other = thread::spawn(move || drop(one));
        let last = thread::spawn(move || drop(two));
        drop(store);
        other.join().unwrap();
        last.join().unwrap();
        assert!(cache.is_free());
        assert_eq!(process::registry().caches(), 1);
    });
}

#[test]
fn a_cache_is_not_given_to_the_next_pool_while_its_pool_takes_a_last_buffer() {
    model(|| {
        let old = store(1);
        let cache = old.cache();
        let other = thread::spawn(move || {
            let buffer = acquire(&old, 0);
            drop(old);
            buffer
        });
        let next = store(1);
        let buffer = other.join().unwrap();
        assert_eq!(next.stats().live, 0);
        assert!(!std::ptr::eq(next.cache(), cache));
        drop(buffer);
        check(&next, 1);
    });
}

#[test]
fn a_cache_whose_buffer_is_in_use_is_not_given_to_the_next_pool() {
    model(|| {
        let old = store(1);
        let buffer = acquire(&old, 0);
        drop(old);
        let other = thread::spawn(move || drop(buffer));
        let next = store(1);
        drop(acquire(&next, 0));
        drop(acquire(&next, 1));
        other.join().unwrap();
        check(&next, 1);
        // One if the buffer returned in time for its cache to be used again.
        assert!(process::registry().caches() <= 2);
        let cache = next.cache();
        drop(next);
        assert!(cache.is_free());
    });
}
