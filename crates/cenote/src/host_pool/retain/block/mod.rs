//! Pieces of memory: their sizes, where their bytes come from, and what the bytes hold.

mod block;
mod memory;
mod size_class;

pub(crate) use block::{Block, BlockOwner, Fill, ReturnsTo};
pub(crate) use memory::{ALIGN, Extras, MAPPED_FROM};
pub(crate) use size_class::{COUNT as CLASS_COUNT, Fit};
