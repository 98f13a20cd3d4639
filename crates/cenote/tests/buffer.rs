//! `BufferPool`: what it keeps, what it gives out, and what must never happen.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use cenote::host_pool::BufferPoolOptions;
use cenote::{
    Buffer, BufferPool, Complex, DType, Element, Error, Limit, MemoryPool, UnifiedBuffer, bf16, f16,
};
use proptest::prelude::*;

use mapping::Mapping;

mod mapping;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Retains one block for each size, in this order.
fn retain(pool: &BufferPool, sizes: &[usize]) {
    let buffers: Vec<_> = sizes.iter().map(|&size| pool.acquire::<u8>(size).unwrap()).collect();
    buffers.into_iter().for_each(drop);
}

// ---- the five traps -------------------------------------------------------------------------------

#[test]
fn one_element_never_takes_a_huge_block() {
    let pool = BufferPool::unbounded();
    // A gigabyte, or what a small machine has instead. No page of it is touched.
    let huge = [1 << 30, 256 * MIB].into_iter().find(|&size| pool.acquire::<u8>(size).is_ok());
    let huge = huge.unwrap();
    let small = pool.acquire_zeroed::<f32>(1).unwrap();
    assert_eq!(*small, [0.0]);
    assert_eq!(pool.stats().hits, 0);
    assert!(pool.stats().live_bytes <= 4 + 64 * KIB);
    assert_eq!(pool.retained_bytes(), huge);
}

#[test]
fn a_block_beyond_the_cap_does_not_flush_the_pool() {
    let pool = BufferPool::with_max_retained_bytes(MIB);
    retain(&pool, &[4 * KIB; 10]);
    retain(&pool, &[2 * MIB]);
    assert_eq!(pool.len(), 10);
    assert_eq!((pool.stats().rejects, pool.stats().evictions), (1, 0));
}

#[test]
fn a_cold_large_block_does_not_starve_a_hot_loop() {
    let pool = BufferPool::with_max_retained_bytes(MIB);
    retain(&pool, &[MIB]);
    for _ in 0..100 {
        drop(pool.acquire::<f64>(512).unwrap());
    }
    assert_eq!((pool.stats().hits, pool.stats().evictions), (99, 1));
}

#[test]
fn a_zero_length_request_touches_nothing() {
    let pool = BufferPool::unbounded();
    retain(&pool, &[64, 4 * KIB]);
    let before = pool.stats();
    assert!(pool.acquire::<f64>(0).unwrap().is_empty());
    assert!(pool.acquire_zeroed::<u8>(0).unwrap().is_empty());
    let mut empty = pool.acquire_with_capacity::<bool>(0).unwrap();
    assert_eq!((empty.capacity(), empty.push(true)), (0, Err(true)));
    drop(empty.detach());
    pool.give(Vec::<u64>::new());
    assert_eq!(pool.reserve::<u8>(0, 3).unwrap(), 0);
    assert_eq!(pool.stats(), before);
}

// The fifth, a write through the host view that nobody notices, is in tests/unified.rs.

// ---- what is given out ----------------------------------------------------------------------------

fn element_is_pooled<T: Element>(pool: &BufferPool, one: T) {
    let zeros = pool.acquire_zeroed::<T>(100).unwrap();
    assert!(zeros.iter().all(|&zero| zero == T::default()));
    assert_eq!(zeros.as_ptr().align_offset(64), 0);
    drop(zeros);
    let ones = Buffer::from_fn(pool, 100, |_| one).unwrap();
    assert_eq!(*ones, [one; 100]);
    assert_eq!(*Buffer::from_slice(pool, &ones[..7]).unwrap(), [one; 7]);
}

#[test]
fn every_element_type_shares_the_blocks_of_the_others() {
    let pool = BufferPool::unbounded();
    drop(pool.acquire::<u8>(2000).unwrap());
    drop(pool.reserve::<u8>(700, 1));
    let misses = pool.stats().misses;
    element_is_pooled(&pool, 1.0_f32);
    element_is_pooled(&pool, 1.0_f64);
    element_is_pooled(&pool, f16::ONE);
    element_is_pooled(&pool, bf16::ONE);
    element_is_pooled(&pool, -1_i8);
    element_is_pooled(&pool, -1_i16);
    element_is_pooled(&pool, -1_i32);
    element_is_pooled(&pool, -1_i64);
    element_is_pooled(&pool, 1_u8);
    element_is_pooled(&pool, 1_u16);
    element_is_pooled(&pool, 1_u32);
    element_is_pooled(&pool, 1_u64);
    element_is_pooled(&pool, true);
    element_is_pooled(&pool, Complex::<f32>::new(1.0, -1.0));
    element_is_pooled(&pool, Complex::<f64>::new(1.0, -1.0));
    assert_eq!(pool.stats().misses, misses);
}

