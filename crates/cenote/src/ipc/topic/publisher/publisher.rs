//! The part of a topic that sends: a ring, a pool, and the subscribers.
//!
//! The ring is words that only this process writes. Beside each entry that names a slot, the publisher
//! keeps a handle of the tensor, until the entry is overwritten: so a message that is queued can be
//! taken, and the slot of one that is not queued any more is free as soon as nobody holds it.
//!
//! Subscribers come in through the socket of the pool (`ipc/pool/owner/server.rs`), which passes on here what is
//! not the pool's business.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
use crate::ipc::ring::subscriber_row::SubscriberRow;
use crate::ipc::shared::wire::{Kind, Packet, Refusal};
use crate::ipc::shared::words::Words;
use crate::ipc::topic::config::{Policy, TopicConfig};
use crate::ipc::topic::handshake::{Mismatch, Subscribe, Subscribed, read};
use crate::ipc::topic::inspect::listing;
use crate::ipc::topic::inspect::listing::{Head, Line};
use crate::ipc::topic::message::Message;
use crate::ipc::topic::name::TopicName;
use crate::ipc::topic::publisher::signal::Signal;
use crate::ipc::topic::publisher::stage::AdoptedTensors;
use crate::ipc::topic::signature::Signature;
use crate::ipc::topic::stats::Staged;
use crate::ipc::topic::subscriber::wakeup::News;
use crate::memory::budget::Budget;
use crate::sync::{AtomicBool, Biased, BiasedGuard};
use crate::sys::fork::{Creator, GuardedSocket};
use crate::sys::memfd;
use crate::sys::socket::{packet, peer};
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;

/// The most subscribers of one publisher.
const MAX_SUBSCRIBERS: usize = 1024;

/// What sends.
#[derive(Debug)]
pub(crate) struct Publisher {
    name: TopicName,
    pub(crate) pool: TensorPool,
    policy: Policy,
    signature: Signature,
    ring: Arc<MappedRing>,
    ring_fd: Arc<OwnedFd>,
    creator: Creator,
    state: Biased<State>,
    /// Subscribers came, went, or took something.
    changed: Signal,
    /// Wakes whoever receives through the same object.
    own: OnceLock<Arc<News>>,
    pub(crate) staged: Staged,
    adopted: Mutex<AdoptedTensors>,
    /// Whether there are any. Looked at by every send; only a hint outside of the lock.
    pub(crate) has_adopted: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The sequence of the next message.
    next: u64,
    /// The buffers of the messages in the ring, each at its [index](RingShape::index).
    held: Box<[Option<Handle>]>,
    /// Where a message is written before it goes to the ring.
    words: Box<[u64]>,
    subscribers: Vec<Subscriber>,
    /// How many wait for subscribers to take something.
    waiters: usize,
    /// How many messages whoever receives through the same object has passed; `None`: nobody does.
    own_taken: Option<u64>,
    /// Itself, while subscribers have still to take something after it was closed.
    lingers: Option<Arc<Publisher>>,
}

/// One subscription, as its publisher sees it.
#[derive(Debug)]
struct Subscriber {
    number: u64,
    pid: i32,
    /// Once somebody has asked.
    program: Option<String>,
    connection: Arc<GuardedSocket>,
    row: Words,
    /// The sequence of its first message.
    start: u64,
    /// The last number by which it was found armed.
    woken: u64,
}

impl Subscriber {
    /// The sequence of the message that it takes next. What it says is believed only as far as it
    /// can be true.
    fn cursor(&self, next: u64) -> u64 {
        let taken = SubscriberRow::new(self.row.get()).taken();
        self.start.wrapping_add(taken.min(next.wrapping_sub(self.start)))
    }

    /// Sends a byte if it sleeps and was not told yet. A full socket has bytes for it already.
    fn wake(&mut self) {
        if SubscriberRow::new(self.row.get()).needs_wake(&mut self.woken) {
            let _ = packet::send(self.connection.as_fd(), &[0], &[]);
        }
    }
}

