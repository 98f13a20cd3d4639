use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

mod nursery;
mod publishing;
mod scene;
mod speaker;
mod subscribing;
mod sweep;
mod tracer;
mod victim;

/// Tells a child of this program what it is: the nursery, or a scene.
pub(crate) const ROLE: &str = "CENOTE_KILL_ROLE";

pub(crate) fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("nursery") => nursery::run(),
        Ok(name) => run_scene(name),
        Err(_) => return run_all(),
    }
    ExitCode::SUCCESS
}

fn run_all() -> ExitCode {
    let mut args = Arguments::from_args();
    // Most of the time is spent waiting for the kernel to clean up behind the dead.
    args.test_threads.get_or_insert(8);
    let trial = |&(name, _): &scene::Named| Trial::test(name, move || start_scene(name));
    libtest_mimic::run(&args, scene::SCENES.iter().map(trial).collect()).exit_code()
}

/// Runs a scene in a process of its own, which counts its own descriptors and mappings.
fn start_scene(name: &str) -> Result<(), Failed> {
    let dir = Scratch::new(name);
    let status = Command::new(std::env::current_exe()?)
        .env(ROLE, name)
        .env("CENOTE_DIR", &dir.0)
        .env_remove("CENOTE_NAMESPACE")
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}").into()) }
}

fn run_scene(name: &str) {
    tracer::die_with_parent();
    // Without unwinding, which would wait for processes that wait for this one: the kernel ends
    // those that are traced, and the others see the end of their input.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::exit(101);
    }));
    let (_, make) = scene::SCENES.iter().find(|(known, _)| *known == name).unwrap();
    sweep::sweep(name, &mut *make());
}

/// A directory of our own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("cenote-kill-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}
