//! Shared memory: whether it can be allocated and sealed, and how much there is.

use std::fs;

use cenote::{DType, Tensor, TensorMemory};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::check::{Check, CheckState};
use crate::output::unit;

pub(super) fn checks() -> Vec<Check> {
    vec![shared_memory(), sealing(), available(), cgroup(), huge_pages()]
}

fn shared_memory() -> Check {
    let made = Tensor::options().memory(TensorMemory::Shm).create(&[1 << 20], DType::U8);
    match made {
        Ok(_) => Check::works("shared memory", "allocated a tensor of 1 MB"),
        Err(error) => Check::new("shared memory", CheckState::Broken, error.to_string())
            .advise("only tensors on the heap work, and no other process can map them"),
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
        Ok(()) => Check::works("sealing", "the kernel prevents receivers from writing"),
        Err(error) => Check::new("sealing", CheckState::Broken, error.to_string())
            .advise("needs Linux 5.1, and a sandbox that permits fcntl(F_ADD_SEALS)"),
    }
}

fn available() -> Check {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    match kilobytes.map(|kilobytes| kilobytes << 10) {
        Some(bytes) => {
            let state = if bytes >= 256 << 20 { CheckState::Works } else { CheckState::Limited };
            Check::new("available memory", state, unit::bytes(bytes))
                .advise("frames take a few hundred megabytes: free some memory")
        }
        None => Check::new(
            "available memory",
            CheckState::Limited,
            "unknown: /proc/meminfo has no MemAvailable",
        )
        .advise("pools grow without regard to available memory: mount /proc"),
    }
}

/// The memory limit of the control group. In a container it is at the root of the visible hierarchy.
fn cgroup() -> Check {
    let files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = files.iter().find_map(|file| fs::read_to_string(file).ok());
    // No limit is "max", or in version 1 a number that is larger than any machine.
    let limit = limit.and_then(|limit| limit.trim().parse().ok()).filter(|limit| *limit < 1 << 60);
    let found = limit.map_or("none visible".to_owned(), unit::bytes);
    Check::works("memory limit of the container", found)
}

fn huge_pages() -> Check {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let setting = setting.unwrap_or_default();
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("not supported").to_owned();
    let on = ["always", "within_size", "force"].contains(&chosen.as_str());
    let state = if on { CheckState::Works } else { CheckState::Limited };
    Check::new("huge pages of shared memory", state, chosen).advise(
        "pools that request huge pages get ordinary ones: \
         echo within_size > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
    )
}
