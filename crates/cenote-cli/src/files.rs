//! Tensors as files, and as values to look at.

mod layout;
pub(crate) mod npy;
pub(crate) mod picture;
pub(crate) mod ply;
pub(crate) mod values;
mod whole;

use cenote::{PointCloud, Tensor};

use crate::failure::Outcome;

pub(crate) use whole::write;

/// The points that a cloud has; `None` if it has none. There may be room for more, with anything in it.
pub(crate) fn points(cloud: &PointCloud) -> Outcome<Option<Tensor>> {
    match cloud.len() {
        0 => Ok(None),
        len => Ok(Some(cloud.tensor().narrow(0, 0, len)?)),
    }
}
