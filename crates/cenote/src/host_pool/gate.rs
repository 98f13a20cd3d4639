//! The gate: keeps pools whole when the process forks.
//!
//! A forked child has one thread, and a copy of everything else. A lock that another thread held
//! would never be free again, and what it protects might be half done. So a fork waits until nobody
//! is inside:
//!
//! - What is done rarely is done by a thread that has [entered](enter) the gate, and a fork closes
//!   the gate first. That covers ledgers, seats, the list of shards, the rota of idle pools and
//!   everything that is made once.
//! - What is done often takes the lock of one shard and nothing else, and pays nothing for this: a
//!   fork takes the locks of all shards, and leaves them in parent and child.
//!
//! The child so has a copy of every pool, with the blocks that were retained, and of the buffers of
//! the thread that forked. What other threads held stays counted as in use.
//!
//! Locks are taken in the order gate, ledger, shard, spares. Nobody enters twice: [`Entry`] is handed
//! down to whoever needs the gate too. (A signal handler that interrupts a pool and forks waits for
//! itself, as it would in malloc.)
#![allow(unsafe_code, reason = "leaves locks that were taken before the fork")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::pause;

/// Set while a thread forks; the rest counts the threads inside.
const CLOSED: usize = 1 << (usize::BITS - 1);

static GATE: Gate = Gate(AtomicUsize::new(0));

#[derive(Debug)]
struct Gate(AtomicUsize);

impl Gate {
    fn enter(&self) {
        self.change(|state| (state & CLOSED == 0).then_some(state + 1));
    }

    fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Keeps everybody out, once nobody is in.
    #[cfg_attr(any(all(test, loom), not(target_os = "linux")), allow(dead_code))]
    fn close(&self) {
        self.change(|state| (state & CLOSED == 0).then_some(state | CLOSED));
        self.change(|state| (state == CLOSED).then_some(state));
    }

    #[cfg_attr(any(all(test, loom), not(target_os = "linux")), allow(dead_code))]
    fn open(&self) {
        self.0.fetch_and(!CLOSED, Ordering::Release);
    }

    /// Waits until `next` agrees to the state, and changes it.
    fn change(&self, next: impl Fn(usize) -> Option<usize>) {
        let mut looks = 0_u32;
        while self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, &next).is_err() {
            looks = looks.saturating_add(1);
            pause(looks);
        }
    }
}

/// As long as this lives the process does not fork.
#[derive(Debug)]
pub(super) struct Entry(());

/// Waits for a fork to be over, and keeps the next one waiting.
pub(super) fn enter() -> Entry {
    GATE.enter();
    Entry(())
}

impl Drop for Entry {
    fn drop(&mut self) {
        GATE.leave();
    }
}

/// To be called before there is anything to keep whole.
pub(super) fn install() {
    #[cfg(all(target_os = "linux", not(all(test, loom))))]
    hooks::HOOKS.install();
}

#[cfg(all(target_os = "linux", not(all(test, loom))))]
mod hooks {
    use std::cell::Cell;

    use super::super::{decay, seat, spare};
    use super::{Entry, GATE};
    use crate::sys::fork::Hooks;

    pub(super) static HOOKS: Hooks = Hooks::new(prepare, parent, child);

    thread_local! {
        /// Whether this thread is forking: hooks that were entered twice run once.
        static FORKING: Cell<bool> = const { Cell::new(false) };
    }

    extern "C" fn prepare() {
        if FORKING.replace(true) {
            return;
        }
        GATE.close();
        spare::every_shard(|shard| shard.hold());
    }

    extern "C" fn parent() {
        if FORKING.replace(false) {
            resume();
        }
    }

    extern "C" fn child() {
        if !FORKING.replace(false) {
            return;
        }
        // Nobody else is there, so this thread is as good as inside.
        let inside = std::mem::ManuallyDrop::new(Entry(()));
        seat::inherit(&inside);
        decay::inherit(&inside);
        resume();
    }

    fn resume() {
        // SAFETY: `prepare` has run on this thread, and no shard was made since: the gate is closed.
        // `FORKING` sees to it that this is done once.
        spare::every_shard(|shard| unsafe { shard.let_go() });
        GATE.open();
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::super::{BufferPool, seat};
    use super::*;

    /// Runs `work` in a forked child, and says whether it came to its end and was content.
    fn child_succeeds(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls this crate and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let content = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            let code = i32::from(!content);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        for _ in 0..6000 {
            let mut status = 0;
            // SAFETY: asks for our own child.
            match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
                0 => thread::sleep(Duration::from_millis(10)),
                _ => return status == 0,
            }
        }
        // SAFETY: the child is ours, and was not waited for yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        false
    }

    /// The emulator cannot fork a process that has threads.
    fn emulated() -> bool {
        let emulated = std::env::var_os("CENOTE_TEST_EMULATED").is_some();
        if emulated {
            println!("NOT AVAILABLE under emulation: a forked child");
        }
        emulated
    }

    fn is_usable(pool: &BufferPool) -> bool {
        let hits = pool.stats().hits;
        drop(pool.acquire::<u8>(1000).unwrap());
        drop(pool.acquire::<u8>(1000).unwrap());
        pool.set_max_retained_bytes(1 << 20);
        let used = pool.stats().hits > hits;
        pool.clear();
        used && pool.is_empty()
    }

    #[test]
    fn a_child_forked_while_a_thread_holds_a_shard_can_use_the_pool() {
        if emulated() {
            return;
        }
        let pool = BufferPool::unbounded();
        drop(pool.acquire::<u8>(1000).unwrap());
        let shard = pool.store().shard_at(seat::number());
        let (held, is_held) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                shard.hold();
                held.send(()).unwrap();
                thread::sleep(Duration::from_millis(50));
                // SAFETY: held above.
                unsafe { shard.let_go() };
            });
            is_held.recv().unwrap();
            assert!(child_succeeds(|| is_usable(&pool)));
        });
        assert!(is_usable(&pool));
    }

    #[test]
    fn a_child_forked_while_a_thread_is_inside_the_gate_can_use_it() {
        if emulated() {
            return;
        }
        let pool = BufferPool::unbounded();
        let (entered, is_inside) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let inside = enter();
                entered.send(()).unwrap();
                thread::sleep(Duration::from_millis(50));
                drop(inside);
            });
            is_inside.recv().unwrap();
            assert!(child_succeeds(|| is_usable(&pool)));
        });
    }

    #[test]
    fn the_child_of_a_child_that_used_no_pool_sits_where_it_sat() {
        if emulated() {
            return;
        }
        let seat = seat::number();
        let grandchild = || seat::number() == seat && seat::neighbours() == 1;
        assert!(child_succeeds(|| child_succeeds(grandchild)));
    }

    #[test]
    fn idle_memory_decays_in_a_child_too() {
        if emulated() {
            return;
        }
        let pool = BufferPool::options().idle_after(Some(Duration::from_millis(5))).build();
        drop(pool.acquire::<u8>(1 << 20).unwrap());
        let work = || {
            drop(pool.acquire::<u8>(1 << 20).unwrap());
            (0..6000).any(|_| {
                thread::sleep(Duration::from_millis(10));
                pool.is_empty()
            })
        };
        assert!(child_succeeds(work));
    }
}
