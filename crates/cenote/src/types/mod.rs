//! Values that describe a tensor: element types, devices, layouts, pixel formats, metadata. Nothing here owns memory.

pub(crate) mod device;
pub(crate) mod dtype;
pub(crate) mod layout;
pub(crate) mod metadata;
pub(crate) mod pixel_format;
