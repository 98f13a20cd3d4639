//! What happens to a tensor before it can be sent.

use crate::error::Result;
use crate::tensor::Tensor;
use crate::topic::publisher::Publisher;
use crate::topic::stats::StagedBecause;

impl Publisher {
    /// The tensor that takes the place of one that other processes cannot see; `None` if they can.
    pub(super) fn stage(&self, tensor: &Tensor) -> Result<Option<Tensor>> {
        match tensor.sendable() {
            Sendable::AsItIs => Ok(None),
            Sendable::Copied(why) => {
                let staged = self.pool.stage(tensor)?;
                self.staged.count(why, staged.nbytes());
                Ok(Some(staged))
            }
        }
    }
}

/// How a tensor gets to other processes.
pub(crate) enum Sendable {
    AsItIs,
    Copied(StagedBecause),
}

impl Tensor {
    fn sendable(&self) -> Sendable {
        if self.has_far_planes() {
            return Sendable::Copied(StagedBecause::FarPlanes);
        }
        match self.is_attachable() {
            Some(true) => Sendable::AsItIs,
            Some(false) => Sendable::Copied(StagedBecause::OwnerGone),
            None => Sendable::Copied(StagedBecause::Heap),
        }
    }
}
