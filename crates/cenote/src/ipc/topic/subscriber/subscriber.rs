//! The receiving side of a topic: all publishers, one after another.
//!
//! Taking a message needs no system call, because it is in mapped memory. [`PublisherDiscovery`] finds and connects
//! publishers, most of them on the service thread. A thread that waits for a message sleeps in epoll: over all
//! connections, and an eventfd for events of this process (`ipc/topic/notify.rs`).

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::error::{Error, Result};
use crate::intervals::UNRESOLVED_POLL;
use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::topic::message::Message;
use crate::ipc::topic::notify::SubscriberNotify;
use crate::ipc::topic::publisher::publisher::Publisher;
use crate::ipc::topic::subscriber::discovery::PublisherDiscovery;
use crate::ipc::topic::subscriber::publisher_link::{ConnectedPublisher, PublisherLink};
use crate::ipc::topic::subscriber::receive_state::{DecodedMessage, ReceiveState};
use crate::sync::{Biased, BiasedGuard};
use crate::sys;
use crate::sys::fork::Creator;

/// The epoll data of the eventfd. That of a connection is the uid of its publisher, which is never 0.
const NOTIFY: u64 = 0;

/// The receiving side of a topic.
#[derive(Debug)]
pub(crate) struct Subscriber {
    topic: String,
    creator: Creator,
    /// All connections, and the eventfd of `notify`.
    epoll: OwnedFd,
    notify: Arc<SubscriberNotify>,
    discovery: Arc<PublisherDiscovery>,
    state: Biased<ReceiveState>,
}

impl Subscriber {
    /// A subscriber without publishers.
    pub(crate) fn new(topic: &str, discovery: Arc<PublisherDiscovery>) -> Result<Subscriber> {
        let error = |source| Error::os("making an epoll instance", source);
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(error)?;
        let notify = discovery.notify.clone();
        let data = EventData::new_u64(NOTIFY);
        epoll::add(&epoll, &notify.fd, data, EventFlags::IN).map_err(error)?;
        Ok(Subscriber {
            topic: topic.to_owned(),
            creator: Creator::this_process(),
            epoll,
            notify,
            discovery,
            state: Biased::new(ReceiveState::default()),
        })
    }

