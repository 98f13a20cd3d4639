//! Scratch memory of this process: `cenote.MemoryPool` and `cenote.UnifiedBuffer`.

pub(crate) mod memory_pool;
pub(crate) mod unified_buffer;
