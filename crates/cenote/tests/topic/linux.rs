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
mod talk;
mod thread;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::stranger::process::ROLE;
use crate::stranger::{self, Scratch, emulated, sanitized};

type Test = (&'static str, fn());

/// What a child does, by the first word of its role; the others are its arguments.
type Role = (&'static str, fn(&[&str]));

pub(crate) fn main() -> ExitCode {
    stranger::panics_of_the_service_are_fatal();
    if let Ok(role) = std::env::var(ROLE) {
        child(&role);
        return ExitCode::SUCCESS;
    }
    let args = Arguments::from_args();
    let dir = Scratch::new("topic");
    dir.meet_here();
    let tests = [
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
    ];
    let trials = tests.iter().flat_map(|tests| tests.iter()).map(trial).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

fn trial(&(name, test): &Test) -> Trial {
    // The emulator can neither fork a process that has threads nor filter its system calls, and a
    // sanitizer makes system calls of its own. The emulator has descriptors of its own, too.
    let unavailable = match name {
        _ if name.contains("system_call") => emulated() || sanitized(),
        _ => emulated() && ["forked", "without_descriptors"].iter().any(|what| name.contains(what)),
    };
    if unavailable {
        println!("NOT AVAILABLE in an emulator or sanitizer: {name}");
    }
    Trial::test(name, move || {
        test();
        Ok(())
    })
    .with_ignored_flag(unavailable)
}

fn child(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let roles = [
        talk::ROLES,
        arrival::ROLES,
        seed::ROLES,
        forward::ROLES,
        lend::ROLES,
        sleep::ROLES,
        residue::ROLES,
        crowd::ROLES,
    ];
    let known = roles.iter().flat_map(|roles| roles.iter()).find(|(name, _)| *name == words[0]);
    known.unwrap_or_else(|| panic!("no such role: {role}")).1(&words[1..]);
}
