//! What must hold for a tensor, in every kind of memory. Each case runs once for each kind.
//!
//! To add a kind of memory, add it to `kinds`. To add a case, write a function in the file of its
//! subject and add its name to the file's `CASES`.

#![allow(clippy::unwrap_used)]

mod access;
mod adopted;
mod array;
mod copy;
mod create;
mod image;
mod image_model;
#[path = "../model/mod.rs"]
mod model;
mod selection;
mod sharing;
mod view;

use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cenote::{CopyReason, Error, NotWritable, Tensor, TensorMemory, TensorOptions};
use libtest_mimic::{Arguments, Trial};

/// The name of a test, and what runs it for one kind of memory.
pub(crate) type Case = (&'static str, fn(TensorMemory));

macro_rules! cases {
    ($($name:ident)*) => { &[$((stringify!($name), $name)),*] };
}
use cases;

/// The cases that run for every kind of memory.
pub(crate) const SUITE: &[&[Case]] = &[
    create::CASES,
    access::CASES,
    view::CASES,
    sharing::CASES,
    image::CASES,
    copy::CASES,
    array::CASES,
    selection::CASES,
];

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for memory in kinds() {
        for &(name, test) in SUITE.iter().copied().flatten() {
            trials.push(Trial::test(format!("{memory}::{name}"), move || {
                test(memory);
                Ok(())
            }));
        }
    }
    for &(name, test) in adopted::CASES {
        trials.push(Trial::test(name, move || {
            test();
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Every kind of memory to test. DMA-BUFs are optional, except where `scripts/test` runs this to test
/// them.
fn kinds() -> Vec<TensorMemory> {
    let mut kinds = vec![TensorMemory::Mem, TensorMemory::Shm];
    if std::env::var_os("CENOTE_TEST_VM").is_some() || TensorMemory::Dma.is_available() {
        kinds.push(TensorMemory::Dma);
    }
    kinds
}

thread_local! {
    /// The options that create a test's tensors, if the kind of memory alone does not determine them.
    pub(crate) static OPTIONS: RefCell<Option<TensorOptions>> = const { RefCell::new(None) };
}

fn options_for(memory: TensorMemory) -> TensorOptions {
    OPTIONS.with_borrow(Option::clone).unwrap_or_else(|| Tensor::options().memory(memory))
}

/// A tensor of `u16` that counts up.
fn counting(memory: TensorMemory, shape: &[usize]) -> Tensor {
    let len = shape.iter().product::<usize>();
    let data: Vec<u16> = (0..len).map(|i| u16::try_from(i).unwrap()).collect();
    options_for(memory).create_from_slice(&data, shape).unwrap()
}

/// How many copies this process has made for a reason, and of how many bytes.
fn copies_made(reason: CopyReason) -> (u64, u64) {
    let copies = cenote::copies().into_iter().find(|copies| copies.reason == reason).unwrap();
    (copies.count, copies.bytes)
}

/// Tests that make or count copies run one at a time, because the counters belong to the process.
fn lock_copy_counters() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    // A test that failed leaves the counters usable.
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why `map_mut` refuses this tensor, which `not_writable` must report as well.
fn why(tensor: &mut Tensor) -> NotWritable {
    let expected = tensor.not_writable();
    match tensor.map_mut().map(drop) {
        Err(Error::NotWritable { why }) => {
            assert_eq!(expected, Some(why), "not_writable and map_mut disagree");
            why
        }
        other => panic!("writable: {other:?}"),
    }
}