#[test]
fn only_what_was_written_is_zeroed_again() {
    let pool = BufferPool::unbounded();
    let skipped = |pool: &BufferPool| pool.stats().zero_bytes_skipped;
    drop(pool.acquire_zeroed::<u8>(MIB).unwrap());
    assert_eq!(skipped(&pool), MIB as u64);

    // Looking does not soil; writing does, from the first byte to the last that can be reached.
    let mut buffer = pool.acquire_zeroed::<u8>(MIB).unwrap();
    assert_eq!(skipped(&pool), 2 * MIB as u64);
    buffer[1000] = 1;
    drop(buffer);
    let mut pushed = pool.acquire_with_capacity::<u8>(MIB).unwrap();
    pushed.extend_from_slice(&[7; 100]).unwrap();
    drop(pushed);
    assert!(pool.acquire_zeroed::<u8>(MIB).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(skipped(&pool), 2 * MIB as u64);

    let mut pushed = pool.acquire_with_capacity::<u8>(MIB).unwrap();
    pushed.extend_from_slice(&[7; 100]).unwrap();
    drop(pushed);
    assert!(pool.acquire_zeroed::<u8>(MIB).unwrap().iter().all(|&byte| byte == 0));
    assert_eq!(skipped(&pool), 3 * MIB as u64 - 100);
    assert_eq!(pool.stats().misses, 1);
}

#[test]
fn pushing_ends_at_the_capacity_and_loses_nothing() {
    let pool = BufferPool::unbounded();
    let mut buffer = pool.acquire_with_capacity::<i64>(8).unwrap();
    assert_eq!((buffer.len(), buffer.capacity()), (0, 8));
    buffer.extend_from_slice(&[1, 2, 3, 4, 5, 6]).unwrap();
    let error = buffer.extend_from_slice(&[7, 8, 9]).unwrap_err();
    assert!(matches!(error, Error::BufferFull { capacity: 8, needed: 9 }), "{error}");
    assert_eq!((buffer.push(7), buffer.push(8), buffer.push(9)), (Ok(()), Ok(()), Err(9)));
    assert_eq!(*buffer, [1, 2, 3, 4, 5, 6, 7, 8]);
    buffer.truncate(2);
    assert_eq!(*buffer, [1, 2]);
    buffer.clear();
    assert!(buffer.is_empty());
}

fn fill(out: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    for byte in &mut *out {
        byte.write(3);
    }
    // SAFETY: all of them were written.
    #[allow(unsafe_code)]
    unsafe {
        &mut *(std::ptr::from_mut(out) as *mut [u8])
    }
}

#[test]
fn write_with_takes_the_written_part_only() {
    let pool = BufferPool::unbounded();
    let all = pool.acquire(5).unwrap().write_with(fill).unwrap();
    assert_eq!(*all, [3; 5]);
    let some = pool.acquire(5).unwrap().write_with(|out| &mut fill(out)[..2]).unwrap();
    assert_eq!(*some, [3; 2]);
    let rest = pool.acquire(5).unwrap().write_with(|out| &mut fill(out)[1..]);
    assert!(matches!(*rest.unwrap_err().error, Error::NotThePrefix));
    assert!(pool.acquire::<u8>(5).unwrap().write_with(|_| &mut []).unwrap().is_empty());
    assert_eq!(pool.stats().live, 2);
}

#[test]
fn a_call_that_fails_gives_the_buffer_back() {
    let pool = BufferPool::unbounded();
    let refused = pool.acquire(5).unwrap().write_slice(&[1_u8; 4]).unwrap_err();
    assert!(matches!(*refused.error, Error::WrongLen { expected: 5, given: 4, .. }), "{refused}");
    let refused = refused.buffer.write_with(|out| &mut fill(out)[1..]).unwrap_err();
    assert!(matches!(*refused.error, Error::NotThePrefix), "{refused}");
    let filled = refused.buffer.write_slice(&[3; 5]).unwrap();
    let refused = filled.into_tensor(&[2, 3]).unwrap_err();
    assert!(matches!(*refused.error, Error::WrongLen { expected: 6, given: 5, .. }), "{refused}");
    let refused = refused.buffer.into_tensor(&[usize::MAX, 2]).unwrap_err();
    assert!(matches!(*refused.error, Error::SizeOverflow { .. }), "{refused}");
    assert_eq!(*refused.buffer, [3; 5]);
    let tensor = refused.buffer.into_tensor(&[5]).unwrap();
    assert_eq!(tensor.to_vec::<u8>().unwrap(), [3; 5]);
    assert_eq!((pool.stats().misses, pool.stats().live), (1, 1));
}

#[test]
fn a_detached_buffer_does_not_come_back() {
    let pool = BufferPool::unbounded();
    let buffer = Buffer::from_slice(&pool, &[1, 2, 3]).unwrap().detach();
    assert_eq!(pool.stats().live, 0);
    assert_eq!(*buffer, [1, 2, 3]);
    drop(buffer);
    assert!(pool.is_empty());
}

#[test]
fn a_buffer_becomes_a_tensor_and_its_memory_comes_back() {
    let pool = BufferPool::unbounded();
    let buffer = Buffer::from_slice(&pool, &[true, false, true, true]).unwrap();
    let place = buffer.as_ptr().cast::<u8>();
    let mut tensor = buffer.into_tensor(&[2, 2]).unwrap();
    assert_eq!(tensor.map().unwrap().as_bytes().unwrap().as_ptr(), place);
    tensor.map_mut().unwrap().set(&[0, 1], true).unwrap();
    let view = tensor.clone();
    drop(tensor);
    assert_eq!(view.to_vec::<bool>().unwrap(), [true; 4]);
    assert_eq!((pool.len(), pool.stats().live), (0, 1));
    drop(view);
    assert_eq!((pool.len(), pool.stats().live), (1, 0));

    let wrong = Buffer::from_slice(&pool, &[1_u8; 4]).unwrap().into_tensor(&[5]);
    assert!(matches!(*wrong.unwrap_err().error, Error::WrongLen { .. }));
    assert!(pool.acquire_zeroed::<u8>(0).unwrap().into_tensor(&[0]).is_err());
    assert_eq!(pool.len(), 1);
}

#[test]
fn a_vector_serves_a_request_of_its_own_length_wherever_it_lies() {
    for len in [16, 17, 100, 1000, 1023, 4096, 50_000, 300_000, 3 * MIB] {
        let pool = BufferPool::unbounded();
        let vec = vec![7_u32; len];
        assert!(pool.give(vec) >= len);
        assert!(pool.retained_bytes() <= 4 * len + len / 2 + 128, "{}", pool.retained_bytes());
        let zeros = pool.acquire_zeroed::<u32>(len).unwrap();
        assert!(*zeros == vec![0; len]);
        assert_eq!(zeros.as_ptr().align_offset(64), 0);
        assert_eq!((pool.stats().hits, pool.stats().misses), (1, 0), "{len}");
        drop(zeros);
        drop(pool.acquire::<u32>(len).unwrap());
        assert_eq!((pool.stats().hits, pool.len()), (2, 1));
    }
}

#[test]
fn a_vector_is_no_exception_to_the_bound_on_waste() {
    let pool = BufferPool::unbounded();
    pool.give(Vec::<u8>::with_capacity(10 * MIB - 1));
    drop(pool.acquire::<u8>(8 * MIB + 1).unwrap());
    assert_eq!(pool.stats().hits, 0);
}

#[test]
fn a_vector_that_is_not_retained_is_freed_and_that_is_said() {
    let pool = BufferPool::with_max_retained_bytes(MIB);
    assert_eq!((pool.give(vec![0_u8; 63]), pool.give(Vec::<f64>::new())), (0, 0));
    assert_eq!(pool.stats().rejects, 0);
    assert_eq!(pool.give(vec![0_u8; 2 * MIB]), 0);
    assert_eq!((pool.len(), pool.stats().rejects), (0, 1));

    let pool = BufferPool::options().hard_limit(MIB).build();
    let _live = pool.acquire::<u8>(MIB).unwrap();
    assert_eq!((pool.give(vec![0_u8; 4096]), pool.stats().rejects), (0, 1));
    assert_eq!(BufferPool::with_max_retained_bytes(0).give(vec![0_u8; 4096]), 0);
}

#[test]
fn a_vector_does_not_get_what_large_blocks_get_and_that_is_said() {
    let pool = BufferPool::options().huge_pages(true).prefault(true).lock(true).build();
    pool.give(vec![0_u8; MIB]);
    pool.give(vec![0_u8; 4 * MIB]);
    let stats = pool.stats();
    let refused = (stats.huge_pages_refused, stats.prefaults_refused, stats.locks_refused);
    assert_eq!((refused, stats.retained), ((1, 1, 1), 2));
}

#[test]
fn sizes_beyond_all_memory_are_errors() {
    let pool = BufferPool::unbounded();
    assert!(matches!(pool.acquire::<f64>(usize::MAX), Err(Error::SizeOverflow { .. })));
    assert!(pool.acquire::<u8>(usize::MAX).is_err());
    assert!(pool.acquire::<u8>(isize::MAX as usize).is_err());
    assert!(pool.acquire_zeroed::<u8>(1 << 46).is_err());
    assert!(pool.reserve::<u64>(usize::MAX, 1).is_err());
    assert_eq!(pool.stats().live_bytes, 0);
    assert_eq!(pool.stats().peak_bytes, 0, "what could not be had was never there");
    drop(pool.acquire::<u8>(100).unwrap());
}

// ---- the environment ------------------------------------------------------------------------------

const ENV: &str = "CENOTE_BUFFER_POOL_MAX_RETAINED_BYTES";

/// Set in a child that [`in_children`] started.
const CHILD: &str = "CENOTE_TEST_CHILD";

/// Runs one test of this program in a child for each cap, which is the child's environment.
fn in_children(test: &str, caps: &[&str]) {
    for cap in caps {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ENV, cap)
            .env(CHILD, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{cap}: {output}");
    }
}

#[test]
fn the_cap_of_new_pools_is_that_of_the_environment() {
    let caps = [("0", 0), ("4096", 4096), ("100MiB", 100 * MIB), ("1GB", 1_000_000_000)];
    if std::env::var_os(CHILD).is_none() {
        let name = "the_cap_of_new_pools_is_that_of_the_environment";
        return in_children(name, &caps.map(|(text, _)| text));
    }
    let text = std::env::var(ENV).unwrap();
    let (_, cap) = caps.into_iter().find(|(known, _)| *known == text).unwrap();
    assert_eq!(BufferPool::new().unwrap().max_retained_bytes(), cap);
    assert_eq!(MemoryPool::new().unwrap().max_retained_bytes(), cap);
    let global = MemoryPool::global().unwrap();
    assert_eq!(global.max_retained_bytes(), cap);
    drop(global.acquire(&[4096], DType::U8).unwrap());
    assert_eq!(global.pool_size(), usize::from(cap > 0));
}

#[test]
fn an_environment_that_means_nothing_is_an_error_that_says_so() {
    if std::env::var_os(CHILD).is_none() {
        let name = "an_environment_that_means_nothing_is_an_error_that_says_so";
        return in_children(name, &["", "lots", "-1", "10 MBit"]);
    }
    let text = std::env::var(ENV).unwrap();
    let errors = [
        BufferPool::new().unwrap_err(),
        MemoryPool::new().unwrap_err(),
        MemoryPool::global().unwrap_err(),
        UnifiedBuffer::new(&[4], DType::U8).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::BadEnv { name: ENV, .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(ENV) && message.contains(&format!("{text:?}")), "{message}");
    }
    // A cap that is given needs no environment.
    assert!(BufferPool::unbounded().is_empty());
}

// ---- what is kept ---------------------------------------------------------------------------------

#[test]
fn the_least_recently_used_block_goes_first() {
    let pool = BufferPool::with_max_retained_bytes(12 * KIB);
    retain(&pool, &[4 * KIB, 2 * KIB, 4 * KIB]);
    drop(pool.acquire::<u8>(2 * KIB).unwrap());
    retain(&pool, &[8 * KIB]);
    // Both of 4 KiB had to go; the one of 2 KiB was used later.
    assert_eq!((pool.len(), pool.retained_bytes()), (2, 10 * KIB));
    assert_eq!(pool.stats().evictions, 2);
}

#[test]
fn lowering_the_cap_evicts_and_zero_retains_nothing() {
    let pool = BufferPool::unbounded();
    retain(&pool, &[4 * KIB; 8]);
    pool.set_max_retained_bytes(9 * KIB);
    assert_eq!((pool.len(), pool.max_retained_bytes()), (2, 9 * KIB));
    pool.set_max_retained_bytes(0);
    assert!(pool.is_empty());
    retain(&pool, &[64; 3]);
    assert!(pool.is_empty());
    pool.set_max_retained_bytes(usize::MAX);
    retain(&pool, &[64; 3]);
    assert_eq!(pool.len(), 3);
}

#[test]
fn trim_clear_and_reserve_do_what_they_say() {
    let pool = BufferPool::with_max_retained_bytes(10 * KIB);
    assert_eq!(pool.reserve::<f32>(1024, 5).unwrap(), 2);
    assert_eq!((pool.len(), pool.retained_bytes()), (2, 8 * KIB));
    let (_a, _b) = (pool.acquire::<u8>(4 * KIB).unwrap(), pool.acquire::<u8>(4 * KIB).unwrap());
    assert_eq!((pool.stats().hits, pool.stats().misses), (2, 0));
    retain(&pool, &[KIB, 2 * KIB, KIB]);
    pool.trim(2 * KIB);
    assert_eq!(pool.retained_bytes(), KIB);
    pool.clear();
    assert!(pool.is_empty());
    assert_eq!(pool.stats().live, 2);
}

#[test]
fn reserving_beyond_the_hard_limit_keeps_what_was_reserved() {
    let pool = BufferPool::options().hard_limit(MIB).build();
    assert_eq!(pool.reserve::<u8>(512 * KIB, 10).unwrap(), 2);
    assert_eq!((pool.len(), pool.stats().evictions), (2, 0));
}

#[test]
fn idle_blocks_decay_though_nobody_uses_the_pool() {
    let idle = Duration::from_millis(20);
    let pool = BufferPool::options().idle_after(Some(idle)).build();
    retain(&pool, &[MIB, 4 * KIB]);
    // It takes 40 ms; a minute is for a machine that is busy with something else.
    let decayed = (0..6000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        pool.is_empty()
    });
    assert!(decayed);
    assert_eq!((pool.stats().decays, pool.stats().evictions), (2, 0));

    let kept = BufferPool::options().idle_after(None).build();
    retain(&kept, &[MIB]);
    thread::sleep(10 * idle);
    assert_eq!((kept.len(), kept.stats().decays), (1, 0));
}

