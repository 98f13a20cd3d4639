//! Topics: any number of publishers and subscribers, in any order of start and death, and every
//! message either received whole or counted as missed.
//!
//! Children are this same program, started with a role; they are reaped by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod arrival;
mod crowd;
mod depth;
mod fork;
mod forward;
mod frame;
mod kind;
mod lend;
mod observe;
mod policy;
mod residue;
mod sample;
mod seed;
mod set;
mod sleep;
#[path = "../support/mod.rs"]
mod support;
mod talk;
mod thread;

use std::process::ExitCode;

use support::program::{Role, Test, TestProgram};
use support::{emulated, sanitized};

fn main() -> ExitCode {
    TestProgram::new("topic")
        .roles(talk::ROLES)
        .roles(arrival::ROLES)
        .roles(seed::ROLES)
        .roles(forward::ROLES)
        .roles(lend::ROLES)
        .roles(sleep::ROLES)
        .roles(residue::ROLES)
        .roles(crowd::ROLES)
        .unavailable(why_unavailable)
        .run(&[
            seed::TESTS,
            arrival::TESTS,
            depth::TESTS,
            policy::TESTS,
            kind::TESTS,
            forward::TESTS,
            lend::TESTS,
            thread::TESTS,
            sleep::TESTS,
            fork::TESTS,
            residue::TESTS,
            set::TESTS,
            crowd::TESTS,
            observe::TESTS,
        ])
}

fn why_unavailable(name: &str) -> Option<&'static str> {
    let of_emulator = ["system_call", "forked", "without_descriptors"];
    if emulated() && of_emulator.iter().any(|what| name.contains(what)) {
        return Some(
            "the emulator cannot fork threads or filter system calls, and opens descriptors",
        );
    }
    (sanitized() && name.contains("system_call")).then_some("a sanitizer makes system calls, too")
}
