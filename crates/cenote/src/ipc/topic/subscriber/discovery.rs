//! How a subscriber finds publishers: it looks into the topic's directory, greets everybody who is new,
//! and passes on those who answer. All of it on the service thread, but for the first look: whoever makes
//! that waits a moment for answers, and takes them itself, which spares it being woken by another thread.

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
use crate::ipc::topic::signature::Signature;
use crate::ipc::topic::subscriber::publisher_link::{Gone, Source};
use crate::ipc::topic::subscriber::wakeup::News;
use crate::sys::fork::Creator;

/// The most publishers of something else that are kept until somebody asks.
const MAX_MISMATCHES: usize = 64;

/// What there is to do: something changed in the directory, or somebody is to be greeted again.
const LOOK: u64 = 0;

/// Whoever there is: no publisher has this uid.
const ANYBODY: u64 = 0;

/// Publishers that have come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    topic: String,
    /// `None` when nobody receives any more.
    place: Mutex<Option<Arc<SocketDir>>>,
    /// For whom the directory is made, should it be removed.
    access: PoolAccess,
    signature: Signature,
    history: u64,
    /// The uid of the same object's publisher, which is not greeted.
    own: u64,
    creator: Creator,
    pub(crate) news: Arc<News>,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Everybody who was seen in the directory, and what became of it.
    met: HashMap<u64, Met>,
    /// Conversations so far.
    steps: u64,
    /// The first look is over.
    looked: bool,
    /// Who hears the answers to what it says itself.
    listener: Option<ThreadId>,
    ready: Vec<Source>,
    /// Publishers that send something else, and of whom nobody was told yet.
    mismatches: VecDeque<Error>,
    /// Who could not be met last, and why, until somebody is told, or it is met.
    failure: Option<(u64, Error)>,
    directory: Option<(DirectoryWatch, DirectoryWatch)>,
    /// Has it looked at again.
    waker: Option<Waker>,
}

/// What became of somebody who was seen.
#[derive(Debug)]
enum Met {
    /// A conversation is under way: the first, about its pool, or the second. Their numbers differ,
    /// for the second may begin before whoever began the first has noted it.
    Greeted { step: u64, wish: Wish, greeting: Option<Arc<Handshake>> },
    /// Too many wait at its door, or it hung up on one of them: to be tried again.
    Crowd(Wish),
    /// It has answered. Dead if it sends something else, or is not received from any more: the source
    /// keeps it.
    Answered(Weak<Gone>),
}

/// What is asked of a publisher, however often it takes.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// How many messages from before we came.
    history: u64,
    /// How often it hung up without an answer.
    hung_up: u32,
}

impl Met {
    /// Whether there is a connection, wherever its entry in the directory went: a publisher that has
    /// just closed may have answered, and one that makes its entry anew is the same publisher.
    fn is_connected(&self) -> bool {
        match self {
            Met::Greeted { .. } => true,
            Met::Crowd { .. } => false,
            Met::Answered(gone) => gone.upgrade().is_some_and(|gone| !gone.is_true()),
        }
    }
}

impl State {
    /// Notes that a conversation begins.
    fn next_step(&mut self, uid: u64, wish: Wish) -> u64 {
        self.steps += 1;
        self.met.insert(uid, Met::Greeted { step: self.steps, wish, greeting: None });
        self.steps
    }

    /// Those whose answers nobody hears yet, by uid.
    fn unheard(&self) -> Vec<(u64, Arc<Handshake>)> {
        let greeting = |(uid, met): (&u64, &Met)| match met {
            Met::Greeted { greeting: Some(one), .. } => Some((*uid, one.clone())),
            _ => None,
        };
        self.met.iter().filter_map(greeting).filter(|(_, one)| one.is_unwatched()).collect()
    }

    /// What was wrong with somebody is not any more.
    fn forget_failure(&mut self, uid: u64) {
        let _ = self.failure.take_if(|(failed, _)| *failed == uid);
    }

    /// A publisher hung up; whether it is to be tried again.
    fn note_hang_up(&mut self, uid: u64) -> bool {
        let Some(Met::Greeted { wish, .. }) = self.met.get(&uid) else { return false };
        let wish = Wish { hung_up: wish.hung_up + 1, ..*wish };
        let again = wish.hung_up < SUBSCRIBE_ATTEMPTS;
        if again {
            self.met.insert(uid, Met::Crowd(wish));
        }
        again
    }
}

