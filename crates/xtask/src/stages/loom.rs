//! The model checker loom runs lock-free code in every interleaving.

use crate::command::{CommandLine, cargo};
use crate::stage::{Stage, StageContext, require_nothing};

pub(super) const STAGE: Stage = Stage {
    name: "loom",
    about: "lock-free code in every interleaving",
    require: require_nothing,
    run: |context| tests(context, &[]).run(),
    build_ahead: Some(|context| tests(context, &["--no-run"]).run()),
};

/// Other flags rebuild every dependency, hence a separate target directory.
fn tests(context: &StageContext, options: &[&str]) -> CommandLine {
    cargo("test --package cenote --release --lib --features gl")
        .args(options.iter().copied())
        .arg("loom")
        .env("CARGO_TARGET_DIR", context.checkout.target_path("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .lean_build()
}
