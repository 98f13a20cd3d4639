//! A fence that one side pays for: membarrier(2).
//!
//! Two threads that each store a word and then look at the other's word need a `SeqCst` fence in between, both of
//! them, or both may see the old one. Where one of them does that all the time and the other hardly ever, the
//! first has a [`light`] fence, which only the compiler sees, and the other a [`heavy`] one, which has every
//! thread of this process make a full fence wherever it is just then.
#![cfg(target_os = "linux")]

#[cfg(all(test, loom))]
pub(crate) use modelled::{heavy, is_granted, light, prepare};
#[cfg(not(all(test, loom)))]
pub(crate) use shipped::{heavy, is_granted, light, prepare};

#[cfg(not(all(test, loom)))]
mod shipped {
    use std::thread::sleep;
    use std::time::Duration;

    use rustix::thread::{MembarrierCommand, membarrier};

    use crate::intervals::STORES_ARRIVE;
    use crate::sync::atomic::{Ordering, compiler_fence};
    use crate::sync::statics::StaticU32;

    const UNKNOWN: u32 = 0;
    const GRANTED: u32 = 1;
    const REFUSED: u32 = 2;

    /// Whether the kernel lets this process have heavy fences. A forked child inherits that.
    static HEAVY: StaticU32 = StaticU32::new(UNKNOWN);

    /// Asks the kernel for heavy fences. In a process of several threads that takes many milliseconds.
    pub(crate) fn prepare() {
        if HEAVY.load(Ordering::Relaxed) == UNKNOWN {
            let granted = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            HEAVY.store(if granted { GRANTED } else { REFUSED }, Ordering::Relaxed);
        }
    }

    /// Whether there are heavy fences; otherwise a light one is none.
    #[inline]
    pub(crate) fn is_granted() -> bool {
        HEAVY.load(Ordering::Relaxed) == GRANTED
    }

    #[inline(always)]
    pub(crate) fn light() {
        compiler_fence(Ordering::SeqCst);
    }

    #[cold]
    pub(crate) fn heavy() {
        // Refused although it was granted: by a filter that the process has put itself under since, or for want of
        // memory. From here on nobody is favoured any more; what still is waits so long when favour is taken away.
        if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            HEAVY.store(REFUSED, Ordering::Relaxed);
            sleep(STORES_ARRIVE);
        }
    }
}

/// What the two are together, they are as fences of both sides.
#[cfg(all(test, loom))]
mod modelled {
    use crate::sync::atomic::{Ordering, fence};

    pub(crate) fn prepare() {}

    pub(crate) fn is_granted() -> bool {
        true
    }

    pub(crate) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn heavy() {
        fence(Ordering::SeqCst);
    }
}
