//! Shared memory: whether it can be had, sealed, and how much of it.

use std::fs;

use cenote::{DType, Tensor, TensorMemory};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{Check, State};
use crate::unit;

pub(super) fn checks() -> Vec<Check> {
    vec![shared_memory(), sealing(), available(), cgroup(), huge_pages()]
}

fn shared_memory() -> Check {
    let made = Tensor::options().memory(TensorMemory::Shm).create(&[1 << 20], DType::U8);
    match made {
        Ok(_) => Check::works("shared memory", "a tensor of 1 MB was made"),
        Err(error) => Check::new("shared memory", State::Broken, error.to_string())
            .advise("tensors can be made on the heap, and no process shares them"),
    }
}

fn sealing() -> Check {
    let sealed = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("cenote-doctor", flags)?;
        ftruncate(&file, 4096)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)
    };
    match sealed() {
        Ok(()) => Check::works("sealing", "the kernel keeps receivers from writing"),
        Err(error) => Check::new("sealing", State::Broken, error.to_string())
            .advise("Linux 5.1 is needed, or a sandbox that lets fcntl(F_ADD_SEALS) through"),
    }
}

fn available() -> Check {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match kilobytes.map(|kilobytes| kilobytes << 10) {
        Some(bytes) => {
            let state = if bytes >= 256 << 20 { State::Works } else { State::Limited };
            Check::new("available memory", state, unit::bytes(bytes))
                .advise("frames take a few hundred megabytes: free some memory")
        }
        None => Check::new("available memory", State::Limited, "/proc/meminfo does not tell")
            .advise("pools grow without looking at it: mount /proc"),
    }
}

/// What this process may have. In a container the limit is at the root of what it sees.
fn cgroup() -> Check {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = files.iter().find_map(|file| fs::read_to_string(file).ok());
    // "max", and in version 1 a number that is larger than any machine.
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).filter(|limit| *limit < 1 << 60);
    let found = limit.map_or("none to be seen here".to_owned(), unit::bytes);
    Check::works("memory limit of the container", found)
}

fn huge_pages() -> Check {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let setting = setting.unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("not supported").to_owned();
    let on = ["always", "within_size", "force"].contains(&chosen.as_str());
    let state = if on { State::Works } else { State::Limited };
    Check::new("huge pages of shared memory", state, chosen).advise(
        "pools that ask for huge pages go without: \
         echo within_size > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
    )
}
