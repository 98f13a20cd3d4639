//! What must hold for OpenGL: the suite of all tensors over its buffers, and what is its own. All of it
//! runs twice, in a process of its own each: with buffers that stay mapped, and with a driver that was
//! told not to have those. `scripts/test gl` installs a driver and runs it.

#![allow(clippy::unwrap_used)]

#[cfg(target_os = "linux")]
#[path = "gl/linux.rs"]
mod linux;

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "it has a main of its own")]
#[path = "tensor.rs"]
mod suite;

fn main() -> std::process::ExitCode {
    #[cfg(target_os = "linux")]
    return linux::main();
    #[cfg(not(target_os = "linux"))]
    std::process::ExitCode::SUCCESS
}
