//! What the lock of a subscriber protects: the publishers, and whose turn it is.
//!
//! Taking a message has two parts. The first decodes and checks it, and leases its slot; it can fail. The second
//! builds the message where the caller wants it ([`DecodedMessage::make`]); it cannot fail. A message is too large to be moved
//! from one function to the next.

use std::sync::{Arc, Weak};

use crate::error::Error;
use crate::intervals::{SKIPPED_MESSAGES, UNRESOLVED_POLL};
use crate::ipc::ring::orderings::Shipped;
use crate::ipc::ring::ring::Found;
use crate::ipc::ring::subscriber_row;
use crate::ipc::service_thread::{Served, Waker};
use crate::ipc::topic::message::{Message, Unread};
use crate::ipc::topic::notify::{NotifyFd, SubscriberNotify};
use crate::ipc::topic::subscriber::publisher_link::{
    ConnectedPublisher, NextMessage, Origin, PublisherLink,
};
use crate::ipc::topic::subscriber::resolve::{PoolTable, ResolveAny, ResolveCached};
use crate::sync::BiasedGuard;

/// The publishers of a subscriber, and how far it is.
#[derive(Debug, Default)]
pub(crate) struct ReceiveState {
    pub(crate) links: Vec<PublisherLink>,
    /// The link to look at first: publishers take turns.
    turn: usize,
    /// A message is copied here from the ring.
    words: Vec<u64>,
    pools: PoolTable,
    /// How many messages were overwritten, or could not be received.
    pub(crate) missed: u64,
    pub(crate) received: u64,
    /// Why the last one could not be received.
    pub(crate) last_loss: Option<Error>,
    /// How many threads sleep.
    pub(crate) waiters: usize,
    /// The caller has the descriptor, and may sleep on it.
    pub(crate) watched: bool,
    /// The number of the last sleep. It is never 0, which stands for awake.
    sleep_number: u64,
    /// Notifies threads that sleep while a message is pending.
    waker: Option<Waker>,
}

/// A message that was decoded, and its slot leased. It holds the lock, because the next message replaces the layout.
pub(crate) struct DecodedMessage<'a, T: Message> {
    pub(crate) state: BiasedGuard<'a, ReceiveState>,
    /// The index of the link that it came from.
    pub(crate) from: usize,
    pub(crate) decoded: T::Decoded,
}

impl<T: Message> DecodedMessage<'_, T> {
    #[inline(always)]
    pub(crate) fn make(self) -> T {
        T::make(self.decoded, &self.state.links[self.from].layouts)
    }
}

/// What a look at one link gave.
enum Taken<D> {
    Message(D),
    NotYet,
    /// There is no message, and no more will come.
    End,
}

impl ReceiveState {
    pub(crate) fn add(&mut self, link: PublisherLink) {
        let payload = self.words.len().max(link.payload());
        self.words.resize(payload, 0);
        self.links.push(link);
    }

    pub(crate) fn connected(&self) -> impl Iterator<Item = &ConnectedPublisher> {
        self.links.iter().filter_map(PublisherLink::connected_publisher)
    }

    /// Has every publisher wake this subscriber: S1 and S2 of `ipc/ring/subscriber_row.rs`. The caller looks once more
    /// before it sleeps.
    pub(crate) fn arm(&mut self, fd: &NotifyFd) {
        self.sleep_number = self.sleep_number.wrapping_add(1).max(1);
        fd.arm(true);
        let rows = self.connected().map(ConnectedPublisher::row);
        subscriber_row::arm::<Shipped>(rows, self.sleep_number);
    }

    pub(crate) fn disarm(&mut self, fd: &NotifyFd) {
        fd.arm(false);
        self.connected().for_each(|publisher| publisher.row().disarm());
    }

    /// Whether a message may be taken, or a publisher has ended.
    pub(crate) fn is_ready(&self) -> bool {
        self.links.iter().any(PublisherLink::is_ready)
    }

    /// Whether a message is there that cannot be leased yet. No notification comes when it can.
    pub(crate) fn is_pending(&self) -> bool {
        self.links.iter().any(|link| link.pending)
    }

