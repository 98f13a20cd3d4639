//! The allocator of the C library.
#![allow(unsafe_code, reason = "malloc_trim")]

/// Returns free pages of the allocator to the system, with glibc. It searches all its memory for that, so this is
/// slow.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: may be called at any time, from any thread.
        unsafe { libc::malloc_trim(0) };
    }
}
