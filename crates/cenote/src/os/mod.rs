//! What the operating system is asked, and nothing else.

#[cfg(target_os = "linux")]
pub(crate) mod headroom;
