//! Hostile processes of the same user: they send the protocol as raw bytes, with a wrong value in every
//! word. They must harm only themselves: no panic, no signal, no leak, no delay in this process.
//!
//! Tests run one after another, because each counts the descriptors and mappings of this process.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod descriptor_access;
mod flood;
mod inspected;
mod introduced_pool;
mod owner;
mod publisher;
mod reader;
mod reader_row;
mod subscriber;
#[path = "../support/mod.rs"]
mod support;
mod tensor_descriptor;

use std::process::ExitCode;

use support::program::{Role, Test, TestProgram};

fn main() -> ExitCode {
    TestProgram::new("hostile")
        .roles(flood::ROLES)
        .unavailable(|name| {
            let limits = support::emulated() && name.contains("without_descriptors");
            limits.then_some("a limit on descriptors counts those of the emulator")
        })
        .prepare(|_| warm_up())
        .check_leaks()
        .run(&[
            reader::TESTS,
            reader_row::TESTS,
            descriptor_access::TESTS,
            flood::TESTS,
            owner::TESTS,
            tensor_descriptor::TESTS,
            subscriber::TESTS,
            publisher::TESTS,
            introduced_pool::TESTS,
            inspected::TESTS,
        ])
}

/// Makes what a process makes once and keeps: the service thread and its descriptors.
fn warm_up() {
    let pool = support::pool(4);
    let tensor = support::filled(&pool, 100, 1);
    let attached = cenote::TensorPool::open(pool.name()).unwrap();
    attached.import(&tensor.descriptor().unwrap()).unwrap();
    let topic = cenote::Topic::<u64>::new(&support::unique()).unwrap();
    topic.send(&1).unwrap();
    assert_eq!(topic.recv(), Some(1));
}