#[test]
fn the_hard_limit_frees_retained_blocks_then_asks_then_fails() {
    let asked = Arc::new(AtomicUsize::new(0));
    let hostage = Arc::new(Mutex::new(None));
    let (count, giver) = (Arc::clone(&asked), Arc::clone(&hostage));
    let pool = BufferPool::options()
        .hard_limit(MIB)
        .on_limit(move |shortage| {
            count.fetch_add(1, Ordering::Relaxed);
            assert_eq!(shortage.limit, MIB);
            giver.lock().unwrap().take().is_some()
        })
        .build();
    retain(&pool, &[512 * KIB; 2]);
    *hostage.lock().unwrap() = Some(pool.acquire::<u8>(768 * KIB).unwrap());
    assert_eq!((asked.load(Ordering::Relaxed), pool.stats().evictions), (0, 2));

    let buffer = pool.acquire::<u8>(896 * KIB).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let error = pool.acquire::<u8>(256 * KIB).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { limit: Limit::Pool, .. }), "{error}");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    drop(buffer);
    drop(pool.acquire::<u8>(256 * KIB).unwrap());
    assert_eq!(pool.stats().peak_bytes, MIB);
}

#[test]
fn whoever_is_asked_about_the_hard_limit_learns_what_is_in_use() {
    let told = Arc::new(Mutex::new(None));
    let hear = Arc::clone(&told);
    let pool = BufferPool::options()
        .hard_limit(MIB)
        .on_limit(move |shortage| {
            *hear.lock().unwrap() = Some((shortage.asked, shortage.live));
            false
        })
        .build();
    retain(&pool, &[256 * KIB]);
    let _live = pool.acquire::<u8>(512 * KIB).unwrap();
    assert!(pool.acquire::<u8>(896 * KIB).is_err());
    // What is retained is not in use, though it is counted against the limit.
    assert_eq!(*told.lock().unwrap(), Some((896 * KIB, 512 * KIB)));
    assert_eq!(pool.retained_bytes(), 256 * KIB);
}

