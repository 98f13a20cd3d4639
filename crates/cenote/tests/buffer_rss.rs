//! Memory that a pool lets go of goes back to the system. Alone in its process, to be measured.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![cfg(target_os = "linux")]

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

#[test]
fn resident_memory_returns_to_the_floor() {
    let pool = BufferPool::unbounded();
    drop(touch(&pool, 4096));
    pool.clear();
    let floor = resident();

    let sizes = [4096, 60_000, 200_000, MIB, 16 * MIB];
    let buffers: Vec<_> = (0..4).flat_map(|_| sizes).map(|size| touch(&pool, size)).collect();
    drop(buffers);
    let held = resident();
    assert!(held > floor + 64 * MIB, "{floor} -> {held}");

    pool.clear();
    let after = resident();
    assert!(after < floor + 2 * MIB, "{floor} -> {held} -> {after}");

    // Memory that was reserved but never used was never there.
    pool.reserve::<u8>(64 * MIB, 1).unwrap();
    drop(pool.acquire_zeroed::<u8>(64 * MIB).unwrap());
    assert!(resident() < after + 2 * MIB);
}
