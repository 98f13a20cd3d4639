//! Where tensor bytes live: the kinds of memory, and how one of them is chosen.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result, Unavailable};
use crate::memory::choose;
#[cfg(target_os = "linux")]
use crate::memory::{dma, shm};

/// A kind of memory.
///
/// The heap and shared memory are on every Linux machine. DMA-BUFs need a device that gives them out,
/// and the right to use it. OpenGL buffers are made by a context, never by themselves.
///
/// ```
/// use cenote::TensorMemory;
///
/// assert_eq!("shm".parse::<TensorMemory>()?, TensorMemory::Shm);
/// assert_eq!(TensorMemory::Shm.code(), 2);
/// assert!(TensorMemory::Mem.is_available());
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TensorMemory {
    /// The heap of this process. Always there; cannot be shared.
    Mem = 0,
    /// A DMA-BUF, which devices can read and write.
    Dma = 1,
    /// Shared memory (a sealed memfd), which other processes can map.
    Shm = 2,
    /// An OpenGL pixel buffer object: made by a `GlContext` (feature `gl`), and by nothing else.
    Pbo = 3,
}

impl TensorMemory {
    /// Every kind, in the order of their codes.
    pub const ALL: [TensorMemory; 4] =
        [TensorMemory::Mem, TensorMemory::Dma, TensorMemory::Shm, TensorMemory::Pbo];

    /// The order in which kinds are tried when none is asked for.
    pub const PREFERENCE: [TensorMemory; 3] =
        [TensorMemory::Dma, TensorMemory::Shm, TensorMemory::Mem];

    /// The short name: `mem`, `dma`, `shm` or `pbo`.
    pub const fn name(self) -> &'static str {
        match self {
            TensorMemory::Mem => "mem",
            TensorMemory::Dma => "dma",
            TensorMemory::Shm => "shm",
            TensorMemory::Pbo => "pbo",
        }
    }

    /// The code that stands for it between processes and languages. It never changes.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind of a code, if there is one.
    pub fn from_code(code: u8) -> Option<TensorMemory> {
        TensorMemory::ALL.get(usize::from(code)).copied()
    }

    /// Whether tensors can be allocated in this memory, on this machine, now.
    pub fn is_available(self) -> bool {
        self.availability().is_ok()
    }

    /// Like [`is_available`](TensorMemory::is_available), with the reason if not.
    ///
    /// ```
    /// use cenote::TensorMemory;
    /// if let Err(why) = TensorMemory::Pbo.availability() {
    ///     println!("pbo: not available: {why}");
    /// }
    /// ```
    pub fn availability(self) -> Result<(), Unavailable> {
        match self {
            TensorMemory::Mem => Ok(()),
            _ if choose::force_mem().unwrap_or(false) => Err(Unavailable::ForcedMem),
            TensorMemory::Shm => shm_availability(),
            TensorMemory::Dma => dma_availability(),
            TensorMemory::Pbo => Err(Unavailable::NeedsContext),
        }
    }
}

#[cfg(target_os = "linux")]
fn shm_availability() -> Result<(), Unavailable> {
    shm::availability()
}

#[cfg(target_os = "linux")]
fn dma_availability() -> Result<(), Unavailable> {
    dma::availability()
}

#[cfg(not(target_os = "linux"))]
fn shm_availability() -> Result<(), Unavailable> {
    Err(Unavailable::Platform)
}

#[cfg(not(target_os = "linux"))]
fn dma_availability() -> Result<(), Unavailable> {
    Err(Unavailable::Platform)
}

impl fmt::Display for TensorMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TensorMemory {
    type Err = Error;

    /// Accepts the names in any case.
    fn from_str(name: &str) -> Result<Self> {
        TensorMemory::ALL
            .into_iter()
            .find(|memory| memory.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| Error::UnknownMemory { given: name.into() })
    }
}

impl TryFrom<&str> for TensorMemory {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        name.parse()
    }
}

impl From<TensorMemory> for String {
    fn from(memory: TensorMemory) -> String {
        memory.name().to_owned()
    }
}