#[test]
fn statistics_tell_waste_and_peak() {
    let pool = BufferPool::unbounded();
    let buffer = pool.acquire::<u8>(1000).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.live, stats.live_bytes, stats.waste_bytes), (1, 1024, 24));
    drop(buffer);
    retain(&pool, &[KIB, KIB]);
    pool.clear();
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.waste_bytes, stats.peak_bytes), (0, 0, 2 * KIB));
}

#[test]
fn wishes_for_large_blocks_are_granted_or_reported() {
    let pool = BufferPool::options().huge_pages(true).prefault(true).lock(true).build();
    drop(pool.acquire_zeroed::<u8>(MIB).unwrap());
    let stats = pool.stats();
    assert_eq!(stats.huge_pages_refused + stats.prefaults_refused + stats.locks_refused, 0);
    let large = pool.acquire_zeroed::<u8>(4 * MIB).unwrap();
    assert!(large.iter().all(|&byte| byte == 0));
    let stats = pool.stats();
    for refused in [stats.huge_pages_refused, stats.prefaults_refused, stats.locks_refused] {
        assert!(refused <= 1 && (cfg!(target_os = "linux") || refused == 1));
    }
}

/// A block of 4 MiB from a pool with these options, what the kernel says of it, and the pool.
fn large(options: BufferPoolOptions) -> Option<(Buffer<u8>, Mapping, BufferPool)> {
    let pool = options.build();
    // Nobody looks at it before the kernel is asked: no page is there because somebody touched it.
    let block = pool.acquire_zeroed::<u8>(4 * MIB).unwrap();
    let mapping = Mapping::of(block.as_ptr())?;
    Some((block, mapping, pool))
}

