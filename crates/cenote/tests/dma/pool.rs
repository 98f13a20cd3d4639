//! Pools of DMA-BUFs.
#![allow(unsafe_code, reason = "lending a buffer to a device")]

use std::time::Duration;

use cenote::{
    DType, Error, Protection, Tensor, TensorDescriptor, TensorMemory, TensorPool, TensorPoolConfig,
    Unavailable,
};

use super::fence::Work;
use super::{Role, Test, from_heap};
use crate::support::peer::{Peer, serve};
use crate::support::{all_are, eventually, filled, hex, unhex, unique};

pub(super) const TESTS: &[Test] = &[
    ("pools_are_protected_by_default", pools_are_protected_by_default),
    ("others_see_a_pool_without_a_copy", others_see_a_pool_without_a_copy),
    ("tensors_of_a_pool_tell_where_they_lie", tensors_of_a_pool_tell_where_they_lie),
    (
        "an_exported_buffer_is_shared_by_all_its_holders",
        an_exported_buffer_is_shared_by_all_its_holders,
    ),
    ("slots_do_not_wait_for_the_devices_of_others", slots_do_not_wait_for_the_devices_of_others),
    ("slots_are_reused_when_fences_are_done", slots_are_reused_when_fences_are_done),
    ("a_slot_that_is_busy_does_not_hide_the_others", a_slot_that_is_busy_does_not_hide_the_others),
    ("slots_on_loan_are_waited_for_too", slots_on_loan_are_waited_for_too),
    ("a_pool_without_protected_memory_is_an_error", a_pool_without_protected_memory_is_an_error),
    ("a_pool_can_be_scrubbed_and_trimmed", a_pool_can_be_scrubbed_and_trimmed),
];

pub(super) const ROLES: &[Role] = &[("attach", attach)];

fn config(unprotected: bool) -> TensorPoolConfig {
    TensorPoolConfig {
        memory: TensorMemory::Dma,
        unprotected,
        growth: 1 << 20,
        pool_size: 16 << 20,
        ..TensorPoolConfig::small()
    }
}

fn pool(unprotected: bool) -> TensorPool {
    TensorPool::new(unique(), config(unprotected)).unwrap()
}

/// One segment for each slot.
fn pages(max_slots: usize) -> TensorPool {
    let config = TensorPoolConfig { max_slots, ..config(true) };
    TensorPool::new(unique(), config).unwrap()
}

fn pools_are_protected_by_default() {
    for (unprotected, protection) in [(false, Protection::Kernel), (true, Protection::Convention)] {
        let pool = pool(unprotected);
        let mut tensor = pool.alloc(&[100, 100], DType::U8).unwrap();
        assert_eq!((tensor.memory(), tensor.protection()), (TensorMemory::Dma, protection));
        tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(3);
        assert!(all_are(&tensor, 3));
    }
}

fn attach(_: &[&str]) {
    let mut held = Vec::new();
    serve(|words| {
        let descriptor = TensorDescriptor::from_bytes(&unhex(words[0])).unwrap();
        let tensor = Tensor::from_descriptor(&descriptor).unwrap();
        let first = tensor.map().unwrap().get::<u8>(&[0]).unwrap();
        let all = all_are(&tensor, first);
        let dmabuf = tensor.dmabuf_clone().is_ok();
        let said = format!("{} {} {first} {all} {dmabuf}", tensor.memory(), tensor.protection());
        held.push(tensor);
        said
    });
}

fn others_see_a_pool_without_a_copy() {
    for (unprotected, expected) in [(false, "shm kernel"), (true, "dma convention")] {
        let pool = pool(unprotected);
        let mut peer = Peer::start("attach");
        for value in 1..20 {
            let tensor = filled(&pool, 100_000, value);
            let answer = peer.request(&hex(tensor.descriptor().unwrap().as_bytes()));
            assert_eq!(answer, format!("{expected} {value} true {unprotected}"));
            drop(tensor);
        }
        assert_eq!(pool.stats().unwrap().retired, 19, "the child holds them");
        peer.kill();
        eventually("its leases end with it", || pool.stats().unwrap().retired == 0);
    }
}

fn tensors_of_a_pool_tell_where_they_lie() {
    let pool = pool(true);
    let both = [filled(&pool, 5000, 1), filled(&pool, 5000, 2)];
    // Each tensor has a separate DMA-BUF, so that the devices of one do not affect another.
    let inode = |tensor: &Tensor| rustix::fs::fstat(tensor.dmabuf().unwrap()).unwrap().st_ino;
    assert_ne!(inode(&both[0]), inode(&both[1]));
    for (tensor, value) in both.iter().zip([1, 2]) {
        assert_eq!(tensor.dmabuf_offset().unwrap(), 0);
        // An importer of the buffer finds the bytes there.
        let fd = tensor.dmabuf_clone().unwrap();
        assert!(all_are(&Tensor::from_fd(fd, &[5000], DType::U8).unwrap(), value));
    }
    drop(both);
    // Smaller ones do not share the memory of a larger one that is free.
    let small = [filled(&pool, 100, 3), filled(&pool, 100, 4)];
    assert_ne!(inode(&small[0]), inode(&small[1]));
}

