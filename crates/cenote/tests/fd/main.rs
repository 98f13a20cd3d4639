//! File descriptors: exported, imported, sent and received. The tests run one after another, and each
//! must leave no descriptor open and no shared memory mapped.

#![allow(clippy::unwrap_used)]

mod address_space;
#[path = "../emulation/mod.rs"]
mod emulation;
mod export;
mod hostile_message;
mod import;
mod memory_file;
mod planes;
mod send;
mod socket;

use std::fs;
use std::process::ExitCode;

use cenote::{DType, Tensor, TensorMemory};
use libtest_mimic::{Arguments, Trial};

/// The name of a test, and what runs it.
type Case = (&'static str, fn());

macro_rules! cases {
    ($($name:ident)*) => { &[$((stringify!($name), $name)),*] };
}
use cases;

const SUITE: &[&[Case]] = &[
    export::CASES,
    import::CASES,
    send::CASES,
    hostile_message::CASES,
    planes::CASES,
    address_space::CASES,
];

fn main() -> ExitCode {
    let trial = |&(name, test): &Case| {
        Trial::test(name, move || {
            let before = open_resources();
            test();
            assert_eq!(
                open_resources(),
                before,
                "descriptors and mappings of shared memory left behind"
            );
            Ok(())
        })
    };
    // The first large allocation reads the limits of the process, and keeps a descriptor open for that.
    drop(Tensor::options().memory(TensorMemory::Mem).create(&[1 << 20], DType::U8).unwrap());
    // One test at a time: the descriptors of another would count as leaked.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let trials = SUITE.iter().copied().flatten().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The open files of this process, and how many mappings of shared memory it has.
fn open_resources() -> (Vec<String>, usize) {
    let fds = fs::read_dir("/proc/self/fd").unwrap();
    let target = |fd: fs::DirEntry| fs::read_link(fd.path()).ok();
    let mut fds: Vec<String> = fds
        .filter_map(|fd| target(fd.unwrap()))
        .map(|to| to.display().to_string())
        .filter(|to| !to.contains("/fd"))
        .collect();
    fds.sort();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().filter(|line| line.contains("memfd:")).count())
}

fn shm() -> cenote::TensorOptions {
    Tensor::options().memory(TensorMemory::Shm)
}

/// A tensor of `u16` that counts up, in shared memory.
fn counting(shape: &[usize]) -> Tensor {
    let len = u16::try_from(shape.iter().product::<usize>()).unwrap();
    shm().create_from_slice(&(0..len).collect::<Vec<u16>>(), shape).unwrap()
}