#[test]
fn the_kernel_was_asked_for_what_is_not_reported_as_refused() {
    let Some((_plain, plain, _)) = large(BufferPool::options()) else { return };
    assert!(!plain.wants_huge_pages() && !plain.is_locked());

    let (_huge, huge, pool) = large(BufferPool::options().huge_pages(true)).unwrap();
    let may_differ = pool.stats().huge_pages_refused == 1;
    assert!(may_differ || huge.wants_huge_pages(), "{huge:?}");

    let (_present, present, pool) = large(BufferPool::options().prefault(true)).unwrap();
    let may_differ = pool.stats().prefaults_refused == 1;
    assert!(may_differ || present.resident() >= 4 * MIB, "{present:?}");

    let (_locked, locked, pool) = large(BufferPool::options().lock(true)).unwrap();
    assert_eq!(pool.stats().locks_refused == 0, locked.is_locked(), "{locked:?}");
}

// ---- a model --------------------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Op {
    Acquire { kind: usize, bytes: usize, zeroed: bool },
    Drop(usize),
    Detach(usize),
    Give(usize),
    Reserve { bytes: usize, count: usize },
    SetCap(usize),
    Trim(usize),
    Clear,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let bytes = prop_oneof![
        4 => 1..5000_usize,
        2 => 5000..100_000_usize,
        1 => (1..3_usize).prop_map(|n| n * 512 * KIB),
    ];
    let acquire = (0..KINDS, bytes, any::<bool>());
    let op = prop_oneof![
        8 => acquire.prop_map(|(kind, bytes, zeroed)| Op::Acquire { kind, bytes, zeroed }),
        8 => any::<usize>().prop_map(Op::Drop),
        1 => any::<usize>().prop_map(Op::Detach),
        2 => (4096..200_000_usize).prop_map(Op::Give),
        1 => (1..50_000_usize, 0..4_usize).prop_map(|(bytes, count)| Op::Reserve { bytes, count }),
        1 => (0..200_000_usize).prop_map(Op::SetCap),
        1 => Just(Op::SetCap(8 * MIB)),
        1 => (0..200_000_usize).prop_map(Op::Trim),
        1 => Just(Op::Clear),
    ];
    proptest::collection::vec(op, 1..120)
}

/// What a pool is made with.
#[derive(Debug, Clone, Copy)]
struct Limits {
    cap: usize,
    blocks: usize,
    largest: usize,
    hard: usize,
}

fn limits() -> impl Strategy<Value = Limits> {
    let blocks = prop_oneof![2 => Just(usize::MAX), 1 => 0..6_usize];
    let largest = prop_oneof![2 => Just(usize::MAX), 1 => 1..100_000_usize];
    let hard = prop_oneof![2 => Just(usize::MAX), 1 => 100_000..2_000_000_usize];
    (blocks, largest, hard).prop_map(|(blocks, largest, hard)| Limits {
        cap: 100_000,
        blocks,
        largest: if largest == usize::MAX { largest } else { Model::class_for(largest) },
        hard,
    })
}

/// A block: the bytes that can be used, and those that it takes up. More only for a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    capacity: usize,
    size: usize,
}

/// The pool, said as simply as possible: one list of blocks, oldest first.
struct Model {
    limits: Limits,
    retained: VecDeque<Block>,
    live: usize,
    live_bytes: usize,
    hits: u64,
    misses: u64,
    evictions: u64,
    rejects: u64,
}

