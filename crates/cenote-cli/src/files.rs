//! Tensors as files: images as PNG, point clouds as PLY, everything as NPY.

mod atomic_write;
pub(crate) mod npy;
pub(crate) mod ply;
pub(crate) mod png;

use cenote::{PointCloud, Tensor};

use crate::failure::Outcome;

/// The points of a cloud, without its spare capacity; `None` if it has no points.
pub(crate) fn points(cloud: &PointCloud) -> Outcome<Option<Tensor>> {
    match cloud.len() {
        0 => Ok(None),
        len => Ok(Some(cloud.tensor().narrow(0, 0, len)?)),
    }
}