impl Arrivals {
    pub(crate) fn new(
        topic: &str,
        (place, access): (SocketDir, PoolAccess),
        signature: Signature,
        history: usize,
        own: u64,
        news: &Arc<News>,
    ) -> Arc<Arrivals> {
        Arc::new(Arrivals {
            topic: topic.to_owned(),
            place: Mutex::new(Some(Arc::new(place))),
            access,
            signature,
            history: history as u64,
            own,
            creator: Creator::this_process(),
            news: news.clone(),
            state: Mutex::default(),
            answered: Condvar::new(),
        })
    }

    /// Begins to look, and waits a moment for those who are there already.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let until = Instant::now() + FIRST_CONNECT_TIMEOUT;
        // Now, for when there is a shortage.
        let waker = Waker::new(self.served(), LOOK);
        self.state().waker = Some(waker.map_err(|source| Error::os("starting a thread", source))?);
        self.place().inspect(|place| self.watch(place));
        self.state().listener = Some(thread::current().id());
        self.look()?;
        self.look_again_if_blind();
        self.state().looked = true;
        self.listen(until);
        self.watch_by_service();
        // Those whom the service thread has to do with.
        let open =
            |state: &mut State| state.met.values().any(|met| !matches!(met, Met::Answered(_)));
        let left = until.saturating_duration_since(Instant::now());
        drop(self.answered.wait_timeout_while(self.state(), left, open));
        Ok(())
    }

    /// Hears those whom this thread has greeted. Those of this very process need not wake up for it.
    fn listen(&self, until: Instant) {
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let silent = self.state().unheard();
            if silent.is_empty() {
                return;
            }
            silent.iter().for_each(|(uid, _)| registry::accept_now(*uid));
            handshake::await_some(&silent, left).iter().for_each(|greeting| greeting.receive());
        }
    }

    /// Has the service thread hear those who have not answered yet, and all whom this thread greets.
    fn watch_by_service(self: &Arc<Self>) {
        let mut state = self.state();
        state.listener = None;
        let unheard = state.unheard().into_iter();
        let failed: Vec<_> = unheard.filter(|(_, one)| one.watch_by_service().is_err()).collect();
        failed.iter().for_each(|(uid, _)| drop(state.met.remove(uid)));
        drop(state);
        if !failed.is_empty() {
            self.look_after(DISCOVERY_POLL);
        }
    }

    /// Whether this thread hears the answers to what it says.
    fn is_listener(&self) -> bool {
        self.state().listener == Some(thread::current().id())
    }

    fn place(&self) -> Option<Arc<SocketDir>> {
        self.held_place().clone()
    }

    fn held_place(&self) -> MutexGuard<'_, Option<Arc<SocketDir>>> {
        // It is replaced whole.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has changes of a directory told, and its end: that, only the directory it is in tells of.
    fn watch(self: &Arc<Self>, place: &SocketDir) {
        // A user may have but few of them.
        let watch = |path: PathBuf| watch::watch(&path, self.served(), LOOK).ok();
        let watches = watch(place.held_path()).zip(watch(place.held_parent()));
        let old = std::mem::replace(&mut self.state().directory, watches);
        drop(old);
    }

    /// Makes the directory anew if it was removed, so that whoever comes next is found. Where that is not
    /// ours to do, somebody else may, and it is looked for by the clock.
    fn follow(self: &Arc<Self>) {
        // Looked at again once it is watched: it may have been removed before that.
        for _ in 0..DIR_ATTEMPTS {
            // Held all the while: after `leave` nothing is made.
            let mut place = self.held_place();
            let Some(held) = place.as_ref().filter(|place| place.is_removed()) else { return };
            let Ok(again) = held.reopen(self.access) else { break };
            self.watch(&again);
            *place = Some(Arc::new(again));
        }
        let old = self.state().directory.take();
        drop(old);
        self.look_again_if_blind();
    }

    /// Nobody looks any more. Gives the directory.
    pub(crate) fn leave(&self) -> Option<Arc<SocketDir>> {
        let place = self.held_place().take();
        let watches = self.state().directory.take();
        drop(watches);
        place
    }

    fn served(self: &Arc<Self>) -> Weak<dyn Served> {
        Arc::downgrade(&(self.clone() as Arc<dyn Served>))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self) -> Vec<Source> {
        let mut state = self.state();
        self.news.clear();
        std::mem::take(&mut state.ready)
    }

    /// A publisher that was found to send something else. Each is told of once.
    pub(crate) fn take_mismatch(&self) -> Option<Error> {
        self.state().mismatches.pop_front()
    }

    /// Why a publisher could not be met, if that was not for want of one. Told once.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.state().failure.take().map(|(_, error)| error)
    }

    /// Greets everybody who is new. Those who came after us are asked for all they sent.
    fn look(self: &Arc<Self>) -> Result<()> {
        self.follow();
        let Some(place) = self.place() else { return Ok(()) };
        // Under the lock: with an older list, somebody who was just greeted would be forgotten.
        let mut state = self.state();
        let entries = place.endpoints()?;
        let history = if state.looked { u64::MAX } else { self.history };
        let here = |uid: &u64| entries.iter().any(|entry| entry.uid == *uid);
        state.met.retain(|uid, met| here(uid) || met.is_connected());
        let mut new: Vec<(Endpoint, Wish, u64)> = Vec::new();
        for entry in entries.into_iter().filter(|entry| entry.uid != self.own) {
            let wish = match state.met.get(&entry.uid) {
                Some(Met::Greeted { .. } | Met::Answered(_)) => continue,
                Some(Met::Crowd(wish)) => *wish,
                None => Wish { history, hung_up: 0 },
            };
            // Noted at once: somebody else may look at the same time.
            let step = state.next_step(entry.uid, wish);
            new.push((entry, wish, step));
        }
        drop(state);
        new.iter().for_each(|(entry, wish, step)| self.greet(entry, *wish, *step));
        Ok(())
    }

    /// Greets a publisher: its pool first, if there will be tensors, so that whatever it sends to a
    /// subscriber can be had even if it exits right afterwards.
    fn greet(self: &Arc<Self>, entry: &Endpoint, wish: Wish, step: u64) {
        if !self.signature.is_tensor() {
            return self.subscribe(entry, None, wish, step);
        }
        if let Some(known) = registry::find(entry.uid) {
            return self.subscribe(entry, Some(known), wish, step);
        }
        let (weak, ours) = (Arc::downgrade(self), entry.clone());
        let then = move |attached: Result<Arc<Attachment>>| {
            let Some(us): Option<Arc<Self>> = weak.upgrade() else { return };
            match attached {
                Ok(attachment) => {
                    registry::register(&attachment);
                    let step = us.state().next_step(ours.uid, wish);
                    us.subscribe(&ours, Some(RegisteredPool::Attached(attachment)), wish, step);
                }
                Err(error) => us.hear(ours.uid, None, Err(error)),
            }
        };
        let Some(place) = self.place() else { return };
        let begun = attachment::begin_at(&place, entry, then);
        self.note(entry.uid, wish, step, begun);
    }

    fn subscribe(
        self: &Arc<Self>,
        entry: &Endpoint,
        pool: Option<RegisteredPool>,
        wish: Wish,
        step: u64,
    ) {
        let hello = Subscribe::new(self.signature, wish.history);
        let room = size_of::<Subscribed>().max(size_of::<Mismatch>());
        let (weak, uid) = (Arc::downgrade(self), entry.uid);
        let then = move |answer| {
            let us: Option<Arc<Self>> = weak.upgrade();
            us.inspect(|us| us.hear(uid, pool, answer));
        };
        let Some(place) = self.place() else { return };
        let begun = handshake::begin(&place, entry, bytemuck::bytes_of(&hello), room, then);
        self.note(uid, wish, step, begun);
    }

    /// Keeps a conversation going that has begun, unless it is over by now.
    fn note(self: &Arc<Self>, uid: u64, wish: Wish, step: u64, begun: Result<Connecting>) {
        let begun = match self.is_listener() {
            true => begun,
            false => begun.and_then(Connecting::watched_by_service),
        };
        let mut state = self.state();
        let current = |met: &&mut Met| matches!(met, Met::Greeted { step: s, .. } if *s == step);
        let Some(met) = state.met.get_mut(&uid).filter(current) else { return };
        match begun {
            Ok(Connecting::Started(greeting)) => {
                *met = Met::Greeted { step, wish, greeting: Some(greeting) };
            }
            Ok(Connecting::Busy) => {
                *met = Met::Crowd(wish);
                drop(state);
                self.look_after(SUBSCRIBE_RETRY);
            }
            failed @ (Ok(Connecting::Closed) | Err(_)) => {
                state.met.remove(&uid);
                state.forget_failure(uid);
                drop(state);
                self.note_failure(uid, failed.err());
                self.answered.notify_all();
            }
        }
    }

    /// A publisher has answered.
    fn hear(self: &Arc<Self>, uid: u64, pool: Option<RegisteredPool>, answer: Result<Answer>) {
        let source = answer.and_then(|answer| self.understand(uid, pool, answer));
        // Whoever never receives takes none of them in. In this order, so that they are dropped after the
        // lock.
        let _over: Vec<Source>;
        let mut state = self.state();
        _over = state.ready.extract_if(.., |source| source.is_over()).collect();
        // Pushed out by a crowd of others, perhaps.
        if matches!(source, Err(Error::Disconnected { .. })) && state.note_hang_up(uid) {
            drop(state);
            return self.look_after(SUBSCRIBE_RETRY);
        }
        let gone = source.as_ref().ok().and_then(Source::gone);
        state.met.insert(uid, Met::Answered(gone.as_ref().map_or_else(Weak::new, Arc::downgrade)));
        let mut failed = None;
        state.forget_failure(uid);
        match source {
            Ok(source) => state.ready.push(source),
            Err(error @ Error::TypeMismatch { .. }) => {
                if state.mismatches.len() < MAX_MISMATCHES {
                    state.mismatches.push_back(error);
                }
            }
            // If it is still there, the next look finds it.
            Err(error) => {
                state.met.remove(&uid);
                failed = Some(error);
            }
        }
        // Before anybody who waits for the answer looks.
        self.news.set();
        drop(state);
        self.note_failure(uid, failed);
        self.answered.notify_all();
        self.news.tell();
    }

    fn understand(
        self: &Arc<Self>,
        uid: u64,
        pool: Option<RegisteredPool>,
        answer: Answer,
    ) -> Result<Source> {
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
        Source::other(uid, pool, answer, &self.news)
    }

    /// Looks by the clock where nobody tells of changes.
    fn look_again_if_blind(self: &Arc<Self>) {
        if self.place().is_some() && self.state().directory.is_none() {
            self.look_after(DISCOVERY_POLL);
        }
    }

    /// Somebody could not be met. Looks again if that may be different in a moment; keeps why, unless it is that somebody
    /// has just gone, or makes no sense.
    fn note_failure(&self, uid: u64, failed: Option<Error>) {
        let Some(error) = failed else { return };
        let shortage = is_shortage(&error);
        let mut state = self.state();
        // What passes does not hide what lasts.
        let lasting = state.failure.as_ref().is_some_and(|(_, error)| !is_shortage(error));
        if (shortage || is_refusal(&error)) && !(shortage && lasting) {
            state.failure = Some((uid, error));
        }
        drop(state);
        if shortage {
            self.look_after(DISCOVERY_POLL);
        }
    }

    fn look_after(&self, time: Duration) {
        self.state().waker.iter().for_each(|waker| waker.wake_after(time));
    }
}