impl Publisher {
    /// A publisher whose pool nobody can see yet.
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
        let state = State {
            next: first,
            held: (0..shape.entries()).map(|_| None).collect(),
            words: vec![0; shape.payload()].into(),
            subscribers: Vec::new(),
            waiters: 0,
            own_taken: None,
            lingers: None,
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
            changed: Signal::default(),
            own: OnceLock::new(),
            staged: Staged::default(),
            adopted: Mutex::default(),
            has_adopted: AtomicBool::new(false),
        }))
    }

    #[inline]
    pub(crate) fn state(&self) -> BiasedGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn adopted(&self) -> MutexGuard<'_, AdoptedTensors> {
        // Insertions and removals are whole.
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        match !self.creator.is_inherited() {
            true => Ok(()),
            false => Err(Error::ForkedTopic { topic: self.name.to_string() }),
        }
    }

    #[inline]
    fn writer(&self) -> RingWriter<'_> {
        RingWriter::new(self.ring.words.get(), self.ring.shape)
    }

    /// Sends a message; `policy` says what to do if a subscriber is in the way.
    #[inline]
    pub(crate) fn send<T: Message>(&self, message: &T, policy: Policy) -> Result<()> {
        self.check_process()?;
        let staged;
        let tensor = match message.carried() {
            Some(tensor) if !self.can_share(tensor) => {
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
        self.drop_dead_adoptions();
        Ok(())
    }

    /// How many messages were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.state().next.wrapping_sub(self.ring.first)
    }

    /// What to do by default if a subscriber is in the way.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    /// Writes a message to the ring, with the tensor that it carries or one in its place, wakes whoever sleeps, and
    /// gives back the buffer that is not in the ring any more, to be dropped without the lock.
    ///
    /// Subscribers go on while this does all that they need not wait for. The buffer is held only after the
    /// message is there, which is soon enough: the caller has the tensor until this returns, whoever
    /// receives through the same object takes the same lock, and nothing in between panics.
    #[inline(always)]
    fn publish<T: Message>(
        &self,
        mut state: BiasedGuard<'_, State>,
        message: &T,
        tensor: Option<&Tensor>,
    ) -> Result<Option<Handle>> {
        let State { next, held, words, subscribers, .. } = &mut *state;
        let (sequence, writer, shape) = (*next, self.writer(), self.ring.shape);
        let len = message.write(tensor, self.pool.uid(), words)?;
        writer.retract_oldest(sequence);
        writer.publish::<Shipped>(sequence, words, len);
        *next = sequence.wrapping_add(1);
        let old = held[shape.index(sequence.wrapping_sub(shape.depth))].take();
        held[shape.index(sequence)] = tensor.map(Tensor::handle);
        subscribers.iter_mut().for_each(Subscriber::wake);
        drop(state);
        if let Some(own) = self.own.get() {
            own.bell.ring();
        }
        Ok(old)
    }
}

/// Slow subscribers.
impl Publisher {
    /// Makes room in the pool where it is full of what is kept for subscribers: takes the oldest message with a tensor of
    /// it out of the ring. False if there is none, or a subscriber that is waited for has not taken it.
    #[cold]
    pub(crate) fn push_out_oldest(&self) -> bool {
        let mut state = self.state();
        let shape = self.ring.shape;
        let kept = state.next.wrapping_sub(self.ring.first).min(shape.depth);
        let oldest = (1..=kept).rev().map(|back| state.next.wrapping_sub(back));
        let found = oldest.map(|sequence| (sequence, shape.index(sequence)));
        let ours =
            |at: usize| state.held[at].as_ref().is_some_and(|one| self.pool.has_allocated(one));
        let Some((sequence, place)) = found.into_iter().find(|(_, at)| ours(*at)) else {
            return false;
        };
        if self.waits() && self.behind(&state, state.next.wrapping_sub(sequence)).is_some() {
            return false;
        }
        self.writer().retract(sequence);
        let old = state.held[place].take();
        drop(state);
        drop(old);
        true
    }

    /// Waits until no subscriber needs the message that the next one pushes out.
    #[inline]
    pub(crate) fn make_room<'a>(
        &'a self,
        mut state: BiasedGuard<'a, State>,
        policy: Policy,
    ) -> Result<BiasedGuard<'a, State>> {
        let patience = match policy {
            Policy::KeepLast => return Ok(state),
            Policy::Block(patience) => patience,
            Policy::Reject => Duration::ZERO,
        };
        if self.slowest(&state).is_none() {
            return Ok(state);
        }
        let start = Instant::now();
        loop {
            // Asked for before looking: whoever takes a message after the look sees it.
            state = self.wait_a_moment(state, patience.is_zero());
            match self.slowest(&state) {
                None => return Ok(state),
                Some(slow) if start.elapsed() >= patience => {
                    let slow = slow.map(|one| (one.pid, one.program.clone()));
                    drop(state);
                    return Err(self.too_slow(slow, patience));
                }
                Some(_) => {}
            }
        }
    }

    fn wait_a_moment<'a>(
        &'a self,
        mut state: BiasedGuard<'a, State>,
        not_at_all: bool,
    ) -> BiasedGuard<'a, State> {
        if not_at_all {
            return state;
        }
        let seen = self.changed.count();
        state.waiters += 1;
        self.writer().wait::<Shipped>();
        if self.slowest(&state).is_some() {
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

    /// A subscriber that still needs the message which the next one pushes out. `Some(None)` is
    /// whoever receives through the same object.
    #[allow(clippy::option_option, reason = "local")]
    fn slowest<'s>(&self, state: &'s State) -> Option<Option<&'s Subscriber>> {
        self.behind(state, self.ring.shape.depth)
    }

    /// A subscriber that still needs the message which was sent so many messages ago, likewise.
    #[allow(clippy::option_option, reason = "local")]
    fn behind<'s>(&self, state: &'s State, count: u64) -> Option<Option<&'s Subscriber>> {
        let needs = |cursor: u64| state.next.wrapping_sub(cursor) >= count;
        let own = state.own_taken.map(|taken| self.ring.first.wrapping_add(taken));
        if own.is_some_and(needs) {
            return Some(None);
        }
        state.subscribers.iter().find(|one| needs(one.cursor(state.next))).map(Some)
    }

    /// By process and program, if that was asked for before; `None` is whoever receives through the same object.
    fn too_slow(&self, slow: Option<(i32, Option<String>)>, waited: Duration) -> Error {
        let (pid, program) = match slow {
            Some((pid, program)) => (pid, program.unwrap_or_else(|| peer::program(pid))),
            None => (std::process::id().cast_signed(), "this very topic".to_owned()),
        };
        Error::SlowSubscriber { topic: self.name.to_string(), pid, program, waited }
    }

    /// Notes how far whoever receives through the same object has come.
    pub(crate) fn set_own_taken(&self, taken: u64) {
        let mut state = self.state();
        state.own_taken = Some(taken);
        if state.waiters > 0 {
            self.changed.give();
        }
    }

    /// Whether subscribers must tell how far they have come.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.policy != Policy::KeepLast
    }
}

