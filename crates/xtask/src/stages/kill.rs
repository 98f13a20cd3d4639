//! The kill sweep: processes are killed at every instruction.

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;
use crate::stage::{Stage, StageContext, require_nothing};
use crate::toolchain::host_triple;

pub(super) const STAGE: Stage = Stage {
    name: "kill",
    about: "killed at every instruction: shipped code under ptrace, in release mode",
    require: require_nothing,
    run,
    build_ahead: Some(|_| tests().arg("--no-run").run()),
};

fn run(context: &StageContext) -> Result<(), Failure> {
    let host = host_triple()?;
    if !(host.starts_with("x86_64-") && host.contains("-linux-")) {
        return Err(Failure::unavailable(
            "killing at every instruction is set up for x86_64 Linux only",
        ));
    }
    // Even a failed sweep reports how far it came.
    let (output, result) = tests().run_and_record();
    for line in output.lines().filter(|line| is_progress(line)) {
        context.note(line);
    }
    result
}

/// Together with the command, so that one build of the core serves both, as it is shipped.
fn tests() -> CommandLine {
    cargo("test --release --package cenote --package cenote-cli --test kill")
}

/// Lines such as `send: killed at 3000 instructions`.
fn is_progress(line: &str) -> bool {
    line.split_once(": killed at ").is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_lines_name_a_sweep() {
        assert!(is_progress("send_and_recv: killed at 4000 instructions"));
        assert!(!is_progress("the child 71: killed at once"));
        assert!(!is_progress(": killed at "));
    }
}
