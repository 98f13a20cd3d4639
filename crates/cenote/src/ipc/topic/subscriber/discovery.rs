//! How a subscriber finds publishers.
//!
//! 1. It reads the topic's directory: each socket file in it is a publisher.
//! 2. It attaches to the pool of each new publisher, if messages have tensors.
//! 3. It subscribes on a second connection (`ipc/topic/handshake.rs`).
//! 4. The publisher's answer becomes a [`PublisherLink`], which the subscriber takes over when it receives.
//!
//! The service thread does this whenever the directory changes. Only the first time, the calling thread does: it waits
//! a moment for answers and reads them itself, so that no other thread has to wake it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::intervals::{
    DIR_ATTEMPTS, DISCOVERY_POLL, FIRST_CONNECT_TIMEOUT, SUBSCRIBE_ATTEMPTS, SUBSCRIBE_RETRY,
};
use crate::ipc::discovery::access::PoolAccess;
use crate::ipc::discovery::handshake::{Answer, Connecting, Handshake};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::discovery::watch::DirectoryWatch;
use crate::ipc::discovery::{handshake, socket_dir, watch};
use crate::ipc::pool::reader::attachment;
use crate::ipc::pool::reader::attachment::Attachment;
use crate::ipc::pool::registry;
use crate::ipc::pool::registry::RegisteredPool;
use crate::ipc::service_thread::{Served, Waker};
use crate::ipc::shared::wire::{Kind, Packet, Refusal};
use crate::ipc::topic::handshake::{Mismatch, Subscribe, Subscribed, read};
use crate::ipc::topic::notify::SubscriberNotify;
use crate::ipc::topic::signature::Signature;
use crate::ipc::topic::subscriber::disconnect::DisconnectFlag;
use crate::ipc::topic::subscriber::publisher_link::PublisherLink;
use crate::sys::fork::Creator;

/// The most publishers of another type that are kept until the caller receives the error.
const MAX_MISMATCHES: usize = 64;

/// The token of the only event: read the directory again.
const SCAN: u64 = 0;

/// Stands for the directory itself where a failure has the uid of a publisher. No publisher has this uid.
const DIRECTORY: u64 = 0;

/// Finds the publishers of a topic, and connects to them.
#[derive(Debug)]
pub(crate) struct PublisherDiscovery {
    topic: String,
    /// The topic's directory. `None` after [`stop`](PublisherDiscovery::stop).
    dir: Mutex<Option<Arc<SocketDir>>>,
    /// Who may access the directory, if it must be created again.
    access: PoolAccess,
    signature: Signature,
    history: u64,
    /// The uid of the publisher of the same object. It needs no connection.
    own: u64,
    creator: Creator,
    pub(crate) notify: Arc<SubscriberNotify>,
    state: Mutex<DiscoveryState>,
    /// A publisher answered, or could not be connected.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct DiscoveryState {
    /// All publishers that were seen in the directory.
    contacts: HashMap<u64, Contact>,
    /// How many handshakes were begun.
    handshakes: u64,
    /// The directory was read once.
    scanned: bool,
    /// The thread that reads the answers to the handshakes that it begins. Otherwise the service thread does.
    listener: Option<ThreadId>,
    /// Publishers that the subscriber has not taken over yet.
    links: Vec<PublisherLink>,
    /// Publishers of another type, which the caller was not told of yet.
    mismatches: VecDeque<Error>,
    /// The last publisher that could not be connected, and why. Cleared when the caller has received the error, or the publisher is
    /// connected.
    failure: Option<(u64, Error)>,
    watches: Option<(DirectoryWatch, DirectoryWatch)>,
    /// Has the service thread read the directory later.
    waker: Option<Waker>,
}

/// The progress with one publisher.
#[derive(Debug)]
enum Contact {
    /// A handshake is under way: with its pool, or to subscribe. They have different numbers, because the second may begin
    /// before the thread that began the first has stored it.
    Handshake { number: u64, request: Request, handshake: Option<Arc<Handshake>> },
    /// Its queue of connections was full, or it closed the connection without an answer: try again.
    Retry(Request),
    /// It has answered. The weak pointer is dead if it sends another type, or its link was dropped.
    Answered(Weak<DisconnectFlag>),
}

