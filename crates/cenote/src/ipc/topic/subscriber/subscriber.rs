//! The part of a topic that receives: every publisher there is, one after another.
//!
//! Taking a message needs no syscall: it is in mapped memory. Publishers come as [`Arrivals`], most of
//! them by way of the service thread; so does a pool that a message made necessary. Whoever
//! sleeps does so over all connections and a bell for the rest.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::error::{Error, Result};
use crate::intervals::{SKIPPED_MESSAGES, UNRESOLVED_POLL};
use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::ring::orderings::Shipped;
use crate::ipc::ring::ring::Found;
use crate::ipc::ring::subscriber_row;
use crate::ipc::service_thread::{Served, Waker};
use crate::ipc::topic::message::{Message, Unread};
use crate::ipc::topic::publisher::Publisher;
use crate::ipc::topic::subscriber::discovery::Arrivals;
use crate::ipc::topic::subscriber::pools::Pools;
use crate::ipc::topic::subscriber::publisher_link;
use crate::ipc::topic::subscriber::publisher_link::{From, Next, Other, Source};
use crate::ipc::topic::subscriber::resolve::{Again, Lender};
use crate::ipc::topic::subscriber::wakeup::{Bell, News};
use crate::sync::{Biased, BiasedGuard};
use crate::sys;
use crate::sys::fork::Creator;

/// What receives.
#[derive(Debug)]
pub(crate) struct Subscriber {
    topic: String,
    creator: Creator,
    /// Over all connections, and the bell.
    epoll: OwnedFd,
    news: Arc<News>,
    arrivals: Arc<Arrivals>,
    receiving: Biased<Receiving>,
}

#[derive(Debug, Default)]
struct Receiving {
    sources: Vec<Source>,
    /// Where to look first: each publisher has its turn.
    turn: usize,
    words: Vec<u64>,
    pools: Pools,
    /// Messages that were overwritten, or could not be had.
    missed: u64,
    received: u64,
    /// Why the last one could not be had.
    last_loss: Option<Error>,
    /// Threads that sleep.
    waiters: usize,
    /// The descriptor was asked for: somebody else may sleep.
    watched: bool,
    /// Goes up with every arming; 0 stands for none.
    armed: u64,
    /// Rings for whoever sleeps while a message is stuck.
    waker: Option<Waker>,
}

impl Subscriber {
    /// Makes it, without any publisher yet.
    pub(crate) fn new(topic: &str, arrivals: Arc<Arrivals>) -> Result<Subscriber> {
        let error = |source| Error::os("making an epoll instance", source);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(error)?;
        let news = arrivals.news.clone();
        epoll::add(&epoll, &news.bell, EventData::new_u64(BELL), EventFlags::IN).map_err(error)?;
        Ok(Subscriber {
            topic: topic.to_owned(),
            creator: Creator::this_process(),
            epoll,
            news,
            arrivals,
            receiving: Biased::new(Receiving::default()),
        })
    }

    pub(crate) fn check_process(&self) -> Result<()> {
        match self.is_inherited() {
            false => Ok(()),
            true => Err(Error::ForkedTopic { topic: self.topic.clone() }),
        }
    }

    /// Nothing is received any more. Gives the directory that was looked into.
    pub(crate) fn leave(&self) -> Option<Arc<SocketDir>> {
        self.arrivals.leave()
    }

