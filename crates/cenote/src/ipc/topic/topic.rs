//! The public object of a topic. It starts the publisher with the first `send`, and the subscriber with the first `recv`.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::ipc::discovery::socket_dir::{Endpoint, SocketDir};
use crate::ipc::pool::owner::server::create;
use crate::ipc::pool::tensor_pool::TensorPool;
use crate::ipc::topic::config::{Policy, TopicConfig};
use crate::ipc::topic::inspect::type_check;
use crate::ipc::topic::message::Message;
use crate::ipc::topic::name::TopicName;
use crate::ipc::topic::notify::SubscriberNotify;
use crate::ipc::topic::publisher::publisher::Publisher;
use crate::ipc::topic::stats::TopicStats;
use crate::ipc::topic::subscriber::discovery::PublisherDiscovery;
use crate::ipc::topic::subscriber::subscriber::Subscriber;
use crate::sys::fork::Creator;
use crate::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;

/// Sends and receives messages of one type, under one name.
///
/// ```
/// use cenote::{Image, PixelFormat, Topic};
/// # let dir = std::env::temp_dir().join(format!("cenote-topic-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
///
/// let topic: Topic<Image> = Topic::new("camera.rgb")?;
/// let mut image = topic.image(640, 480, PixelFormat::Rgb8)?;
/// image.fill(&[255, 0, 0])?;
/// topic.send(&image)?; // here, and to every other process; no pixel is copied
///
/// let received = topic.recv().expect("what was just sent");
/// assert_eq!(received.width(), 640);
/// # drop((image, received, topic)); std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// One object does both. It begins to publish with the first [`send`](Topic::send) (or
/// [`advertise`](Topic::advertise)), and to subscribe with the first [`recv`](Topic::recv) (or
/// [`subscribe`](Topic::subscribe)). Clones share all of it. Any thread can use it.
///
/// A message is immutable once it is sent: no process can write it, and `make_mut` copies.
pub struct Topic<T> {
    pub(crate) parts: Arc<TopicParts>,
    messages: PhantomData<fn(T) -> T>,
}

pub(crate) struct TopicParts {
    pub(crate) name: TopicName,
    config: TopicConfig,
    /// The uid of the publisher, even before it is started.
    uid: u64,
    /// A forked child would use the same uid.
    creator: Creator,
    publisher: OnceLock<Arc<Publisher>>,
    subscriber: OnceLock<Subscriber>,
    /// Locked while the publisher or the subscriber is started.
    starting: Mutex<()>,
    /// The error of a call that cannot return one.
    noted_error: Mutex<Option<Error>>,
}

impl Drop for TopicParts {
    fn drop(&mut self) {
        let (publisher, subscriber) = (self.publisher.get(), self.subscriber.get());
        if self.creator.is_inherited() || (publisher.is_none() && subscriber.is_none()) {
            return;
        }
        let published = publisher.and_then(|publisher| publisher.close());
        let watched = subscriber.and_then(Subscriber::close);
        let held = [published, watched].into_iter().flatten().find(|place| !place.is_removed());
        // The directory may have been removed, and created again by another process.
        let find = || SocketDir::find(&self.name.directory()).ok().flatten().map(Arc::new);
        // The last to leave removes it. A subscriber that is still there creates it again.
        held.or_else(find).inspect(|place| place.remove_if_empty());
    }
}

impl<T> Clone for Topic<T> {
    fn clone(&self) -> Self {
        Topic { parts: self.parts.clone(), messages: PhantomData }
    }
}

impl<T> fmt::Debug for Topic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("name", &self.parts.name.as_str())
            .field("publishes", &self.parts.publisher.get().is_some())
            .field("subscribes", &self.parts.subscriber.get().is_some())
            .finish_non_exhaustive()
    }
}

impl TopicParts {
    pub(crate) fn check_process(&self) -> Result<()> {
        match !self.creator.is_inherited() {
            true => Ok(()),
            false => Err(Error::ForkedTopic { topic: self.name.to_string() }),
        }
    }
}

impl<T: Message> Topic<T> {
    /// A topic, by name: `camera.front.rgb`, or `/camera/front/rgb`, which is the same.
    pub fn new(name: &str) -> Result<Topic<T>> {
        Self::with_config(name, TopicConfig::default())
    }