/// What the subscriber requests from a publisher, however many attempts that takes.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// How many messages from before it subscribed.
    history: u64,
    /// How often the publisher closed the connection without an answer.
    closed: u32,
}

impl Contact {
    /// Whether there is a connection, even if the socket file is gone: a publisher that has just closed may still answer, and
    /// one that creates its socket file again is the same publisher.
    fn is_connected(&self) -> bool {
        match self {
            Contact::Handshake { .. } => true,
            Contact::Retry { .. } => false,
            Contact::Answered(flag) => flag.upgrade().is_some_and(|flag| !flag.is_set()),
        }
    }
}

impl DiscoveryState {
    /// Stores that a handshake begins; returns its number.
    fn begin_handshake(&mut self, uid: u64, request: Request) -> u64 {
        self.handshakes += 1;
        let number = self.handshakes;
        self.contacts.insert(uid, Contact::Handshake { number, request, handshake: None });
        number
    }

    /// The handshakes whose answers no thread reads yet, by uid.
    fn unheard(&self) -> Vec<(u64, Arc<Handshake>)> {
        let handshake = |(uid, contact): (&u64, &Contact)| match contact {
            Contact::Handshake { handshake: Some(one), .. } => Some((*uid, one.clone())),
            _ => None,
        };
        let handshakes = self.contacts.iter().filter_map(handshake);
        handshakes.filter(|(_, one)| one.is_unwatched()).collect()
    }

    /// Clears the failure if it is about this publisher.
    fn clear_failure(&mut self, uid: u64) {
        let _ = self.failure.take_if(|(failed, _)| *failed == uid);
    }

    /// A publisher closed the connection without an answer. Returns whether to try again.
    fn note_closed(&mut self, uid: u64) -> bool {
        let Some(Contact::Handshake { request, .. }) = self.contacts.get(&uid) else {
            return false;
        };
        let request = Request { closed: request.closed + 1, ..*request };
        let again = request.closed < SUBSCRIBE_ATTEMPTS;
        if again {
            self.contacts.insert(uid, Contact::Retry(request));
        }
        again
    }
}

impl PublisherDiscovery {
    pub(crate) fn new(
        topic: &str,
        (dir, access): (SocketDir, PoolAccess),
        signature: Signature,
        history: usize,
        own: u64,
        notify: &Arc<SubscriberNotify>,
    ) -> Arc<PublisherDiscovery> {
        Arc::new(PublisherDiscovery {
            topic: topic.to_owned(),
            dir: Mutex::new(Some(Arc::new(dir))),
            access,
            signature,
            history: history as u64,
            own,
            creator: Creator::this_process(),
            notify: notify.clone(),
            state: Mutex::default(),
            answered: Condvar::new(),
        })
    }

