//! The process's allocator, where it is the C library's.
#![allow(unsafe_code, reason = "malloc_trim")]

/// Asks the allocator to give pages that it has free back to the system, where it can be asked.
/// It looks at all its memory for that, so this is for the rare case.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: may be called at any time, from any thread.
        unsafe { libc::malloc_trim(0) };
    }
}
