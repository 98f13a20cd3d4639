//! Tests of the core on 64-bit ARM, which QEMU emulates.

use std::path::Path;

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;
use crate::requirements::Requirements;
use crate::stage::{Stage, StageContext};
use crate::toolchain::{find_program, has_target, host_triple};

pub(super) const STAGE: Stage = Stage {
    name: "aarch64",
    about: "tests of the core on emulated 64-bit ARM",
    require,
    run,
    build_ahead: Some(build_ahead),
};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// Tests of what differs by processor: layouts, mappings, atomics, and processes that share memory.
const TESTS: [&str; 5] = ["tensor", "fd", "image", "pool", "topic"];

fn require(needs: &mut Requirements) {
    if cfg!(target_arch = "aarch64") {
        return;
    }
    needs.need("qemu-aarch64", "qemu-user");
    needs.need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu");
    needs.need("/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross");
    needs.need("unshare", "util-linux");
    // Before anything is built ahead for it. The stage reports it if the target is missing.
    has_target(TARGET);
}

fn run(context: &StageContext) -> Result<(), Failure> {
    if host_triple()?.starts_with("aarch64-") {
        context.note("this machine is aarch64: the test stage has run them");
        return Ok(());
    }
    if !has_target(TARGET) {
        return Err(Failure::unavailable("its Rust target cannot be installed here"));
    }
    with_aarch64_exec(context, tests(context, &[]))?.run()
}

fn build_ahead(context: &StageContext) -> Result<(), Failure> {
    if host_triple()?.starts_with("aarch64-") {
        return Ok(());
    }
    with_aarch64_exec(context, tests(context, &["--no-run"]))?.run()
}

fn tests(context: &StageContext, options: &[&str]) -> CommandLine {
    let command = cargo("test --no-fail-fast --package cenote --lib")
        .args(TESTS.into_iter().flat_map(|name| ["--test", name]))
        .args(["--target", TARGET])
        .args(options.iter().copied());
    command
        // Emulation is slow: fewer random cases.
        .env("PROPTEST_CASES", "16")
        .env("QEMU_LD_PREFIX", LIBRARIES)
        .env("CENOTE_TEST_EMULATED", "1")
        .env("CARGO_TARGET_DIR", context.checkout.target_path("aarch64"))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
            format!("qemu-aarch64 -L {LIBRARIES}"),
        )
        .lean_build()
}

const FORMAT: &str = "/proc/sys/fs/binfmt_misc/qemu-aarch64";
const MAGIC: &str = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const MASK: &str =
    r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";

/// Registers the format that is its first argument, then starts the other arguments.
const ENTER: &str = r#"
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s "$1" >/proc/sys/fs/binfmt_misc/register
shift
exec "$@""#;

/// The command in an environment where an aarch64 program can exec another one, as tests with child
/// processes do. If the kernel of this machine lacks the format, the command runs in a user namespace
/// with a separate binfmt_misc (Linux 6.7 or newer), which does not change the machine.
fn with_aarch64_exec(context: &StageContext, command: CommandLine) -> Result<CommandLine, Failure> {
    if Path::new(FORMAT).exists() {
        return Ok(command);
    }
    let qemu = find_program("qemu-aarch64")
        .ok_or_else(|| Failure::new("qemu-aarch64 is not installed"))?
        .display()
        .to_string();
    if CommandLine::new("true").behind(enter(&qemu)).run().is_ok() {
        return Ok(command.behind(enter(&qemu)));
    }
    context.note("warning: no binfmt_misc for aarch64: tests with child processes will fail");
    Ok(command)
}

fn enter(qemu: &str) -> CommandLine {
    CommandLine::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--", "bash", "-euc", ENTER, "enter"])
        .arg(format!(":qemu-aarch64:M::{MAGIC}:{MASK}:{qemu}:PF"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_runs_in_the_namespace_after_the_format_is_registered() {
        let command = CommandLine::new("true").behind(enter("/usr/bin/qemu-aarch64")).to_string();
        assert!(command.starts_with("unshare --user --map-root-user --mount -- bash -euc "));
        assert!(command.ends_with(r"\xff\xff:/usr/bin/qemu-aarch64:PF' true"), "{command}");
    }
}