    /// Begins to look for publishers, and waits a moment for publishers that are there already.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let until = Instant::now() + FIRST_CONNECT_TIMEOUT;
        // Created now, because a later shortage of descriptors is when it is needed.
        let waker = Waker::new(self.served(), SCAN);
        self.state().waker = Some(waker.map_err(|source| Error::os("starting a thread", source))?);
        self.dir().inspect(|dir| self.watch(dir));
        self.state().listener = Some(thread::current().id());
        self.scan()?;
        self.poll_if_unwatched();
        self.state().scanned = true;
        self.listen(until);
        self.watch_by_service();
        // For publishers whose answers the service thread reads.
        let open = |state: &mut DiscoveryState| {
            state.contacts.values().any(|contact| !matches!(contact, Contact::Answered(_)))
        };
        let left = until.saturating_duration_since(Instant::now());
        drop(self.answered.wait_timeout_while(self.state(), left, open));
        Ok(())
    }

    /// Reads the answers to the handshakes that this thread began. Publishers of this very process answer at once, without
    /// the service thread.
    fn listen(&self, until: Instant) {
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let unheard = self.state().unheard();
            if unheard.is_empty() {
                return;
            }
            unheard.iter().for_each(|(uid, _)| registry::accept_now(*uid));
            handshake::await_some(&unheard, left).iter().for_each(|one| one.receive());
        }
    }

    /// From here on the service thread reads the answers, also the ones that are still missing.
    fn watch_by_service(self: &Arc<Self>) {
        let mut state = self.state();
        state.listener = None;
        let unheard = state.unheard().into_iter();
        let failed: Vec<_> = unheard.filter(|(_, one)| one.watch_by_service().is_err()).collect();
        failed.iter().for_each(|(uid, _)| drop(state.contacts.remove(uid)));
        drop(state);
        if !failed.is_empty() {
            self.scan_after(DISCOVERY_POLL);
        }
    }

    /// Whether this thread reads the answers to the handshakes that it begins.
    fn is_listener(&self) -> bool {
        self.state().listener == Some(thread::current().id())
    }

    fn dir(&self) -> Option<Arc<SocketDir>> {
        self.locked_dir().clone()
    }

    fn locked_dir(&self) -> MutexGuard<'_, Option<Arc<SocketDir>>> {
        // It is replaced whole, so a panic leaves it consistent.
        self.dir.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a directory, and the one above it: only that one reports the removal of the first.
    fn watch(self: &Arc<Self>, dir: &SocketDir) {
        // It fails if the user has too many watches.
        let watch = |path: PathBuf| watch::watch(&path, self.served(), SCAN).ok();
        let watches = watch(dir.held_path()).zip(watch(dir.held_parent()));
        let old = std::mem::replace(&mut self.state().watches, watches);
        drop(old);
    }

    /// Creates the directory again if it was removed, so that later publishers are found. If this user may not, another
    /// process may: then the directory is polled.
    fn follow(self: &Arc<Self>) {
        // Tested again after it is watched: it may have been removed before that.
        for _ in 0..DIR_ATTEMPTS {
            // Locked all the while: after `stop` no directory is created.
            let mut dir = self.locked_dir();
            let Some(removed) = dir.as_ref().filter(|dir| dir.is_removed()) else { return };
            let Ok(again) = removed.reopen(self.access) else { break };
            self.watch(&again);
            *dir = Some(Arc::new(again));
        }
        let old = self.state().watches.take();
        drop(old);
        self.poll_if_unwatched();
    }

    /// Stops looking for publishers. Returns the directory.
    pub(crate) fn stop(&self) -> Option<Arc<SocketDir>> {
        let dir = self.locked_dir().take();
        let watches = self.state().watches.take();
        drop(watches);
        dir
    }

    fn served(self: &Arc<Self>) -> Weak<dyn Served> {
        Arc::downgrade(&(self.clone() as Arc<dyn Served>))
    }

    fn state(&self) -> MutexGuard<'_, DiscoveryState> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The publishers that were connected since the last call.
    pub(crate) fn take_links(&self) -> Vec<PublisherLink> {
        let mut state = self.state();
        self.notify.clear_changed();
        std::mem::take(&mut state.links)
    }

    /// A publisher that sends another type. Each is returned once.
    pub(crate) fn take_mismatch(&self) -> Option<Error> {
        self.state().mismatches.pop_front()
    }

    /// Why a publisher could not be connected: it refused, or a resource was short. Returned once.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.state().failure.take().map(|(_, error)| error)
    }

    /// Reads the directory, and connects to all publishers that are new. Publishers that came after this subscriber send all
    /// their messages.
    fn scan(self: &Arc<Self>) -> Result<()> {
        self.follow();
        let Some(dir) = self.dir() else { return Ok(()) };
        // Read under the lock: with an older list, a publisher that another thread has just found would be forgotten.
        let mut state = self.state();
        let entries = dir.endpoints()?;
        let history = if state.scanned { u64::MAX } else { self.history };
        let is_here = |uid: &u64| entries.iter().any(|entry| entry.uid == *uid);
        state.contacts.retain(|uid, contact| is_here(uid) || contact.is_connected());
        let mut new: Vec<(Endpoint, Request, u64)> = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.uid != self.own) {
            let request = match state.contacts.get(&entry.uid) {
                Some(Contact::Handshake { .. } | Contact::Answered(_)) => continue,
                Some(Contact::Retry(request)) => *request,
                None => Request { history, closed: 0 },
            };
            // Stored at once, because another thread may scan at the same time.
            let number = state.begin_handshake(entry.uid, request);
            new.push((entry, request, number));
        }
        drop(state);
        new.iter().for_each(|(entry, request, number)| self.connect(entry, *request, *number));
        Ok(())
    }

    /// Connects to a publisher. If messages have tensors, it attaches to the pool first: then every message that the
    /// publisher sends to this subscriber can be leased, even if the publisher exits right afterwards.
    fn connect(self: &Arc<Self>, entry: &Endpoint, request: Request, number: u64) {
        if !self.signature.is_tensor() {
            return self.subscribe(entry, None, request, number);
        }
        if let Some(known) = registry::find(entry.uid) {
            return self.subscribe(entry, Some(known), request, number);
        }
        let (weak, publisher) = (Arc::downgrade(self), entry.clone());
        let then = move |attached: Result<Arc<Attachment>>| {
            let Some(this): Option<Arc<Self>> = weak.upgrade() else { return };
            match attached {
                Ok(attachment) => {
                    registry::register(&attachment);
                    let number = this.state().begin_handshake(publisher.uid, request);
                    let pool = Some(RegisteredPool::Attached(attachment));
                    this.subscribe(&publisher, pool, request, number);
                }
                Err(error) => this.receive_answer(publisher.uid, None, Err(error)),
            }
        };
        let Some(dir) = self.dir() else { return };
        let begun = attachment::begin_at(&dir, entry, then);
        self.store_handshake(entry.uid, request, number, begun);
    }

    fn subscribe(
        self: &Arc<Self>,
        entry: &Endpoint,
        pool: Option<RegisteredPool>,
        request: Request,
        number: u64,
    ) {
        let hello = Subscribe::new(self.signature, request.history);
        let room = size_of::<Subscribed>().max(size_of::<Mismatch>());
        let (weak, uid) = (Arc::downgrade(self), entry.uid);
        let then = move |answer| {
            let this: Option<Arc<Self>> = weak.upgrade();
            this.inspect(|this| this.receive_answer(uid, pool, answer));
        };
        let Some(dir) = self.dir() else { return };
        let begun = handshake::begin(&dir, entry, bytemuck::bytes_of(&hello), room, then);
        self.store_handshake(uid, request, number, begun);
    }

    /// Stores a handshake that has begun, unless it is over by now.
    fn store_handshake(
        self: &Arc<Self>,
        uid: u64,
        request: Request,
        number: u64,
        begun: Result<Connecting>,
    ) {
        let begun = match self.is_listener() {
            true => begun,
            false => begun.and_then(Connecting::watched_by_service),
        };
        let mut state = self.state();
        let is_current = |contact: &&mut Contact| matches!(contact, Contact::Handshake { number: current, .. } if *current == number);
        let Some(contact) = state.contacts.get_mut(&uid).filter(is_current) else { return };
        match begun {
            Ok(Connecting::Started(handshake)) => {
                *contact = Contact::Handshake { number, request, handshake: Some(handshake) };
            }
            Ok(Connecting::Busy) => {
                *contact = Contact::Retry(request);
                drop(state);
                self.scan_after(SUBSCRIBE_RETRY);
            }
            failed @ (Ok(Connecting::Closed) | Err(_)) => {
                state.contacts.remove(&uid);
                state.clear_failure(uid);
                drop(state);
                self.note_failure(uid, failed.err());
                self.answered.notify_all();
            }
        }
    }

    /// A publisher has answered, or its pool has refused.
    fn receive_answer(
        self: &Arc<Self>,
        uid: u64,
        pool: Option<RegisteredPool>,
        answer: Result<Answer>,
    ) {
        let link = answer.and_then(|answer| self.make_link(uid, pool, answer));
        // Links that have ended, if the caller never receives. Declared before the guard, so that they are dropped after
        // the lock is released.
        let _ended: Vec<PublisherLink>;
        let mut state = self.state();
        _ended = state.links.extract_if(.., |link| link.has_ended()).collect();
        // Its queue of handshakes may have been too long.
        if matches!(link, Err(Error::Disconnected { .. })) && state.note_closed(uid) {
            drop(state);
            return self.scan_after(SUBSCRIBE_RETRY);
        }
        let publisher = link.as_ref().ok().and_then(PublisherLink::connected_publisher);
        let flag = publisher.map(|publisher| Arc::downgrade(&publisher.disconnected));
        state.contacts.insert(uid, Contact::Answered(flag.unwrap_or_default()));
        let mut failed = None;
        state.clear_failure(uid);
        match link {
            Ok(link) => state.links.push(link),
            Err(error @ Error::TypeMismatch { .. }) => {
                if state.mismatches.len() < MAX_MISMATCHES {
                    state.mismatches.push_back(error);
                }
            }
            // If the publisher is still there, the next scan finds it.
            Err(error) => {
                state.contacts.remove(&uid);
                failed = Some(error);
            }
        }
        // Before a thread that waits for the answer looks.
        self.notify.set_changed();
        drop(state);
        self.note_failure(uid, failed);
        self.answered.notify_all();
        self.notify.notify_change();
    }

    fn make_link(
        self: &Arc<Self>,
        uid: u64,
        pool: Option<RegisteredPool>,
        answer: Answer,
    ) -> Result<PublisherLink> {
        match Packet::parse(&answer.bytes)? {
            (Kind::Subscribed, _) => {}
            (Kind::Refused, head) => {
                let why = Refusal::why(head.index);
                return Err(Error::AttachRefused { pool: self.topic.clone(), why });
            }
            (Kind::Mismatch, _) => {
                let theirs: Mismatch = read(&answer.bytes)?;
                return Err(self.signature.mismatch(&self.topic, &theirs.signature, &answer.peer));
            }
            _ => return Err(Error::BadMessage { what: "a publisher's answer is none" }),
        }
        PublisherLink::connected(uid, pool, answer, &self.notify)
    }

    /// Polls the directory if it is not watched.
    fn poll_if_unwatched(self: &Arc<Self>) {
        if self.dir().is_some() && self.state().watches.is_none() {
            self.scan_after(DISCOVERY_POLL);
        }
    }

    /// A publisher could not be connected. Keeps the error if it is a shortage or a refusal; other errors mean that the
    /// publisher has just ended, or makes no sense. Scans again after a shortage, which may pass.
    fn note_failure(&self, uid: u64, failed: Option<Error>) {
        let Some(error) = failed else { return };
        let shortage = is_shortage(&error);
        let mut state = self.state();
        // A shortage does not replace a refusal, which lasts.
        let lasting = state.failure.as_ref().is_some_and(|(_, error)| !is_shortage(error));
        if (shortage || is_refusal(&error)) && !(shortage && lasting) {
            state.failure = Some((uid, error));
        }
        drop(state);
        if shortage {
            self.scan_after(DISCOVERY_POLL);
        }
    }

    fn scan_after(&self, time: Duration) {
        self.state().waker.iter().for_each(|waker| waker.wake_after(time));
    }
}

