//! What happens to a tensor before it can be sent.

use std::sync::Weak;

use crate::error::Result;
use crate::ipc::topic::config::Policy;
use crate::ipc::topic::publisher::Publisher;
use crate::ipc::topic::stats::StagedBecause;
use crate::memory::kind::TensorMemory;
use crate::sync::Ordering;
use crate::tensor::Tensor;

/// Memory that was adopted, for as long as the tensor lives that brought it: it may be sent again.
#[derive(Debug, Default)]
pub(crate) struct AdoptedTensors(Vec<Adoption>);

#[derive(Debug)]
struct Adoption {
    /// Of the buffer that was adopted.
    identity: u64,
    alive: Weak<()>,
    adopted: Tensor,
}

impl AdoptedTensors {
    /// Takes out what will not be sent again, to be dropped elsewhere.
    fn take_dead(&mut self) -> Vec<Adoption> {
        self.0.extract_if(.., |adoption| adoption.alive.strong_count() == 0).collect()
    }

    fn find(&self, identity: u64) -> Option<&Tensor> {
        self.0.iter().find(|adoption| adoption.identity == identity).map(|found| &found.adopted)
    }
}

impl Publisher {
    /// Whether other processes can see a tensor as it is. If so, subscribers can attach to its pool.
    #[inline]
    pub(crate) fn can_share(&self, tensor: &Tensor) -> bool {
        if tensor.has_far_planes() || tensor.is_lent() {
            return false;
        }
        self.pool.has_allocated(tensor.buffer()) || self.can_share_other(tensor)
    }

    /// The same of any but what the publisher's own pool has allocated.
    fn can_share_other(&self, tensor: &Tensor) -> bool {
        let shared = tensor.is_attachable() == Some(true);
        if shared {
            self.pool.introduce_pool_of(tensor);
        }
        shared
    }

    /// The tensor that takes the place of one that other processes cannot see. Nothing is copied before
    /// there is room for it, as `policy` has it.
    #[cold]
    pub(crate) fn stage(&self, tensor: &Tensor, policy: Policy) -> Result<Tensor> {
        let why = match tensor.memory() {
            _ if tensor.has_far_planes() => StagedBecause::FarPlanes,
            // It may have been given back since it was found to be.
            _ if tensor.is_lent() || tensor.is_attachable() == Some(true) => StagedBecause::Lent,
            _ if tensor.is_attachable() == Some(false) => StagedBecause::OwnerGone,
            TensorMemory::Shm | TensorMemory::Dma => match self.adopt(tensor)? {
                Some(adopted) => return Ok(adopted),
                None => StagedBecause::NotAdopted,
            },
            TensorMemory::Pbo => StagedBecause::Pbo,
            _ => StagedBecause::Heap,
        };
        drop(self.make_room(self.state(), policy)?);
        let staged = self.pool.stage_with(tensor, || self.push_out_oldest())?;
        self.staged.count(why, staged.nbytes());
        Ok(staged)
    }

    /// Lets go of adopted memory whose tensors are gone, so that it need not wait for the next adoption.
    #[inline]
    pub(crate) fn drop_dead_adoptions(&self) {
        if self.has_adopted.load(Ordering::Relaxed) {
            self.look_for_dead_adoptions();
        }
    }

    #[cold]
    fn look_for_dead_adoptions(&self) {
        let mut adopted = self.adopted();
        let dead = adopted.take_dead();
        self.has_adopted.store(!adopted.0.is_empty(), Ordering::Relaxed);
        drop(adopted);
        drop(dead);
    }

    /// Makes shared memory part of the publisher's pool, once.
    fn adopt(&self, tensor: &Tensor) -> Result<Option<Tensor>> {
        // In this order, so that they are dropped after the lock.
        let _dead = self.adopted().take_dead();
        let mut adopted = self.adopted();
        let identity = tensor.buffer_identity();
        if let Some(found) = adopted.find(identity.id()) {
            return Ok(Some(tensor.over_buffer_of(found)));
        }
        let made = self.pool.adopt(tensor)?;
        if let Some(made) = &made {
            let (identity, alive) = (identity.id(), identity.weak());
            adopted.0.push(Adoption { identity, alive, adopted: made.clone() });
            // Under the lock, as where it is taken back.
            self.has_adopted.store(true, Ordering::Relaxed);
        }
        Ok(made)
    }
}
