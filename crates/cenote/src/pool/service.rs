//! The service thread: one for the process, which serves all its pools and attachments.
//!
//! It sleeps in epoll(7) and calls whoever watches the descriptor that became ready. It never
//! waits for a peer: everything it does with a socket is non-blocking. A forked child does not
//! have the thread, and starts its own when it needs one.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fmt, io, thread};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::os::fork::{self, PerProcess};

/// Something with descriptors to be watched.
pub(crate) trait Served: Send + Sync {
    /// The descriptor registered under `token` can be read, or its other end is gone.
    ///
    /// Runs on the service thread. It must not wait.
    fn ready(self: Arc<Self>, token: u64);
}

/// Who is called, with which token, for each watch.
type Watched = HashMap<u64, (Weak<dyn Served>, u64)>;

/// What one process's service thread knows.
#[derive(Debug)]
struct Service {
    epoll: OwnedFd,
    /// The fork epoch it was made in: a child's is different.
    epoch: u64,
    watched: Mutex<Watched>,
    next: AtomicU64,
}

impl fmt::Debug for dyn Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Served")
    }
}

/// Keeps a descriptor watched until dropped.
pub(crate) struct Watch {
    service: &'static Service,
    id: u64,
    fd: Arc<dyn AsFd + Send + Sync>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", self.id)
    }
}

/// Has `served` called, with `token`, whenever `fd` can be read.
pub(crate) fn watch<F: AsFd + Send + Sync + 'static>(
    fd: &Arc<F>,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<Watch> {
    let service = Service::current()?;
    let id = service.next.fetch_add(1, Ordering::Relaxed);
    service.watched().insert(id, (served, token));
    let watch = Watch { service, id, fd: fd.clone() };
    epoll::add(&service.epoll, fd, EventData::new_u64(id), EventFlags::IN | EventFlags::RDHUP)?;
    Ok(watch)
}

impl Drop for Watch {
    fn drop(&mut self) {
        // A child shares the parent's epoll instance: it must not take anything out of it.
        if self.service.epoch == fork::epoch() {
            self.service.watched().remove(&self.id);
            let _ = epoll::delete(&self.service.epoll, self.fd.as_fd());
        }
    }
}

impl Service {
    /// This process's service, started if need be.
    fn current() -> io::Result<&'static Service> {
        static CURRENT: PerProcess<&'static Service> = PerProcess::new();
        CURRENT.get(Service::start).copied()
    }

    fn start() -> io::Result<&'static Service> {
        let service: &'static Service = Box::leak(Box::new(Service {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            epoch: fork::epoch(),
            watched: Mutex::new(HashMap::new()),
            next: AtomicU64::new(0),
        }));
        thread::Builder::new().name("cenote".into()).spawn(move || service.run())?;
        Ok(service)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        // Insertions and removals are whole: a panic elsewhere leaves nothing half done.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            if epoll::wait(&self.epoll, spare_capacity(&mut events), None).is_err() {
                continue; // interrupted by a signal
            }
            for event in &events {
                self.call({ event.data }.u64());
            }
        }
    }

    fn call(&self, id: u64) {
        let found = self.watched().get(&id).map(|(served, token)| (served.upgrade(), *token));
        if let Some((Some(served), token)) = found {
            served.ready(token);
        }
    }
}
