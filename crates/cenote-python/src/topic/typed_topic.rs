//! Topics of each type behind one interface, and how they wait: for as long as the topic is open.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Error, Policy, TensorMemory, TopicConfig, TopicStats};
use pyo3::prelude::*;

use crate::domain::class::MessageClass;
use crate::runtime::error::Result;
use crate::topic::open_flag::OpenFlag;

/// A topic, whatever it carries.
pub(crate) trait AnyTopic: Send + Sync {
    fn name(&self) -> &str;
    fn kind(&self) -> &'static str;
    fn advertise(&self, py: Python<'_>) -> Result<()>;
    fn subscribe(&self, py: Python<'_>) -> Result<()>;
    /// Waits as long as the topic is open.
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>, open: &OpenFlag) -> Result<()>;
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool>;
    /// Waits as long as the topic is open.
    fn recv<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
        open: &OpenFlag,
    ) -> Result<Option<Bound<'py, PyAny>>>;
    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>>;
    fn fileno(&self, py: Python<'_>) -> Result<RawFd>;
    /// Another descriptor for the same.
    fn dup(&self, py: Python<'_>) -> Result<OwnedFd>;
    /// Waits as long as the topic is open.
    fn wait_for_subscribers(
        &self,
        py: Python<'_>,
        count: usize,
        timeout: Option<Duration>,
        open: &OpenFlag,
    ) -> Result<usize>;
    /// An error in a process that was forked off the one that made the topic, which tells nothing else.
    fn check_process(&self) -> Result<()>;
    fn stats(&self) -> TopicStats;
    fn last_error(&self) -> Option<Error>;
    fn last_loss(&self) -> Option<Error>;
    fn alloc(&self, shape: &[usize], dtype: cenote::DType) -> cenote::Result<cenote::Tensor>;
    fn image(
        &self,
        width: usize,
        height: usize,
        format: cenote::PixelFormat,
    ) -> cenote::Result<cenote::Image>;
}

/// A topic of one type. Beginning to publish or to subscribe takes a while, so it is known whether that
/// was done: from then on what does not wait is done without letting go of the interpreter.
pub(crate) struct TypedTopic<T> {
    topic: cenote::Topic<T>,
    policy: Policy,
    /// The process that made it.
    maker: u32,
    publishes: AtomicBool,
    subscribes: AtomicBool,
}

impl<T: MessageClass> TypedTopic<T> {
    pub(crate) fn open(name: &str, config: TopicConfig) -> Result<Arc<TypedTopic<T>>> {
        let (policy, maker) = (config.policy, process::id());
        let topic = cenote::Topic::with_config(name, config)?;
        let (publishes, subscribes) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(TypedTopic { topic, policy, maker, publishes, subscribes }))
    }

    /// There is no message, or something is wrong.
    fn nothing<M>(&self) -> Result<Option<M>> {
        self.topic.last_error().map_or(Ok(None), |error| Err(error.into()))
    }

    /// Sends a message as `send` does: where it is, if that is quick, else without the interpreter.
    fn sent(
        &self,
        py: Python<'_>,
        object: &T::Object,
        send: impl Fn(&T) -> cenote::Result<()> + Sync,
    ) -> cenote::Result<()> {
        let at_once = |message: &T| is_quick(message.tensor()).then(|| send(message));
        T::with(object, at_once).unwrap_or_else(|| {
            let message = T::with(object, T::clone);
            py.detach(|| send(&message))
        })
    }

    /// Waits for slow subscribers. The last failure is what there is to tell.
    fn send_waiting(
        &self,
        py: Python<'_>,
        message: &T,
        patience: Duration,
        open: &OpenFlag,
    ) -> Result<()> {
        let mut slow = None;
        let timeout = (patience != Duration::MAX).then_some(patience);
        let sent =
            open.wait(py, timeout, |slice| match self.topic.send_timeout(message, slice) {
                Err(error @ Error::SlowSubscriber { .. }) => {
                    slow = Some(error);
                    Ok(None)
                }
                done => done.map(Some),
            })?;
        match (sent, slow) {
            (None, Some(Error::SlowSubscriber { topic, pid, program, .. })) => {
                Err(Error::SlowSubscriber { topic, pid, program, waited: patience }.into())
            }
            _ => Ok(()),
        }
    }
}

/// Begins what takes a while, unless it was done.
#[inline]
fn once(
    py: Python<'_>,
    done: &AtomicBool,
    begin: impl FnOnce() -> cenote::Result<()> + Send,
) -> Result<()> {
    if !done.load(Ordering::Relaxed) {
        py.detach(begin)?;
        done.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// What is behind a message; an error if it is of another class.
#[inline]
fn object_of<'a, T: MessageClass>(message: &'a Bound<'_, PyAny>) -> Result<&'a T::Object> {
    Ok(message.cast::<T::Object>().map_err(PyErr::from)?.get())
}

/// Whether sending it copies nothing, so that it takes next to no time.
fn is_quick(tensor: &cenote::Tensor) -> bool {
    tensor.memory() == TensorMemory::Shm && !tensor.is_lent()
}

impl<T: MessageClass> AnyTopic for TypedTopic<T> {
    fn name(&self) -> &str {
        self.topic.name()
    }

    fn kind(&self) -> &'static str {
        T::NAME
    }

    #[inline]
    fn advertise(&self, py: Python<'_>) -> Result<()> {
        once(py, &self.publishes, || self.topic.advertise())
    }

    #[inline]
    fn subscribe(&self, py: Python<'_>) -> Result<()> {
        once(py, &self.subscribes, || self.topic.subscribe())
    }

    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>, open: &OpenFlag) -> Result<()> {
        let object = object_of::<T>(message)?;
        self.advertise(py)?;
        match self.policy {
            Policy::Block(patience) => {
                self.send_waiting(py, &T::with(object, T::clone), patience, open)
            }
            _ => Ok(self.sent(py, object, |message| self.topic.send(message))?),
        }
    }

    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool> {
        let object = object_of::<T>(message)?;
        self.advertise(py)?;
        match self.sent(py, object, |message| self.topic.try_send(message)) {
            Err(Error::SlowSubscriber { .. }) => Ok(false),
            sent => Ok(sent.map(|()| true)?),
        }
    }

    fn recv<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
        open: &OpenFlag,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        self.subscribe(py)?;
        let found = match self.topic.recv() {
            Some(message) => Some(message),
            None if timeout == Some(Duration::ZERO) => return self.nothing(),
            None => open.wait(py, timeout, |slice| self.topic.recv_timeout(slice))?,
        };
        Ok(found.map(|message| message.into_object(py)).transpose()?)
    }

    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        self.subscribe(py)?;
        match self.topic.latest() {
            Some(message) => Ok(Some(message.into_object(py)?)),
            None => self.nothing(),
        }
    }

    fn fileno(&self, py: Python<'_>) -> Result<RawFd> {
        self.subscribe(py)?;
        Ok(self.topic.fd()?.as_raw_fd())
    }

    fn dup(&self, py: Python<'_>) -> Result<OwnedFd> {
        self.subscribe(py)?;
        Ok(self.topic.fd()?.try_clone_to_owned().map_err(PyErr::from)?)
    }

    fn wait_for_subscribers(
        &self,
        py: Python<'_>,
        count: usize,
        timeout: Option<Duration>,
        open: &OpenFlag,
    ) -> Result<usize> {
        let mut found = 0;
        open.wait(py, timeout, |slice| {
            found = self.topic.wait_for_subscribers(count, slice)?;
            Ok((found >= count).then_some(()))
        })?;
        Ok(found)
    }

    fn check_process(&self) -> Result<()> {
        match process::id() == self.maker {
            true => Ok(()),
            false => Err(Error::ForkedTopic { topic: self.topic.name().to_owned() }.into()),
        }
    }

    fn stats(&self) -> TopicStats {
        self.topic.stats()
    }

    fn last_error(&self) -> Option<Error> {
        self.topic.last_error()
    }

    fn last_loss(&self) -> Option<Error> {
        self.topic.last_loss()
    }

    fn alloc(&self, shape: &[usize], dtype: cenote::DType) -> cenote::Result<cenote::Tensor> {
        self.topic.alloc_tensor(shape, dtype)
    }

    fn image(
        &self,
        width: usize,
        height: usize,
        format: cenote::PixelFormat,
    ) -> cenote::Result<cenote::Image> {
        self.topic.image(width, height, format)
    }
}