    /// Fails in a forked child: the parent's threads may have held the locks.
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.is_inherited() {
            false => Ok(()),
            true => Err(Error::ForkedTopic { topic: self.topic.clone() }),
        }
    }

    /// Stops looking for publishers. Returns the topic's directory.
    pub(crate) fn close(&self) -> Option<Arc<SocketDir>> {
        self.discovery.stop()
    }

    #[inline]
    fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }

    #[inline]
    fn state(&self) -> BiasedGuard<'_, ReceiveState> {
        self.state.lock()
    }

    /// Also receives what the same [`Topic`](crate::Topic) object sends.
    pub(crate) fn add_own(&self, publisher: Arc<Publisher>) {
        publisher.notify_own_subscriber(&self.notify);
        if publisher.waits() {
            publisher.set_own_taken(0); // from here on it waits for this subscriber, too
        }
        self.state().add(PublisherLink::own(publisher));
    }

    /// The next message, if there is one.
    #[inline(always)]
    pub(crate) fn recv<T: Message>(&self) -> Option<T> {
        self.take().map(DecodedMessage::make)
    }

    /// Takes the next message. Not inlined, so that a caller that finds nothing has little code.
    #[inline(never)]
    fn take<T: Message>(&self) -> Option<DecodedMessage<'_, T>> {
        if self.is_inherited() {
            return None;
        }
        let mut state = self.state();
        if self.notify.is_changed() {
            self.add_discovered(&mut state);
        }
        if let Some((from, decoded)) = state.take_cached::<T>() {
            return Some(DecodedMessage { state, from, decoded });
        }
        match state.take::<T>(&self.notify) {
            Some((from, decoded)) => Some(DecodedMessage { state, from, decoded }),
            None if state.watched => self.rearm(state),
            None => None,
        }
    }

    /// The newest message of one of the publishers that have one. Older ones are skipped.
    pub(crate) fn latest<T: Message>(&self) -> Option<T> {
        if self.is_inherited() {
            return None;
        }
        let mut state = self.state();
        if self.notify.is_changed() {
            self.add_discovered(&mut state);
        }
        for link in &mut state.links {
            link.skip_to_newest();
        }
        let mut newest = None;
        // One message of each publisher: otherwise a fast publisher would keep this going.
        for _ in 0..state.links.len() {
            newest = state.next(&self.notify).or(newest);
        }
        if !state.watched {
            return newest;
        }
        self.rearm(state).map(DecodedMessage::make).or(newest)
    }

    /// Waits for a message until the deadline, or without limit. Returns [`TypeMismatch`](Error::TypeMismatch) if no message
    /// arrived and a publisher of this topic sends another type.
    pub(crate) fn recv_until<T: Message>(&self, deadline: Option<Instant>) -> Result<Option<T>> {
        loop {
            self.check_process()?;
            if let Some(message) = self.recv() {
                return Ok(Some(message));
            }
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

    /// S1 to S3 of a thread that is about to sleep. Returns false if it has something to do first.
    fn arm(&self) -> bool {
        let mut state = self.state();
        state.waiters += 1;
        state.arm(&self.notify.fd);
        !self.notify.is_changed() && !state.is_ready()
    }

    /// Undoes [`arm`](Subscriber::arm). If other threads still sleep, the byte that woke this thread was meant for them, too:
    /// they are armed again, and one of them is notified if there is more to take. It is not notified otherwise, because the
    /// threads would wake each other for ever.
    fn disarm(&self) {
        let mut state = self.state();
        state.waiters -= 1;
        if state.waiters == 0 && !state.watched {
            return state.disarm(&self.notify.fd);
        }
        state.arm(&self.notify.fd);
        if self.notify.is_changed() || state.is_ready() {
            self.notify.fd.notify();
        } else if state.is_pending() {
            state.notify_soon(&self.notify);
        }
    }

    fn sleep(&self, left: Option<Duration>) -> Result<()> {
        let state = self.state();
        self.remove_disconnected(&state);
        let left = if state.is_pending() {
            Some(left.map_or(UNRESOLVED_POLL, |left| left.min(UNRESOLVED_POLL)))
        } else {
            left
        };
        drop(state);
        let mut events = Vec::with_capacity(16);
        sys::epoll::wait(&self.epoll, &mut events, left)
            .map_err(|source| Error::os("waiting for a message", source))?;
        self.drain(&events);
        Ok(())
    }

    /// Removes connections that have ended from epoll. They would wake a thread again and again while a message of that
    /// publisher is pending, and their end is already noted.
    fn remove_disconnected(&self, state: &ReceiveState) {
        for publisher in state.connected().filter(|publisher| publisher.disconnected.is_set()) {
            // It fails if that was done before.
            let _ = epoll::delete(&self.epoll, &*publisher.connection);
        }
    }

    /// Reads one packet of each descriptor that woke this thread. If one has more, epoll returns again.
    fn drain(&self, events: &[epoll::Event]) {
        let state = self.state();
        for event in events {
            let uid = { event.data }.u64();
            if uid == NOTIFY {
                self.notify.fd.drain();
            } else if let Some(publisher) = state.connected().find(|one| one.uid == uid) {
                publisher.drain_one();
            }
        }
    }

    /// Prepares for a caller that sleeps on the descriptor after this returns nothing: makes the descriptor not
    /// readable, arms, and looks once more.
    #[cold]
    fn rearm<'a, T: Message>(
        &'a self,
        mut state: BiasedGuard<'a, ReceiveState>,
    ) -> Option<DecodedMessage<'a, T>> {
        self.notify.fd.drain();
        self.remove_disconnected(&state);
        state.connected().for_each(ConnectedPublisher::drain);
        state.arm(&self.notify.fd);
        if self.notify.is_changed() {
            self.add_discovered(&mut state);
        }
        let found = state.take::<T>(&self.notify);
        if found.is_some() || state.is_ready() {
            // There may be more messages, for which no byte comes.
            self.notify.fd.notify();
        } else if state.is_pending() {
            state.notify_soon(&self.notify);
        }
        found.map(|(from, decoded)| DecodedMessage { state, from, decoded })
    }

    /// A descriptor that is readable when there may be something to receive.
    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.check_process()?;
        let mut state = self.state();
        if !mem::replace(&mut state.watched, true) {
            state.arm(&self.notify.fd);
            self.notify.fd.notify(); // for messages that are there already
        }
        Ok(self.epoll.as_fd())
    }

    /// Adds publishers that discovery has connected.
    #[cold]
    fn add_discovered(&self, state: &mut ReceiveState) {
        for link in self.discovery.take_links() {
            if let Some(publisher) = link.connected_publisher() {
                let data = EventData::new_u64(publisher.uid);
                // If it fails, this publisher cannot wake the subscriber, but polling still works.
                let _ = epoll::add(&self.epoll, &*publisher.connection, data, EventFlags::IN);
            }
            state.add(link);
        }
        if state.waiters > 0 || state.watched {
            state.arm(&self.notify.fd);
        }
    }

    /// Why a publisher could not be connected. Each failure is returned once.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.discovery.take_failure()
    }

    /// A publisher that sends another type. Each is returned once.
    pub(crate) fn take_mismatch(&self) -> Option<Error> {
        self.discovery.take_mismatch()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.state().missed
    }

    pub(crate) fn received(&self) -> u64 {
        self.state().received
    }

    /// Why the last lost message could not be received, unless it was overwritten. Returned once.
    pub(crate) fn take_last_loss(&self) -> Option<Error> {
        self.state().last_loss.take()
    }

    /// How many publishers there are, without that of the same object. One that has ended counts while it has messages
    /// to take.
    pub(crate) fn publishers(&self) -> usize {
        if self.is_inherited() {
            return 0;
        }
        let mut state = self.state();
        if self.notify.is_changed() {
            self.add_discovered(&mut state);
        }
        state.links.iter().filter(|link| !link.is_own() && !link.has_ended()).count()
    }
}
