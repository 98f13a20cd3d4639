//! The core compiles for other systems.

use crate::command::cargo;
use crate::failure::Failure;
use crate::stage::{Stage, StageContext, require_nothing};
use crate::toolchain::has_target;

pub(super) const STAGE: Stage = Stage {
    name: "cross",
    about: "the core compiles for Windows and macOS",
    require: require_nothing,
    run,
    build_ahead: Some(run),
};

fn run(_: &StageContext) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for target in ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"] {
        if !has_target(target) {
            missing.push(target);
            continue;
        }
        let check = cargo("check --package cenote --lib --target").arg(target);
        check.clone().arg("--no-default-features").run()?;
        check.run()?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    Err(Failure::unavailable(format!("Rust targets that cannot be installed here: {missing}")))
}