impl Model {
    fn new(limits: Limits) -> Model {
        Model {
            limits,
            retained: VecDeque::new(),
            live: 0,
            live_bytes: 0,
            hits: 0,
            misses: 0,
            evictions: 0,
            rejects: 0,
        }
    }

    /// Eight sizes to an octave, from 64 on.
    fn class_for(bytes: usize) -> usize {
        let mut size = 64;
        while size < bytes {
            let octave = 1 << (size as u64).ilog2();
            size += octave / 8;
        }
        size
    }

    /// The block that a request gets; none if that is an error.
    fn acquire(&mut self, bytes: usize) -> Option<Block> {
        let block = self.take(bytes).or_else(|| self.grow(Model::class_for(bytes)))?;
        self.live += 1;
        self.live_bytes += block.size;
        Some(block)
    }

    fn take(&mut self, bytes: usize) -> Option<Block> {
        let fits = |block: &&Block| block.capacity >= bytes;
        let best = self.retained.iter().filter(fits).map(|block| block.capacity).min()?;
        let newest = self.retained.iter().rposition(|block| block.capacity == best)?;
        if self.retained[newest].size - bytes > bytes / 8 + 64 * KIB {
            return None;
        }
        self.hits += 1;
        self.retained.remove(newest)
    }

    fn grow(&mut self, size: usize) -> Option<Block> {
        let short = (self.live_bytes + self.bytes() + size).saturating_sub(self.limits.hard);
        if short > self.bytes() {
            return None;
        }
        self.trim(self.bytes() - short);
        self.misses += 1;
        Some(Block { capacity: size, size })
    }

    fn release(&mut self, block: Block) {
        self.part(block);
        self.retain(block);
    }

    fn part(&mut self, block: Block) {
        self.live -= 1;
        self.live_bytes -= block.size;
    }

    fn retain(&mut self, block: Block) {
        let Limits { cap, blocks, largest, .. } = self.limits;
        if block.size > cap.min(largest) || blocks == 0 {
            self.rejects += 1;
            return;
        }
        while self.bytes() + block.size > cap || self.retained.len() >= blocks {
            self.evict();
        }
        self.retained.push_back(block);
    }

    /// A vector of `capacity` bytes, which takes up `size` in the pool.
    fn give(&mut self, capacity: usize, size: usize) -> usize {
        let Limits { cap, blocks, largest, hard } = self.limits;
        let hopeless = capacity > cap.min(largest).min(hard) || blocks == 0;
        if hopeless || self.live_bytes + self.bytes() + size > hard {
            self.rejects += 1;
            return 0;
        }
        let block = Block { capacity: Model::class_for(capacity), size };
        self.retain(block);
        if self.retained.back() == Some(&block) { block.capacity } else { 0 }
    }

    fn reserve(&mut self, bytes: usize, count: usize) -> usize {
        let size = Model::class_for(bytes);
        let Limits { cap, blocks, largest, hard } = self.limits;
        let room = |model: &Model| {
            model.bytes() + size <= cap
                && model.retained.len() < blocks
                && size <= largest
                && model.live_bytes + model.bytes() + size <= hard
        };
        let made = (0..count).take_while(|_| {
            let fits = room(self);
            if fits {
                self.retained.push_back(Block { capacity: size, size });
            }
            fits
        });
        made.count()
    }

    fn trim(&mut self, bytes: usize) {
        while self.bytes() > bytes {
            self.evict();
        }
    }

    fn evict(&mut self) {
        self.retained.pop_front();
        self.evictions += 1;
    }

    fn bytes(&self) -> usize {
        self.retained.iter().map(|block| block.size).sum()
    }
}

/// A buffer of some type, full of one value.
trait Held {
    fn is_intact(&self) -> bool;
    fn detach(self: Box<Self>);
}

struct Full<T: Element>(Buffer<T>, T);

impl<T: Element> Held for Full<T> {
    fn is_intact(&self) -> bool {
        // Whole slices at once: these tests run unoptimised too.
        *self.0 == vec![self.1; self.0.len()]
    }

    fn detach(self: Box<Self>) {
        drop(self.0.detach());
    }
}

/// Asks for as many elements as `bytes` hold, which may be none.
fn fill_one<T: Element>(
    pool: &BufferPool,
    bytes: usize,
    zeroed: bool,
    value: T,
) -> cenote::Result<(Box<dyn Held>, usize)> {
    let len = bytes / size_of::<T>();
    let mut buffer = if zeroed {
        let zeros = pool.acquire_zeroed::<T>(len)?;
        assert!(*zeros == vec![T::default(); len]);
        zeros
    } else {
        pool.acquire(len)?.write_slice(&vec![value; len])?
    };
    buffer.fill(value);
    let capacity = buffer.capacity() * size_of::<T>();
    Ok((Box::new(Full(buffer, value)), capacity))
}

/// Types that [`fill_kind`] knows: of each size, and those with bit patterns of their own.
const KINDS: usize = 6;

fn fill_kind(
    pool: &BufferPool,
    (kind, bytes, zeroed): (usize, usize, bool),
    byte: u8,
) -> cenote::Result<(Box<dyn Held>, usize)> {
    match kind {
        0 => fill_one(pool, bytes, zeroed, byte),
        1 => fill_one(pool, bytes, zeroed, u16::from(byte) << 7),
        2 => fill_one(pool, bytes, zeroed, f32::from(byte)),
        3 => fill_one(pool, bytes, zeroed, -f64::from(byte)),
        4 => fill_one(pool, bytes, zeroed, Complex::new(f64::from(byte), 1.0)),
        _ => fill_one(pool, bytes, zeroed, true),
    }
}

