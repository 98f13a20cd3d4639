//! The reasons that errors give.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A shape or a list of axes inside an error.
pub type Dims = Box<[usize]>;

/// The time that was waited, as the end of a sentence; empty if it is zero.
pub(crate) fn for_how_long(time: Duration) -> String {
    if time.is_zero() { String::new() } else { format!(" for {time:?}") }
}

/// Why a kind of memory is not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// This build has no code for it.
    #[error("this version of cenote cannot allocate it yet")]
    NotSupported,
    /// Only a `GlContext` makes it.
    #[error("only an OpenGL context makes it (`GlContext`, feature `gl`)")]
    NeedsContext,
    /// The operating system does not have it.
    #[error("this operating system does not have it")]
    Platform,
    /// The environment requests heap memory everywhere.
    #[error("CENOTE_FORCE_MEM asks for heap memory")]
    ForcedMem,
    /// The system refused.
    #[error("{op} failed: {source}")]
    Refused {
        /// What was attempted.
        op: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Every device that could allocate it failed.
    #[error("{}", list(tried))]
    NoDevice {
        /// The devices, with their errors.
        tried: Vec<Tried>,
    },
    /// Memory that other processes cannot write was requested, and there is none.
    #[error(
        "there is no udmabuf, or CENOTE_DMA_HEAP names a heap, and memory of a heap can be written by \
         every process that has it; to accept that, request it (`TensorMemory::Dma`, or an `unprotected` pool)"
    )]
    Unprotected,
    /// There is not enough memory.
    #[error("{asked} bytes do not fit in the {available} bytes left under {limit}")]
    Full {
        /// Bytes requested.
        asked: usize,
        /// Bytes that are free.
        available: usize,
        /// What limits them.
        limit: Limit,
    },
}

/// A device that failed to allocate memory.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tried {
    /// The device.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

fn list(tried: &[Tried]) -> String {
    let one = |Tried { path, source }: &Tried| format!("{}: {source}", path.display());
    tried.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// What bounds the memory that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The memory limit of a control group.
    #[error("the memory limit of this control group")]
    Cgroup,
    /// The memory of the machine.
    #[error("the memory of this machine")]
    Machine,
    /// The address space, or a limit on it.
    #[error("the address space of this process")]
    AddressSpace,
    /// The hard limit that a buffer pool was made with.
    #[error("the hard limit of this buffer pool")]
    Pool,
}

/// Why a tensor must not be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotWritable {
    /// Clones or views of it are alive.
    #[error("other handles or views of the same buffer are alive")]
    Shared,
    /// Its file descriptor was exported, or it was sent.
    #[error("it was, or may have been, shared with another process")]
    Published,
    /// It came from another process.
    #[error("it was received from another process")]
    Received,
    /// It is shared memory of the process that this one was forked from.
    #[error("it is shared memory of the process that this one was forked from")]
    Forked,
    /// The memory belongs to foreign code.
    #[error("its memory belongs to foreign code")]
    Foreign,
    /// Devices use its memory, which has to be mapped for each access by the CPU.
    #[error("devices use its memory, which has to be mapped for each access")]
    Device,
}

/// Why a pool has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Shortage {
    /// The tensor is larger than the whole pool: waiting does not help.
    #[error("that is more than the whole pool has; make one with a larger `pool_size`")]
    TooLarge,
    /// Every slot has a tensor.
    #[error("every slot is in use")]
    Slots,
    /// Fewer bytes are free than were requested.
    #[error("too many bytes are in use")]
    Bytes,
    /// There are enough free bytes, but in pieces between tensors that are alive.
    #[error("{free} bytes are free, but no more than {longest} in one piece")]
    Fragmented {
        /// Bytes that are free.
        free: usize,
        /// The most of them that lie in one piece, or could be reserved in one.
        longest: usize,
    },
}

/// A process that holds slots of a pool: the owner itself, or one that is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its process id; 0 if it cannot be seen from here.
    pub pid: i32,
    /// The name of its program.
    pub program: String,
    /// Slots that it holds.
    pub slots: usize,
    /// Those of them that the owner has retired: it can reuse them as soon as no process holds them.
    pub retired_slots: usize,
    /// How long ago the owner retired the oldest of those.
    pub longest: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, program, slots, retired_slots, longest } = self;
        write!(f, "{program} (pid {pid}) holds {slots}")?;
        if *retired_slots > 0 {
            let seconds = longest.as_secs_f64();
            write!(f, ", of which the owner retired {retired_slots}, first {seconds:.1}s ago")?;
        }
        Ok(())
    }
}