/// Receiving through the same object.
impl Publisher {
    /// Has the bell of `news` rung at every message.
    pub(crate) fn ring_at(&self, news: &Arc<News>) {
        let _ = self.own.set(news.clone());
    }

    pub(crate) fn ring(&self) -> &Arc<MappedRing> {
        &self.ring
    }

    /// The buffer of message `sequence`, if it is still in the ring.
    pub(crate) fn held(&self, sequence: u64) -> Option<Handle> {
        let state = self.state();
        let place = self.ring.shape.index(sequence);
        let back = state.next.wrapping_sub(sequence);
        state.held[place].clone().filter(|_| (1..=self.ring.shape.depth).contains(&back))
    }
}

/// Subscribers.
impl Publisher {
    /// Waits until there are `count`; tells how many there are.
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

    /// Names all subscribers that have no name yet after their programs: when somebody asks, and without the
    /// lock.
    fn name_subscribers(&self) -> BiasedGuard<'_, State> {
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

    /// Lets a subscriber in: its row is there, and its first message is fixed, before the next is
    /// sent.
    fn welcome(&self, guest: &SubscriberConnection, wish: &Subscribe) -> Result<(), ()> {
        let refuse = |refusal| refusal::refuse(guest.socket.as_fd(), refusal);
        let (row, row_fd) =
            refusal::new_row("cenote-subscriber", subscriber_row::WORDS).map_err(refuse)?;
        let mut state = self.state();
        let known = state.subscribers.iter().any(|one| one.number == guest.number);
        if known || state.lingers.is_some() {
            return Err(());
        }
        if state.subscribers.len() >= MAX_SUBSCRIBERS {
            refuse(Refusal::TooMany);
            return Err(());
        }
        let back =
            state.next.wrapping_sub(self.ring.reader().oldest(self.ring.first)).min(wish.history);
        let start = state.next.wrapping_sub(back);
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
        state.subscribers.push(Subscriber {
            number: guest.number,
            pid: guest.pid,
            program: None,
            connection: guest.socket.clone(),
            row,
            start,
            woken: 0,
        });
        self.changed.give();
        Ok(())
    }

    /// Says that nothing more will come. Whatever is queued can still be taken: subscribers have it
    /// mapped, and this stays until they have drained the ring or are gone. Gives the directory it was in.
    pub(crate) fn close(self: &Arc<Self>) -> Option<Arc<SocketDir>> {
        self.check_process().ok()?;
        self.writer().close();
        let place = self.pool.close();
        let mut state = self.state();
        if !state.subscribers.is_empty() {
            state.lingers = Some(self.clone());
        }
        state.subscribers.iter_mut().for_each(Subscriber::wake);
        place
    }
}

impl ConnectionHandler for Publisher {
    fn subscribe(&self, guest: &SubscriberConnection, hello: &[u8]) -> Result<(), ()> {
        let wish: Subscribe = read(hello).map_err(drop)?;
        if wish.signature.reads(&self.signature) {
            return self.welcome(guest, &wish);
        }
        let answer = Mismatch::new(self.signature);
        let _ = packet::send(guest.socket.as_fd(), bytemuck::bytes_of(&answer), &[]);
        Err(())
    }

    fn describe(&self) -> Description {
        let state = self.name_subscribers();
        let line = |one: &Subscriber| {
            let behind = state.next.wrapping_sub(one.cursor(state.next));
            Line::new(one.pid, one.program.as_deref().unwrap_or_default(), behind)
        };
        let sent = state.next.wrapping_sub(self.ring.first);
        let mut head = Head::new(self.signature, sent, &self.ring, self.waits());
        head.copies = self.staged.numbers();
        let bytes = listing::answer_bytes(&head, state.subscribers.iter().map(line));
        Description { bytes, fd: Some(self.ring_fd.clone()) }
    }

    fn lease_released(&self) {
        self.changed.give();
    }

    fn disconnected(&self, number: u64) {
        let mut state = self.state();
        let at = state.subscribers.iter().position(|one| one.number == number);
        let gone = at.map(|at| state.subscribers.swap_remove(at));
        let done = if state.subscribers.is_empty() { state.lingers.take() } else { None };
        drop(state);
        self.changed.give();
        drop((gone, done));
    }
}