    /// Notifies threads that sleep after a short time. Not at once: they would spin until the message can be leased,
    /// which may be never.
    pub(crate) fn notify_soon(&mut self, notify: &Arc<SubscriberNotify>) {
        if self.waker.is_none() {
            let served: Weak<dyn Served> = Arc::downgrade(&(notify.clone() as Arc<dyn Served>));
            self.waker = Waker::new(served, 0).ok();
        }
        match &self.waker {
            Some(waker) => waker.wake_after(UNRESOLVED_POLL),
            None => notify.fd.notify(),
        }
    }

    /// The next message, if there is one.
    pub(crate) fn next<T: Message>(&mut self, notify: &Arc<SubscriberNotify>) -> Option<T> {
        let (from, decoded) = self.take::<T>(notify)?;
        Some(T::make(decoded, &self.links[from].layouts))
    }

    /// Takes the next message of the link whose turn it is, in the usual case: the publisher is connected, and its slot
    /// was leased before. Returns `None` in every other case, and [`take`](ReceiveState::take) looks again.
    ///
    /// Without this function, the rows `hand-off/one way` of `compare` take 29 % longer.
    #[inline(always)]
    pub(crate) fn take_cached<T: Message>(&mut self) -> Option<(usize, T::Decoded)> {
        let at = if self.turn < self.links.len() { self.turn } else { 0 };
        let link = self.links.get_mut(at)?;
        let Origin::Connected(publisher) = &link.origin else { return None };
        let needs_lookup = publisher.pool.is_some() && publisher.own_pool.is_none();
        if needs_lookup || publisher.disconnected.is_set() {
            return None;
        }
        let entry = link.cursor.entry();
        let Found::Message(len) = entry.read::<Shipped>(&mut self.words) else { return None };
        let mut resolve = ResolveCached { publisher, entry };
        let decoded = T::decode(&self.words[..len], &mut link.layouts, &mut resolve).ok()?;
        link.pending = false;
        link.advance(1);
        self.turn = at + 1;
        self.received += 1;
        Some((at, decoded))
    }

    /// Takes the next message of the link whose turn it is, or of one after it. Also returns the index of that link.
    #[inline(never)]
    pub(crate) fn take<T: Message>(
        &mut self,
        notify: &Arc<SubscriberNotify>,
    ) -> Option<(usize, T::Decoded)> {
        let mut looked = 0;
        while looked < self.links.len() {
            if self.turn >= self.links.len() {
                self.turn = 0;
            }
            let at = self.turn;
            match self.take_from::<T>(at, notify) {
                Taken::Message(decoded) => {
                    self.turn += 1;
                    self.received += 1;
                    if self.links[at].is_disconnected() {
                        notify.set_changed(); // the next call removes the link, once it is empty
                    }
                    return Some((at, decoded));
                }
                Taken::NotYet => {
                    self.turn += 1;
                    looked += 1;
                }
                Taken::End => {
                    let ended = self.links.swap_remove(at);
                    let publisher = ended.connected_publisher();
                    publisher.inspect(|publisher| self.pools.forget(publisher));
                }
            }
        }
        None
    }

    fn take_from<T: Message>(
        &mut self,
        at: usize,
        notify: &Arc<SubscriberNotify>,
    ) -> Taken<T::Decoded> {
        let ReceiveState { links, words, pools, missed, last_loss, .. } = self;
        let link = &mut links[at];
        link.pending = false;
        for _ in 0..SKIPPED_MESSAGES {
            let len = match link.read_next(words) {
                NextMessage::Message(len) => len,
                NextMessage::NotYet => return Taken::NotYet,
                NextMessage::End => return Taken::End,
                NextMessage::Missed(count) => {
                    // Saturating: the count comes from another process.
                    *missed = missed.saturating_add(count);
                    continue;
                }
            };
            let PublisherLink { layouts, origin, cursor, .. } = &mut *link;
            let mut resolve = ResolveAny { origin, cursor, pools, notify };
            match T::decode(&words[..len], layouts, &mut resolve) {
                Ok(decoded) => {
                    link.advance(1);
                    return Taken::Message(decoded);
                }
                Err(Unread::NotYet) => {
                    link.pending = true;
                    return Taken::NotYet;
                }
                Err(Unread::Overwritten) => {}
                Err(Unread::Lost(error)) => {
                    *missed = missed.saturating_add(1);
                    *last_loss = Some(*error);
                    link.advance(1);
                }
            }
        }
        Taken::NotYet
    }
}
