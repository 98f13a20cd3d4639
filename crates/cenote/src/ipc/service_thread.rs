//! The service thread: one for the process, which serves all its pools and attachments.
//!
//! It sleeps in epoll(7) and calls whoever watches the descriptor that became ready. It never
//! waits for a peer: everything it does with a socket is non-blocking. A forked child does not
//! have the thread, and starts its own when it needs one.

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

/// Something with descriptors to be watched.
pub(crate) trait Served: Send + Sync {
    /// The descriptor registered under `token` can be read, or its other end is gone.
    ///
    /// Runs on the service thread. It must not wait, but for somebody who does as little.
    fn ready(self: Arc<Self>, token: u64);
}

/// Who is called, with which token, for each watch.
type Watched = HashMap<u64, (Weak<dyn Served>, u64)>;

/// What one process's service thread knows.
#[derive(Debug)]
struct Service {
    epoll: OwnedFd,
    /// The process that it serves.
    creator: Creator,
    /// The thread was started.
    runs: AtomicBool,
    watched: Mutex<Watched>,
    next: AtomicU64,
    /// Who is to be called although no descriptor is ready, and what wakes the thread for it.
    woken: Mutex<Vec<u64>>,
    bell: OwnedFd,
    /// Who is to be called when, each at most once. This takes no descriptor, of which there may be none
    /// left: that is when many want to try again.
    later: Mutex<Vec<(Instant, u64)>>,
}

/// As much as the standard library gives a thread: it runs what others have to be told.
const STACK: usize = 2 << 20;

/// For a thread that makes one system call.
const SMALL_STACK: usize = 128 << 10;

/// The bell's number among the watches.
const BELL: u64 = 0;

impl fmt::Debug for dyn Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

/// Keeps somebody on the list of those to be called, until dropped.
#[derive(Debug)]
struct Called {
    service: &'static Service,
    id: u64,
}

impl Called {
    fn new(served: Weak<dyn Served>, token: u64) -> io::Result<Called> {
        let service = Service::current()?;
        let id = service.next.fetch_add(1, Ordering::Relaxed);
        service.watched().insert(id, (served, token));
        Ok(Called { service, id })
    }

    /// Not in a child, which shares the parent's epoll instance and bell, and must leave them be.
    fn is_ours(&self) -> bool {
        !self.service.creator.is_inherited()
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        if self.is_ours() {
            self.service.watched().remove(&self.id);
        }
    }
}

/// Keeps a descriptor watched until dropped.
pub(crate) struct Watch {
    called: Called,
    fd: Arc<dyn AsFd + Send + Sync>,
    minds_writing: bool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", self.called.id)
    }
}

/// Has `served` called, with `token`, whenever `fd` can be read.
pub(crate) fn watch<F: AsFd + Send + Sync + 'static>(
    fd: &Arc<F>,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<Watch> {
    watch_for(READABLE, fd, served, token)
}

/// Has `served` called, with `token`, when the other end of `fd` is gone, and not for what can be
/// read: that is for somebody else.
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
    let called = Called::new(served, token)?;
    epoll::add(&called.service.epoll, fd, EventData::new_u64(called.id), what)?;
    Ok(Watch { called, fd: fd.clone(), minds_writing: false })
}

const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

impl Watch {
    /// Whether to call also when the descriptor can be written.
    pub(crate) fn mind_writing(&mut self, minds: bool) {
        if minds == self.minds_writing || !self.called.is_ours() {
            return;
        }
        self.minds_writing = minds;
        let events = if minds { READABLE | EventFlags::OUT } else { READABLE };
        let Called { service, id } = &self.called;
        // It fails only for what is not watched.
        let _ = epoll::modify(&service.epoll, self.fd.as_fd(), EventData::new_u64(*id), events);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.called.is_ours() {
            let _ = epoll::delete(&self.called.service.epoll, self.fd.as_fd());
        }
    }
}

/// Leaves work to the service thread, which has it done by whoever the waker was made for.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<Called>);

impl Waker {
    pub(crate) fn new(served: Weak<dyn Served>, token: u64) -> io::Result<Waker> {
        Ok(Waker(Arc::new(Called::new(served, token)?)))
    }

    pub(crate) fn wake(&self) {
        let Called { service, id } = &*self.0;
        if self.0.is_ours() {
            service.woken().push(*id);
            service.ring();
        }
    }

    /// The same in a while, or sooner if that was asked for.
    pub(crate) fn wake_after(&self, time: Duration) {
        let Called { service, id } = &*self.0;
        if self.0.is_ours() && service.call_at(Instant::now() + time, *id) {
            service.ring();
        }
    }
}

impl Service {
    /// This process's service, started if need be.
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
            watched: Mutex::new(HashMap::new()),
            next: AtomicU64::new(BELL + 1),
            woken: Mutex::new(Vec::new()),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            later: Mutex::new(Vec::new()),
        };
        epoll::add(&service.epoll, &service.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        Ok(service)
    }

    /// Starts the thread, once. What is watched before it runs waits for it.
    fn start(&'static self) -> io::Result<()> {
        if !self.runs.swap(true, Ordering::Relaxed) {
            let started = thread::start(c"cenote", STACK, || self.run());
            started.inspect_err(|_| self.runs.store(false, Ordering::Relaxed))?;
            // It takes too long for anybody else. Without it, locks cost more.
            let _ = thread::start(c"cenote-fence", SMALL_STACK, prepare_barrier);
        }
        Ok(())
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Insertions and removals are whole: a panic elsewhere leaves nothing half done.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn woken(&self) -> MutexGuard<'_, Vec<u64>> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn later(&self) -> MutexGuard<'_, Vec<(Instant, u64)>> {
        self.later.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread look who is to be called.
    fn ring(&self) {
        // It fails only when the bell has rung too often to count, and then it has rung.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Has somebody called at a time; whether that is sooner than before.
    fn call_at(&self, at: Instant, id: u64) -> bool {
        let mut later = self.later();
        match later.iter_mut().find(|(_, other)| *other == id) {
            Some((known, _)) if *known <= at => return false,
            Some((known, _)) => *known = at,
            None => later.push((at, id)),
        }
        true
    }

    /// How long until somebody is to be called, in whole milliseconds, which every kernel can wait for.
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
                    BELL => self.answer_bell(),
                    id => self.call(id),
                }
            }
            self.call_due();
        }
    }

    /// Calls those whose time has come.
    fn call_due(&self) {
        let now = Instant::now();
        let due: Vec<_> = self.later().extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, id)| self.call(id));
    }

    fn answer_bell(&self) {
        // Before the list is looked at: whoever comes later rings again.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let woken = std::mem::take(&mut *self.woken());
        woken.into_iter().for_each(|id| self.call(id));
    }

    fn call(&self, id: u64) {
        let found = self.watched().get(&id).map(|(served, token)| (served.upgrade(), *token));
        if let Some((Some(served), token)) = found {
            served.ready(token);
        }
    }
}
