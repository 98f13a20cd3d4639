//! The sending side of a topic: a pool, a ring, and the subscribers.
//!
//! Only this process writes the ring. Beside each entry that names a slot, the publisher keeps a handle of the tensor until
//! the entry is overwritten. So a queued message can be leased, and a slot whose message left the queue is free as soon as no
//! reader leases it.
//!
//! Subscribers connect to the socket of the pool (`ipc/pool/owner/server`), which passes packets about the topic to
//! the [`ConnectionHandler`] here.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::intervals::BACKPRESSURE_POLL;
use crate::ipc::discovery::socket_dir::SocketDir;
use crate::ipc::pool::owner::server::connection_handler::{
    ConnectionHandler, Description, SubscriberConnection,
};
use crate::ipc::pool::owner::server::refusal;
use crate::ipc::pool::tensor_pool::TensorPool;
use crate::ipc::ring::cursor::MappedRing;
use crate::ipc::ring::orderings::Shipped;
use crate::ipc::ring::ring::RingWriter;
use crate::ipc::ring::subscriber_row;
use crate::ipc::shared::wire::{Kind, Packet, Refusal};
use crate::ipc::shared::words::Words;
use crate::ipc::topic::config::{Policy, TopicConfig};
use crate::ipc::topic::handshake::{Mismatch, Subscribe, Subscribed, read};
use crate::ipc::topic::message::Message;
use crate::ipc::topic::name::TopicName;
use crate::ipc::topic::notify::SubscriberNotify;
use crate::ipc::topic::publisher::change_signal::ChangeSignal;
use crate::ipc::topic::publisher::stage;
use crate::ipc::topic::publisher::stage::Stage;
use crate::ipc::topic::publisher::state::{PublisherState, SlowSubscriber, SubscriberRecord};
use crate::ipc::topic::report;
use crate::ipc::topic::report::{ReportHead, ReportedSubscriber};
use crate::ipc::topic::signature::Signature;
use crate::memory::budget::Budget;
use crate::sync::{Biased, BiasedGuard};
use crate::sys::fork::Creator;
use crate::sys::memfd;
use crate::sys::socket::{packet, peer};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;

/// The most subscribers of one publisher.
const MAX_SUBSCRIBERS: usize = 1024;

/// The sending side of a topic.
#[derive(Debug)]
pub(crate) struct Publisher {
    name: TopicName,
    pub(crate) pool: TensorPool,
    policy: Policy,
    signature: Signature,
    ring: Arc<MappedRing>,
    ring_fd: Arc<OwnedFd>,
    creator: Creator,
    state: Biased<PublisherState>,
    /// A subscriber connected, disconnected or advanced.
    changed: ChangeSignal,
    /// Notifies the subscriber of the same [`Topic`](crate::Topic) object.
    own_subscriber: OnceLock<Arc<SubscriberNotify>>,
    pub(crate) stage: Stage,
}

impl Publisher {
    /// A publisher with this pool, which other processes cannot find yet. Fails if the memory budget has no room for the ring.
    pub(crate) fn new<T: Message>(
        name: &TopicName,
        pool: TensorPool,
        config: &TopicConfig,
    ) -> Result<Arc<Publisher>> {
        let shape = config.ring(T::max_words(), T::signature().is_tensor())?;
        let error = |source| Error::os("reserving a ring", source);
        let reservation = Budget::reserve(shape.words() * size_of::<u64>())?;
        let (words, ring_fd) = Words::create("cenote-ring", shape.words()).map_err(error)?;
        reservation.settle();
        memfd::forbid_writing(&ring_fd).map_err(error)?;
        let first = config.first_sequence;
        RingWriter::new(words.get(), shape).start(first);
        let state = PublisherState {
            next: first,
            held: (0..shape.entries()).map(|_| None).collect(),
            words: vec![0; shape.payload()].into(),
            subscribers: Vec::new(),
            waiters: 0,
            own_taken: None,
            keep_alive: None,
        };
        Ok(Arc::new(Publisher {
            name: name.clone(),
            pool,
            policy: config.policy,
            signature: T::signature(),
            ring: Arc::new(MappedRing { words, shape, first }),
            ring_fd,
            creator: Creator::this_process(),
            state: Biased::new(state),
            changed: ChangeSignal::default(),
            own_subscriber: OnceLock::new(),
            stage: Stage::default(),
        }))
    }

