//! Processes of other users and namespaces, with little memory, or stopped.
//!
//! Changing users, namespaces and cgroups takes root. Without root the tests fail, unless
//! `CENOTE_TEST_SKIP=isolation` skips them.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod cgroup;
mod container;
mod stopped;
#[path = "../support/mod.rs"]
mod support;
mod topic;
mod user;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use libtest_mimic::Failed;

use support::peer::ROLE;
use support::program::{NamedTest, Role, Test, TestProgram};

/// A copy of this program that every user may run.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

fn main() -> ExitCode {
    if support::emulated() {
        eprintln!("note: an emulator does not emulate users, namespaces and cgroups: not tested");
    }
    let tests = [user::TESTS, topic::TESTS, container::TESTS, cgroup::TESTS, stopped::TESTS];
    TestProgram::new("isolation")
        .roles(&[("child", |_| support::pool_user::run())])
        .roles(user::ROLES)
        .roles(topic::ROLES)
        .unavailable(|_| {
            let skipped = support::skipped("isolation") || support::emulated();
            skipped.then_some("skipped, or in an emulator")
        })
        .prepare(|dir| publish_program(&dir.0))
        .run_named(tests.iter().copied().flatten().map(as_root).collect())
}

fn as_root(&(name, test): &Test) -> NamedTest {
    NamedTest::fallible(name, move || {
        check_root()?;
        test();
        Ok(())
    })
}

fn check_root() -> Result<(), Failed> {
    let unshared = Command::new("unshare").args(["-m", "-p", "-f", "true"]).status();
    if rustix::process::geteuid().is_root() && unshared.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    Err("this takes root and unshare(1); CENOTE_TEST_SKIP=isolation skips these tests".into())
}

fn publish_program(dir: &Path) {
    let copy = dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    for path in [dir, &copy] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    PROGRAM.set(copy).unwrap();
}

fn program() -> &'static Path {
    PROGRAM.get().unwrap()
}

/// A command that runs this program in a role, with this socket directory.
fn command(dir: &Path) -> Command {
    let mut command = Command::new(program());
    command.env(ROLE, "child").env("CENOTE_DIR", dir);
    command
}

/// A new directory below the scratch directory, with this mode.
fn directory(name: &str, mode: u32) -> PathBuf {
    let dir = program().with_file_name(name);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode)).unwrap();
    dir
}
