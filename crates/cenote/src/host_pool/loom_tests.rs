//! The shards and the ledger in loom, as shipped: the cap is never exceeded and never lost.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p cenote --release --lib loom`
//!
//! loom's threads share one thread of the system, so they name their shards instead of sitting down.

use loom::{model, thread};
use std::sync::Arc;
use std::time::Duration;

use super::block::Fill;
use super::credit::Credit;
use super::gate;
use super::memory::Extras;
use super::raw::RawBuffer;
use super::settings::Settings;
use super::spare;
use super::store::Store;

/// Every block in these models has this size.
const SIZE: usize = 64;

/// A pool with shards 0 and 1 and room for `blocks` blocks.
fn store(blocks: usize) -> Arc<Store> {
    let settings = Settings {
        largest_retained: usize::MAX,
        extras: Extras::default(),
        idle: Some(Duration::from_secs(1)),
        limit: usize::MAX,
        on_limit: None,
    };
    let store = Store::new(Credit { bytes: blocks * SIZE, blocks: usize::MAX }, settings);
    store.shard_at(0);
    store.shard_at(1);
    store
}

fn acquire(store: &Arc<Store>, seat: usize) -> RawBuffer {
    store.acquire_from(store.shard_at(seat), SIZE, Fill::Uninit).unwrap()
}

/// Nothing is in use, the cap holds, and all of it is accounted for.
fn check(store: &Store, blocks: usize) {
    let stats = store.stats();
    assert_eq!((stats.live, stats.live_bytes), (0, 0));
    assert!(stats.retained <= blocks, "{} of {blocks} blocks", stats.retained);
    assert_eq!(store.all_credit().bytes, blocks * SIZE);
    assert_eq!(store.allocated(), stats.retained_bytes);
    if !store.is_watched() {
        assert_eq!((stats.retained, store.handed_out()), (0, Credit::default()));
    }
}

/// No shard is a spare twice, and all that no store and no buffer uses are.
fn check_spares(unused: usize) {
    let (spares, _) = spare::census(&gate::enter());
    assert_eq!(spares.len(), unused);
    for (index, one) in spares.iter().enumerate() {
        assert!(!spares[..index].iter().any(|other| std::ptr::eq(*other, *one)));
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
fn lowering_the_cap_beats_a_release() {
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
fn a_look_for_idle_blocks_meets_a_release() {
    model(|| {
        let store = store(2);
        let (one, two) = (acquire(&store, 0), acquire(&store, 1));
        drop(one);
        let other = thread::spawn(move || drop(two));
        store.look();
        store.look();
        other.join().unwrap();
        check(&store, 2);
        // Two looks later nothing is left, and nobody need look again.
        store.look();
        assert!(!store.look());
        assert_eq!(store.stats().retained, 0);
        check(&store, 2);
    });
}

#[test]
fn a_look_for_idle_blocks_meets_a_taker() {
    model(|| {
        let store = store(1);
        drop(acquire(&store, 0));
        store.look();
        let taker = Arc::clone(&store);
        let other = thread::spawn(move || drop(acquire(&taker, 1)));
        store.look();
        other.join().unwrap();
        check(&store, 1);
    });
}

#[test]
fn a_shard_is_a_spare_once_when_pool_and_buffers_end_at_once() {
    model(|| {
        let store = store(1);
        let (one, two) = (acquire(&store, 0), acquire(&store, 0));
        let other = thread::spawn(move || drop(one));
        let last = thread::spawn(move || drop(two));
        drop(store);
        other.join().unwrap();
        last.join().unwrap();
        check_spares(2);
    });
}

#[test]
fn a_shard_whose_buffer_is_still_out_is_not_given_to_the_next_pool() {
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
        drop(next);
        // Two if the buffer came back in time for its shard to be used again.
        let (spares, all) = spare::census(&gate::enter());
        assert_eq!(spares.len(), all);
        check_spares(all);
    });
}