    /// A topic with a configuration. Fails if the configuration makes no sense.
    pub fn with_config(name: &str, config: TopicConfig) -> Result<Topic<T>> {
        let name = TopicName::new(name)?;
        config.ring(T::max_words(), T::signature().is_tensor())?;
        let parts = TopicParts {
            name,
            config,
            uid: create::random_uid()?,
            creator: Creator::this_process(),
            publisher: OnceLock::new(),
            subscriber: OnceLock::new(),
            starting: Mutex::new(()),
            noted_error: Mutex::new(None),
        };
        Ok(Topic { parts: Arc::new(parts), messages: PhantomData })
    }

    /// The name, with dots.
    pub fn name(&self) -> &str {
        self.parts.name.as_str()
    }

    /// Begins to publish, so that subscribers find this publisher before it sends anything.
    pub fn advertise(&self) -> Result<()> {
        self.check_process()?;
        self.publisher().map(drop)
    }

    /// Begins to subscribe: every message that is sent from here on is received. Publishers that are there already are
    /// connected when this returns, unless they take longer than 0.2 s.
    ///
    /// Returns [`TypeMismatch`](Error::TypeMismatch) if one of them sends another type. Each such publisher is reported
    /// once; the others are received from.
    pub fn subscribe(&self) -> Result<()> {
        self.check_process()?;
        self.subscriber()?;
        self.check_types()
    }

    /// Fails if a publisher sends another type. Each such publisher is reported once.
    pub(crate) fn check_types(&self) -> Result<()> {
        self.subscriber()?.take_mismatch().map_or(Ok(()), Err)
    }

    /// Sends a message to all subscribers, including this object unless `ignore_own` is set.
    ///
    /// A tensor that other processes cannot see is copied first; [`stats`](Topic::stats) counts that. If a subscriber
    /// is slow, the [`Policy`] decides.
    pub fn send(&self, message: &T) -> Result<()> {
        let publisher = self.publisher()?;
        Self::send_as(publisher, message, publisher.policy())
    }

    #[inline]
    fn send_as(publisher: &Publisher, message: &T, policy: Policy) -> Result<()> {
        match publisher.send(message, policy) {
            Ok(()) => Ok(()),
            Err(error) => Self::send_again(publisher, message, policy, error),
        }
    }

    /// Sends again a tensor that was loaned after `send` had found no loan. Now the loan is found, and the tensor is
    /// copied.
    #[cold]
    fn send_again(
        publisher: &Publisher,
        message: &T,
        policy: Policy,
        mut error: Error,
    ) -> Result<()> {
        // Dropped adoptions may have caused the error: the next call then succeeds.
        publisher.stage.drop_dead();
        while matches!(error, Error::Lent) {
            match publisher.send(message, policy) {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        Err(error)
    }

    /// Sends a message without waiting for subscribers. Fails with [`SlowSubscriber`](Error::SlowSubscriber) if the [`Policy`]
    /// is to wait and one is slow.
    pub fn try_send(&self, message: &T) -> Result<()> {
        let publisher = self.publisher()?;
        let policy = match publisher.policy() {
            Policy::Block(_) => Policy::Reject,
            policy => policy,
        };
        Self::send_as(publisher, message, policy)
    }

    /// Sends a message. If the [`Policy`] is to wait for slow subscribers, it waits no longer than this.
    pub fn send_timeout(&self, message: &T, timeout: Duration) -> Result<()> {
        let publisher = self.publisher()?;
        let policy = match publisher.policy() {
            Policy::Block(longest) => Policy::Block(longest.min(timeout)),
            policy => policy,
        };
        Self::send_as(publisher, message, policy)
    }

    /// The next message, if there is one. Never waits.
    ///
    /// Messages of one publisher arrive in the order in which they were sent. Publishers take turns.
    ///
    /// It cannot return an error. If it never returns a message, [`last_error`](Topic::last_error) may say why.
    #[inline(always)]
    pub fn recv(&self) -> Option<T> {
        let subscriber = match self.parts.subscriber.get() {
            Some(subscriber) => subscriber,
            None => self.noted(self.subscriber())?,
        };
        subscriber.recv()
    }

    /// The next message. `None` if none arrived within the time.
    ///
    /// Returns [`TypeMismatch`](Error::TypeMismatch) if no message arrived and a publisher of this topic sends another type.
    /// Each such publisher is reported once.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<T>> {
        let deadline = Instant::now().checked_add(timeout);
        self.recv_until(deadline)
    }

    /// Waits for the next message, without limit. Fails like [`recv_timeout`](Topic::recv_timeout).
    pub fn wait(&self) -> Result<T> {
        loop {
            if let Some(message) = self.recv_until(None)? {
                return Ok(message);
            }
        }
    }

    fn recv_until(&self, deadline: Option<Instant>) -> Result<Option<T>> {
        self.subscriber()?.recv_until(deadline)
    }

    /// The newest message that was not received yet. Older ones are skipped, and not counted as missed. If there are several
    /// publishers, it is the newest message of one of them. Errors are those of [`recv`](Topic::recv).
    pub fn latest(&self) -> Option<T> {
        self.noted(self.subscriber())?.latest()
    }

    /// Iterates over the messages, and waits for each. It ends when [`wait`](Topic::wait) fails;
    /// [`last_error`](Topic::last_error) says why. After a `TypeMismatch`, which is reported once for each publisher, it can be
    /// called again.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.noted(self.wait()))
    }

