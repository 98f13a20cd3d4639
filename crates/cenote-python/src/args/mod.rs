//! Arguments as Python code passes them, and the checks that they get before the core sees them.

pub(crate) mod descriptor;
pub(crate) mod dtype;
pub(crate) mod integer;
pub(crate) mod seconds;
pub(crate) mod shape;
