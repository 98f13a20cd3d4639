//! The buffer behind tensors, the counted references to it, and the state that decides who may write it.

pub(crate) mod buffer;
pub(crate) mod handle;
pub(crate) mod identity;
pub(crate) mod loan;
#[cfg(target_os = "linux")]
pub(crate) mod publish;
#[cfg(target_os = "linux")]
pub(crate) mod slot_ref;
pub(crate) mod write_state;

pub(crate) use buffer::Buffer;
pub use identity::BufferIdentity;
