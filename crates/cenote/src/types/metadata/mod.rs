//! What travels beside a tensor: its header, and what a domain type adds.

pub(crate) mod header;
pub(crate) mod metadata;
pub(crate) mod text;

pub(crate) use metadata::{MAX_META, Meta, Room, Words};
