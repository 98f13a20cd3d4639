//! Point clouds with named fields.

pub(crate) mod access;
pub(crate) mod cloud;
pub(crate) mod field;
pub(crate) mod organized;
pub(crate) mod points;
pub(crate) mod rows;
pub(crate) mod xyz;

pub use cloud::PointCloud;
