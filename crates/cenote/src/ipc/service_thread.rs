//! The service thread: one for the process. It serves all pools, attachments, publishers and subscribers.
//!
//! It sleeps in epoll(7) and calls the [`Served`] of each file descriptor that becomes ready. It never waits for a
//! peer: everything it does with a socket is non-blocking. A forked child does not have the thread, and starts its
//! own when it needs one.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::sync::{AtomicBool, AtomicU64, Ordering, prepare_barrier};
use crate::sys;
use crate::sys::fork::{Creator, PerProcess};
use crate::sys::thread;

/// What the service thread calls for a watched file descriptor.
pub(crate) trait Served: Send + Sync {
    /// The descriptor that is watched under `token` can be read, or its other end has closed.
    ///
    /// Runs on the service thread. It must not wait, except for locks that are held for a short time.
    fn ready(self: Arc<Self>, token: u64);
}

/// The listener and its token, for each watch.
type Listeners = HashMap<u64, (Weak<dyn Served>, u64)>;

/// The state of the service thread.
#[derive(Debug)]
struct Service {
    epoll: OwnedFd,
    /// The process that it serves.
    creator: Creator,
    /// The thread was started.
    runs: AtomicBool,
    listeners: Mutex<Listeners>,
    next: AtomicU64,
    /// Listeners to call although no descriptor is ready. Writing to `wakeup` wakes the thread for them.
    woken: Mutex<Vec<u64>>,
    wakeup: OwnedFd,
    /// When to call which listener, each at most once. This needs no descriptor: many listeners retry later just
    /// because there are none left.
    later: Mutex<Vec<(Instant, u64)>>,
}

/// The stack of the service thread, as large as the standard library makes it: it runs code of callers.
const STACK: usize = 2 << 20;

/// The stack of a thread that makes one system call.
const SMALL_STACK: usize = 128 << 10;

/// The number of `wakeup` among the watches.
const WAKEUP: u64 = 0;

impl fmt::Debug for dyn Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

/// A listener of the service thread, until dropped.
#[derive(Debug)]
struct Listener {
    service: &'static Service,
    id: u64,
}

impl Listener {
    fn new(served: Weak<dyn Served>, token: u64) -> io::Result<Listener> {
        let service = Service::current()?;
        let id = service.next.fetch_add(1, Ordering::Relaxed);
        service.listeners().insert(id, (served, token));
        Ok(Listener { service, id })
    }

    /// Not in a forked child: it shares the parent's epoll instance and must not change it.
    fn is_ours(&self) -> bool {
        !self.service.creator.is_inherited()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_ours() {
            self.service.listeners().remove(&self.id);
        }
    }
}

/// Keeps a descriptor watched until dropped.
pub(crate) struct Watch {
    listener: Listener,
    fd: Arc<dyn AsFd + Send + Sync>,
    minds_writing: bool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", self.listener.id)
    }
}

/// Calls `served` with `token` whenever `fd` can be read.
pub(crate) fn watch<F: AsFd + Send + Sync + 'static>(
    fd: &Arc<F>,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<Watch> {
    watch_for(READABLE, fd, served, token)
}

/// Calls `served` with `token` when the other end of `fd` closes. Not when it can be read: another thread reads it.
pub(crate) fn watch_end<F: AsFd + Send + Sync + 'static>(
    fd: &Arc<F>,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<Watch> {
    watch_for(EventFlags::RDHUP, fd, served, token)
}

fn watch_for<F: AsFd + Send + Sync + 'static>(
    what: EventFlags,
    fd: &Arc<F>,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<Watch> {
    let listener = Listener::new(served, token)?;
    epoll::add(&listener.service.epoll, fd, EventData::new_u64(listener.id), what)?;
    Ok(Watch { listener, fd: fd.clone(), minds_writing: false })
}

const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

impl Watch {
    /// Sets whether to call also when the descriptor can be written.
    pub(crate) fn mind_writing(&mut self, minds: bool) {
        if minds == self.minds_writing || !self.listener.is_ours() {
            return;
        }
        self.minds_writing = minds;
        let events = if minds { READABLE | EventFlags::OUT } else { READABLE };
        let Listener { service, id } = &self.listener;
        // This fails only for a descriptor that is not watched.
        let _ = epoll::modify(&service.epoll, self.fd.as_fd(), EventData::new_u64(*id), events);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.listener.is_ours() {
            let _ = epoll::delete(&self.listener.service.epoll, self.fd.as_fd());
        }
    }
}