const SIZES: [usize; KINDS] = [1, 2, 4, 8, 16, 1];

type Shelved = (Box<dyn Held>, Block);

fn acquire(
    pool: &BufferPool,
    model: &mut Model,
    what: (usize, usize, bool),
    byte: u8,
) -> Option<Shelved> {
    let bytes = what.1 / SIZES[what.0] * SIZES[what.0];
    let got = fill_kind(pool, what, byte);
    if bytes == 0 {
        return None;
    }
    let Some(block) = model.acquire(bytes) else {
        let refused = matches!(got, Err(Error::OutOfMemory { limit: Limit::Pool, .. }));
        assert!(refused, "the model is full");
        return None;
    };
    let (held, capacity) = got.unwrap();
    assert_eq!(capacity, block.capacity / SIZES[what.0] * SIZES[what.0]);
    Some((held, block))
}

fn give(pool: &BufferPool, model: &mut Model, bytes: usize) {
    let vec: Vec<u8> = Vec::with_capacity(bytes);
    let class = Model::class_for(vec.capacity());
    // It stays as it is if that is enough, wherever it starts.
    let usable = vec.capacity() - vec.as_ptr().align_offset(64);
    let size = if usable >= class { vec.capacity() } else { class + 64 };
    let served = model.give(vec.capacity(), size);
    assert_eq!(pool.give(vec), served);
}

fn take_one(held: &mut Vec<Shelved>, index: usize) -> Option<Shelved> {
    if held.is_empty() {
        return None;
    }
    let (buffer, block) = held.swap_remove(index % held.len());
    assert!(buffer.is_intact(), "somebody wrote into a buffer in use");
    Some((buffer, block))
}

fn step(pool: &BufferPool, model: &mut Model, held: &mut Vec<Shelved>, op: &Op, byte: u8) {
    match *op {
        Op::Acquire { kind, bytes, zeroed } => {
            held.extend(acquire(pool, model, (kind, bytes, zeroed), byte));
        }
        Op::Drop(index) => {
            if let Some((buffer, block)) = take_one(held, index) {
                drop(buffer);
                model.release(block);
            }
        }
        Op::Detach(index) => {
            if let Some((buffer, block)) = take_one(held, index) {
                buffer.detach();
                model.part(block);
            }
        }
        Op::Give(bytes) => give(pool, model, bytes),
        Op::Reserve { bytes, count } => {
            assert_eq!(pool.reserve::<u8>(bytes, count).unwrap(), model.reserve(bytes, count));
        }
        Op::SetCap(bytes) => {
            pool.set_max_retained_bytes(bytes);
            model.limits.cap = bytes;
            model.trim(bytes);
        }
        Op::Trim(bytes) => {
            pool.trim(bytes);
            model.trim(bytes);
        }
        Op::Clear => {
            pool.clear();
            model.trim(0);
        }
    }
}

proptest! {
    #[test]
    fn the_pool_does_what_the_model_does(limits in limits(), ops in ops()) {
        let pool = BufferPool::options()
            .max_retained_bytes(limits.cap)
            .max_retained_blocks(limits.blocks)
            .largest_retained_block(limits.largest)
            .hard_limit(limits.hard)
            .build();
        let mut model = Model::new(limits);
        let mut held = Vec::new();
        for (op, byte) in ops.iter().zip((1..=255).cycle()) {
            step(&pool, &mut model, &mut held, op, byte);
            let stats = pool.stats();
            prop_assert_eq!((stats.hits, stats.misses), (model.hits, model.misses));
            prop_assert_eq!((stats.evictions, stats.rejects), (model.evictions, model.rejects));
            prop_assert_eq!((stats.live, stats.live_bytes), (model.live, model.live_bytes));
            prop_assert_eq!(stats.retained, model.retained.len());
            prop_assert_eq!(stats.retained_bytes, model.bytes());
            prop_assert!(stats.retained_bytes <= pool.max_retained_bytes());
            prop_assert!(stats.peak_bytes <= limits.hard);
        }
    }
}

// ---- threads --------------------------------------------------------------------------------------

#[test]
fn a_buffer_may_outlive_its_pool_and_its_thread() {
    let buffer = thread::spawn(|| {
        let pool = BufferPool::unbounded();
        Buffer::from_slice(&pool, &[1, 2, 3]).unwrap()
    });
    let buffer = buffer.join().unwrap();
    assert_eq!(*buffer, [1, 2, 3]);
    drop(buffer);
}

#[test]
fn a_block_dropped_elsewhere_returns_to_the_thread_that_took_it() {
    let pool = BufferPool::unbounded();
    let buffer = pool.acquire::<u8>(KIB).unwrap();
    thread::scope(|scope| scope.spawn(|| drop(buffer)).join().unwrap());
    drop(pool.acquire::<u8>(KIB).unwrap());
    assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
}

