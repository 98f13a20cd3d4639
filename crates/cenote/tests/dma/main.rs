//! DMA-BUF memory, on a kernel that has it: `scripts/test vm` runs this in a virtual machine with a
//! system heap, udmabuf and vgem.
//!
//! Tests run one after another: they change the environment and count descriptors and mappings. Children
//! run this same program in a role; the tests reap them by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

// It reads the registers of this processor.
#[cfg(target_arch = "x86_64")]
mod access;
mod fence;
mod heap;
mod pool;
mod share;
#[path = "../support/mod.rs"]
mod support;
mod topic;

use std::process::ExitCode;

use cenote::{DMA_HEAP_ENV, Tensor, TensorMemory, TensorOptions};

use support::program::{Role, Test, TestProgram};

fn main() -> ExitCode {
    let tests = [
        heap::TESTS,
        #[cfg(target_arch = "x86_64")]
        access::TESTS,
        share::TESTS,
        pool::TESTS,
        topic::TESTS,
    ];
    let program = TestProgram::new("dma");
    #[cfg(target_arch = "x86_64")]
    let program = program.roles(access::ROLES);
    program
        .roles(heap::ROLES)
        .roles(share::ROLES)
        .roles(pool::ROLES)
        .roles(topic::ROLES)
        .prepare(|_| warm_up())
        .check_leaks()
        .run(&tests)
}

/// Opens what a process opens once and keeps: the heaps, the limits of the process, the service thread.
fn warm_up() {
    drop(dma().create(&[1 << 20], cenote::DType::U8).unwrap());
    drop(support::pool(1));
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
        // SAFETY: this process reads the environment only through Rust's functions, which take a lock.
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