    #[inline]
    fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }

    #[inline]
    fn receiving(&self) -> BiasedGuard<'_, Receiving> {
        self.receiving.lock()
    }

    /// Also receives what the same object sends.
    pub(crate) fn add_own(&self, publisher: Arc<Publisher>) {
        publisher.ring_at(&self.news);
        if publisher.waits() {
            publisher.set_own_taken(0); // from here on it waits for us, too
        }
        self.add(&mut self.receiving(), Source::own(publisher));
    }

    fn add(&self, receiving: &mut Receiving, source: Source) {
        let payload = receiving.words.len().max(source.payload());
        receiving.words.resize(payload, 0);
        receiving.sources.push(source);
    }

    /// The next message, if there is one. It is made where the caller wants to have it.
    #[inline(always)]
    pub(crate) fn recv<T: Message>(&self) -> Option<T> {
        self.take().map(Unmade::make)
    }

    /// Takes the next message, under the lock, which whoever makes it gives back. A function of its own, so that
    /// finding nothing stays short.
    #[inline(never)]
    fn take<T: Message>(&self) -> Option<Unmade<'_, T>> {
        if self.is_inherited() {
            return None;
        }
        let mut receiving = self.receiving();
        if self.news.any() {
            self.take_in(&mut receiving);
        }
        if let Some((at, taken)) = receiving.take_again::<T>() {
            return Some(Unmade { receiving, at, taken });
        }
        match receiving.take::<T>(&self.news) {
            Some((at, taken)) => Some(Unmade { receiving, at, taken }),
            None if receiving.watched => self.rearm(receiving),
            None => None,
        }
    }

    /// The newest message of whichever publisher has one; older ones of the same publisher are
    /// skipped.
    pub(crate) fn latest<T: Message>(&self) -> Option<T> {
        if self.is_inherited() {
            return None;
        }
        let mut receiving = self.receiving();
        if self.news.any() {
            self.take_in(&mut receiving);
        }
        for source in &mut receiving.sources {
            source.skip_to_newest();
        }
        let mut newest = None;
        // One of each: a publisher that is quicker than this does not keep it going.
        for _ in 0..receiving.sources.len() {
            newest = receiving.next(&self.news).or(newest);
        }
        if !receiving.watched {
            return newest;
        }
        self.rearm(receiving).map(Unmade::make).or(newest)
    }

    /// Waits for a message until the deadline; without one, for ever.
    pub(crate) fn recv_until<T: Message>(&self, deadline: Option<Instant>) -> Result<Option<T>> {
        loop {
            self.check_process()?;
            if let Some(message) = self.recv() {
                return Ok(Some(message));
            }
            // Nothing, but somebody who sends something else: it may be in vain to wait.
            if let Some(mismatch) = self.take_mismatch() {
                return Err(mismatch);
            }
            let left = match deadline.map(|at| at.checked_duration_since(Instant::now())) {
                Some(None) => return Ok(None),
                Some(left) => left,
                None => None,
            };
            let slept = if self.arm() { self.sleep(left) } else { Ok(()) };
            self.disarm();
            slept?;
        }
    }

    /// Announces that this thread is about to sleep; false if there is something to take first.
    fn arm(&self) -> bool {
        let mut receiving = self.receiving();
        receiving.waiters += 1;
        receiving.arm(&self.news.bell);
        !self.news.any() && !receiving.is_ready()
    }

    /// Undoes [`Subscriber::arm`]. Those that still sleep, on the descriptor, too, are armed anew, for the byte
    /// that woke this thread was theirs, too; and one of them looks if there is something, which may be more than
    /// this thread takes. Not otherwise: they would wake each other for ever.
    fn disarm(&self) {
        let mut receiving = self.receiving();
        receiving.waiters -= 1;
        if receiving.waiters == 0 && !receiving.watched {
            return receiving.disarm(&self.news.bell);
        }
        receiving.arm(&self.news.bell);
        if self.news.any() || receiving.is_ready() {
            self.news.bell.ring_anyway();
        } else if receiving.is_stuck() {
            receiving.ring_soon(&self.news);
        }
    }

    fn sleep(&self, left: Option<Duration>) -> Result<()> {
        let receiving = self.receiving();
        self.ignore_gone(&receiving);
        let left = if receiving.is_stuck() {
            Some(left.map_or(UNRESOLVED_POLL, |left| left.min(UNRESOLVED_POLL)))
        } else {
            left
        };
        drop(receiving);
        let mut events = Vec::with_capacity(16);
        sys::epoll::wait(&self.epoll, &mut events, left)
            .map_err(|source| Error::os("waiting for a message", source))?;
        self.hush(&events);
        Ok(())
    }

    /// A connection that has ended would wake whoever sleeps without a pause, for as long as a message of that
    /// publisher is stuck. That it has ended is known.
    fn ignore_gone(&self, receiving: &Receiving) {
        for other in receiving.others().filter(|other| other.gone.is_true()) {
            // It fails if that was done before.
            let _ = epoll::delete(&self.epoll, &*other.connection);
        }
    }

    /// Reads what woke this thread. If there is more, it wakes again.
    fn hush(&self, events: &[epoll::Event]) {
        let receiving = self.receiving();
        for event in events {
            let uid = { event.data }.u64();
            if uid == BELL {
                self.news.bell.hush();
            } else if let Some(other) = receiving.others().find(|other| other.uid == uid) {
                publisher_link::hush(&other.connection);
            }
        }
    }

    /// Before saying "nothing" to somebody who then sleeps on the descriptor: quiet, arm, look again.
    #[cold]
    fn rearm<'a, T: Message>(
        &'a self,
        mut receiving: BiasedGuard<'a, Receiving>,
    ) -> Option<Unmade<'a, T>> {
        self.news.bell.hush();
        self.ignore_gone(&receiving);
        receiving.others().for_each(Other::hush_all);
        receiving.arm(&self.news.bell);
        if self.news.any() {
            self.take_in(&mut receiving);
        }
        let found = receiving.take::<T>(&self.news);
        if found.is_some() || receiving.is_ready() {
            // There may be more, and nobody would be told.
            self.news.bell.ring_anyway();
        } else if receiving.is_stuck() {
            receiving.ring_soon(&self.news);
        }
        found.map(|(at, taken)| Unmade { receiving, at, taken })
    }

    /// The descriptor to wait for: readable when there may be something to receive.
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.check_process()?;
        let mut receiving = self.receiving();
        if !mem::replace(&mut receiving.watched, true) {
            receiving.arm(&self.news.bell);
            self.news.bell.ring_anyway(); // for what is there already
        }
        Ok(self.epoll.as_fd())
    }

    /// Takes in publishers that have come.
    #[cold]
    fn take_in(&self, receiving: &mut Receiving) {
        for source in self.arrivals.take() {
            if let From::Other(other) = &source.from {
                let data = EventData::new_u64(other.uid);
                // Without it there is no waking; polling still works.
                let _ = epoll::add(&self.epoll, &*other.connection, data, EventFlags::IN);
            }
            self.add(receiving, source);
        }
        if receiving.waiters > 0 || receiving.watched {
            receiving.arm(&self.news.bell);
        }
    }

    /// Why a publisher could not be met.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.arrivals.take_failure()
    }

    /// A publisher that was found to send something else.
    pub(crate) fn take_mismatch(&self) -> Option<Error> {
        self.arrivals.take_mismatch()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.receiving().missed
    }

    pub(crate) fn received(&self) -> u64 {
        self.receiving().received
    }

    /// Why the last message that was lost could not be had, if it was not just overwritten.
    pub(crate) fn take_last_loss(&self) -> Option<Error> {
        self.receiving().last_loss.take()
    }

    /// How many publishers there are, this object's own not counted. One that is gone counts while
    /// something that it sent is left to take.
    pub(crate) fn publishers(&self) -> usize {
        if self.is_inherited() {
            return 0;
        }
        let mut receiving = self.receiving();
        if self.news.any() {
            self.take_in(&mut receiving);
        }
        receiving.sources.iter().filter(|source| !source.is_own() && !source.is_over()).count()
    }
}

