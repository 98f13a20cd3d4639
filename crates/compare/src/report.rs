//! What a run prints and writes.

pub(crate) mod bars;
mod chart;
pub(crate) mod machine;
pub(crate) mod markdown;
pub(crate) mod table;
pub(crate) mod unit;
