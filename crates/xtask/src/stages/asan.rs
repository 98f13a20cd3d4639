//! The core under AddressSanitizer and LeakSanitizer.

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;
use crate::stage::{Stage, StageContext, require_nothing};
use crate::toolchain::host_triple;

pub(super) const STAGE: Stage = Stage {
    name: "asan",
    about: "tests of the core under AddressSanitizer and LeakSanitizer",
    require: require_nothing,
    run: |context| tests(context, &[])?.run(),
    build_ahead: Some(|context| tests(context, &["--no-run"])?.run()),
};

/// In a small control group the memory of the sanitizer itself would be measured (`cgroup`); `kill`
/// is about shipped code; the others need drivers, which are not ours to check.
const LEFT_OUT: [&str; 5] = ["cgroup", "kill", "dma", "camera", "gl"];

fn tests(context: &StageContext, options: &[&str]) -> Result<CommandLine, Failure> {
    let host = host_triple()?;
    if !["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].contains(&host.as_str()) {
        return Err(Failure::unavailable(format!("AddressSanitizer is not set up for {host}")));
    }
    let mut names = context.checkout.cargo_targets("crates/cenote/tests")?;
    names.retain(|name| !LEFT_OUT.contains(&name.as_str()));
    Ok(command(&host, names, options).env("CARGO_TARGET_DIR", context.checkout.target_path("asan")))
}

/// `RUSTC_BOOTSTRAP` lets a stable compiler accept `-Z`. `--target` keeps the sanitizer out of build
/// scripts and procedural macros, which do not work with it.
fn command(host: &str, names: Vec<String>, options: &[&str]) -> CommandLine {
    cargo("test --no-fail-fast --package cenote --lib")
        .args(names.into_iter().flat_map(|name| ["--test".to_string(), name]))
        .args(["--target", host])
        .args(options.iter().copied())
        .args(["--", "--skip", "outgrows_its_cgroup"])
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        .env("ASAN_OPTIONS", "detect_leaks=1")
        .lean_build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_cargo_come_before_those_of_the_tests() {
        let command = command("x86_64-unknown-linux-gnu", vec!["fd".into()], &["--no-run"]);
        let text = command.to_string();
        let arguments = "cargo test --no-fail-fast --package cenote --lib --test fd \
            --target x86_64-unknown-linux-gnu --no-run -- --skip outgrows_its_cgroup";
        assert!(text.ends_with(arguments), "{text}");
        assert!(text.contains("RUSTFLAGS=-Zsanitizer=address "), "{text}");
    }
}