    #[inline]
    fn state(&self) -> BiasedGuard<'_, PublisherState> {
        self.state.lock()
    }

    /// Fails in a forked child: the parent writes the ring.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.creator.is_inherited() {
            false => Ok(()),
            true => Err(Error::ForkedTopic { topic: self.name.to_string() }),
        }
    }

    #[inline]
    fn writer(&self) -> RingWriter<'_> {
        RingWriter::new(self.ring.words.get(), self.ring.shape)
    }

    /// Sends a message. `policy` says what to do if a subscriber has not taken the message that this one overwrites.
    ///
    /// 1. [`stage`]: may the tensor be sent as it is? If not, copy it into the pool.
    /// 2. Take the lock, and apply the policy.
    /// 3. [`publish`](Publisher::publish): encode the message, write the ring entry, wake subscribers that sleep.
    /// 4. Without the lock, drop the buffer of the message that was overwritten.
    #[inline]
    pub(crate) fn send<T: Message>(&self, message: &T, policy: Policy) -> Result<()> {
        self.check_process()?;
        let staged;
        let tensor = match message.carried() {
            Some(tensor) if !stage::can_share(&self.pool, tensor) => {
                staged = self.stage(tensor, policy)?;
                Some(&staged)
            }
            tensor => tensor,
        };
        let mut state = self.state();
        if policy != Policy::KeepLast {
            state = self.make_room(state, policy)?;
        }
        if let Some(old) = self.publish(state, message, tensor)? {
            self.pool.take_back(old);
        }
        self.stage.drop_dead();
        Ok(())
    }

    #[cold]
    fn stage(&self, tensor: &Tensor, policy: Policy) -> Result<Tensor> {
        let wait = || self.make_room(self.state(), policy).map(drop);
        self.stage.stage(&self.pool, tensor, wait, || self.drop_oldest())
    }

    /// How many messages were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.state().next.wrapping_sub(self.ring.first)
    }

    /// What to do by default if a subscriber is slow.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Writes a message into the ring, with `tensor` in place of the one that it carries, and wakes subscribers that
    /// sleep. Returns the buffer of the message that left the ring, which the caller drops without the lock.
    ///
    /// Subscribers can read the message before this keeps a handle of its buffer. That is early enough: the caller has
    /// the tensor until this returns, the subscriber of the same object takes the same lock, and no step in between
    /// panics.
    #[inline(always)]
    fn publish<T: Message>(
        &self,
        mut state: BiasedGuard<'_, PublisherState>,
        message: &T,
        tensor: Option<&Tensor>,
    ) -> Result<Option<Handle>> {
        let PublisherState { next, held, words, subscribers, .. } = &mut *state;
        let (sequence, writer, shape) = (*next, self.writer(), self.ring.shape);
        writer.prefetch(sequence);
        let len = message.encode(tensor, self.pool.uid(), words)?;
        writer.retract_oldest(sequence);
        writer.publish::<Shipped>(sequence, words, len);
        *next = sequence.wrapping_add(1);
        let old = held[shape.index(sequence.wrapping_sub(shape.depth))].take();
        held[shape.index(sequence)] = tensor.map(Tensor::handle);
        subscribers.iter_mut().for_each(SubscriberRecord::wake);
        drop(state);
        if let Some(own) = self.own_subscriber.get() {
            own.fd.notify_if_armed();
        }
        Ok(old)
    }
}

/// Slow subscribers.
impl Publisher {
    /// Makes room in a pool that is full of queued messages: removes the oldest message from the ring whose tensor is in this pool.
    /// Returns false if there is none, or if the policy is to wait and a subscriber has not taken it.
    #[cold]
    pub(crate) fn drop_oldest(&self) -> bool {
        let mut state = self.state();
        let oldest = state.oldest_held(&self.ring, |buffer| self.pool.has_allocated(buffer));
        let Some(sequence) = oldest else { return false };
        let back = state.next.wrapping_sub(sequence);
        if self.waits() && state.behind(&self.ring, back).is_some() {
            return false;
        }
        self.writer().retract(sequence);
        let old = state.held[self.ring.shape.index(sequence)].take();
        drop(state);
        drop(old);
        true
    }

