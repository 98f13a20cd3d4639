//! The allocator of a pool: which bytes of which segment belong to which slot.

pub(crate) mod allocator;
pub(crate) mod bins;
pub(crate) mod blocks;
#[cfg(test)]
pub(crate) mod tests;
