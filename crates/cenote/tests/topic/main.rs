//! Topics: any number of publishers and subscribers, which start and die in any order. A subscriber
//! receives each message whole, or counts it as missed.
//!
//! Child processes run this same program in a role; the tests reap them by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod cameras;
mod child;
mod cleanup;
mod discovery;
mod examples;
mod fork;
mod forward;
mod introduced_pool;
mod message_type;
mod observer;
mod policy;
mod queue_depth;
#[path = "../support/mod.rs"]
mod support;
mod thread;
mod wait;

use std::process::ExitCode;

use support::program::{Role, Test, TestProgram};
use support::{emulated, sanitized};

fn main() -> ExitCode {
    TestProgram::new("topic")
        .roles(child::ROLES)
        .roles(discovery::ROLES)
        .roles(examples::ROLES)
        .roles(forward::ROLES)
        .roles(introduced_pool::ROLES)
        .roles(wait::ROLES)
        .roles(cleanup::ROLES)
        .roles(cameras::ROLES)
        .unavailable(why_unavailable)
        .run(&[
            examples::TESTS,
            discovery::TESTS,
            queue_depth::TESTS,
            policy::TESTS,
            message_type::TESTS,
            forward::TESTS,
            introduced_pool::TESTS,
            thread::TESTS,
            wait::TESTS,
            fork::TESTS,
            cleanup::TESTS,
            wait::wait_set::TESTS,
            cameras::TESTS,
            observer::TESTS,
        ])
}

fn why_unavailable(name: &str) -> Option<&'static str> {
    let needs_kernel = ["system_call", "forked", "without_descriptors"];
    if emulated() && needs_kernel.iter().any(|what| name.contains(what)) {
        return Some(
            "the emulator cannot fork threads or filter system calls, and opens descriptors itself",
        );
    }
    (sanitized() && name.contains("system_call")).then_some("a sanitizer makes system calls, too")
}
