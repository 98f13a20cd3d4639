//! The kinds of memory that tensors live in.

pub(crate) mod budget;
