//! Watching directories for files that come and go. A process has one inotify(7) instance for all of them, because the
//! kernel limits the instances of a user.

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

/// The inotify instance of a process, and the listeners of each directory.
#[derive(Debug)]
struct DirectoryWatcher {
    inotify: Arc<OwnedFd>,
    /// The process that made it. A forked child shares the inotify instance, and must not change it.
    creator: Creator,
    /// The listeners, by the number that the kernel gives the directory. A directory without listeners may stay watched for
    /// a while: removing its watch makes the kernel wake the service thread, so that happens when it is awake anyway.
    listeners: Mutex<HashMap<i32, Vec<Listener>>>,
    next: AtomicU64,
    watch: Mutex<Option<Watch>>,
}

/// How many directories without listeners may stay watched. Other processes of the user need watches, too.
const MAX_UNNEEDED: usize = 32;

#[derive(Debug)]
struct Listener {
    id: u64,
    served: Weak<dyn Served>,
    token: u64,
}

/// Keeps a directory watched until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryWatch {
    watcher: Arc<DirectoryWatcher>,
    directory: i32,
    id: u64,
}

/// Calls `served` with `token` when a file appears in the directory or disappears, and when the directory is removed.
pub(crate) fn watch(
    directory: &Path,
    served: Weak<dyn Served>,
    token: u64,
) -> io::Result<DirectoryWatch> {
    static CURRENT: PerProcess<Arc<DirectoryWatcher>> = PerProcess::new();
    let watcher = CURRENT.get(DirectoryWatcher::start)?.clone();
    let what = WatchFlags::DELETE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO;
    // Under the lock: another thread may be about to remove the watch with this number.
    let mut listeners = watcher.listeners();
    if listeners.values().filter(|listeners| listeners.is_empty()).count() > MAX_UNNEEDED {
        watcher.remove_unneeded(&mut listeners);
    }
    let number = match inotify::add_watch(&watcher.inotify, directory, what) {
        Err(Errno::NOSPC) => {
            watcher.remove_unneeded(&mut listeners);
            inotify::add_watch(&watcher.inotify, directory, what)?
        }
        added => added?,
    };
    let id = watcher.next.fetch_add(1, Ordering::Relaxed);
    listeners.entry(number).or_default().push(Listener { id, served, token });
    drop(listeners);
    Ok(DirectoryWatch { watcher, directory: number, id })
}

impl DirectoryWatcher {
    fn start() -> io::Result<Arc<DirectoryWatcher>> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        let watcher = Arc::new(DirectoryWatcher {
            inotify,
            creator: Creator::this_process(),
            listeners: Mutex::default(),
            next: AtomicU64::new(0),
            watch: Mutex::default(),
        });
        let served: Weak<dyn Served> = Arc::downgrade(&(watcher.clone() as Arc<dyn Served>));
        let watch = service_thread::watch(&watcher.inotify, served, 0)?;
        *watcher.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(watch);
        Ok(watcher)
    }

    fn listeners(&self) -> MutexGuard<'_, HashMap<i32, Vec<Listener>>> {
        // Insertions and removals are whole: a panic elsewhere leaves no half change.
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops watching directories without listeners.
    fn remove_unneeded(&self, listeners: &mut HashMap<i32, Vec<Listener>>) {
        for (number, _) in listeners.extract_if(|_, listeners| listeners.is_empty()) {
            let _ = inotify::remove_watch(&self.inotify, number);
        }
    }

    /// The listeners for an event: those of the directory, or all if events were lost.
    fn listeners_of(&self, directory: i32, events: ReadFlags) -> Vec<(Arc<dyn Served>, u64)> {
        let mut listeners = self.listeners();
        let upgrade = |one: &Listener| Some((one.served.upgrade()?, one.token));
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return listeners.values().flatten().filter_map(upgrade).collect();
        }
        // The directory was removed, and its number with it.
        let removed =
            events.contains(ReadFlags::IGNORED).then(|| listeners.remove(&directory)).flatten();
        let found = removed.as_ref().or_else(|| listeners.get(&directory));
        let found: Vec<_> = found.into_iter().flatten().filter_map(upgrade).collect();
        if found.is_empty() {
            self.remove_unneeded(&mut listeners);
        }
        found
    }
}

impl Served for DirectoryWatcher {
    fn ready(self: Arc<Self>, _token: u64) {
        let mut bytes = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut bytes);
        // As many events as fit the buffer. Epoll reports the others again.
        while let Ok(event) = events.next() {
            for (served, token) in self.listeners_of(event.wd(), event.events()) {
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
        if self.watcher.creator.is_inherited() {
            return;
        }
        let mut listeners = self.watcher.listeners();
        let Some(others) = listeners.get_mut(&self.directory) else { return };
        others.retain(|one| one.id != self.id);
    }
}