const BELL: u64 = 0; // no publisher has this uid

impl Receiving {
    fn others(&self) -> impl Iterator<Item = &Other> {
        self.sources.iter().filter_map(|source| match &source.from {
            From::Other(other) => Some(other),
            From::Own(_) => None,
        })
    }

    /// Has everybody wake us. Look afterwards, before sleeping.
    fn arm(&mut self, bell: &Bell) {
        self.armed = self.armed.wrapping_add(1).max(1);
        bell.arm(true);
        subscriber_row::arm::<Shipped>(self.others().map(Other::row), self.armed);
    }

    fn disarm(&mut self, bell: &Bell) {
        bell.arm(false);
        self.others().for_each(|other| other.row().disarm());
    }

    /// Whether there is something to take, or to be told.
    fn is_ready(&self) -> bool {
        self.sources.iter().any(Source::is_ready)
    }

    /// Whether a message is there that could not be had yet, which nobody rings for once it can.
    fn is_stuck(&self) -> bool {
        self.sources.iter().any(|source| source.stuck)
    }

    /// Has whoever sleeps on the descriptor look again in a moment: not at once, for it would do nothing
    /// else until the message can be had, which may be never.
    fn ring_soon(&mut self, news: &Arc<News>) {
        if self.waker.is_none() {
            let served: Weak<dyn Served> = Arc::downgrade(&(news.clone() as Arc<dyn Served>));
            self.waker = Waker::new(served, 0).ok();
        }
        match &self.waker {
            Some(waker) => waker.wake_after(UNRESOLVED_POLL),
            None => news.bell.ring_anyway(),
        }
    }

