//! Topics of each type behind one interface, and how they wait: for as long as the topic is open.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Error, Policy, TensorMemory, TopicConfig, TopicStats};
use pyo3::prelude::*;

use crate::domain::Class;
use crate::error::{Raised, Result, raise};
use crate::tensor::Tensor;
use crate::timeout;

/// Whether a topic is open. Not behind a lock: it is asked while others may fork.
#[derive(Debug)]
pub(crate) struct Open(AtomicBool);

impl Open {
    pub(crate) fn new() -> Open {
        Open(AtomicBool::new(true))
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// As [`timeout::wait`], and an error once the topic is closed.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<Duration>,
        mut wait: impl FnMut(Duration) -> cenote::Result<Option<T>> + Send,
    ) -> Result<Option<T>> {
        let found = timeout::wait(py, timeout, |slice| {
            let found = wait(slice)?;
            Ok((found.is_some() || !self.get()).then_some(found))
        })?;
        match found {
            Some(None) => Err(closed()),
            found => Ok(found.flatten()),
        }
    }
}

pub(crate) fn closed() -> Raised {
    raise("Error", "the topic was closed".to_owned(), None)
}

/// A topic, whatever it carries.
pub(crate) trait Carrier: Send + Sync {
    fn name(&self) -> &str;
    fn kind(&self) -> &'static str;
    fn advertise(&self, py: Python<'_>) -> Result<()>;
    fn subscribe(&self, py: Python<'_>) -> Result<()>;
    /// Waits as long as the topic is open.
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>, open: &Open) -> Result<()>;
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool>;
    /// Waits as long as the topic is open.
    fn recv<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
        open: &Open,
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
        open: &Open,
    ) -> Result<usize>;
    fn stats(&self) -> TopicStats;
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
pub(crate) struct Typed<T> {
    topic: cenote::Topic<T>,
    policy: Policy,
    publishes: AtomicBool,
    subscribes: AtomicBool,
}

impl<T: Class> Typed<T> {
    pub(crate) fn open(name: &str, config: TopicConfig) -> Result<Arc<Typed<T>>> {
        let policy = config.policy;
        let topic = cenote::Topic::with_config(name, config)?;
        let (publishes, subscribes) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Arc::new(Typed { topic, policy, publishes, subscribes }))
    }

    /// Waits for slow subscribers. The last failure is what there is to tell.
    fn send_waiting(
        &self,
        py: Python<'_>,
        message: &T,
        patience: Duration,
        open: &Open,
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

/// Whether sending it copies nothing, so that it takes next to no time.
fn is_quick(tensor: &cenote::Tensor) -> bool {
    tensor.memory() == TensorMemory::Shm && !tensor.is_lent()
}

impl<T: Class> Carrier for Typed<T> {
    fn name(&self) -> &str {
        self.topic.name()
    }

    fn kind(&self) -> &'static str {
        T::NAME
    }

    #[inline]
    fn advertise(&self, py: Python<'_>) -> Result<()> {
        if !self.publishes.load(Ordering::Relaxed) {
            py.detach(|| self.topic.advertise())?;
            self.publishes.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    #[inline]
    fn subscribe(&self, py: Python<'_>) -> Result<()> {
        if !self.subscribes.load(Ordering::Relaxed) {
            py.detach(|| self.topic.subscribe())?;
            self.subscribes.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>, open: &Open) -> Result<()> {
        let message = T::from_object(message)?;
        self.advertise(py)?;
        match self.policy {
            Policy::Block(patience) => self.send_waiting(py, &message, patience, open),
            _ if is_quick(message.tensor()) => Ok(self.topic.send(&message)?),
            _ => Ok(py.detach(|| self.topic.send(&message))?),
        }
    }

    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool> {
        let message = T::from_object(message)?;
        self.advertise(py)?;
        match py.detach(|| self.topic.try_send(&message)) {
            Err(Error::SlowSubscriber { .. }) => Ok(false),
            sent => Ok(sent.map(|()| true)?),
        }
    }

    fn recv<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
        open: &Open,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        self.subscribe(py)?;
        let found = match self.topic.recv() {
            Some(message) => Some(message),
            // It also tells what is wrong.
            None if timeout == Some(Duration::ZERO) => self.topic.recv_timeout(Duration::ZERO)?,
            None => open.wait(py, timeout, |slice| self.topic.recv_timeout(slice))?,
        };
        Ok(found.map(|message| message.into_object(py)).transpose()?)
    }

    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        self.subscribe(py)?;
        match self.topic.latest() {
            Some(message) => Ok(Some(message.into_object(py)?)),
            None => self.topic.last_error().map_or(Ok(None), |error| Err(error.into())),
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
        open: &Open,
    ) -> Result<usize> {
        let mut found = 0;
        open.wait(py, timeout, |slice| {
            found = self.topic.wait_for_subscribers(count, slice)?;
            Ok((found >= count).then_some(()))
        })?;
        Ok(found)
    }

    fn stats(&self) -> TopicStats {
        self.topic.stats()
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

impl Class for cenote::Tensor {
    fn into_object(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(Bound::new(py, Tensor(self))?.into_any())
    }

    fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(object.cast::<Tensor>()?.get().0.clone())
    }
}