    /// Waits, as `policy` says, until every subscriber has taken the message that the next one overwrites. Fails with
    /// [`SlowSubscriber`](Error::SlowSubscriber) if that takes too long.
    #[inline]
    fn make_room<'a>(
        &'a self,
        mut state: BiasedGuard<'a, PublisherState>,
        policy: Policy,
    ) -> Result<BiasedGuard<'a, PublisherState>> {
        let timeout = match policy {
            Policy::KeepLast => return Ok(state),
            Policy::Block(timeout) => timeout,
            Policy::Reject => Duration::ZERO,
        };
        if state.slowest(&self.ring).is_none() {
            return Ok(state);
        }
        let start = Instant::now();
        loop {
            if !timeout.is_zero() {
                state = self.wait_for_change(state);
            }
            match state.slowest(&self.ring) {
                None => return Ok(state),
                Some(slow) if start.elapsed() >= timeout => {
                    let slow = match slow {
                        SlowSubscriber::Own => None,
                        SlowSubscriber::Connected(one) => Some((one.pid, one.program.clone())),
                    };
                    drop(state);
                    return Err(self.too_slow(slow, timeout));
                }
                Some(_) => {}
            }
        }
    }

    /// Waits a moment for a subscriber to advance: S1 to S3 of `ipc/ring/subscriber_row.rs`.
    fn wait_for_change<'a>(
        &'a self,
        mut state: BiasedGuard<'a, PublisherState>,
    ) -> BiasedGuard<'a, PublisherState> {
        let seen = self.changed.count();
        state.waiters += 1;
        self.writer().wait::<Shipped>();
        if state.slowest(&self.ring).is_some() {
            drop(state);
            self.changed.wait(seen, BACKPRESSURE_POLL);
            state = self.state();
        }
        state.waiters -= 1;
        if state.waiters == 0 {
            self.writer().stop_waiting();
        }
        state
    }

    /// The error that names a slow subscriber by its process and program. `None` is the subscriber of the same object.
    fn too_slow(&self, slow: Option<(i32, Option<String>)>, waited: Duration) -> Error {
        let (pid, program) = match slow {
            Some((pid, program)) => (pid, program.unwrap_or_else(|| peer::program(pid))),
            None => (std::process::id().cast_signed(), "this very topic".to_owned()),
        };
        Error::SlowSubscriber { topic: self.name.to_string(), pid, program, waited }
    }

    /// Whether this publisher ever waits for subscribers, so that they must report how far they are.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.policy != Policy::KeepLast
    }
}

/// The subscriber of the same [`Topic`](crate::Topic) object.
impl Publisher {
    /// Has `notify` notified of every message.
    pub(crate) fn notify_own_subscriber(&self, notify: &Arc<SubscriberNotify>) {
        let _ = self.own_subscriber.set(notify.clone());
    }

    pub(crate) fn ring(&self) -> &Arc<MappedRing> {
        &self.ring
    }

    /// The buffer of message `sequence`, if it is still in the ring.
    pub(crate) fn held(&self, sequence: u64) -> Option<Handle> {
        let state = self.state();
        let back = state.next.wrapping_sub(sequence);
        let held = state.held[self.ring.shape.index(sequence)].clone();
        held.filter(|_| (1..=self.ring.shape.depth).contains(&back))
    }

    /// Stores how many messages it has passed.
    pub(crate) fn set_own_taken(&self, taken: u64) {
        let mut state = self.state();
        state.own_taken = Some(taken);
        if state.waiters > 0 {
            self.changed.notify();
        }
    }
}

