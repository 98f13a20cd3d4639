//! DMA-BUF memory, on a kernel that has it: `scripts/test vm` runs this in a virtual machine with a
//! system heap, udmabuf and vgem.
//!
//! Tests run one after another: they change the environment and count descriptors and mappings. Children
//! are this same program, started with a role; they are reaped by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "other tests use the rest")]
mod stranger;

#[cfg(target_os = "linux")]
#[path = "dma/linux.rs"]
mod linux;
