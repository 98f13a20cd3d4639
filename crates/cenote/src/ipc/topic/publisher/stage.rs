//! May this tensor be sent as it is? If not, what is sent in its place?
//!
//! | tensor | what is sent |
//! |---|---|
//! | allocated from the publisher's pool | itself |
//! | in another pool whose owner lives | itself; the pool is introduced to the subscribers |
//! | in shared memory of no pool | itself: the publisher's pool adopts the memory, once |
//! | anything else | a copy in the publisher's pool, counted by reason |
//!
//! A tensor with a live loan is always copied: the holder of the loan may write it.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::error::Result;
use crate::ipc::pool::tensor_pool::TensorPool;
use crate::ipc::topic::stats::{StagedBecause, StagedCounters};
use crate::memory::kind::TensorMemory;
use crate::sync::{AtomicBool, Ordering};
use crate::tensor::Tensor;

/// The publisher's record of tensors that could not be sent as they were.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    pub(crate) copies: StagedCounters,
    adopted: Mutex<AdoptedTensors>,
    /// Whether `adopted` has any. Every send reads it. It is written under the lock, and outside it is only a hint.
    has_adopted: AtomicBool,
}

/// Adopted memory, for as long as the tensor lives that it came from: it may be sent again.
#[derive(Debug, Default)]
struct AdoptedTensors(Vec<AdoptedTensor>);

#[derive(Debug)]
struct AdoptedTensor {
    /// The identity of the buffer that was adopted.
    identity: u64,
    alive: Weak<()>,
    adopted: Tensor,
}

impl AdoptedTensors {
    /// Removes those whose tensors are dropped. The caller drops them without the lock.
    fn take_dead(&mut self) -> Vec<AdoptedTensor> {
        self.0.extract_if(.., |adoption| adoption.alive.strong_count() == 0).collect()
    }

    fn find(&self, identity: u64) -> Option<&Tensor> {
        self.0.iter().find(|adoption| adoption.identity == identity).map(|found| &found.adopted)
    }
}

/// Whether a publisher with this pool can send a tensor as it is. If so, subscribers can attach to the tensor's pool.
#[inline]
pub(crate) fn can_share(pool: &TensorPool, tensor: &Tensor) -> bool {
    if tensor.has_far_planes() || tensor.is_lent() {
        return false;
    }
    pool.has_allocated(tensor.buffer()) || can_share_from_elsewhere(pool, tensor)
}

/// [`can_share`] for a tensor that this pool has not allocated.
fn can_share_from_elsewhere(pool: &TensorPool, tensor: &Tensor) -> bool {
    let shared = tensor.is_attachable() == Some(true);
    if shared {
        pool.introduce_pool_of(tensor);
    }
    shared
}

impl Stage {
    /// The tensor to send in place of one that other processes cannot see. Before it copies, it calls `wait` to apply the
    /// policy, so that nothing is copied in vain. If the pool is full, it calls `drop_oldest`.
    #[cold]
    pub(crate) fn stage(
        &self,
        pool: &TensorPool,
        tensor: &Tensor,
        wait: impl FnOnce() -> Result<()>,
        drop_oldest: impl FnMut() -> bool,
    ) -> Result<Tensor> {
        let why = match tensor.memory() {
            _ if tensor.has_far_planes() => StagedBecause::FarPlanes,
            // The loan may have ended since `can_share` found it.
            _ if tensor.is_lent() || tensor.is_attachable() == Some(true) => StagedBecause::Lent,
            _ if tensor.is_attachable() == Some(false) => StagedBecause::OwnerGone,
            TensorMemory::Shm | TensorMemory::Dma => match self.adopt(pool, tensor)? {
                Some(adopted) => return Ok(adopted),
                None => StagedBecause::NotAdopted,
            },
            TensorMemory::Pbo => StagedBecause::Pbo,
            _ => StagedBecause::Heap,
        };
        wait()?;
        let staged = pool.stage_with(tensor, drop_oldest)?;
        self.copies.count(why, staged.nbytes());
        Ok(staged)
    }

    /// Drops adopted memory whose tensors are dropped. Every send does so, because the next adoption may never
    /// come.
    #[inline]
    pub(crate) fn drop_dead(&self) {
        if self.has_adopted.load(Ordering::Relaxed) {
            self.find_and_drop_dead();
        }
    }

    #[cold]
    fn find_and_drop_dead(&self) {
        let mut adopted = self.adopted();
        let dead = adopted.take_dead();
        self.has_adopted.store(!adopted.0.is_empty(), Ordering::Relaxed);
        drop(adopted);
        drop(dead);
    }

    /// Makes the shared memory of a tensor part of the publisher's pool, once. `None` if that is not possible.
    fn adopt(&self, pool: &TensorPool, tensor: &Tensor) -> Result<Option<Tensor>> {
        // Declared before the guard, so that they are dropped after the lock is released.
        let _dead = self.adopted().take_dead();
        let mut adopted = self.adopted();
        let identity = tensor.buffer_identity();
        if let Some(found) = adopted.find(identity.id()) {
            return Ok(Some(tensor.over_buffer_of(found)));
        }
        let made = pool.adopt(tensor)?;
        if let Some(made) = &made {
            let (identity, alive) = (identity.id(), identity.weak());
            adopted.0.push(AdoptedTensor { identity, alive, adopted: made.clone() });
            self.has_adopted.store(true, Ordering::Relaxed);
        }
        Ok(made)
    }

    fn adopted(&self) -> MutexGuard<'_, AdoptedTensors> {
        // Insertions and removals are whole, even after a panic.
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