    /// Why [`recv`](Topic::recv), [`latest`](Topic::latest) or [`iter`](Topic::iter) returned nothing, if there was an
    /// error:
    ///
    /// - this process is a forked child of the one that made the topic. This is returned by every call; the other
    ///   errors once, here or by a call that returns errors;
    /// - subscribing failed;
    /// - a publisher sends another type;
    /// - a publisher refused this process;
    /// - a publisher could not be connected for want of memory or descriptors. The subscriber tries again.
    ///
    /// [`last_loss`](Topic::last_loss) is about messages that arrived and could not be received.
    ///
    /// ```
    /// use cenote::{Error, Topic};
    /// # let dir = std::env::temp_dir().join(format!("cenote-error-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
    ///
    /// let speed: Topic<f32> = Topic::new("speed")?;
    /// speed.send(&1.5)?;
    /// let wrong: Topic<f64> = Topic::new("speed")?;
    /// assert_eq!(wrong.recv(), None);
    /// let why = wrong.last_error().expect("a reason");
    /// assert!(matches!(why, Error::TypeMismatch { .. }), "{why}");
    /// assert!(wrong.last_error().is_none());
    /// # drop((speed, wrong)); std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn last_error(&self) -> Option<Error> {
        // Before any lock: a forked child may have inherited it locked.
        if let Err(forked) = self.check_process() {
            return Some(forked);
        }
        let noted = self.noted_error().take();
        let subscriber = self.parts.subscriber.get();
        let mismatch = || subscriber?.take_mismatch();
        noted.or_else(mismatch).or_else(|| subscriber?.take_failure())
    }

    /// The value, or `None` and the error is kept for [`last_error`](Topic::last_error).
    fn noted<R>(&self, result: Result<R>) -> Option<R> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        if self.check_process().is_ok() {
            *self.noted_error() = Some(error);
        }
        None
    }

    fn noted_error(&self) -> MutexGuard<'_, Option<Error>> {
        // It is replaced whole, so a panic leaves it consistent.
        self.parts.noted_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor for `epoll`, `poll` and `select`. It is readable when there may be a message: then call
    /// [`recv`](Topic::recv) until it returns `None`.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.subscriber()?.fd()
    }

    /// How many messages were lost: overwritten before they were received, or impossible to receive.
    pub fn missed(&self) -> u64 {
        self.started(&self.parts.subscriber).map_or(0, Subscriber::missed)
    }

    /// Why the last lost message could not be received, unless it was overwritten. Returned once.
    pub fn last_loss(&self) -> Option<Error> {
        self.started(&self.parts.subscriber)?.take_last_loss()
    }

    /// Waits until there are `count` subscribers, not counting this object, or the time is over. Returns how many there are.
    pub fn wait_for_subscribers(&self, count: usize, timeout: Duration) -> Result<usize> {
        self.publisher()?.wait_for_subscribers(count, timeout)
    }

    /// What this object has sent and received so far.
    pub fn stats(&self) -> TopicStats {
        let TopicParts { publisher, subscriber, .. } = &*self.parts;
        let (publisher, subscriber) = (self.started(publisher), self.started(subscriber));
        TopicStats {
            sent: publisher.map_or(0, |publisher| publisher.sent()),
            received: subscriber.map_or(0, Subscriber::received),
            missed: self.missed(),
            publishers: subscriber.map_or(0, Subscriber::publishers),
            subscribers: publisher.map_or(0, |publisher| publisher.subscribers()),
            copies: publisher.map_or_else(Vec::new, |publisher| publisher.stage.copies.all()),
        }
    }

    /// The pool of the publisher, for its statistics and for other kinds of allocation. Starts the publisher.
    pub fn pool(&self) -> Result<&TensorPool> {
        self.check_process()?;
        Ok(&self.publisher()?.pool)
    }

    /// The publisher or the subscriber, if it was started. `None` in a forked child, which may have inherited its locks
    /// locked.
    fn started<'a, P>(&self, part: &'a OnceLock<P>) -> Option<&'a P> {
        part.get().filter(|_| self.check_process().is_ok())
    }

    fn check_process(&self) -> Result<()> {
        self.parts.check_process()
    }

    #[inline]
    fn publisher(&self) -> Result<&Arc<Publisher>> {
        match self.parts.publisher.get() {
            Some(publisher) => Ok(publisher),
            None => self.start_publisher(),
        }
    }

    #[cold]
    fn start_publisher(&self) -> Result<&Arc<Publisher>> {
        let TopicParts { name, config, uid, publisher, subscriber, starting, .. } = &*self.parts;
        self.check_process()?;
        let _starting = starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(publisher) = publisher.get() {
            return Ok(publisher);
        }
        let place = SocketDir::open(&name.directory(), config.pool.access)?;
        let names = place.file_names()?;
        let publishers = place.endpoints_among(&names);
        type_check::check_type(&place, &publishers, name.as_str(), &T::signature())?;
        let entry = Endpoint { name: name.as_str().to_owned(), uid: *uid };
        let made = TensorPool::for_topic((place, &names), entry, config.pool.clone(), |pool| {
            Publisher::new::<T>(name, pool, config)
        })?;
        let place = SocketDir::open(&name.directory(), config.pool.access)?;
        let checked = place.endpoints().and_then(|mut newcomers| {
            newcomers.retain(|entry| entry.uid != *uid && !publishers.contains(entry));
            type_check::check_newcomers(&place, newcomers, *uid, name.as_str(), &T::signature())
        });
        if let Err(error) = checked {
            drop(made);
            place.remove_if_empty();
            return Err(error);
        }
        if let Some(subscriber) = subscriber.get().filter(|_| !config.ignore_own) {
            subscriber.add_own(made.clone());
        }
        Ok(publisher.get_or_init(|| made))
    }

    fn subscriber(&self) -> Result<&Subscriber> {
        match self.parts.subscriber.get() {
            Some(subscriber) => Ok(subscriber),
            None => self.start_subscriber(),
        }
    }

    #[cold]
    fn start_subscriber(&self) -> Result<&Subscriber> {
        let TopicParts { name, config, uid, publisher, subscriber, starting, .. } = &*self.parts;
        self.check_process()?;
        let _starting = starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscriber) = subscriber.get() {
            return Ok(subscriber);
        }
        let dir = (SocketDir::open(&name.directory(), config.pool.access)?, config.pool.access);
        let notify = SubscriberNotify::new().map_err(|source| Error::os("eventfd", source))?;
        let notify = Arc::new(notify);
        let discovery = PublisherDiscovery::new(
            name.as_str(),
            dir,
            T::signature(),
            config.history,
            *uid,
            &notify,
        );
        let made = Subscriber::new(name.as_str(), discovery.clone())?;
        discovery.start()?;
        if let Some(publisher) = publisher.get().filter(|_| !config.ignore_own) {
            made.add_own(publisher.clone());
        }
        Ok(subscriber.get_or_init(|| made))
    }
}

/// Allocation from the publisher's pool: such tensors are sent without a copy.
impl<T: Message> Topic<T> {
    /// Allocates a tensor, for a topic of tensors or of a type over one.
    #[inline(always)]
    pub fn alloc_tensor(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        let publisher = self.publisher()?;
        publisher.check_process()?;
        publisher.pool.alloc_with(shape, dtype, || publisher.drop_oldest())
    }

    /// Allocates an image.
    pub fn image(&self, width: usize, height: usize, format: PixelFormat) -> Result<Image> {
        let publisher = self.publisher()?;
        publisher.check_process()?;
        Image::new_with(&publisher.pool, (width, height), format, || publisher.drop_oldest())
    }
}
