//! Unit tests under Miri, which finds undefined behaviour. Miri makes few system calls, so only the
//! modules run that need none.

use crate::command::CommandLine;
use crate::failure::Failure;
use crate::stage::{Stage, StageContext};
use crate::toolchain::{add_miri, cargo_miri};

pub(super) const STAGE: Stage = Stage {
    name: "miri",
    about: "unit tests of layouts, rings, leases and handles under Miri",
    require: |_| add_miri(),
    run: |context| tests(context, &[])?.run(),
    build_ahead: Some(|context| tests(context, &["--no-run"])?.run()),
};

/// The modules of the core whose unit tests run. `tidy` fails if one does not exist: as a filter, the
/// name of no module selects no test, without an error.
pub(crate) const MODULES: &[&str] = &[
    "types::layout",
    "ipc::lease",
    "ipc::ring",
    "tensor::buffer::handle",
    "tensor::buffer::write_state",
];

fn tests(context: &StageContext, options: &[&str]) -> Result<CommandLine, Failure> {
    let Some(miri) = cargo_miri() else {
        return Err(Failure::unavailable(
            "no toolchain here has Miri: `rustup toolchain install nightly --component miri,rust-src`",
        ));
    };
    Ok(miri
        .args(["test", "--no-fail-fast", "--package", "cenote", "--lib", "--no-default-features"])
        .args(options.iter().copied())
        .arg("--")
        .args(MODULES.iter().map(|module| format!("{module}::")))
        .env("CARGO_TARGET_DIR", context.checkout.target_path("miri"))
        .lean_build())
}
