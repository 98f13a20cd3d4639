//! The benchmarks, without the peers that are packages.

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;
use crate::stage::{Stage, StageContext, require_nothing};

pub(super) const STAGE: Stage = Stage {
    name: "compare",
    about: "the comparison with others, which are left out here: its tests, and a very short run",
    require: require_nothing,
    run: |context| tests(context)?.run(),
    build_ahead: Some(|context| tests(context)?.arg("--no-run").run()),
};

/// Together with the command, so that one build of the core serves both.
fn tests(context: &StageContext) -> Result<CommandLine, Failure> {
    let names = context.checkout.cargo_targets("crates/compare/tests")?;
    Ok(cargo("test --no-fail-fast --release --package compare --package cenote-cli --bin compare")
        .args(names.into_iter().flat_map(|name| ["--test".to_string(), name])))
}