#[test]
fn blocks_of_threads_that_ended_are_used_and_evicted() {
    let pool = BufferPool::with_max_retained_bytes(8 * KIB);
    let both = Barrier::new(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let buffer = pool.acquire::<u8>(4 * KIB).unwrap();
                both.wait();
                drop(buffer);
            });
        }
    });
    assert_eq!(pool.retained_bytes(), 8 * KIB);
    let (a, b) = (pool.acquire::<u8>(4 * KIB).unwrap(), pool.acquire::<u8>(4 * KIB).unwrap());
    assert_eq!(pool.stats().hits, 2);
    drop((a, b));
    drop(pool.acquire::<u8>(8 * KIB).unwrap());
    assert_eq!((pool.len(), pool.retained_bytes()), (1, 8 * KIB));
}

/// A place where threads leave buffers for each other, each with what it is full of.
type Shelf = Mutex<Vec<(Buffer<u64>, u64)>>;

fn filled(pool: &BufferPool, len: usize, mark: u64, zeroed: bool) -> Buffer<u64> {
    if !zeroed {
        return Buffer::from_slice(pool, &vec![mark; len]).unwrap();
    }
    let mut zeros = pool.acquire_zeroed::<u64>(len).unwrap();
    assert!(*zeros == vec![0; len]);
    zeros.fill(mark);
    zeros
}

/// Leaves a buffer on a shelf, and drops one that somebody left there.
fn exchange(shelf: &Shelf, buffer: Buffer<u64>, mark: u64) {
    let mut shelf = shelf.lock().unwrap();
    shelf.push((buffer, mark));
    let taken = (shelf.len() > 4).then(|| shelf.swap_remove(0));
    drop(shelf);
    if let Some((buffer, mark)) = taken {
        assert!(*buffer == vec![mark; buffer.len()], "two buffers share memory");
    }
}

fn worker(pool: &BufferPool, seed: u64, rounds: u64, shelves: &[Shelf]) {
    let mut state = seed;
    for round in 0..rounds {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = (state >> 40) as usize;
        let mark = seed << 32 | round;
        let buffer = filled(pool, 1 + random % 5000, mark, random.is_multiple_of(4));
        exchange(&shelves[random % shelves.len()], buffer, mark);
        match round % 97 {
            5 => pool.set_max_retained_bytes(random % (2 * MIB)),
            50 => pool.trim(random % MIB),
            _ => {}
        }
    }
}

#[test]
fn eight_threads_share_one_pool_without_losing_a_byte_of_its_cap() {
    let pool = BufferPool::with_max_retained_bytes(MIB);
    let shelves: Vec<_> = (0..8).map(|_| Shelf::default()).collect();
    thread::scope(|scope| {
        for seed in 1..=8 {
            let (pool, shelves) = (pool.clone(), &shelves);
            scope.spawn(move || worker(&pool, seed, 3000, shelves));
        }
    });
    drop(shelves);
    let stats = pool.stats();
    assert_eq!((stats.live, stats.live_bytes, stats.waste_bytes), (0, 0, 0));
    assert!(stats.retained_bytes <= pool.max_retained_bytes());

    // All of the cap is still there to be used, and no more.
    pool.set_max_retained_bytes(MIB);
    retain(&pool, &[4 * KIB; 300]);
    assert_eq!(pool.retained_bytes(), MIB);
}

#[test]
fn producers_and_consumers_share_a_pool() {
    let pool = BufferPool::with_max_retained_bytes(64 * KIB);
    let (send, recv) = channel::<Buffer<u8>>();
    thread::scope(|scope| {
        scope.spawn(move || recv.into_iter().for_each(drop));
        for _ in 0..2 {
            let (pool, send) = (pool.clone(), send.clone());
            scope.spawn(move || {
                for _ in 0..2000 {
                    send.send(pool.acquire_zeroed(4 * KIB).unwrap()).unwrap();
                }
            });
        }
        drop(send);
    });
    let stats = pool.stats();
    assert_eq!((stats.live, stats.hits + stats.misses), (0, 4000));
    assert!(stats.retained_bytes <= 64 * KIB);
}

#[test]
fn what_cannot_be_had_flushes_nothing() {
    let pool = BufferPool::unbounded();
    drop((0..10).map(|_| pool.acquire::<u8>(4096).unwrap()).collect::<Vec<_>>());
    assert_eq!(pool.len(), 10);
    assert!(pool.acquire::<u8>(1 << 45).is_err());
    assert_eq!(pool.len(), 10);

    let limited = BufferPool::options().hard_limit(1 << 20).on_limit(|_| true).build();
    drop((0..10).map(|_| limited.acquire::<u8>(4096).unwrap()).collect::<Vec<_>>());
    assert!(limited.acquire::<u8>(2 << 20).is_err(), "and does not ask for ever");
    assert_eq!(limited.len(), 10);
}

#[test]
fn a_buffer_of_just_the_largest_size_is_retained_and_a_larger_one_never() {
    let pool = BufferPool::options().largest_retained_block(1_000_000).build();
    drop(pool.acquire::<u8>(1_000_000).unwrap());
    assert_eq!(pool.len(), 1);
    pool.clear();
    // Credit that is left over does not change that.
    drop((0..4).map(|_| pool.acquire::<u8>(1 << 20).unwrap()).collect::<Vec<_>>());
    let _two = (0..2).map(|_| pool.acquire::<u8>(1 << 20).unwrap()).collect::<Vec<_>>();
    let before = pool.retained_bytes();
    drop(pool.acquire::<u8>(2 << 20).unwrap());
    assert_eq!(pool.retained_bytes(), before);
}
