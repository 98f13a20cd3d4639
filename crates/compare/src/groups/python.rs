//! Messages and memory in Python. A script measures them, with a Python that has the packages cenote, numpy, iceoryx2
//! and horus-robotics.

use std::process::{Command, Stdio};

use crate::Result;
use crate::args::Args;
use crate::results::Results;
use crate::run_dir;

/// The name of the group.
pub(crate) const GROUP: &str = "python";

const SCRIPT: &str = include_str!("../../python/peers.py");

/// Measures the group.
pub(crate) fn run(args: &Args) -> Result<Results> {
    let python =
        args.python.as_ref().ok_or("this group needs --python PROGRAM; scripts/compare sets it")?;
    let script = run_dir::dir()?.join("peers.py");
    std::fs::write(&script, SCRIPT)?;
    let schedule = args.schedule();
    let output = Command::new(python)
        .arg(&script)
        .arg("--compare")
        .arg(std::env::current_exe()?)
        .args(["--parent", &std::process::id().to_string()])
        .args(["--rounds", &schedule.rounds.to_string()])
        .args(["--take", &schedule.take.as_millis().to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(format!("{}: {}", python.display(), output.status).into()),
    }
}