/// Whether somebody lacked memory, descriptors or the like, here or there. Whoever is not let in, or makes
/// no sense, will not be or do so later.
fn is_shortage(error: &Error) -> bool {
    let shortages = [Refusal::TooMany, Refusal::Memory, Refusal::Descriptors];
    match error {
        Error::AttachRefused { why, .. } => return shortages.iter().any(|one| one.text() == *why),
        Error::OutOfMemory { .. } => return true,
        _ => {}
    }
    // That there is no room is said of watches.
    let lacks = |cause: &io::Error| {
        socket_dir::is_shortage(cause) || cause.kind() == io::ErrorKind::StorageFull
    };
    of_system(error).is_some_and(lacks)
}

/// Whether somebody does not let this process in.
fn is_refusal(error: &Error) -> bool {
    let denied = |cause: &io::Error| cause.kind() == io::ErrorKind::PermissionDenied;
    matches!(error, Error::AttachRefused { .. }) || of_system(error).is_some_and(denied)
}

/// What the system said, if that is the cause.
fn of_system(error: &Error) -> Option<&io::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

impl Served for Arrivals {
    fn ready(self: Arc<Self>, _token: u64) {
        if self.creator.is_inherited() {
            return;
        }
        match self.look() {
            Ok(()) => {
                self.state().forget_failure(ANYBODY);
                self.look_again_if_blind();
            }
            // It cannot be read: no descriptor was left, perhaps.
            Err(error) => {
                self.note_failure(ANYBODY, Some(error));
                self.look_after(DISCOVERY_POLL);
            }
        }
    }
}
