//! Reasons, as errors carry them.

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

/// Why a kind of memory cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// This build has no code for it.
    #[error("this version of cenote cannot allocate it yet")]
    NotSupported,
    /// It is made by something else than options: a `GlContext`.
    #[error("only an OpenGL context makes it (`GlContext`, feature `gl`)")]
    NeedsContext,
    /// The operating system has nothing like it.
    #[error("this operating system does not have it")]
    Platform,
    /// The user asked for heap memory everywhere.
    #[error("CENOTE_FORCE_MEM asks for heap memory")]
    ForcedMem,
    /// The system refused when asked.
    #[error("{op} failed: {source}")]
    Refused {
        /// What was attempted.
        op: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// None of the devices that it comes from gave any.
    #[error("{}", list(tried))]
    NoDevice {
        /// Those that were asked, and what they said.
        tried: Vec<Tried>,
    },
    /// It was to be memory that others can be kept from writing, and there is none of that.
    #[error(
        "there is no udmabuf, or CENOTE_DMA_HEAP names a heap, and memory of a heap can be written by \
         whoever has it; if that will do, ask for it (`TensorMemory::Dma`, or an `unprotected` pool)"
    )]
    Unprotected,
    /// There is not enough of it.
    #[error("{asked} bytes do not fit in the {available} bytes left under {limit}")]
    Full {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that could still be had.
        available: usize,
        /// What limits them.
        limit: Limit,
    },
}

/// A device that was asked for memory in vain.
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
    /// Its file descriptor was given out, or it was sent.
    #[error("it was, or may have been, shared with another process")]
    Published,
    /// It came from another process.
    #[error("it was received from another process")]
    Received,
    /// It is shared memory of the process that this one was forked from.
    #[error("it is shared memory of the process that this one was forked from")]
    Forked,
    /// The memory belongs to somebody else.
    #[error("its memory belongs to somebody else")]
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
    /// As many tensors as there can be are alive.
    #[error("every slot is in use")]
    Slots,
    /// So many bytes are in use that what is left is less than was asked for.
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
    /// Those of them that the owner let go of, and could reuse were it not for this process and
    /// others like it.
    pub retired_slots: usize,
    /// How long ago the owner let go of the oldest of those.
    pub longest: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { pid, program, slots, retired_slots, longest } = self;
        write!(f, "{program} (pid {pid}) holds {slots}")?;
        if *retired_slots > 0 {
            let seconds = longest.as_secs_f64();
            write!(f, ", of which the owner let go of {retired_slots}, first {seconds:.1}s ago")?;
        }
        Ok(())
    }
}
