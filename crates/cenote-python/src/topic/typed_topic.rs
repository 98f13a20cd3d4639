//! Topics of all message types behind one interface.

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

/// A topic of any message type. Calls that wait fail once `open` is closed.
pub(crate) trait AnyTopic: Send + Sync {
    fn name(&self) -> &str;
    /// The name of the message type.
    fn type_name(&self) -> &'static str;
    fn advertise(&self, py: Python<'_>) -> Result<()>;
    fn subscribe(&self, py: Python<'_>) -> Result<()>;
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>, open: &OpenFlag) -> Result<()>;
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool>;
    fn recv<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
        open: &OpenFlag,
    ) -> Result<Option<Bound<'py, PyAny>>>;
    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>>;
    fn fileno(&self, py: Python<'_>) -> Result<RawFd>;
    /// A duplicate of the descriptor of `fileno`, which the caller closes.
    fn dup(&self, py: Python<'_>) -> Result<OwnedFd>;
    fn wait_for_subscribers(
        &self,
        py: Python<'_>,
        count: usize,
        timeout: Option<Duration>,
        open: &OpenFlag,
    ) -> Result<usize>;
    /// Fails in a forked child of the process that made the topic.
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

/// A topic of one message type.
///
/// The first `advertise` and the first `subscribe` take long, so they release the GIL. The flags say which of
/// them are done: later calls that do not wait keep the GIL.
pub(crate) struct TypedTopic<T> {
    topic: cenote::Topic<T>,
    policy: Policy,
    /// The pid of the process that made it.
    pid: u32,
    is_advertised: AtomicBool,
    is_subscribed: AtomicBool,
}

impl<T: MessageClass> TypedTopic<T> {
    pub(crate) fn open(name: &str, config: TopicConfig) -> Result<Arc<TypedTopic<T>>> {
        let (policy, pid) = (config.policy, process::id());
        let topic = cenote::Topic::with_config(name, config)?;
        let (is_advertised, is_subscribed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(TypedTopic { topic, policy, pid, is_advertised, is_subscribed }))
    }

    /// The result of a call that found no message: `None`, or the error of receiving.
    fn no_message<M>(&self) -> Result<Option<M>> {
        self.topic.last_error().map_or(Ok(None), |error| Err(error.into()))
    }

    /// Calls `send` with the message of an object. Releases the GIL meanwhile if that has to copy the message.
    fn send_now(
        &self,
        py: Python<'_>,
        object: &T::Object,
        send: impl Fn(&T) -> cenote::Result<()> + Sync,
    ) -> cenote::Result<()> {
        let quickly = |message: &T| is_quick(message.tensor()).then(|| send(message));
        T::with(object, quickly).unwrap_or_else(|| {
            let message = T::with(object, T::clone);
            py.detach(|| send(&message))
        })
    }

    /// Sends a message, and waits for slow subscribers for `timeout`. Fails with `SlowSubscriber`, which
    /// names the subscriber that was slow last.
    fn send_waiting(
        &self,
        py: Python<'_>,
        message: &T,
        timeout: Duration,
        open: &OpenFlag,
    ) -> Result<()> {
        let mut slow = None;
        let limit = (timeout != Duration::MAX).then_some(timeout);
        let sent = open.wait(py, limit, |slice| match self.topic.send_timeout(message, slice) {
            Err(error @ Error::SlowSubscriber { .. }) => {
                slow = Some(error);
                Ok(None)
            }
            done => done.map(Some),
        })?;
        match (sent, slow) {
            (None, Some(Error::SlowSubscriber { topic, pid, program, .. })) => {
                Err(Error::SlowSubscriber { topic, pid, program, waited: timeout }.into())
            }
            _ => Ok(()),
        }
    }
}

/// Calls `begin` without the GIL, unless it was done before.
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

/// The object of a message. Fails if the message is of another class.
#[inline]
fn object_of<'a, T: MessageClass>(message: &'a Bound<'_, PyAny>) -> Result<&'a T::Object> {
    Ok(message.cast::<T::Object>().map_err(PyErr::from)?.get())
}

/// Whether sending the tensor copies nothing, so that it is quick.
fn is_quick(tensor: &cenote::Tensor) -> bool {
    tensor.memory() == TensorMemory::Shm && !tensor.is_lent()
}

impl<T: MessageClass> AnyTopic for TypedTopic<T> {
    fn name(&self) -> &str {
        self.topic.name()
    }

    fn type_name(&self) -> &'static str {
        T::NAME
    }

    #[inline]
    fn advertise(&self, py: Python<'_>) -> Result<()> {
        once(py, &self.is_advertised, || self.topic.advertise())
    }

    #[inline]
    fn subscribe(&self, py: Python<'_>) -> Result<()> {
        once(py, &self.is_subscribed, || self.topic.subscribe())
    }

    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>, open: &OpenFlag) -> Result<()> {
        let object = object_of::<T>(message)?;
        self.advertise(py)?;
        match self.policy {
            Policy::Block(timeout) => {
                self.send_waiting(py, &T::with(object, T::clone), timeout, open)
            }
            _ => Ok(self.send_now(py, object, |message| self.topic.send(message))?),
        }
    }

    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool> {
        let object = object_of::<T>(message)?;
        self.advertise(py)?;
        match self.send_now(py, object, |message| self.topic.try_send(message)) {
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
            None if timeout == Some(Duration::ZERO) => return self.no_message(),
            None => open.wait(py, timeout, |slice| self.topic.recv_timeout(slice))?,
        };
        Ok(found.map(|message| message.into_object(py)).transpose()?)
    }

    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        self.subscribe(py)?;
        match self.topic.latest() {
            Some(message) => Ok(Some(message.into_object(py)?)),
            None => self.no_message(),
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
        match process::id() == self.pid {
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
