//! Stands in for `pages` where memory is not mapped by us: every block comes from the allocator.

#![allow(unsafe_code, reason = "the same surface as on Linux")]

use std::ptr::NonNull;

pub(super) fn round_up(bytes: usize) -> Option<usize> {
    Some(bytes)
}

pub(super) fn map(_size: usize, _huge: bool) -> Option<NonNull<u8>> {
    None
}

/// # Safety
///
/// Never called: [`map`] gives nothing out.
pub(super) unsafe fn unmap(_start: NonNull<u8>, _size: usize) {}

pub(super) fn want_huge(_start: NonNull<u8>, _size: usize) -> bool {
    false
}

pub(super) fn prefault(_start: NonNull<u8>, _size: usize) -> bool {
    false
}

pub(super) fn lock(_start: NonNull<u8>, _size: usize) -> bool {
    false
}

pub(super) fn unlock(_start: NonNull<u8>, _size: usize) {}