/// Subscribers of other objects and processes.
impl Publisher {
    /// Waits until there are `count` subscribers, or the time is over; returns how many there are.
    pub(crate) fn wait_for_subscribers(&self, count: usize, timeout: Duration) -> Result<usize> {
        self.check_process()?;
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let seen = self.changed.count();
            let found = self.subscribers();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if found >= count || left.is_some_and(|left| left.is_zero()) {
                return Ok(found);
            }
            self.changed.wait(seen, left.unwrap_or(Duration::MAX));
        }
    }

    pub(crate) fn subscribers(&self) -> usize {
        self.state().subscribers.len()
    }

    /// Looks up the programs of all subscribers whose program is not known yet. It does so without the lock, because it
    /// reads files of `/proc`.
    fn name_subscribers(&self) -> BiasedGuard<'_, PublisherState> {
        loop {
            let state = self.state();
            let nameless = state.subscribers.iter().find(|one| one.program.is_none());
            let Some((number, pid)) = nameless.map(|one| (one.number, one.pid)) else {
                return state;
            };
            drop(state);
            let program = peer::program(pid);
            let mut state = self.state();
            if let Some(one) = state.subscribers.iter_mut().find(|one| one.number == number) {
                one.program = Some(program);
            }
        }
    }

    /// Accepts a subscriber, or refuses it. When the answer is sent, its row and its first message are fixed, and the next
    /// message waits for the lock.
    fn accept(&self, guest: &SubscriberConnection, request: &Subscribe) -> Result<(), ()> {
        let refuse = |refusal| refusal::refuse(guest.socket.as_fd(), refusal);
        let (row, row_fd) =
            refusal::new_row("cenote-subscriber", subscriber_row::WORDS).map_err(refuse)?;
        let mut state = self.state();
        let is_second = state.subscribers.iter().any(|one| one.number == guest.number);
        if is_second || state.keep_alive.is_some() {
            return Err(());
        }
        if state.subscribers.len() >= MAX_SUBSCRIBERS {
            refuse(Refusal::TooMany);
            return Err(());
        }
        let kept = state.next.wrapping_sub(self.ring.reader().oldest(self.ring.first));
        let start = state.next.wrapping_sub(kept.min(request.history));
        let answer = Subscribed {
            head: Packet::new(Kind::Subscribed),
            uid: self.pool.uid(),
            first: self.ring.first,
            start,
            depth: self.ring.shape.depth,
            payload: self.ring.shape.payload() as u64,
            waits: u64::from(self.waits()),
        };
        let fds = [self.ring_fd.as_fd(), row_fd.as_fd()];
        packet::send(guest.socket.as_fd(), bytemuck::bytes_of(&answer), &fds)
            .map_err(|_| refuse(Refusal::Descriptors))?;
        state.subscribers.push(SubscriberRecord {
            number: guest.number,
            pid: guest.pid,
            program: None,
            connection: guest.socket.clone(),
            row,
            start,
            woken: 0,
        });
        self.changed.notify();
        Ok(())
    }

    /// Declares that no more messages will come. Subscribers can still take what is queued: the publisher lives until they
    /// have taken it or have disconnected. Returns the topic's directory, unless this is a forked child.
    pub(crate) fn close(self: &Arc<Self>) -> Option<Arc<SocketDir>> {
        self.check_process().ok()?;
        self.writer().close();
        let place = self.pool.close();
        let mut state = self.state();
        if !state.subscribers.is_empty() {
            state.keep_alive = Some(self.clone());
        }
        state.subscribers.iter_mut().for_each(SubscriberRecord::wake);
        place
    }
}

impl ConnectionHandler for Publisher {
    fn subscribe(&self, guest: &SubscriberConnection, hello: &[u8]) -> Result<(), ()> {
        let request: Subscribe = read(hello).map_err(drop)?;
        if request.signature.reads(&self.signature) {
            return self.accept(guest, &request);
        }
        let answer = Mismatch::new(self.signature);
        let _ = packet::send(guest.socket.as_fd(), bytemuck::bytes_of(&answer), &[]);
        Err(())
    }

    fn describe(&self) -> Description {
        let state = self.name_subscribers();
        let subscriber = |one: &SubscriberRecord| {
            let behind = state.next.wrapping_sub(one.cursor(state.next));
            ReportedSubscriber::new(one.pid, one.program.as_deref().unwrap_or_default(), behind)
        };
        let sent = state.next.wrapping_sub(self.ring.first);
        let copies = self.stage.copies.numbers();
        let head = ReportHead::new(self.signature, sent, &self.ring, self.waits(), copies);
        let bytes = report::encode(&head, state.subscribers.iter().map(subscriber));
        Description { bytes, fd: Some(self.ring_fd.clone()) }
    }

    fn lease_released(&self) {
        self.changed.notify();
    }

    fn disconnected(&self, number: u64) {
        let mut state = self.state();
        let at = state.subscribers.iter().position(|one| one.number == number);
        let left = at.map(|at| state.subscribers.swap_remove(at));
        let done = if state.subscribers.is_empty() { state.keep_alive.take() } else { None };
        drop(state);
        self.changed.notify();
        drop((left, done));
    }
}
