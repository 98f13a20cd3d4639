//! What happens to shared memory when the process forks.
//!
//! A child that is a copy of its parent has the parent's memory mapped and would write into it. So
//! before the child runs anything, every writable shared mapping that is registered here is
//! replaced by a private copy-on-write one at the same address, every registered socket is closed
//! in the child, and an epoch goes up by which everybody can tell that they were inherited. Mappings
//! of DMA-BUFs cannot be private; the child may read them and no more.
//!
//! vfork and posix_spawn run none of this and need none: the child executes another program, and
//! every descriptor closes on exec. A raw clone(2) runs none of this either, and is not supported.
//!
//! # Contract
//! Between `prepare` and `parent`/`child` the thread that forks holds the register's lock, so the
//! child sees a register that nobody was changing. In the child only mmap(2), mprotect(2) and
//! close(2) are called, which are async-signal-safe.
#![allow(unsafe_code, reason = "pthread_atfork, and mapping over existing memory")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sync::{Ordering, StaticBool, StaticPtr, StaticU64};

static EPOCH: StaticU64 = StaticU64::new(1);

/// A number that is different in a forked child.
#[inline]
pub(crate) fn epoch() -> u64 {
    // Relaxed: it changes only in a child that has one thread.
    EPOCH.load(Ordering::Relaxed)
}

/// The same, for something that is to be told from its copy in a child although it has nothing to
/// guard yet.
pub(crate) fn epoch_from_now_on() -> u64 {
    install();
    epoch()
}

/// Something that a forked child must not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    /// A writable shared mapping of the file's first bytes.
    Map {
        ptr: usize,
        len: usize,
        fd: RawFd,
    },
    /// A writable shared mapping of a DMA-BUF, of which there are no private ones.
    Device {
        ptr: usize,
        len: usize,
    },
    Socket {
        fd: RawFd,
    },
}

/// With the epoch in which each was entered: a child inherits its parent's entries, and must not
/// take them for its own when it forks in turn.
type Register = BTreeSet<(u64, Entry)>;

static REGISTER: Mutex<Register> = Mutex::new(Register::new());

thread_local! {
    /// The register's lock, held across a fork.
    static HELD: Cell<Option<MutexGuard<'static, Register>>> = const { Cell::new(None) };
}

fn register() -> MutexGuard<'static, Register> {
    // The lock protects no invariant that a panic could break: pushes and removals are whole.
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an entry in the register for as long as it lives.
#[derive(Debug)]
pub(crate) struct Guarded {
    entry: Entry,
    epoch: u64,
}

impl Guarded {
    /// A child gets a private copy of this mapping. It must be of the first `len` bytes of `fd`,
    /// and both must outlive the guard.
    pub(crate) fn map(ptr: NonNull<u8>, len: usize, fd: RawFd) -> Guarded {
        Guarded::new(Entry::Map { ptr: ptr.as_ptr().expose_provenance(), len, fd })
    }

    /// A child can only read this mapping. It must outlive the guard.
    pub(crate) fn device(ptr: NonNull<u8>, len: usize) -> Guarded {
        Guarded::new(Entry::Device { ptr: ptr.as_ptr().expose_provenance(), len })
    }

    fn new(entry: Entry) -> Guarded {
        install();
        let epoch = epoch();
        register().insert((epoch, entry));
        Guarded { entry, epoch }
    }

    /// Whether this process is a forked child of the one that registered.
    pub(crate) fn inherited(&self) -> bool {
        self.epoch != epoch()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.inherited() {
            return;
        }
        register().remove(&(self.epoch, self.entry));
    }
}

/// Has the kernel's fork call the three functions below, from the first use on.
fn install() {
    static HOOKS: Hooks = Hooks::new(prepare, parent, child);
    HOOKS.install();
}

/// Functions that run before a fork, and after it in the parent and in the child.
///
/// They may be entered twice by threads that come at once: the second run of each must do nothing.
/// So nobody has to wait for anybody here, which a child that is forked meanwhile would do for ever.
#[derive(Debug)]
pub(crate) struct Hooks {
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
    installed: StaticBool,
}

impl Hooks {
    pub(crate) const fn new(
        prepare: extern "C" fn(),
        parent: extern "C" fn(),
        child: extern "C" fn(),
    ) -> Hooks {
        Hooks { prepare, parent, child, installed: StaticBool::new(false) }
    }

    /// Enters the functions, unless that has been done.
    pub(crate) fn install(&self) {
        if self.installed.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the three functions are `extern "C"`, take nothing, and do not unwind. If
        // there is no memory for the entry, children are not protected; nothing else breaks.
        unsafe { libc::pthread_atfork(Some(self.prepare), Some(self.parent), Some(self.child)) };
        self.installed.store(true, Ordering::Release);
    }
}

extern "C" fn prepare() {
    // A thread that is ending has no thread-locals any more; then `child` tries the lock itself.
    let _ = HELD.try_with(|held| held.set(held.take().or_else(|| Some(register()))));
}

