//! The kinds of memory that tensor bytes live in.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A kind of memory.
///
/// Every Linux machine has heap and shared memory. DMA-BUFs need a device that allocates them, and the permission to use
/// it. OpenGL buffers are made only by a context.
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
    /// The heap of this process. Always available; cannot be shared.
    Mem = 0,
    /// A DMA-BUF, which devices can read and write.
    Dma = 1,
    /// Shared memory (a sealed memfd), which other processes can map.
    Shm = 2,
    /// An OpenGL pixel buffer object, made only by a `GlContext` (feature `gl`).
    Pbo = 3,
}

impl TensorMemory {
    /// Every kind, in the order of their codes.
    pub const ALL: [TensorMemory; 4] =
        [TensorMemory::Mem, TensorMemory::Dma, TensorMemory::Shm, TensorMemory::Pbo];

    /// The order in which kinds are tried if none is requested.
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

    /// The number that identifies it between processes and languages. It never changes.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind with this code; `None` if there is none.
    pub fn from_code(code: u8) -> Option<TensorMemory> {
        TensorMemory::ALL.get(usize::from(code)).copied()
    }
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