/// A holder of one tensor's DMA-BUF can write the memory of another tensor in the same buffer.
fn an_exported_buffer_is_shared_by_all_its_holders() {
    let pool = pool(false);
    let tensor = filled(&pool, 4096, 1);
    let same = Tensor::from_descriptor(&tensor.descriptor().unwrap()).unwrap();
    assert_eq!(same.protection(), Protection::Kernel);
    let given = tensor.dmabuf_clone().unwrap();
    assert_eq!(tensor.protection(), Protection::Convention);
    assert_eq!(same.protection(), Protection::Convention);
    drop((tensor, same));
    // It can do so for ever, whatever the memory is used for later.
    let again = filled(&pool, 4096, 2);
    let (theirs, ours) = (rustix::fs::fstat(&given), rustix::fs::fstat(again.dmabuf().unwrap()));
    assert_eq!(theirs.unwrap().st_ino, ours.unwrap().st_ino);
    assert_eq!(again.protection(), Protection::Convention);
}

/// A device that uses one slot does not delay the others.
fn slots_do_not_wait_for_the_devices_of_others() {
    for unprotected in [true, false] {
        let config = TensorPoolConfig { max_slots: 2, ..config(unprotected) };
        let pool = TensorPool::new(unique(), config).unwrap();
        let (busy, idle) = (filled(&pool, 4096, 1), filled(&pool, 4096, 2));
        let work = Work::on(busy.dmabuf().unwrap());
        drop((busy, idle));
        let again = pool.alloc(&[4096], DType::U8).unwrap();
        assert!(all_are(&again, 2), "the one that no device is at");
        work.done();
        drop(again);
    }
}

fn slots_are_reused_when_fences_are_done() {
    for unprotected in [true, false] {
        let config = TensorPoolConfig { max_slots: 1, ..config(unprotected) };
        let pool = TensorPool::new(unique(), config).unwrap();
        let tensor = filled(&pool, 4096, 1);
        let work = Work::on(tensor.dmabuf().unwrap());
        drop(tensor);
        for _ in 0..3 {
            let error = pool.alloc(&[4096], DType::U8).unwrap_err();
            assert!(matches!(error, Error::PoolFull { .. }), "{error}");
        }
        assert_eq!(pool.stats().unwrap().retired, 1);
        work.done();
        drop(pool.alloc(&[4096], DType::U8).unwrap());
    }
}

fn a_slot_that_is_busy_does_not_hide_the_others() {
    let pool = pages(2);
    let (busy, idle) = (filled(&pool, 4096, 1), filled(&pool, 4096, 2));
    let work = Work::on(busy.dmabuf().unwrap());
    idle.descriptor().unwrap();
    drop((busy, idle));
    let again = pool.alloc(&[4096], DType::U8).unwrap();
    assert!(all_are(&again, 2), "the one that no device is at");
    let wait = Duration::from_millis(20);
    assert!(pool.alloc_timeout(&[4096], DType::U8, wait).is_err());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pool.alloc_timeout(&[4096], DType::U8, Duration::from_secs(60)));
        work.done();
        waits.join().unwrap().unwrap();
    });
}

fn slots_on_loan_are_waited_for_too() {
    let pool = pages(1);
    let mut tensor = pool.alloc(&[4096], DType::U8).unwrap();
    // SAFETY: no process maps it from here on.
    let work = Work::on(unsafe { tensor.dmabuf_mut() }.unwrap());
    drop(tensor);
    assert!(pool.alloc(&[4096], DType::U8).is_err());
    work.done();
    assert!(pool.alloc(&[4096], DType::U8).is_ok());
}

fn a_pool_without_protected_memory_is_an_error() {
    from_heap("system", || {
        let error = pool(false).alloc(&[10], DType::U8).unwrap_err();
        assert!(
            matches!(error, Error::Unavailable { memory: "dma", why: Unavailable::Unprotected }),
            "{error}"
        );
        assert!(pool(true).alloc(&[10], DType::U8).is_ok());
    });
}

fn a_pool_can_be_scrubbed_and_trimmed() {
    for unprotected in [false, true] {
        let config = TensorPoolConfig { scrub: true, max_slots: 1, ..config(unprotected) };
        let pool = TensorPool::new(unique(), config).unwrap();
        let tensor = filled(&pool, 4096, 9);
        tensor.descriptor().unwrap();
        drop(tensor);
        let again = pool.alloc_timeout(&[4096], DType::U8, Duration::from_secs(60)).unwrap();
        assert!(all_are(&again, 0));
        drop(again);
        eventually("it can be trimmed", || {
            pool.trim().unwrap() > 0 || pool.stats().unwrap().segments == 0
        });
    }
}