extern "C" fn parent() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn child() {
    let parent = EPOCH.fetch_add(1, Ordering::Relaxed);
    let held = HELD.try_with(Cell::take).ok().flatten();
    let Some(register) = held.or_else(|| REGISTER.try_lock().ok()) else { give_up() };
    // The entries stay: removing them would free memory, and the owners know by the epoch that
    // they are not theirs.
    for (_, entry) in register.iter().filter(|(epoch, _)| *epoch == parent) {
        match *entry {
            Entry::Map { ptr, len, fd } => make_private(ptr, len, fd),
            Entry::Device { ptr, len } => forbid_writing(ptr, len),
            Entry::Socket { fd } => {
                // SAFETY: the number belongs to a socket that the parent owns; its owner here
                // knows by the epoch that it must not use or close it again.
                unsafe { libc::close(fd) };
            }
        }
    }
}

fn make_private(ptr: usize, len: usize, fd: RawFd) {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
    let at = ptr::with_exposed_provenance_mut(ptr);
    // SAFETY: the registered mapping covers these pages and keeps doing so; its bytes are the same
    // as before, only that writes are now private. The child has one thread, so nobody looks.
    let mapped = unsafe { libc::mmap(at, len, prot, flags, fd, 0) };
    if mapped == libc::MAP_FAILED {
        give_up();
    }
}

fn forbid_writing(ptr: usize, len: usize) {
    let at = ptr::with_exposed_provenance_mut(ptr);
    // SAFETY: the registered mapping covers these pages. Whoever would write them asks for the epoch
    // first.
    if unsafe { libc::mprotect(at, len, libc::PROT_READ) } != 0 {
        give_up();
    }
}

/// A child that could write its parent's memory must not run.
fn give_up() -> ! {
    // SAFETY: `_exit` may be called anywhere.
    unsafe { libc::_exit(127) }
}

/// A socket that stays behind when the process forks.
#[derive(Debug)]
pub(crate) struct GuardedSocket {
    fd: ManuallyDrop<OwnedFd>,
    guard: ManuallyDrop<Guarded>,
}

impl GuardedSocket {
    /// Takes the socket that `make` makes at once. Under the lock, so that no fork comes between its
    /// making and its entry: a child that kept it would make its dead parent look alive.
    pub(crate) fn open(make: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        install();
        let mut register = register();
        Ok(Self::entered(make()?, &mut register))
    }

    /// The same for two at once.
    pub(crate) fn open_pair(
        make: impl FnOnce() -> io::Result<(OwnedFd, OwnedFd)>,
    ) -> io::Result<(Self, Self)> {
        install();
        let mut register = register();
        let (one, other) = make()?;
        Ok((Self::entered(one, &mut register), Self::entered(other, &mut register)))
    }

    fn entered(fd: OwnedFd, register: &mut Register) -> Self {
        let guard = Guarded { entry: Entry::Socket { fd: fd.as_raw_fd() }, epoch: epoch() };
        register.insert((guard.epoch, guard.entry));
        GuardedSocket { fd: ManuallyDrop::new(fd), guard: ManuallyDrop::new(guard) }
    }

    /// Whether this process is a forked child, which does not have the socket.
    pub(crate) fn inherited(&self) -> bool {
        self.guard.inherited()
    }
}

impl AsFd for GuardedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for GuardedSocket {
    fn drop(&mut self) {
        // In a child the number was closed already, and may belong to somebody else by now.
        if self.guard.inherited() {
            return;
        }
        // Under the lock, so that neither a fork nor the next socket with this number comes between.
        let mut register = register();
        register.remove(&(self.guard.epoch, self.guard.entry));
        // SAFETY: this is the only place that takes the descriptor, and it runs once.
        drop(unsafe { ManuallyDrop::take(&mut self.fd) });
    }
}

/// A value that each process makes for itself: a forked child does not use its parent's.
///
/// No lock is involved, so a fork at any moment leaves it whole. Values in use are never freed.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    /// Null, or a leaked value and the epoch it was made in.
    current: StaticPtr<(u64, T)>,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess { current: StaticPtr::new(ptr::null_mut()) }
    }

    /// This process's value, made by `make` if need be. Two threads at once may both make one;
    /// then one of them is used and the other dropped.
    pub(crate) fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        // Else nothing would tell a child that this is not its own.
        install();
        let found = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is null or was leaked below, and Acquire pairs with the Release that
        // published it.
        match unsafe { found.as_ref() } {
            Some((made_in, value)) if *made_in == epoch() => return Ok(value),
            _ => {}
        }
        let made = Box::into_raw(Box::new((epoch(), make()?)));
        let swapped =
            self.current.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire);
        let winner = swapped.map_or_else(|winner| winner, |_| made);
        if winner != made {
            // SAFETY: it was made a box above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
        // SAFETY: not null: either `made`, or what another thread exchanged for `found`, which
        // it leaked just the same.
        let (_, value) = unsafe { &*winner };
        Ok(value)
    }
}
