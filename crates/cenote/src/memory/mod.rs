//! Where the bytes of a tensor come from: the kinds of memory, how one is chosen, and the budget.

pub(crate) mod budget;
pub(crate) mod choose;
pub(crate) mod cpu_access;
#[cfg(target_os = "linux")]
pub(crate) mod dma;
#[cfg(target_os = "linux")]
pub(crate) mod dma_heaps;
pub(crate) mod heap;
pub(crate) mod heap_block;
#[cfg(target_os = "linux")]
pub(crate) mod import;
pub(crate) mod kind;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod pbo;
pub(crate) mod region;
pub(crate) mod request;
pub(crate) mod selection;
#[cfg(target_os = "linux")]
pub(crate) mod shm;
#[cfg(target_os = "linux")]
pub(crate) mod slot;
pub(crate) mod storage;
