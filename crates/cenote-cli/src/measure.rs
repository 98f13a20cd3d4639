//! Rate, bandwidth and latency.

pub(crate) mod clock;
pub(crate) mod meter;
pub(crate) mod percentiles;
