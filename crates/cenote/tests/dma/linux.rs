// It reads the registers of this processor.
#[cfg(target_arch = "x86_64")]
mod access;
mod fence;
mod heap;
mod pool;
mod share;
mod topic;

use std::process::ExitCode;

use cenote::{DMA_HEAP_ENV, Tensor, TensorMemory, TensorOptions};
use libtest_mimic::{Arguments, Trial};

use crate::stranger::process::ROLE;
use crate::stranger::{self, Holdings, Scratch};

type Test = (&'static str, fn());

/// What a child does, by the first word of its role; the others are its arguments.
type Role = (&'static str, fn(&[&str]));

pub(crate) fn main() -> ExitCode {
    stranger::panics_of_the_service_are_fatal();
    if let Ok(role) = std::env::var(ROLE) {
        child(&role);
        return ExitCode::SUCCESS;
    }
    let dir = Scratch::new("dma");
    dir.meet_here();
    warm_up();
    let tests = [
        heap::TESTS,
        #[cfg(target_arch = "x86_64")]
        access::TESTS,
        share::TESTS,
        pool::TESTS,
        topic::TESTS,
    ];
    let trials = tests.iter().flat_map(|tests| tests.iter()).map(trial).collect();
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&args, trials).exit_code()
}

fn trial(&(name, test): &Test) -> Trial {
    Trial::test(name, move || {
        let before = Holdings::now();
        test();
        before.check();
        Ok(())
    })
}

/// What is opened once and stays: the heaps, the limits of the process, the service thread.
fn warm_up() {
    drop(dma().create(&[1 << 20], cenote::DType::U8).unwrap());
    drop(stranger::pool(1));
}

fn child(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let roles = [
        heap::ROLES,
        #[cfg(target_arch = "x86_64")]
        access::ROLES,
        share::ROLES,
        pool::ROLES,
        topic::ROLES,
    ];
    let known = roles.iter().flat_map(|roles| roles.iter()).find(|(name, _)| *name == words[0]);
    known.unwrap_or_else(|| panic!("no such role: {role}")).1(&words[1..]);
}

fn dma() -> TensorOptions {
    Tensor::options().memory(TensorMemory::Dma)
}

/// Runs `f` with DMA-BUFs from one heap only.
fn from_heap<R>(heap: &str, f: impl FnOnce() -> R) -> R {
    set_heap(Some(heap));
    let result = f();
    set_heap(None);
    result
}

#[allow(unsafe_code, reason = "the environment")]
fn set_heap(heap: Option<&str>) {
    match heap {
        // SAFETY: nobody here looks at the environment but through Rust's own functions.
        Some(heap) => unsafe { std::env::set_var(DMA_HEAP_ENV, heap) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(DMA_HEAP_ENV) },
    }
}

/// Runs `f` once over memory of a heap, and once over a udmabuf.
fn over_both(f: impl Fn(&str)) {
    for heap in ["system", "udmabuf"] {
        from_heap(heap, || f(heap));
    }
}

/// A tensor of `u8` that counts up.
fn counting(shape: &[usize]) -> Tensor {
    let data: Vec<u8> = (0..shape.iter().product()).map(|i: usize| i.to_le_bytes()[0]).collect();
    dma().create_from_slice(&data, shape).unwrap()
}
