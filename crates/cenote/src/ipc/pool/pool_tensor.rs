//! Tensors in the slots of a pool: how they are made, and the descriptors that name them in other processes.

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
    /// The bytes of a tensor without gaps.
    #[inline(always)]
    pub(crate) fn packed_len(shape: &[usize], dtype: DType) -> Result<usize> {
        let len = Layout::packed_len(shape.len(), |axis| shape[axis], dtype.size());
        len.ok_or_else(|| Layout::why_not(shape, dtype.size()))
    }

    /// A tensor without gaps in a new buffer. The shape has this [length](Tensor::packed_len). Always inlined, so that the
    /// tensor is built in the caller's memory: every frame needs this.
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

    /// Fills a new tensor with zeros.
    #[cold]
    pub(crate) fn cleared(mut self) -> Result<Tensor> {
        self.map_mut()?.as_mut_bytes()?.fill(0);
        Ok(self)
    }

    /// The descriptor of this tensor, by which other processes find it. Fails if the tensor is not in a pool.
    ///
    /// From then on its bytes are immutable, here and in other processes.
    ///
    /// If the pool is closed or its owner has ended, only processes that are attached to the pool already can use the
    /// descriptor. [`TensorPool::stage`](crate::TensorPool::stage) makes a copy for others.
    pub fn descriptor(&self) -> Result<TensorDescriptor> {
        let slot_ref = self.pooled()?;
        let slot = slot_ref.slot;
        let content = (slot_home::uid(slot_ref), slot_home::publish(slot_ref));
        Ok(TensorDescriptor::of(self, content, (slot.segment.0, slot.index), slot.offset))
    }

    /// Whether other processes can attach to the pool of this tensor, as a descriptor requires: its owner lives and has
    /// not closed it. `None` if the tensor is in no pool.
    #[inline]
    pub fn is_attachable(&self) -> Option<bool> {
        self.buffer.slot_ref().map(slot_home::is_attachable)
    }

    /// This view, over the buffer of another tensor with the same bytes.
    pub(crate) fn over_buffer_of(&self, other: &Tensor) -> Tensor {
        Tensor { buffer: other.buffer.clone(), ..self.clone() }
    }

    /// The buffer.
    #[inline]
    pub(crate) fn buffer(&self) -> &Handle {
        &self.buffer
    }

    /// Another handle of the buffer.
    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.buffer.clone()
    }

    #[inline]
    pub(crate) fn has_far_planes(&self) -> bool {
        self.far_planes.is_some()
    }

    /// The slot of the tensor, to be published: from then on the bytes are immutable.
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

    /// The tensor that a descriptor names, in any pool.
    ///
    /// The first descriptor of a pool attaches this process to it. The tensor is read-only, and the kernel enforces
    /// that: a write through a raw pointer would fault in this process and change nothing.
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
