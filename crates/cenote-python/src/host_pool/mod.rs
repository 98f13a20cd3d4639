//! Scratch memory of this process: `cenote.MemoryPool` and `cenote.UnifiedBuffer`.

mod array_base;
mod locked_buffer;
pub(crate) mod memory_pool;
mod shared_pool;
pub(crate) mod unified_buffer;
