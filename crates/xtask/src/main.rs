//! Runs the tests of cenote, stage by stage. `scripts/test` builds this program and starts it; its
//! usage is there.
//!
//! - `stage.rs` says what a stage is, `stages/` has all of them.
//! - `driver/` runs the selected stages, each in a process with a time limit and a log.
//! - `tidy/` has the rules of the repository, which are checked without building anything.

#[cfg(target_os = "linux")]
mod checkout;
#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod failure;
#[cfg(target_os = "linux")]
mod requirements;
#[cfg(target_os = "linux")]
mod stage;
#[cfg(target_os = "linux")]
mod stages;
#[cfg(target_os = "linux")]
mod tidy;
#[cfg(target_os = "linux")]
mod toolchain;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((command, rest)) if command == "test" => driver::main(rest),
        Some((command, [])) if command == "shrink" => driver::shrink(),
        _ => {
            eprintln!("usage: xtask test ... (scripts/test --help), or xtask shrink");
            std::process::ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("error: the tests run on Linux only");
    std::process::exit(2);
}
