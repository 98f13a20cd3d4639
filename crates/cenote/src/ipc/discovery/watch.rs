//! Notice of what comes to directories and goes: one inotify(7) instance for all that a process watches,
//! because a user has few of them.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::ipc::service_thread;
use crate::ipc::service_thread::{Served, Watch};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::fork::{Creator, PerProcess};

/// All that one process watches.
#[derive(Debug)]
struct Changes {
    inotify: Arc<OwnedFd>,
    /// The process that made it. A forked child shares the inotify instance, and must not change it.
    creator: Creator,
    /// Who is to be told, by the number that the kernel gives the directory. Of those that nobody needs
    /// any more there may be some left: giving one back makes the kernel wake the service thread, so that
    /// is done when it tells of something anyway.
    told: Mutex<HashMap<i32, Vec<Told>>>,
    next: AtomicU64,
    watch: Mutex<Option<Watch>>,
}

/// How many directories may be watched for nobody: others of the same user want to watch some, too.
const UNNEEDED: usize = 32;

#[derive(Debug)]
struct Told {
    id: u64,
    served: Weak<dyn Served>,
    token: u64,
}

/// Keeps a directory watched until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryWatch {
    changes: Arc<Changes>,
    directory: i32,
    id: u64,
}

/// Has `served` called, with `token`, when something comes to the directory or goes
/// from it, or it goes itself.
pub(crate) fn watch(
    directory: &Path,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<DirectoryWatch> {
    static CURRENT: PerProcess<Arc<Changes>> = PerProcess::new();
    let changes = CURRENT.get(Changes::start)?.clone();
    let what = WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO;
    // Under the lock: the number may be one that somebody else is about to give back.
    let mut told = changes.told();
    if told.values().filter(|told| told.is_empty()).count() > UNNEEDED {
        changes.give_back_unneeded(&mut told);
    }
    let number = match inotify::add_watch(&changes.inotify, directory, what) {
        Err(Errno::NOSPC) => {
            changes.give_back_unneeded(&mut told);
            inotify::add_watch(&changes.inotify, directory, what)?
        }
        added => added?,
    };
    let id = changes.next.fetch_add(1, Ordering::Relaxed);
    told.entry(number).or_default().push(Told { id, served, token });
    drop(told);
    Ok(DirectoryWatch { changes, directory: number, id })
}

impl Changes {
    fn start() -> io::Result<Arc<Changes>> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        let changes = Arc::new(Changes {
            inotify,
            creator: Creator::this_process(),
            told: Mutex::default(),
            next: AtomicU64::new(0),
            watch: Mutex::default(),
        });
        let served: Weak<dyn Served> = Arc::downgrade(&(changes.clone() as Arc<dyn Served>));
        let watch = service_thread::watch(&changes.inotify, served, 0)?;
        *changes.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        Ok(changes)
    }

    fn told(&self) -> MutexGuard<'_, HashMap<i32, Vec<Told>>> {
        // Insertions and removals are whole: a panic elsewhere leaves nothing half done.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops watching what nobody needs.
    fn give_back_unneeded(&self, told: &mut HashMap<i32, Vec<Told>>) {
        for (number, _) in told.extract_if(|_, told| told.is_empty()) {
            let _ = inotify::remove_watch(&self.inotify, number);
        }
    }

    /// Whoever is to be told of what happened to this directory, or may have to some.
    fn concerned(&self, directory: i32, events: ReadFlags) -> Vec<(Arc<dyn Served>, u64)> {
        let mut told = self.told();
        let upgrade = |one: &Told| Some((one.served.upgrade()?, one.token));
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return told.values().flatten().filter_map(upgrade).collect();
        }
        // The directory itself is gone, and its number with it.
        let gone = events.contains(ReadFlags::IGNORED).then(|| told.remove(&directory)).flatten();
        let found = gone.as_ref().or_else(|| told.get(&directory));
        let concerned: Vec<_> = found.into_iter().flatten().filter_map(upgrade).collect();
        if concerned.is_empty() {
            self.give_back_unneeded(&mut told);
        }
        concerned
    }
}

impl Served for Changes {
    fn ready(self: Arc<Self>, _token: u64) {
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut bytes);
        // As many as fit: epoll calls again for the others.
        while let Ok(event) = events.next() {
            for (served, token) in self.concerned(event.wd(), event.events()) {
                served.ready(token);
            }
            if events.is_buffer_empty() {
                return;
            }
        }
    }
}

impl Drop for DirectoryWatch {
    fn drop(&mut self) {
        if self.changes.creator.is_inherited() {
            return;
        }
        let mut told = self.changes.told();
        let Some(others) = told.get_mut(&self.directory) else { return };
        others.retain(|one| one.id != self.id);
    }
}
