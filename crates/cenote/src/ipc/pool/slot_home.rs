//! The way of a slot back to its pool: the part that `tensor/buffer/slot_ref.rs` leaves open.
//!
//! A process has a slot in one of four ways. Each way has a table of functions. The address of the table in a
//! [`BufferSlot`] says which way it is.
//!
//! # Contract
//! These are the only tables, they are private to this file, and a [`BufferSlot`] does not give its table
//! away. So every [`BufferSlot`] was made here: with an [`Attachment`] as its pool for `LEASED`, with an
//! [`Owner`] for the others.
#![allow(unsafe_code, reason = "a pool is found by a cast, not by a call: this is the hot path")]

use std::any::Any;
use std::sync::Arc;

use crate::error::Result;
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::reader::lease_table::LeaseTable;
use crate::memory::slot::Slot;
use crate::sync::{Biased, put_behind};
use crate::tensor::buffer::Buffer;
use crate::tensor::buffer::buffer::BufferSlot;
use crate::tensor::buffer::slot_ref::SlotHome;

/// This process allocated the slot.
static ALLOCATED: SlotHome<Buffer> = SlotHome {
    recycle: recycle_allocated,
    release: |slot_ref, published| {
        owner(slot_ref).return_slot(slot_ref.slot.index, None, published);
    },
};

/// The slot is memory that the pool of this process did not make.
static ADOPTED: SlotHome<Buffer> = SlotHome { recycle: release_all, release: release_adopted };

/// This process leased the slot from itself, by a descriptor.
static OWN_LEASE: SlotHome<Buffer> = SlotHome {
    recycle: release_all,
    release: |slot_ref, _| owner(slot_ref).release(slot_ref.slot.index),
};

/// This process leased the slot from another process.
static LEASED: SlotHome<Buffer> = SlotHome {
    recycle: recycle_leased,
    release: |slot_ref, _| attachment(slot_ref).release(slot_ref.slot.index),
};

/// The pool of a slot.
enum SlotPool<'a> {
    Owned(&'a Owner),
    Leased(&'a Attachment),
}

/// A slot of `len` bytes that `owner` has just allocated.
pub(crate) fn allocated(owner: Arc<Owner>, slot: Slot, len: usize) -> BufferSlot {
    BufferSlot::new(&ALLOCATED, owner, slot, 0, len)
}

/// The slot of memory that `owner` has adopted.
pub(crate) fn adopted(owner: Arc<Owner>, slot: Slot) -> BufferSlot {
    BufferSlot::new(&ADOPTED, owner, slot, 0, 0)
}

/// A slot that this process has leased from itself.
pub(crate) fn own_lease(owner: Arc<Owner>, slot: Slot, serial: u64) -> BufferSlot {
    BufferSlot::new(&OWN_LEASE, owner, slot, serial, 0)
}

/// A slot that this process has leased from another.
pub(crate) fn leased(attachment: Arc<Attachment>, slot: Slot, serial: u64) -> BufferSlot {
    BufferSlot::new(&LEASED, attachment, slot, serial, 0)
}

/// The pool, as the type that it is.
///
/// # Safety
/// The slot reference was made with a pool of type `T`.
#[inline(always)]
unsafe fn pool<T: Any>(slot_ref: &BufferSlot) -> &T {
    let pool = slot_ref.pool();
    debug_assert!((**pool).is::<T>(), "a slot of another kind of pool");
    // SAFETY: the pointer is the one of an `Arc<T>`, as the caller promises, which `slot_ref` keeps.
    unsafe { &*Arc::as_ptr(pool).cast::<T>() }
}

/// Called for slots of the tables `ALLOCATED`, `ADOPTED` and `OWN_LEASE` only.
#[inline(always)]
fn owner(slot_ref: &BufferSlot) -> &Owner {
    // SAFETY: this function is private, and called for slots of those tables alone: see the contract.
    unsafe { pool(slot_ref) }
}

/// Called for slots of the table `LEASED` only.
#[inline(always)]
fn attachment(slot_ref: &BufferSlot) -> &Attachment {
    // SAFETY: as in `owner`.
    unsafe { pool(slot_ref) }
}

#[inline(always)]
fn pool_of(slot_ref: &BufferSlot) -> SlotPool<'_> {
    match slot_ref.is_of(&LEASED) {
        true => SlotPool::Leased(attachment(slot_ref)),
        false => SlotPool::Owned(owner(slot_ref)),
    }
}

/// The owner of a slot that this process allocated.
#[inline(always)]
pub(crate) fn allocated_by(slot_ref: &BufferSlot) -> Option<&Owner> {
    slot_ref.is_of(&ALLOCATED).then(|| owner(slot_ref))
}

