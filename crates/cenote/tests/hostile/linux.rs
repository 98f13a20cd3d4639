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

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::stranger::process::ROLE;
use crate::stranger::{self, Holdings, Scratch};

type Test = (&'static str, fn());

pub(crate) fn main() -> ExitCode {
    if let Ok(role) = std::env::var(ROLE) {
        flood::child(&role);
        return ExitCode::SUCCESS;
    }
    let mut args = Arguments::from_args();
    args.test_threads = Some(1);
    let dir = Scratch::new("hostile");
    dir.meet_here();
    stranger::panics_of_the_service_are_fatal();
    if !args.list {
        warm_up();
    }
    let tests = [
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
    ];
    let trials = tests.iter().flat_map(|tests| tests.iter()).map(trial).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

fn trial(&(name, test): &Test) -> Trial {
    // The emulator has descriptors of its own, which a limit on them counts.
    let emulated = std::env::var_os("CENOTE_TEST_EMULATED").is_some();
    let unavailable = emulated && name.contains("without_descriptors");
    if unavailable {
        println!("NOT AVAILABLE under emulation: {name}");
    }
    Trial::test(name, move || {
        let before = Holdings::now();
        test();
        before.check();
        Ok(())
    })
    .with_ignored_flag(unavailable)
}

/// What a process makes once and keeps: the service thread, and what it sleeps on.
fn warm_up() {
    let pool = stranger::pool(4);
    let tensor = stranger::filled(&pool, 100, 1);
    let attached = cenote::TensorPool::open(pool.name()).unwrap();
    attached.import(&tensor.descriptor().unwrap()).unwrap();
    let topic = cenote::Topic::<u64>::new(&stranger::unique()).unwrap();
    topic.send(&1).unwrap();
    assert_eq!(topic.recv(), Some(1));
}
