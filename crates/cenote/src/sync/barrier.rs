//! An asymmetric fence, of which one side pays the whole cost: membarrier(2).
//!
//! If two threads each store a word and then load the other's word, both need a `SeqCst` fence in between, or both may
//! load the old value. If one thread does that all the time and the other rarely, the first uses a [`light`] fence,
//! which only the compiler sees. The other uses a [`heavy`] fence, which makes every thread of the process execute a
//! full fence.
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

    /// Whether the kernel grants this process heavy fences. A forked child inherits that.
    static HEAVY: StaticU32 = StaticU32::new(UNKNOWN);

    /// Registers with the kernel for heavy fences. That takes many milliseconds in a process with several threads.
    pub(crate) fn prepare() {
        if HEAVY.load(Ordering::Relaxed) == UNKNOWN {
            let granted = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            HEAVY.store(if granted { GRANTED } else { REFUSED }, Ordering::Relaxed);
        }
    }

    /// Whether heavy fences work. Otherwise a light fence orders nothing.
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
        // Refused although it was granted: by a seccomp filter that was installed since, or for want of memory. From
        // here on no lock gets a bias. To revoke an existing one, a thread waits until stores have arrived.
        if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            HEAVY.store(REFUSED, Ordering::Relaxed);
            sleep(STORES_ARRIVE);
        }
    }
}

/// In a model both sides use a full fence, which is what the pair amounts to.
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
