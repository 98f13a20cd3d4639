//! Peers that mean harm: they speak the protocol as raw bytes, lie in every word of it, and must
//! not hurt anybody but themselves: no panic, no signal, nothing leaked, nobody else delayed.
//!
//! Tests run one after another, for each counts the descriptors and mappings of this process.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod attacher;
mod descriptor;
mod flood;
mod kernel;
mod lender;
mod observer;
mod owner;
mod publisher;
mod row;
mod subscriber;
#[path = "../support/mod.rs"]
mod support;

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
            attacher::TESTS,
            row::TESTS,
            kernel::TESTS,
            flood::TESTS,
            owner::TESTS,
            descriptor::TESTS,
            subscriber::TESTS,
            publisher::TESTS,
            lender::TESTS,
            observer::TESTS,
        ])
}

/// What a process makes once and keeps: the service thread, and what it sleeps on.
fn warm_up() {
    let pool = support::pool(4);
    let tensor = support::filled(&pool, 100, 1);
    let attached = cenote::TensorPool::open(pool.name()).unwrap();
    attached.import(&tensor.descriptor().unwrap()).unwrap();
    let topic = cenote::Topic::<u64>::new(&support::unique()).unwrap();
    topic.send(&1).unwrap();
    assert_eq!(topic.recv(), Some(1));
}