/// Whether this process or the publisher lacked memory, descriptors or the like. That may pass, unlike a refusal.
fn is_shortage(error: &Error) -> bool {
    let shortages = [Refusal::TooMany, Refusal::Memory, Refusal::Descriptors];
    match error {
        Error::AttachRefused { why, .. } => return shortages.iter().any(|one| one.text() == *why),
        Error::OutOfMemory { .. } => return true,
        _ => {}
    }
    // The kernel reports ENOSPC if the user has too many watches.
    let is_short = |cause: &io::Error| {
        socket_dir::is_shortage(cause) || cause.kind() == io::ErrorKind::StorageFull
    };
    os_error(error).is_some_and(is_short)
}

/// Whether the publisher, or the permissions of its socket, refuse this process.
fn is_refusal(error: &Error) -> bool {
    let denied = |cause: &io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
    matches!(error, Error::AttachRefused { .. }) || os_error(error).is_some_and(denied)
}

/// The error of the system call, if that is the cause.
fn os_error(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// The service thread calls this when the directory changes, or when a scan is due.
impl Served for PublisherDiscovery {
    fn ready(self: Arc<Self>, _token: u64) {
        if self.creator.is_inherited() {
            return;
        }
        match self.scan() {
            Ok(()) => {
                self.state().clear_failure(DIRECTORY);
                self.poll_if_unwatched();
            }
            // The directory cannot be read, perhaps for want of a descriptor.
            Err(error) => {
                self.note_failure(DIRECTORY, Some(error));
                self.scan_after(DISCOVERY_POLL);
            }
        }
    }
}
