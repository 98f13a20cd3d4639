//! Every example of the library runs to its end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::CommandLine;
use crate::driver::process::{Scope, Supervised};
use crate::failure::Failure;
use crate::stage::{Stage, StageContext, report_tests};
use crate::stages::core;

pub(super) const STAGE: Stage = Stage {
    name: "examples",
    about: "every example runs",
    require: core::require_gl,
    run,
    build_ahead: None,
};

const FOLDER: &str = "crates/cenote/examples";
const LIMIT: Duration = Duration::from_secs(10 * 60);

fn run(context: &StageContext) -> Result<(), Failure> {
    core::build_examples()?;
    let socket_dir = std::env::temp_dir().join("examples");
    fs::create_dir_all(&socket_dir)?;
    let (mut passed, mut failed) = (0, 0);
    for name in context.checkout.cargo_targets(FOLDER)? {
        println!("== {name}");
        match run_example(context, &name, &socket_dir) {
            Ok(()) => passed += 1,
            Err(error) => {
                println!("error: example {name}: {error}");
                failed += 1;
            }
        }
    }
    let _ = fs::remove_dir_all(&socket_dir);
    report_tests(passed, failed);
    if failed > 0 {
        return Err(Failure::new(format!("{failed} examples failed")));
    }
    Ok(())
}

fn run_example(context: &StageContext, name: &str, socket_dir: &Path) -> Result<(), Failure> {
    let program = context.checkout.target.join("debug/examples").join(name);
    let mut command = CommandLine::new(program);
    // An example that does not choose where processes find each other gets a directory from here.
    let source = fs::read_to_string(source_file(&context.checkout.root.join(FOLDER), name))?;
    if !source.contains("CENOTE_DIR") {
        command = command.env("CENOTE_DIR", socket_dir.display().to_string());
    }
    let child = command.command().spawn().map_err(|error| command.not_started(&error))?;
    let ended = Supervised::new(child, Scope::Process, LIMIT).wait()?;
    if ended.timed_out {
        return Err(Failure::new("not done after 10 minutes"));
    }
    command.check(ended.status)
}

fn source_file(folder: &Path, name: &str) -> PathBuf {
    let file = folder.join(format!("{name}.rs"));
    if file.exists() { file } else { folder.join(name).join("main.rs") }
}
