//! Asking for a cache line before it is needed.
//!
//! A line that another core has takes as long to come as hundreds of instructions, and an atomic
//! read-modify-write lets nothing behind it begin before it is done. Whoever asks early waits once for
//! several lines. These are hints: an address that nothing is mapped at does no harm.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "the instructions take pointers, and never follow them")]

/// The line will be read.
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

/// The line will be written.
#[inline]
pub(crate) fn fetch_to_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        // The intrinsic would ask for reading only, on processors that are not known to have this one;
        // where it is missing, it is a no-op.
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch changes nothing and faults at no address.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    let _ = at;
}
