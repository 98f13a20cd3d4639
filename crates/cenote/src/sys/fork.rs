//! What happens to shared memory and sockets when the process forks.
//!
//! A forked child is a copy of its parent: it has the parent's shared memory mapped and could write to it. So before
//! the child runs any other code, the handlers of this file
//!
//! 1. replace every registered writable mapping by a private copy-on-write one at the same address. There are no
//!    private mappings of DMA-BUFs, so those become read-only;
//! 2. close every registered socket, because the parent's peers detect its death by a closed connection;
//! 3. count the epoch up, by which a value can tell that it was inherited ([`Creator`]).
//!
//! vfork and posix_spawn run none of this and need none: the child executes another program, and
//! every descriptor closes on exec. A raw clone(2) runs none of this either, and is not supported.
//!
//! # Where to check
//! - A public call checks once, before it takes a lock, and returns an error. A lock of the parent may have been held
//!   by another thread when the process forked, and is then never released in the child. What the call uses below
//!   needs no check.
//! - A `Drop` checks by itself, because the child drops its copies at any depth. An inherited value is dropped
//!   without effect on what it shares with the parent: no system call on its descriptors, no store to shared memory.
//! - The service thread exists only in the parent. Its callbacks need no check.
//!
//! # Contract
//! Between `prepare` and `parent` or `child` the forking thread holds the lock of the register, so the child sees
//! the register in a consistent state. In the child only mmap(2), mprotect(2) and close(2) are called, which are
//! async-signal-safe.
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

/// A number that differs between a process and its forked children.
#[inline]
fn epoch() -> u64 {
    // Relaxed: it changes only in a child, while the child has one thread.
    EPOCH.load(Ordering::Relaxed)
}

/// The process that created a value. A forked child can tell that it inherited the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Creator(u64);

impl Creator {
    /// This process. From here on forks run the handlers.
    pub(crate) fn this_process() -> Creator {
        install();
        Creator::here()
    }

    /// This process, for a value that is harmless in a child unless something else has installed the handlers.
    #[inline]
    pub(crate) fn here() -> Creator {
        Creator(epoch())
    }

    /// Whether this process is a forked child of the creator.
    #[inline]
    pub(crate) fn is_inherited(self) -> bool {
        self != Creator::here()
    }
}

/// A resource that a forked child must not share with its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Resource {
    /// A writable shared mapping of the file's first bytes.
    Map {
        ptr: usize,
        len: usize,
        fd: RawFd,
    },
    /// A writable shared mapping of a DMA-BUF.
    Device {
        ptr: usize,
        len: usize,
    },
    Socket {
        fd: RawFd,
    },
}

/// The resources, with the process that registered each. A child inherits its parent's entries, and must skip them
/// when it forks in turn.
type Register = BTreeSet<(Creator, Resource)>;

static REGISTER: Mutex<Register> = Mutex::new(Register::new());

thread_local! {
    /// The register's lock, held across a fork.
    static HELD: Cell<Option<MutexGuard<'static, Register>>> = const { Cell::new(None) };
}

fn register() -> MutexGuard<'static, Register> {
    // A panic cannot leave the set half changed: each lock covers one insertion or removal.
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a resource registered while it lives.
#[derive(Debug)]
pub(crate) struct Guarded {
    resource: Resource,
    creator: Creator,
}

impl Guarded {
    /// Registers a mapping of which a child gets a private copy. It must cover the first `len` bytes of `fd`,
    /// and both must outlive the guard.
    pub(crate) fn map(ptr: NonNull<u8>, len: usize, fd: RawFd) -> Guarded {
        Guarded::new(Resource::Map { ptr: ptr.as_ptr().expose_provenance(), len, fd })
    }

    /// Registers a mapping that a child can only read. It must outlive the guard.
    pub(crate) fn device(ptr: NonNull<u8>, len: usize) -> Guarded {
        Guarded::new(Resource::Device { ptr: ptr.as_ptr().expose_provenance(), len })
    }

    fn new(resource: Resource) -> Guarded {
        let creator = Creator::this_process();
        register().insert((creator, resource));
        Guarded { resource, creator }
    }

    /// Whether this process is a forked child of the one that registered the resource.
    pub(crate) fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        register().remove(&(self.creator, self.resource));
    }
}

/// Has fork(3) call the three functions below, from the first call on.
fn install() {
    static HOOKS: Hooks = Hooks::new(prepare, parent, child);
    HOOKS.install();
}

/// Functions that run before a fork, and after it in the parent and in the child.
///
/// Two threads that install them at once register them twice, so the second run of each function must do nothing.
/// A lock would prevent that, but a child that is forked while the lock is held would wait for ever.
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

    /// Registers the functions with pthread_atfork(3), unless they are registered.
    pub(crate) fn install(&self) {
        if self.installed.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the three functions are `extern "C"`, take no argument, and do not unwind. If
        // the call fails for want of memory, children are not protected; nothing else breaks.
        unsafe { libc::pthread_atfork(Some(self.prepare), Some(self.parent), Some(self.child)) };
        self.installed.store(true, Ordering::Release);
    }
}

extern "C" fn prepare() {
    // A thread that is about to end has no thread-locals any more; then `child` tries the lock itself.
    let _ = HELD.try_with(|held| held.set(held.take().or_else(|| Some(register()))));
}

