//! How a subscriber finds publishers: it looks into the topic's directory, greets everybody who is new,
//! and passes on those who answer. All of it on the service thread, but for the first look.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::error::{Error, Result};
use crate::os::fork;
use crate::pool::attachment::{self, Attachment};
use crate::pool::changes::{self, DirectoryWatch};
use crate::pool::greeting::{self, Answer, Begun, Greeting};
use crate::pool::place::{Entry, Place};
use crate::pool::service::{self, Served, Watch};
use crate::pool::wire::{Kind, Packet};
use crate::sync::Ordering;
use crate::tensor::pool::{self, Known};
use crate::topic::bell::Bell;
use crate::topic::signature::Signature;
use crate::topic::source::{Gone, Source};
use crate::topic::wire::{self, Mismatch, Subscribe, Subscribed};

/// How long the first look waits for answers. Those who take longer come later.
const FIRST_LOOK: Duration = Duration::from_millis(200);

/// When to try again where too many wait at a publisher's door.
const RETRY: Duration = Duration::from_millis(10);

/// How often a publisher is tried that hangs up without an answer, pushed by a crowd of others.
const ATTEMPTS: u32 = 8;

/// What is watched: the directory, the timer, and two for each publisher.
const DIRECTORY: u64 = 0;
const TIMER: u64 = 1;

/// Publishers that have come.
#[derive(Debug)]
pub(crate) struct Arrivals {
    topic: String,
    place: Place,
    signature: Signature,
    history: u64,
    /// The uid of the same object's publisher, which is not greeted.
    own: u64,
    epoch: u64,
    bell: Arc<Bell>,
    /// There is something to take in.
    any: AtomicBool,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Everybody who was seen in the directory, and what became of it.
    met: HashMap<u64, Met>,
    /// How many conversations were begun.
    begun: u64,
    /// What is asked of everybody who is in the directory.
    wishes: HashMap<u64, Wish>,
    ready: Vec<Source>,
    /// Publishers that send something else.
    mismatch: Option<Error>,
    directory: Option<DirectoryWatch>,
    timer: Option<(Arc<OwnedFd>, Watch)>,
}

/// What is asked of a publisher, however often it takes.
#[derive(Debug)]
struct Wish {
    /// How many messages from before we came.
    history: u64,
    hung_up: u32,
}

#[derive(Debug)]
enum Met {
    /// It has been greeted.
    Greeted { _greeting: Arc<Greeting> },
    /// It did not get as far as that. Each time with another number: a conversation can be over, and
    /// the next begun, before whoever began the first notes that it had begun.
    Crowd(u64),
    /// It has answered, one way or another; the flag, if it lets us in, is set when it is gone.
    Answered(Weak<Gone>),
}

impl State {
    /// How many old messages to ask a publisher for; `None` if it is not to be asked.
    fn wish(&mut self, uid: u64, history: u64) -> Option<u64> {
        let done = matches!(self.met.get(&uid), Some(Met::Greeted { .. } | Met::Answered(_)));
        let wish = self.wishes.entry(uid).or_insert(Wish { history, hung_up: 0 });
        (!done && wish.hung_up < ATTEMPTS).then_some(wish.history)
    }

    /// A publisher hung up; whether it is to be tried again.
    fn note_hang_up(&mut self, uid: u64) -> bool {
        let Some(wish) = self.wishes.get_mut(&uid) else { return false };
        wish.hung_up += 1;
        wish.hung_up < ATTEMPTS
    }
}

impl Met {
    /// Whether it is received from, wherever its socket may be.
    fn is_heard(&self) -> bool {
        matches!(self, Met::Answered(gone) if gone.upgrade().is_some_and(|gone| !gone.is_true()))
    }
}

impl Arrivals {
    pub(crate) fn new(
        topic: &str,
        place: Place,
        signature: Signature,
        history: usize,
        own: u64,
        bell: &Arc<Bell>,
    ) -> Arc<Arrivals> {
        Arc::new(Arrivals {
            topic: topic.to_owned(),
            place,
            signature,
            history: history as u64,
            own,
            epoch: fork::epoch(),
            bell: bell.clone(),
            any: AtomicBool::new(false),
            state: Mutex::default(),
            answered: Condvar::new(),
        })
    }

