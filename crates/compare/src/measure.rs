//! How things are measured: rounds, series of samples, and the helper process for workloads of two processes.

pub(crate) mod busy_work;
pub(crate) mod helper;
pub(crate) mod rounds;
pub(crate) mod samples;
pub(crate) mod series;
pub(crate) mod shared_page;