extern "C" fn parent() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn child() {
    let parent = Creator(EPOCH.fetch_add(1, Ordering::Relaxed));
    let held = HELD.try_with(Cell::take).ok().flatten();
    let Some(register) = held.or_else(|| REGISTER.try_lock().ok()) else { give_up() };
    // The entries stay, because removing them would free memory, which is not async-signal-safe. Their creator tells
    // that they were inherited.
    for (_, resource) in register.iter().filter(|(creator, _)| *creator == parent) {
        match *resource {
            Resource::Map { ptr, len, fd } => make_private(ptr, len, fd),
            Resource::Device { ptr, len } => forbid_writing(ptr, len),
            Resource::Socket { fd } => {
                // SAFETY: the number is that of a socket of the parent. The `GuardedSocket` in this process was
                // inherited, so it neither uses the number nor closes it again.
                unsafe { libc::close(fd) };
            }
        }
    }
}

fn make_private(ptr: usize, len: usize, fd: RawFd) {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
    let at = ptr::with_exposed_provenance_mut(ptr);
    // SAFETY: the registered mapping covers these pages, and so does the new one, with the same bytes. Only
    // writes are private from here on. The child has one thread, so no access happens meanwhile.
    let mapped = unsafe { libc::mmap(at, len, prot, flags, fd, 0) };
    if mapped == libc::MAP_FAILED {
        give_up();
    }
}

fn forbid_writing(ptr: usize, len: usize) {
    let at = ptr::with_exposed_provenance_mut(ptr);
    // SAFETY: the registered mapping covers these pages. Code that would write them checks first that they were not
    // inherited.
    if unsafe { libc::mprotect(at, len, libc::PROT_READ) } != 0 {
        give_up();
    }
}

/// Ends a child that could write to its parent's memory.
fn give_up() -> ! {
    // SAFETY: `_exit` may be called anywhere.
    unsafe { libc::_exit(127) }
}

/// A socket that a forked child does not have.
#[derive(Debug)]
pub(crate) struct GuardedSocket {
    fd: ManuallyDrop<OwnedFd>,
    guard: ManuallyDrop<Guarded>,
}

impl GuardedSocket {
    /// Registers the socket that `make` returns. `make` runs under the register's lock, so that no fork comes between
    /// the creation of the socket and its entry: a child that kept it would make its dead parent look alive.
    pub(crate) fn open(make: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Self> {
        install();
        let mut register = register();
        Ok(Self::enter(make()?, &mut register))
    }

    /// The same for two sockets at once.
    pub(crate) fn open_pair(
        make: impl FnOnce() -> io::Result<(OwnedFd, OwnedFd)>,
    ) -> io::Result<(Self, Self)> {
        install();
        let mut register = register();
        let (one, other) = make()?;
        Ok((Self::enter(one, &mut register), Self::enter(other, &mut register)))
    }

    fn enter(fd: OwnedFd, register: &mut Register) -> Self {
        let resource = Resource::Socket { fd: fd.as_raw_fd() };
        let guard = Guarded { resource, creator: Creator::here() };
        register.insert((guard.creator, guard.resource));
        GuardedSocket { fd: ManuallyDrop::new(fd), guard: ManuallyDrop::new(guard) }
    }

    /// Whether this process is a forked child, which does not have the socket.
    pub(crate) fn is_inherited(&self) -> bool {
        self.guard.is_inherited()
    }
}

impl AsFd for GuardedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for GuardedSocket {
    fn drop(&mut self) {
        // In a child the number was closed already, and may be that of another file by now.
        if self.is_inherited() {
            return;
        }
        // Under the lock, so that neither a fork nor the next socket with this number comes between the two steps.
        let mut register = register();
        register.remove(&(self.guard.creator, self.guard.resource));
        // SAFETY: this is the only place that takes the descriptor, and it runs once.
        drop(unsafe { ManuallyDrop::take(&mut self.fd) });
    }
}

/// A value of which each process makes one: a forked child does not use its parent's.
///
/// It has no lock, so a fork at any moment leaves it usable. A value is never freed once it is in use.
#[derive(Debug)]
pub(crate) struct PerProcess<T> {
    /// Null, or a leaked value and the process that made it.
    current: StaticPtr<(Creator, T)>,
}

impl<T: Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess { current: StaticPtr::new(ptr::null_mut()) }
    }

    /// Returns the value of this process. Calls `make` if there is none, and fails if `make` does. Two threads at
    /// once may both call `make`; then both use one value, and the other is dropped.
    pub(crate) fn get<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let here = Creator::this_process();
        let found = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is null or was leaked below, and Acquire pairs with the Release that
        // published it.
        match unsafe { found.as_ref() } {
            Some((creator, value)) if *creator == here => return Ok(value),
            _ => {}
        }
        let made = Box::into_raw(Box::new((here, make()?)));
        let swapped =
            self.current.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire);
        let winner = swapped.map_or_else(|winner| winner, |_| made);
        if winner != made {
            // SAFETY: it comes from `Box::into_raw` above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
        // SAFETY: not null: either `made`, or the pointer that another thread put in place of `found`, which
        // it leaked in the same way.
        let (_, value) = unsafe { &*winner };
        Ok(value)
    }
}
