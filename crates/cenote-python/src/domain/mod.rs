//! The classes that extend `Tensor`: `Image`, `PointCloud` and `DepthImage`. Each has a header.

pub(crate) mod class;
pub(crate) mod depth_image;
pub(crate) mod header;
pub(crate) mod image;
pub(crate) mod point_cloud;
mod point_fields;
