mod fork_server;
mod pool_operations;
mod publisher_scenarios;
mod scenario;
mod subscriber_scenarios;
mod sweep;
mod topic_operations;
mod tracer;

use std::process::ExitCode;

use libtest_mimic::Failed;

use crate::support::SocketDir;
use crate::support::peer::command;
use crate::support::program::{NamedTest, TestProgram};

/// The roles of the children of this program.
const FORK_SERVER: &str = "fork_server";
const SCENARIO: &str = "scenario";

pub(crate) fn main() -> ExitCode {
    let test =
        |&(name, _): &scenario::Named| NamedTest::fallible(name, move || start_scenario(name));
    TestProgram::new("kill")
        .roles(&[(FORK_SERVER, |_| fork_server::run()), (SCENARIO, |words| run_scenario(words[0]))])
        // The tests mostly wait for the kernel to clean up after a kill.
        .threads(8)
        .run_named(scenario::SCENARIOS.iter().map(test).collect())
}

/// Runs a scenario in a child process, which counts its descriptors and mappings.
fn start_scenario(name: &str) -> Result<(), Failed> {
    let dir = SocketDir::new(&format!("kill-{name}"));
    let status = command(&format!("{SCENARIO} {name}"))
        .env(cenote::DIR_ENV, &dir.0)
        .env_remove(cenote::NAMESPACE_ENV)
        .status()?;
    std::fs::remove_dir_all(&dir.0)?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}").into()) }
}

fn run_scenario(name: &str) {
    tracer::die_with_parent();
    // A panic exits at once. Unwinding would wait for processes that wait for this one. The kernel kills
    // the traced processes, and the others read the end of their input and exit.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::exit(101);
    }));
    let (_, make) = scenario::SCENARIOS.iter().find(|(known, _)| *known == name).unwrap();
    sweep::sweep(name, &mut *make());
}
