mod cgroup;
mod container;
mod stopped;
mod topic;
mod user;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::stranger::process::ROLE;
use crate::stranger::{self, Scratch};

type Test = (&'static str, fn());

/// Where this program is, for everybody to run.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("crowd") => {
            user::crowd();
            return ExitCode::SUCCESS;
        }
        Ok(topic::TOPIC) => {
            topic::child();
            return ExitCode::SUCCESS;
        }
        Ok("unlocked") => {
            user::unlocked();
            return ExitCode::SUCCESS;
        }
        Ok(_) => {
            stranger::child::run();
            return ExitCode::SUCCESS;
        }
        Err(_) => {}
    }
    let args = Arguments::from_args();
    if stranger::emulated() {
        eprintln!("note: an emulator knows nothing of users, namespaces and cgroups: not tested");
    }
    let dir = Scratch::new("isolation");
    dir.meet_here();
    if !args.list {
        publish_program(&dir.0);
    }
    let tests = [user::TESTS, topic::TESTS, container::TESTS, cgroup::TESTS, stopped::TESTS];
    let trials = tests.iter().flat_map(|tests| tests.iter()).map(trial).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

fn trial(&(name, test): &Test) -> Trial {
    let run = move || {
        check_root()?;
        test();
        Ok(())
    };
    let skipped = stranger::skipped("isolation") || stranger::emulated();
    Trial::test(name, run).with_ignored_flag(skipped)
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

/// This program in a role, with a directory of its own to meet in.
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
