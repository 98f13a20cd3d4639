//! Builds for later stages while earlier ones run.

use std::fs::File;
use std::process::{Command, ExitCode};

use crate::checkout::Checkout;
use crate::driver::process::own_program;
use crate::failure::Failure;
use crate::stage::Stage;

/// The lowest priority, so that no test waits for a build.
const LOWEST_PRIORITY: i32 = 19;

/// Builds for the stages in their order. What fails to build here fails again in its stage, which
/// reports it.
pub(super) fn build(checkout: &Checkout, stages: &[&Stage]) -> Result<ExitCode, Failure> {
    rustix::process::nice(LOWEST_PRIORITY).map_err(std::io::Error::from)?;
    for stage in stages {
        let log = File::create(checkout.logs.join(format!("{}.build.log", stage.name)))?;
        let mut command: Command = own_program();
        command.args(["--build", stage.name]).stdout(log.try_clone()?).stderr(log);
        let _ = command.status();
    }
    Ok(ExitCode::SUCCESS)
}
