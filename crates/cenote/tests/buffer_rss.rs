//! Memory that a pool lets go of goes back to the system. Alone in its process, to be measured.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![cfg(target_os = "linux")]

use std::thread;
use std::time::Duration;

use cenote::{Buffer, BufferPool};

const MIB: usize = 1 << 20;

/// Resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

fn touch(pool: &BufferPool, size: usize) -> Buffer<u8> {
    let mut buffer = pool.acquire_zeroed(size).unwrap();
    buffer.fill(1);
    buffer
}

/// Fills a pool with used blocks, `total` bytes and more; returns what was resident then.
fn fill(pool: &BufferPool, sizes: &[usize], total: usize) -> usize {
    let round: usize = sizes.iter().sum();
    let all = (0..total.div_ceil(round)).flat_map(|_| sizes);
    let buffers: Vec<_> = all.map(|&size| touch(pool, size)).collect();
    let held = resident();
    drop(buffers);
    held
}

fn returns_to_the_floor(sizes: &[usize], idle: Option<Duration>, free: impl Fn(&BufferPool)) {
    let pool = BufferPool::options().max_retained_bytes(usize::MAX).idle_after(idle).build();
    drop(touch(&pool, 4096));
    pool.clear();
    let floor = resident();
    // Not too many small ones: they take their time.
    let total = if sizes[0] < 4096 { 16 * MIB } else { 64 * MIB };
    let held = fill(&pool, sizes, total);
    assert!(held > floor + total, "{sizes:?}: {floor} -> {held}");
    free(&pool);
    assert!(pool.is_empty());
    let mut after = resident();
    // What decays is gone from the pool a moment before its memory is freed.
    for _ in 0..if idle.is_some() { 6000 } else { 0 } {
        if after < floor + 4 * MIB {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        after = resident();
    }
    // The allocator keeps a little at the end of its heap, as large as a list that it freed once.
    assert!(after < floor + 4 * MIB, "{sizes:?}: {floor} -> {held} -> {after}");
}

fn wait_for_decay(pool: &BufferPool) {
    // It takes 40 ms; a minute is for a machine that is busy with something else.
    (0..6000).find(|_| {
        thread::sleep(Duration::from_millis(10));
        pool.is_empty()
    });
}

/// AddressSanitizer's allocator keeps what is freed, to find those who use it after that.
fn heap_keeps_everything() -> bool {
    let keeps = std::env::var_os("ASAN_OPTIONS").is_some();
    if keeps {
        println!("NOT AVAILABLE under AddressSanitizer: small blocks that go back to the system");
    }
    keeps
}

// One test: two would measure each other.
#[test]
fn resident_memory_returns_to_the_floor() {
    let soon = Some(Duration::from_millis(20));
    let mapped: &[usize] = &[200_000, MIB, 16 * MIB];
    returns_to_the_floor(mapped, None, BufferPool::clear);
    returns_to_the_floor(mapped, None, |pool| pool.trim(0));
    returns_to_the_floor(mapped, None, |pool| pool.set_max_retained_bytes(0));
    returns_to_the_floor(mapped, soon, wait_for_decay);

    // Memory that was reserved but never used was never there.
    let pool = BufferPool::unbounded();
    let floor = resident();
    pool.reserve::<u8>(64 * MIB, 1).unwrap();
    drop(pool.acquire_zeroed::<u8>(64 * MIB).unwrap());
    assert!(resident() < floor + 2 * MIB);
    drop(pool);

    if heap_keeps_everything() {
        return;
    }
    let mixed: &[usize] = &[4096, 60_000, 200_000, MIB];
    returns_to_the_floor(mixed, None, |pool| pool.trim(0));
    returns_to_the_floor(mixed, None, |pool| pool.set_max_retained_bytes(0));
    returns_to_the_floor(&[4096], soon, wait_for_decay);
    for sizes in [mixed, &[100_000], &[4096], &[64, 1000, 2000]] {
        returns_to_the_floor(sizes, None, BufferPool::clear);
    }
}
