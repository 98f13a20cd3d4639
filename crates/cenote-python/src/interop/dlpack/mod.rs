//! DLPack: capsules with tensors for jax, torch, numpy and other libraries, and tensors over the memory of
//! theirs.
//!
//! The structures are those of `dlpack.h`, version 1.0. A capsule of version 1 can say that its memory is
//! read-only. An older capsule cannot, so it is only made of memory that may be written.

pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod structs;
