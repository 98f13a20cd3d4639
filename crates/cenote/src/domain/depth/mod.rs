//! Depth images, in metres.

pub(crate) mod depth;
pub(crate) mod intrinsics;
pub(crate) mod measure;
pub(crate) mod project;

pub use depth::DepthImage;