    /// Begins to look, and waits a moment for those who are there already.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let error = |source| Error::os("watching a directory", source);
        let watch =
            changes::watch(&self.place.held_path(), self.served(), DIRECTORY).map_err(error)?;
        self.state().directory = Some(watch);
        self.look(self.history)?;
        // Whoever has not been greeted yet is about to be, by the service thread.
        let open =
            |state: &mut State| state.met.values().any(|met| !matches!(met, Met::Answered(_)));
        let waited = self.answered.wait_timeout_while(self.state(), FIRST_LOOK, open);
        drop(waited);
        Ok(())
    }

    fn served(self: &Arc<Self>) -> Weak<dyn Served> {
        Arc::downgrade(&(self.clone() as Arc<dyn Served>))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code under this lock panics between two halves of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something to take in.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Vec<Source> {
        let mut state = self.state();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.ready)
    }

    /// The last publisher that was found to send something else.
    pub(crate) fn take_mismatch(&self) -> Option<Error> {
        self.state().mismatch.take()
    }

    /// Greets everybody who is new. Those who came after us are asked for all they sent.
    fn look(self: &Arc<Self>, history: u64) -> Result<()> {
        let entries = self.place.entries()?;
        let mut state = self.state();
        // One whose socket was removed makes it anew, and is still the same.
        let there = |uid: u64| entries.iter().any(|entry| entry.uid == uid);
        state.met.retain(|uid, met| there(*uid) || met.is_heard());
        state.wishes.retain(|uid, _| there(*uid));
        let new = entries.into_iter().filter(|entry| entry.uid != self.own);
        let new: Vec<_> =
            new.filter_map(|entry| Some((state.wish(entry.uid, history)?, entry))).collect();
        drop(state);
        new.iter().for_each(|(history, entry)| self.greet(entry, *history));
        Ok(())
    }

    /// Greets a publisher: its pool first, if there will be tensors, so that whatever it sends to a
    /// subscriber can be had even if it exits right afterwards.
    fn greet(self: &Arc<Self>, entry: &Entry, history: u64) {
        if !self.signature.is_tensor() {
            return self.subscribe(entry, None, history);
        }
        if let Some(known) = pool::find(entry.uid) {
            return self.subscribe(entry, Some(known), history);
        }
        let (weak, ours) = (Arc::downgrade(self), entry.clone());
        let then = move |attached: Result<Arc<Attachment<_>>>| {
            let Some(us): Option<Arc<Self>> = weak.upgrade() else { return };
            match attached {
                Ok(attachment) => {
                    pool::remember(&attachment);
                    us.subscribe(&ours, Some(Known::Attached(attachment)), history);
                }
                Err(error) => us.hear(ours.uid, None, Err(error)),
            }
        };
        self.note(entry.uid, || attachment::begin_at(&self.place, entry, then));
    }

    fn subscribe(self: &Arc<Self>, entry: &Entry, pool: Option<Known>, history: u64) {
        let hello = Subscribe::new(self.signature, history);
        let room = size_of::<Subscribed>().max(size_of::<Mismatch>());
        let (weak, uid) = (Arc::downgrade(self), entry.uid);
        let then = move |answer| {
            let us: Option<Arc<Self>> = weak.upgrade();
            us.inspect(|us| us.hear(uid, pool, answer));
        };
        self.note(uid, || {
            greeting::begin(&self.place, entry, bytemuck::bytes_of(&hello), room, then)
        });
    }

    /// Begins a conversation, and keeps it going.
    fn note(self: &Arc<Self>, uid: u64, begin: impl FnOnce() -> Result<Begun>) {
        // Noted first: the answer may come before `begin` returns.
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.met.insert(uid, Met::Crowd(number));
        drop(state);
        let begun = begin();
        let mut state = self.state();
        match begun {
            Ok(Begun::Greeting(greeting)) => {
                let met = state.met.get_mut(&uid);
                if let Some(met) = met.filter(|met| matches!(met, Met::Crowd(at) if *at == number))
                {
                    *met = Met::Greeted { _greeting: greeting };
                }
            }
            Ok(Begun::Crowd) => {
                drop(state);
                self.try_again_soon();
            }
            Ok(Begun::Nobody) | Err(_) => {
                state.met.remove(&uid);
                drop(state);
                self.answered.notify_all();
            }
        }
    }

    /// A publisher has answered.
    fn hear(self: &Arc<Self>, uid: u64, pool: Option<Known>, answer: Result<Answer>) {
        let source = answer.and_then(|answer| self.understand(uid, pool, answer));
        let (mut state, mut again) = (self.state(), false);
        let gone = source.as_ref().map_or_else(|_| Weak::new(), Source::gone);
        state.met.insert(uid, Met::Answered(gone));
        match source {
            Ok(source) => state.ready.push(source),
            Err(error @ Error::TypeMismatch { .. }) => state.mismatch = Some(error),
            // It died, or was too crowded.
            Err(error) => {
                state.met.remove(&uid);
                again = matches!(error, Error::Disconnected { .. }) && state.note_hang_up(uid);
            }
        }
        self.any.store(true, Ordering::Release);
        drop(state);
        if again {
            self.try_again_soon();
        }
        self.answered.notify_all();
        self.bell.ring_anyway();
    }

    fn understand(
        self: &Arc<Self>,
        uid: u64,
        pool: Option<Known>,
        answer: Answer,
    ) -> Result<Source> {
        match Packet::parse(&answer.bytes)? {
            (Kind::Subscribed, _) => {}
            (Kind::Mismatch, _) => {
                let theirs: Mismatch = wire::read(&answer.bytes)?;
                return Err(Error::TypeMismatch {
                    topic: self.topic.clone(),
                    ours: self.signature.to_string(),
                    theirs: theirs.signature.to_string(),
                    pid: answer.peer.pid,
                    program: answer.peer.program(),
                });
            }
            _ => return Err(Error::BadMessage { what: "a publisher's answer is none" }),
        }
        Source::other(uid, pool, answer, &self.bell)
    }

    fn try_again_soon(self: &Arc<Self>) {
        let _ = self.set_timer();
    }

    fn set_timer(self: &Arc<Self>) -> std::io::Result<()> {
        let mut state = self.state();
        if state.timer.is_none() {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = Arc::new(timerfd_create(TimerfdClockId::Monotonic, flags)?);
            let watch = service::watch(&timer, self.served(), TIMER)?;
            state.timer = Some((timer, watch));
        }
        if let Some((timer, _)) = &state.timer {
            let once = Timespec { tv_sec: 0, tv_nsec: RETRY.subsec_nanos().into() };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let when = Itimerspec { it_interval: never, it_value: once };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &when)?;
        }
        Ok(())
    }
}

impl Served for Arrivals {
    fn ready(self: Arc<Self>, token: u64) {
        if self.epoch != fork::epoch() {
            return;
        }
        if token == TIMER {
            let done = self.state().timer.take();
            drop(done);
        }
        // Should the directory not be readable, the next change tells.
        let _ = self.look(u64::MAX);
    }
}