/// Makes the service thread call a [`Served`].
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<Listener>);

impl Waker {
    pub(crate) fn new(served: Weak<dyn Served>, token: u64) -> io::Result<Waker> {
        Ok(Waker(Arc::new(Listener::new(served, token)?)))
    }

    pub(crate) fn wake(&self) {
        let Listener { service, id } = &*self.0;
        if self.0.is_ours() {
            service.woken().push(*id);
            service.wake();
        }
    }

    /// Wakes it after this time, or sooner if that was requested before.
    pub(crate) fn wake_after(&self, time: Duration) {
        let Listener { service, id } = &*self.0;
        if self.0.is_ours() && service.call_at(Instant::now() + time, *id) {
            service.wake();
        }
    }
}

impl Service {
    /// The service of this process. Starts it if necessary.
    fn current() -> io::Result<&'static Service> {
        static CURRENT: PerProcess<Service> = PerProcess::new();
        let service = CURRENT.get(Service::new)?;
        service.start()?;
        Ok(service)
    }

    fn new() -> io::Result<Service> {
        let service = Service {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            creator: Creator::this_process(),
            runs: AtomicBool::new(false),
            listeners: Mutex::new(HashMap::new()),
            next: AtomicU64::new(WAKEUP + 1),
            woken: Mutex::new(Vec::new()),
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            later: Mutex::new(Vec::new()),
        };
        epoll::add(&service.epoll, &service.wakeup, EventData::new_u64(WAKEUP), EventFlags::IN)?;
        Ok(service)
    }

    /// Starts the thread, once. Events before it runs wait for it.
    fn start(&'static self) -> io::Result<()> {
        if !self.runs.swap(true, Ordering::Relaxed) {
            let started = thread::start(c"cenote", STACK, || self.run());
            started.inspect_err(|_| self.runs.store(false, Ordering::Relaxed))?;
            // Takes milliseconds, so it has its own thread. If that does not start, locks cost more.
            let _ = thread::start(c"cenote-fence", SMALL_STACK, prepare_barrier);
        }
        Ok(())
    }

    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // Insertions and removals are whole: a panic elsewhere leaves no half change.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn woken(&self) -> MutexGuard<'_, Vec<u64>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn later(&self) -> MutexGuard<'_, Vec<(Instant, u64)>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, to call the listeners in `woken`.
    fn wake(&self) {
        // This fails only if the counter of the eventfd is full, and then the thread is about to wake.
        let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Schedules a call. Returns whether that is sooner than scheduled before.
    fn call_at(&self, at: Instant, id: u64) -> bool {
        let mut later = self.later();
        match later.iter_mut().find(|(_, other)| *other == id) {
            Some((scheduled, _)) if *scheduled <= at => return false,
            Some((scheduled, _)) => *scheduled = at,
            None => later.push((at, id)),
        }
        true
    }

    /// The time until the next scheduled call, in whole milliseconds, which every kernel can wait for.
    fn left(&self) -> Option<Duration> {
        let next = self.later().iter().map(|(at, _)| *at).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Duration::from_millis(left.as_micros().div_ceil(1000).try_into().unwrap_or(u64::MAX)))
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let _ = sys::epoll::wait(&self.epoll, &mut events, self.left());
            for event in &events {
                match { event.data }.u64() {
                    WAKEUP => self.call_woken(),
                    id => self.call(id),
                }
            }
            self.call_due();
        }
    }

    /// Makes the scheduled calls that are due.
    fn call_due(&self) {
        let now = Instant::now();
        let due: Vec<_> = self.later().extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, id)| self.call(id));
    }

    fn call_woken(&self) {
        // Before the list is taken: a later entry wakes the thread again.
        let _ = rustix::io::read(&self.wakeup, &mut [0; 8]);
        let woken = std::mem::take(&mut *self.woken());
        woken.into_iter().for_each(|id| self.call(id));
    }

    fn call(&self, id: u64) {
        let found = self.listeners().get(&id).map(|(served, token)| (served.upgrade(), *token));
        if let Some((Some(served), token)) = found {
            served.ready(token);
        }
    }
}
