//! What messages and memory cost in Python: a script measures, with a Python that has cenote and its peers.

use std::process::{Command, Stdio};

use crate::Result;
use crate::args::Args;
use crate::found::Found;
use crate::run;

/// What it is called.
pub(crate) const GROUP: &str = "python";

const SCRIPT: &str = include_str!("../python/peers.py");

/// All of it.
pub(crate) fn run(args: &Args) -> Result<Found> {
    let python =
        args.python.as_ref().ok_or("which Python? see --python, or use scripts/compare")?;
    let script = run::dir()?.join("peers.py");
    std::fs::write(&script, SCRIPT)?;
    let pace = args.pace();
    let output = Command::new(python)
        .arg(&script)
        .arg("--compare")
        .arg(std::env::current_exe()?)
        .args(["--parent", &std::process::id().to_string()])
        .args(["--rounds", &pace.rounds.to_string()])
        .args(["--take", &pace.take.as_millis().to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(format!("{}: {}", python.display(), output.status).into()),
    }
}
