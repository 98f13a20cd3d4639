//! Tensors whose bytes are a slot of a pool: how they are made, and what stands for them elsewhere.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::pool::descriptor::TensorDescriptor;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::registry;
use crate::ipc::pool::registry::RegisteredPool;
use crate::ipc::pool::{slot_buffer, slot_home};
use crate::tensor::Tensor;
use crate::tensor::buffer::buffer::BufferSlot;
use crate::tensor::buffer::handle::Handle;
use crate::types::dtype::DType;
use crate::types::layout::Layout;

impl Tensor {
    /// The bytes that a tensor without gaps has.
    #[inline(always)]
    pub(crate) fn packed_len(shape: &[usize], dtype: DType) -> Result<usize> {
        let len = Layout::packed_len(shape.len(), |axis| shape[axis], dtype.size());
        len.ok_or_else(|| Layout::why_not(shape, dtype.size()))
    }

    /// A tensor without gaps in a new buffer, of a shape that was found to have this [length](Tensor::packed_len).
    /// Made where the caller wants to have it, as is whatever every frame needs.
    #[inline(always)]
    pub(crate) fn packed(
        buffer: Handle,
        len: usize,
        shape: &[usize],
        dtype: DType,
    ) -> Result<Tensor> {
        buffer.check_room(len)?;
        let layout = Layout::packed(shape.len(), |axis| shape[axis], 0, dtype.size());
        let tensor = Tensor::of(buffer, layout, dtype);
        if dtype == DType::Bool { tensor.cleared() } else { Ok(tensor) }
    }

    /// Makes the bytes of a new tensor zeros.
    #[cold]
    pub(crate) fn cleared(mut self) -> Result<Tensor> {
        self.map_mut()?.as_mut_bytes()?.fill(0);
        Ok(self)
    }

    /// The words that stand for this tensor, if it is in a pool.
    ///
    /// From then on nobody can write its bytes, here or elsewhere.
    ///
    /// Of a tensor whose pool is closed, or whose owner has ended, it is of use only to those who are
    /// attached to that pool already: nobody else can attach any more. [`TensorPool::stage`](crate::TensorPool::stage) makes a copy
    /// that others can have.
    pub fn descriptor(&self) -> Result<TensorDescriptor> {
        let slot_ref = self.pooled()?;
        let slot = slot_ref.slot;
        let content = (slot_home::uid(slot_ref), slot_home::publish(slot_ref));
        Ok(TensorDescriptor::of(self, content, (slot.segment.0, slot.index), slot.offset))
    }

    /// Whether others can attach to the pool that it is in, as they must for a descriptor to be of
    /// use: its owner lives, and has not closed it. `None` if it is in none.
    #[inline]
    pub fn is_attachable(&self) -> Option<bool> {
        self.buffer.slot_ref().map(slot_home::is_attachable)
    }

    /// The same view of another tensor's buffer, which has the same bytes.
    pub(crate) fn over_buffer_of(&self, other: &Tensor) -> Tensor {
        Tensor { buffer: other.buffer.clone(), ..self.clone() }
    }

    /// Its buffer.
    #[inline]
    pub(crate) fn buffer(&self) -> &Handle {
        &self.buffer
    }

    /// Another handle of its buffer.
    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.buffer.clone()
    }

    #[inline]
    pub(crate) fn has_far_planes(&self) -> bool {
        self.far_planes.is_some()
    }

    /// Where the tensor is, for telling others: from then on nobody can write its bytes.
    #[inline]
    pub(crate) fn pooled(&self) -> Result<&BufferSlot> {
        if self.far_planes.is_some() {
            return Err(Error::FarPlanes { op: "descriptor" });
        }
        let slot_ref = self.buffer.slot_ref().ok_or_else(|| Error::NoDescriptor)?;
        slot_home::check_process(slot_ref)?;
        self.buffer.set_published()?;
        Ok(slot_ref)
    }

    /// The tensor that a descriptor names, wherever its pool is: the one way in.
    ///
    /// The pool's owner is attached to at the first descriptor of it, once. The tensor is
    /// read-only, and the kernel sees to that: writing it through a raw pointer would fault in
    /// this process and change nothing.
    pub fn from_descriptor(descriptor: &TensorDescriptor) -> Result<Tensor> {
        match registry::find_or_attach(descriptor.pool)? {
            RegisteredPool::Owned(owner) => lease_own(&owner, descriptor),
            RegisteredPool::Attached(attachment) => lease_from(&attachment, descriptor),
        }
    }
}

/// Leases the slot that a descriptor names.
pub(crate) fn lease_from(
    attachment: &Arc<Attachment>,
    wanted: &TensorDescriptor,
) -> Result<Tensor> {
    let checked = wanted.read()?;
    let leased = attachment.lease(wanted.slot, wanted.serial)?;
    Tensor::described(slot_buffer::leased(attachment, leased, wanted.serial)?, checked)
}

fn lease_own(owner: &Arc<Owner>, wanted: &TensorDescriptor) -> Result<Tensor> {
    let checked = wanted.read()?;
    let leased = owner.lease(wanted.slot, wanted.serial)?;
    Tensor::described(slot_buffer::leased_own(owner, leased, wanted.serial)?, checked)
}
