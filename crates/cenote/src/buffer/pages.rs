//! Pages straight from Linux, for large blocks: zero without being touched, given back in full.
//!
//! Contract: [`map`] returns fresh memory that nothing else refers to; [`unmap`] takes exactly what
//! `map` returned. The other calls only advise, and leave the bytes as they are.

#![allow(unsafe_code, reason = "the boundary to mmap")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rustix::mm;

/// Transparent huge pages have this size almost everywhere; where not, this only aligns too much.
const HUGE: usize = 2 << 20;

/// The bytes that a mapping for `bytes` takes up.
pub(super) fn round_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(rustix::param::page_size())
}

/// Maps `size` zero bytes, a multiple of the page size.
pub(super) fn map(size: usize, huge: bool) -> Option<NonNull<u8>> {
    if huge { map_aligned(size, HUGE) } else { map_anywhere(size) }
}

fn map_anywhere(size: usize) -> Option<NonNull<u8>> {
    let (prot, flags) = (mm::ProtFlags::READ | mm::ProtFlags::WRITE, mm::MapFlags::PRIVATE);
    // SAFETY: with a null hint and without MAP_FIXED the kernel picks free addresses, so no
    // existing mapping changes.
    let start = unsafe { mm::mmap_anonymous(ptr::null_mut(), size, prot, flags) };
    NonNull::new(start.ok()?.cast())
}

/// Maps more than is needed and gives both ends back.
fn map_aligned(size: usize, align: usize) -> Option<NonNull<u8>> {
    let whole = map_anywhere(size.checked_add(align)?)?;
    let lead = whole.as_ptr().align_offset(align);
    // SAFETY: `lead < align`, and `size + align` bytes were mapped.
    let start = unsafe { whole.add(lead) };
    // SAFETY: `lead + size < size + align`, so this stays inside the mapping too.
    let end = unsafe { start.add(size) };
    // SAFETY: both ends are parts of the new mapping outside `start..end`; nobody knows them yet.
    unsafe { unmap(whole, lead) };
    // SAFETY: as above; `align - lead` bytes remain behind `end`.
    unsafe { unmap(end, align - lead) };
    Some(start)
}

/// Gives `size` bytes at `start` back.
///
/// # Safety
///
/// They came from [`map`], and nothing refers to them any more.
pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
    if size == 0 {
        return;
    }
    // SAFETY: the caller vouches that this memory is ours and unused. It cannot fail for a range
    // that is mapped, short of the limit on mappings; then the pages stay, which is only a leak.
    let _ = unsafe { mm::munmap(start.as_ptr().cast(), size) };
}

/// Asks for huge pages; true if the kernel agreed and does not have them turned off.
pub(super) fn want_huge(start: NonNull<u8>, size: usize) -> bool {
    let off = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| text.contains("[never]"));
    // SAFETY: the advice changes no bytes.
    let advised = unsafe { mm::madvise(raw(start), size, mm::Advice::LinuxHugepage) };
    !off && advised.is_ok()
}

/// Makes every page present now; true if the kernel did.
pub(super) fn prefault(start: NonNull<u8>, size: usize) -> bool {
    // SAFETY: populating pages changes no bytes.
    unsafe { mm::madvise(raw(start), size, mm::Advice::LinuxPopulateWrite) }.is_ok()
}

/// Locks the pages in memory; true if the kernel did.
pub(super) fn lock(start: NonNull<u8>, size: usize) -> bool {
    // SAFETY: locking changes no bytes.
    unsafe { mm::mlock(raw(start), size) }.is_ok()
}

/// Undoes [`lock`].
pub(super) fn unlock(start: NonNull<u8>, size: usize) {
    // SAFETY: unlocking changes no bytes. If it fails the pages stay locked, which is harmless.
    let _ = unsafe { mm::munlock(raw(start), size) };
}

fn raw(start: NonNull<u8>) -> *mut c_void {
    start.as_ptr().cast()
}