/// Whether `pool` has allocated the slot.
#[inline]
pub(crate) fn is_allocated_by(slot_ref: &BufferSlot, pool: &Arc<Owner>) -> bool {
    let same = std::ptr::addr_eq(Arc::as_ptr(slot_ref.pool()), Arc::as_ptr(pool));
    same && slot_ref.is_of(&ALLOCATED)
}

/// The pool of a slot, if this process owns it.
pub(crate) fn shared_owner(slot_ref: &BufferSlot) -> Option<Arc<Owner>> {
    slot_ref.pool().clone().downcast().ok()
}

/// Whether the slot may be written: this process allocated it.
pub(crate) fn is_allocated(slot_ref: &BufferSlot) -> bool {
    slot_ref.is_of(&ALLOCATED)
}

/// Whether another process owns the pool of the slot.
pub(crate) fn is_leased(slot_ref: &BufferSlot) -> bool {
    slot_ref.is_of(&LEASED)
}

/// The uid of the slot's pool.
#[inline]
pub(crate) fn uid(slot_ref: &BufferSlot) -> u64 {
    match pool_of(slot_ref) {
        SlotPool::Owned(owner) => owner.endpoint.uid,
        SlotPool::Leased(attachment) => attachment.endpoint.uid,
    }
}

/// The serial for a descriptor of the slot's present content.
#[inline]
pub(crate) fn publish(slot_ref: &BufferSlot) -> u64 {
    if slot_ref.is_of(&ALLOCATED) || slot_ref.is_of(&ADOPTED) {
        owner(slot_ref).publish(slot_ref.slot.index)
    } else {
        slot_ref.lease_serial()
    }
}

/// Fails in a forked child, which has neither the slot nor a lease on it.
#[inline]
pub(crate) fn check_process(slot_ref: &BufferSlot) -> Result<()> {
    match pool_of(slot_ref) {
        SlotPool::Owned(owner) => owner.check_process(),
        SlotPool::Leased(attachment) => attachment.check_process(),
    }
}

/// Whether other processes can attach to the pool: its owner lives and has not closed it.
#[inline]
pub(crate) fn is_attachable(slot_ref: &BufferSlot) -> bool {
    match pool_of(slot_ref) {
        SlotPool::Owned(owner) => owner.is_open(),
        SlotPool::Leased(attachment) => !attachment.is_disconnected(),
    }
}

fn recycle_allocated(buffer: Arc<Buffer>) {
    match buffer.must_retire() {
        true => Owner::retire(buffer),
        false => Owner::recycle(buffer),
    }
}

/// Releases the slot. The pool keeps no buffer of it.
fn release_all(buffer: Arc<Buffer>) {
    buffer.slot_ref().into_iter().for_each(|slot_ref| slot_ref.release(true));
    drop(buffer);
}

/// The slot may hold the last reference to the pool, so the pool decides how long it stays alive.
fn release_adopted(slot_ref: &BufferSlot, _published: bool) {
    owner(slot_ref).return_slot(slot_ref.slot.index, None, true);
    shared_owner(slot_ref).iter().for_each(Owner::linger);
}

/// Ends the lease on a slot and keeps its buffer for the next lease. The buffer may hold the last reference to the
/// attachment.
///
/// So the flag that the owner waits is read before the lease ends. If that is too early, the owner scans again by
/// itself soon.
fn recycle_leased(buffer: Arc<Buffer>) {
    let Some(slot_ref) = buffer.slot_ref() else { return };
    let attachment = attachment(slot_ref);
    if attachment.is_inherited() {
        return;
    }
    if attachment.owner_is_waiting() {
        return recycle_and_wake(buffer);
    }
    end_lease(buffer);
}

#[cold]
fn recycle_and_wake(buffer: Arc<Buffer>) {
    let pool = buffer.slot_ref().map(|slot_ref| slot_ref.pool().clone());
    end_lease(buffer);
    let attachment = pool.and_then(|pool| pool.downcast::<Attachment>().ok());
    attachment.iter().for_each(|attachment| attachment.wake_owner());
}

#[inline(always)]
fn end_lease(buffer: Arc<Buffer>) {
    let slot = buffer.slot_ref().map_or(u32::MAX, |slot_ref| slot_ref.slot.index);
    drop(put_behind(buffer, leases_of, |lease_table| lease_table.end_lease(slot)));
}

/// The lease table of a slot, if this process leased it from another.
#[inline(always)]
fn leases_of(buffer: &Buffer) -> Option<&Biased<LeaseTable<Buffer>>> {
    let slot_ref = buffer.slot_ref()?;
    slot_ref.is_of(&LEASED).then(|| attachment(slot_ref).lease_table())
}
