//! Prefetches: requests a cache line before it is needed.
//!
//! A line that another core has takes as long as hundreds of instructions to arrive, and no later instruction starts
//! before an atomic read-modify-write has finished. A thread that requests several lines early waits for all of them
//! at once. These are hints: an address at which nothing is mapped does no harm.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "the instructions take pointers, but do not dereference them")]

/// Requests a line to read.
#[inline]
pub(crate) fn fetch_to_read(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    let _ = at;
}

/// Requests a line to write.
#[inline]
pub(crate) fn fetch_to_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        // Not the intrinsic: unless the target is known to have this instruction, it prefetches for reading only.
        // A processor without the instruction treats it as a no-op.
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    let _ = at;
}