    /// The next message, if there is one.
    fn next<T: Message>(&mut self, news: &Arc<News>) -> Option<T> {
        let (at, taken) = self.take::<T>(news)?;
        Some(T::make(taken, &self.sources[at].layouts))
    }

    /// Takes the next message of the publisher whose turn it is, if that is all there is to do, as it is most of
    /// the time: its tensor lies where an earlier one did.
    #[inline(always)]
    fn take_again<T: Message>(&mut self) -> Option<(usize, T::Taken)> {
        let at = if self.turn < self.sources.len() { self.turn } else { 0 };
        let source = self.sources.get_mut(at)?;
        let From::Other(other) = &source.from else { return None };
        let elsewhere = other.pool.is_some() && other.own_pool.is_none();
        if elsewhere || other.gone.is_true() {
            return None; // there is more to do: its end is to be noticed, too
        }
        let entry = source.cursor.entry();
        let Found::Message(len) = entry.read::<Shipped>(&mut self.words) else { return None };
        let mut tensors = Again { other, entry };
        let taken = T::read(&self.words[..len], &mut source.layouts, &mut tensors).ok()?;
        source.stuck = false;
        source.advance(1);
        self.turn = at + 1;
        self.received += 1;
        Some((at, taken))
    }

    /// Takes the next message of the publisher whose turn it is, or of one after it; tells of which.
    #[inline(never)]
    fn take<T: Message>(&mut self, news: &Arc<News>) -> Option<(usize, T::Taken)> {
        let mut looked = 0;
        while looked < self.sources.len() {
            if self.turn >= self.sources.len() {
                self.turn = 0;
            }
            let at = self.turn;
            match self.take_from::<T>(at, news) {
                Took::Message(taken) => {
                    self.turn += 1;
                    self.received += 1;
                    if self.sources[at].is_gone() {
                        news.set(); // its end is to be noticed
                    }
                    return Some((at, taken));
                }
                Took::Nothing => {
                    self.turn += 1;
                    looked += 1;
                }
                Took::End => {
                    let ended = self.sources.swap_remove(at);
                    self.pools.forget(&ended);
                }
            }
        }
        None
    }

    fn take_from<T: Message>(&mut self, at: usize, news: &Arc<News>) -> Took<T::Taken> {
        let Receiving { sources, words, pools, missed, last_loss, .. } = self;
        let source = &mut sources[at];
        source.stuck = false;
        for _ in 0..SKIPPED_MESSAGES {
            let len = match source.next(words) {
                Next::Message(len) => len,
                Next::Nothing => return Took::Nothing,
                Next::End => return Took::End,
                Next::Missed(count) => {
                    // A publisher can say what it likes.
                    *missed = missed.saturating_add(count);
                    continue;
                }
            };
            let Source { layouts, from, cursor, .. } = &mut *source;
            let mut tensors = Lender { from, cursor, pools, news };
            match T::read(&words[..len], layouts, &mut tensors) {
                Ok(taken) => {
                    source.advance(1);
                    return Took::Message(taken);
                }
                Err(Unread::Later) => {
                    source.stuck = true;
                    return Took::Nothing;
                }
                Err(Unread::Passed) => {}
                Err(Unread::Lost(error)) => {
                    *missed = missed.saturating_add(1);
                    *last_loss = Some(*error);
                    source.advance(1);
                }
            }
        }
        Took::Nothing
    }
}

/// A message that was taken, and is still to be made: under the lock, for its layouts is that of the next one, too.
struct Unmade<'a, T: Message> {
    receiving: BiasedGuard<'a, Receiving>,
    /// Which source it came from.
    at: usize,
    taken: T::Taken,
}

impl<T: Message> Unmade<'_, T> {
    #[inline(always)]
    fn make(self) -> T {
        T::make(self.taken, &self.receiving.sources[self.at].layouts)
    }
}

/// What was taken.
enum Took<M> {
    Message(M),
    Nothing,
    /// Nothing, and nothing more will come.
    End,
}
