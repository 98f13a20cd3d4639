//! Shared memory that a pool adopts: a topic sends it without a copy, although the pool did not allocate it.

use std::os::fd::OwnedFd;

use cenote::{DType, StagedBecause, Tensor, TensorMemory, TensorPoolConfig, Topic, TopicConfig};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{Test, all_are, eventually, filled, hex, pool, pool_user, unique};

pub(crate) const TESTS: &[Test] = &[
    ("adopted_memory_is_read_in_place_and_freed_with_the_last_reader", read),
    ("adopted_memory_is_freed_with_the_next_message_of_any_kind", goes),
    ("a_dead_reader_of_adopted_memory_keeps_it_no_longer", dead),
    ("a_reader_that_is_behind_catches_up_with_adopted_memory", behind),
    ("a_tensor_of_a_closed_pool_is_copied_when_it_is_sent", closed),
    ("memory_that_others_may_write_is_copied_and_not_changed", foreign),
];

/// A topic that keeps the last message only.
fn topic() -> Topic<Tensor> {
    let config = TopicConfig { depth: 1, pool: TensorPoolConfig::small(), ..Default::default() };
    let topic = Topic::with_config(&unique(), config).unwrap();
    topic.subscribe().unwrap();
    topic
}

/// Shared memory of a name, and full of a value.
fn shared(name: &str, value: u8) -> Tensor {
    let options = Tensor::options().memory(TensorMemory::Shm).name(name);
    options.create_from_slice(&[value; 10_000], &[10_000]).unwrap()
}

/// Sends a tensor and receives it: the words of what came.
fn sent(topic: &Topic<Tensor>, tensor: &Tensor) -> String {
    topic.send(tensor).unwrap();
    hex(&topic.recv().unwrap().descriptor().unwrap())
}

fn goes() {
    let (topic, name) = (topic(), format!("goes-{}", unique()));
    let tensor = shared(&name, 3);
    sent(&topic, &tensor);
    // It may be sent again for as long as it is there.
    sent(&topic, &topic.alloc_tensor(&[10], DType::U8).unwrap());
    assert!(is_mapped(&name));
    sent(&topic, &tensor);
    assert!(topic.stats().copies.is_empty(), "{:?}", topic.stats());
    drop(tensor);
    assert!(is_mapped(&name), "it is the newest message");
    sent(&topic, &topic.alloc_tensor(&[10], DType::U8).unwrap());
    assert_eq!(topic.pool().unwrap().stats().unwrap().retired, 0);
    assert!(!is_mapped(&name));
}

/// Whether this process has memory of a name mapped.
fn is_mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(&format!("memfd:{name} "))
}

fn read() {
    let (topic, mut reader) = (topic(), pool_user());
    let name = format!("read-{}", unique());
    let words = sent(&topic, &shared(&name, 3));
    assert!(topic.stats().copies.is_empty(), "{:?}", topic.stats());
    assert_eq!(reader.request(&format!("import {words}")), "ok");
    assert_eq!(reader.request("check 3"), "true");

    let stats = topic.pool().unwrap().stats().unwrap();
    assert_eq!((stats.slots_in_use, stats.bytes_in_use, stats.segments), (1, 0, 0));
    // The next message pushes it out; only the reader has it then.
    let next = format!("next-{}", unique());
    sent(&topic, &shared(&next, 4));
    let holders = topic.pool().unwrap().holders().unwrap();
    let of = |pid: u32| holders.iter().find(|holder| holder.pid == pid.cast_signed()).unwrap();
    assert_eq!((of(reader.pid()).slots, of(reader.pid()).retired_slots), (1, 1));
    assert_eq!(of(std::process::id()).slots, 1);
    assert_eq!((reader.request("check 3"), is_mapped(&name)), ("true".into(), true));

    assert_eq!(reader.request("drop"), "ok");
    assert_eq!(topic.pool().unwrap().stats().unwrap().retired, 0);
    assert!(!is_mapped(&name));
    assert!(reader.request(&format!("import {words}")).contains("reused"));
    drop(topic);
    eventually("the last message is unmapped", || !is_mapped(&next));
    reader.kill();
}

fn dead() {
    let (topic, mut reader) = (topic(), pool_user());
    let name = format!("dead-{}", unique());
    let words = sent(&topic, &shared(&name, 5));
    assert_eq!(reader.request(&format!("import {words}")), "ok");
    sent(&topic, &shared("other", 6));
    assert!(is_mapped(&name));
    reader.kill();
    // Nobody uses the pool, and it goes all the same.
    eventually("it is unmapped", || !is_mapped(&name));
}

fn behind() {
    let (topic, mut reader) = (topic(), pool_user());
    let name = format!("behind-{}", unique());
    let mut kept = vec![shared(&name, 7)];
    assert_eq!(reader.request(&format!("import {}", sent(&topic, &kept[0]))), "ok");
    let pid = Pid::from_raw(reader.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    // More than are sent to somebody who reads none.
    kept.extend((0..40).map(|_| shared(&name, 7)));
    let words: Vec<String> = kept.iter().map(|tensor| sent(&topic, tensor)).collect();
    assert!(topic.stats().copies.is_empty());
    kill_process(pid, Signal::CONT).unwrap();
    for words in words.iter().rev() {
        assert_eq!(reader.request(&format!("import {words}")), "ok");
    }
    assert_eq!(reader.request("check 7"), "true");
    reader.kill();
}

fn closed() {
    let (topic, mut reader) = (topic(), pool_user());
    let tensor = filled(&pool(TensorPoolConfig::small()), 1000, 9);
    // Nobody could attach to that pool any more.
    let words = sent(&topic, &tensor);
    assert_eq!(topic.stats().copies[0].reason, StagedBecause::OwnerGone);
    assert_eq!(reader.request(&format!("import {words}")), "ok");
    assert_eq!(reader.request("check 9"), "true");
    reader.kill();
}

/// Memory that its maker can still map to write.
fn unsealed() -> OwnedFd {
    let fd = memfd_create("foreign", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, 4096).unwrap();
    rustix::io::write(&fd, &[1; 4096]).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    fd
}

fn foreign() {
    let topic = topic();
    let fd = unsealed();
    let tensor = Tensor::from_fd(fd.try_clone().unwrap(), &[4096], DType::Bool).unwrap();
    topic.send(&tensor).unwrap();
    let copies = topic.stats().copies;
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!((copies[0].reason, copies[0].bytes), (StagedBecause::NotAdopted, 4096));
    assert_eq!(fcntl_get_seals(&fd).unwrap(), SealFlags::SHRINK, "it is not ours to seal");
    // What was sent stays as it is, whatever becomes of that memory.
    rustix::io::pwrite(&fd, &[2; 4096], 0).unwrap();
    let received = topic.recv().unwrap();
    assert_eq!(received.map().unwrap().as_slice::<bool>().unwrap(), [true; 4096]);
    assert!(all_are(&Tensor::from_fd(fd, &[4096], DType::U8).unwrap(), 2));
}
