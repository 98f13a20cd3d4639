//! Where the bytes of a tensor come from.
//!
//! `kind` lists the kinds of memory, and `choose` picks one for a request. Each kind has a file or folder: `heap`, `shm`,
//! `dma`, `pbo`; `import` maps file descriptors. All of them return a `storage`, which is a `region` of bytes and what
//! its kind adds. `budget` refuses memory that the machine does not have.

pub(crate) mod budget;
pub(crate) mod choose;
pub(crate) mod cpu_access;
#[cfg(target_os = "linux")]
pub(crate) mod dma;
pub(crate) mod heap;
pub(crate) mod heap_block;
#[cfg(target_os = "linux")]
pub(crate) mod import;
pub(crate) mod kind;
#[cfg(all(target_os = "linux", feature = "gl"))]
pub(crate) mod pbo;
pub(crate) mod region;
#[cfg(target_os = "linux")]
pub(crate) mod shm;
#[cfg(target_os = "linux")]
pub(crate) mod slot;
pub(crate) mod storage;
