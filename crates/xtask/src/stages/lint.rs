//! Formatting, lints and documentation.

use crate::command::cargo;
use crate::failure::Failure;
use crate::requirements::Requirements;
use crate::stage::{Stage, StageContext, require_nothing};

pub(super) const FMT: Stage = Stage {
    name: "fmt",
    about: "formatting",
    require: |needs| needs.need_cargo_tool("fmt", "rustfmt", "rustfmt"),
    run: |_| cargo("fmt --all --check -- --color never").run(),
    build_ahead: None,
};

pub(super) const CLIPPY: Stage = Stage {
    name: "clippy",
    about: "lints, with all features and with none",
    require: require_clippy,
    run: run_clippy,
    build_ahead: None,
};

pub(super) const DOC: Stage = Stage {
    name: "doc",
    about: "documentation builds without warnings",
    require: require_nothing,
    run: run_doc,
    build_ahead: None,
};

fn require_clippy(needs: &mut Requirements) {
    needs.need_cargo_tool("clippy", "clippy", "rust-clippy");
}

fn run_clippy(context: &StageContext) -> Result<(), Failure> {
    let manifest = context.checkout.read("crates/cenote/Cargo.toml")?;
    // `compare` without its peers, which are hundreds of packages. Both commands select the same
    // features, so that nothing is checked twice.
    let features = format!("{},compare/gl", core_features(&manifest)?);
    let all = || cargo("clippy --workspace --features").arg(&features);
    all().args(["--all-targets", "--", "-D", "warnings"]).run()?;
    // `--all-targets` leaves out the tests that `cargo test` leaves out.
    let tests = "--test kill --test dma --test camera --test gl -- -D warnings";
    all().args(tests.split(' ')).run()?;
    cargo("clippy --package cenote --lib --no-default-features -- -D warnings").run()
}

/// All features of the core for `--features`: `cenote/camera,cenote/gl`.
pub(crate) fn core_features(manifest: &str) -> Result<String, Failure> {
    let manifest: toml::Table = manifest
        .parse()
        .map_err(|error| Failure::new(format!("crates/cenote/Cargo.toml: {error}")))?;
    let features = manifest.get("features").and_then(toml::Value::as_table);
    let names = features.into_iter().flatten().map(|(name, _)| format!("cenote/{name}"));
    Ok(names.collect::<Vec<_>>().join(","))
}

fn run_doc(_: &StageContext) -> Result<(), Failure> {
    cargo("doc --workspace --exclude compare --exclude xtask --no-deps --all-features")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_the_core_come_from_its_manifest() {
        let manifest = "[features]\ndefault = [\"gl\"]\ngl = []\n[dependencies]\nlibc = \"1\"\n";
        assert_eq!(core_features(manifest).unwrap(), "cenote/default,cenote/gl");
        assert!(core_features("[features").is_err());
    }
}
