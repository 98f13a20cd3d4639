//! `cenote.Topic`.

use std::os::fd::{IntoRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Policy, TopicConfig};
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::args::dtype::DTypeArg;
use crate::args::integer::size;
use crate::args::seconds::duration;
use crate::args::seconds::optional_seconds;
use crate::args::shape::ShapeArg;
use crate::domain::depth_image::DepthImage;
use crate::domain::image::Image;
use crate::domain::point_cloud::PointCloud;
use crate::inspect::copies;
use crate::pool::bytes;
use crate::runtime::error::{Raised, Result, bad_argument};
use crate::runtime::gil_cell::GilCell;
use crate::runtime::py_call;
use crate::tensor::Tensor;
use crate::topic::open_flag::{OpenFlag, closed};
use crate::topic::typed_topic::{AnyTopic, TypedTopic};

/// Sends and receives messages of one type under one name.
///
/// >>> topic = cenote.Topic("camera.rgb", cenote.Image)
/// >>> image = cenote.Image(640, 480, "rgb8", seq=7)
/// >>> topic.send(image)                  # to all subscribers, in all processes; no pixel is copied
/// >>> topic.recv(timeout=5)              # in another process: for image in cenote.Topic("camera.rgb", cenote.Image)
/// <cenote.Image 640x480 rgb8, shm, read-only, seq=7>
/// >>> topic.close()
///
/// `type` is `Image`, `PointCloud`, `DepthImage` or `Tensor`, which is the default. A topic of `Tensor`
/// receives messages of all types as tensors, without metadata such as `seq`, `stamp_ns` and `frame_id`. One
/// object can send and receive: the first `send` starts publishing, and the first `recv` subscribes.
/// (`advertise` and `subscribe` do so at once.) All threads can use it.
///
/// After a message was sent, its memory is read-only. If an object that can write it is alive at that moment,
/// such as an array of `numpy()` or a view of it, a copy is sent, and `stats()["copies"]` counts it.
///
/// `depth` is how many messages the publisher keeps for subscribers. If a subscriber falls behind by more,
/// `policy` decides: `"keep_last"` overwrites the oldest message, and the subscriber counts it as `missed`;
/// `"block"` waits for the subscriber, for `timeout` seconds at most (None: for as long as the subscriber
/// lives); `"reject"` fails at once. `history` is how many earlier messages it requests when it subscribes.
/// With `ignore_own` the object does not receive the messages that it sent itself. `size_mb` and `max_slots`
/// configure the publisher's pool, in which `alloc_tensor` and `image` allocate.
#[pyclass(frozen, weakref, module = "cenote")]
pub(crate) struct Topic {
    name: String,
    open: OpenFlag,
    /// Whether an asyncio task may await it, which `close` then has to wake.
    is_awaited: AtomicBool,
    /// `None` after it was closed.
    inner: GilCell<dyn AnyTopic>,
}

impl Topic {
    /// The topic. Fails if it was closed.
    #[inline]
    fn get(&self, py: Python<'_>) -> Result<Arc<dyn AnyTopic>> {
        self.inner.get(py).ok_or_else(closed)
    }

    /// The topic. Fails also in a forked child, where its counters would be those of the parent.
    fn get_own(&self, py: Python<'_>) -> Result<Arc<dyn AnyTopic>> {
        let topic = self.get(py)?;
        topic.check_process()?;
        Ok(topic)
    }

    /// The next message, or `None` after `timeout`.
    fn recv_within<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        self.get(py)?.recv(py, timeout, &self.open)
    }
}

#[pymethods]
impl Topic {
    #[new]
    #[pyo3(signature = (
        name, r#type=None, *, depth=16, policy="keep_last", timeout=None, history=0, ignore_own=false,
        size_mb=1024, max_slots=1024
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        name: &str,
        r#type: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = size::depth)] depth: usize,
        policy: &str,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<f64>,
        #[pyo3(from_py_with = size::history)] history: usize,
        ignore_own: bool,
        #[pyo3(from_py_with = size::size_mb)] size_mb: usize,
        #[pyo3(from_py_with = size::max_slots)] max_slots: usize,
    ) -> Result<Topic> {
        let policy = policy_of(policy, timeout)?;
        let mut config =
            TopicConfig { depth, policy, history, ignore_own, ..TopicConfig::default() };
        config.pool.pool_size = bytes(size_mb)?;
        config.pool.max_slots = max_slots;
        let inner = open_typed(py, name, r#type, config)?;
        let (name, is_awaited) = (inner.name().to_owned(), AtomicBool::new(false));
        Ok(Topic { name, open: OpenFlag::new(), is_awaited, inner: GilCell::new(inner) })
    }

    /// The name of the topic.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether the topic was closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.open.get()
    }

    /// Sends a message to all subscribers, and to this object unless `ignore_own` is set. If a subscriber is
    /// slow, the policy `"block"` fails with `cenote.Timeout` after its timeout, and `"reject"` at once.
    #[pyo3(signature = (message, /))]
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<()> {
        self.get(py)?.send(py, message, &self.open)
    }

    /// Sends a message unless it would have to wait for a slow subscriber. Returns whether it was sent.
    #[pyo3(signature = (message, /))]
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool> {
        self.get(py)?.try_send(py, message)
    }

    /// The next message. Waits for it for `timeout` seconds, then returns None; without a timeout it waits
    /// forever. `timeout=0` does not wait.
    ///
    /// Messages of one publisher arrive in the order in which they were sent. With several publishers, it
    /// takes from each in turn.
    #[pyo3(signature = (timeout=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<f64>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        self.recv_within(py, timeout.map(duration).transpose()?)
    }

    /// The newest message that was not received yet, or None. Skips all messages before it, which do not
    /// count as missed. Does not wait.
    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        self.get(py)?.latest(py)
    }

    /// The next message, for `await` in asyncio. `async for` awaits one message after the other.
    ///
    /// If the topic is closed, the `await` fails. Cancelling the task loses no message.
    fn recv_async<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().is_awaited.store(true, Ordering::Relaxed);
        static RECV: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let recv = py_call::imported(slf.py(), &RECV, "cenote._asyncio", "recv")?;
        Ok(py_call::call(recv, (slf,), None)?)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next message. The iteration ends when the topic is closed.
    fn __next__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let ended = || PyStopIteration::new_err(()).into();
        if !self.open.get() {
            return Err(ended());
        }
        match self.recv_within(py, None) {
            Ok(message) => message.ok_or_else(ended),
            // Only the error of a closed topic ends the iteration. An exception of a signal handler is passed
            // on.
            Err(raised) if !self.open.get() && raised.is_plain(py) => Err(ended()),
            Err(raised) => Err(raised),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().is_awaited.store(true, Ordering::Relaxed);
        static NEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let next = py_call::imported(slf.py(), &NEXT, "cenote._asyncio", "next_of")?;
        Ok(py_call::call(next, (slf,), None)?)
    }

    /// A file descriptor that becomes readable when a message may have arrived, for `select`, `selectors` and
    /// event loops. Then call `recv(timeout=0)` until it returns None. The topic closes the descriptor.
    fn fileno(&self, py: Python<'_>) -> Result<RawFd> {
        self.get(py)?.fileno(py)
    }

    /// A duplicate of the descriptor of `fileno`. The caller closes it; it stays valid after the topic is
    /// closed.
    fn _dup(&self, py: Python<'_>) -> Result<RawFd> {
        Ok(self.get(py)?.dup(py)?.into_raw_fd())
    }

    /// Starts publishing, so that subscribers find this publisher before its first message.
    fn advertise(&self, py: Python<'_>) -> Result<()> {
        self.get(py)?.advertise(py)
    }

    /// Subscribes: receives the messages that are sent from now on.
    fn subscribe(&self, py: Python<'_>) -> Result<()> {
        self.get(py)?.subscribe(py)
    }

    /// Waits until there are `count` subscribers, not counting this object, for `timeout` seconds at most.
    /// Returns how many there are.
    #[pyo3(signature = (count=1, timeout=None))]
    fn wait_for_subscribers(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = size::count)] count: usize,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<f64>,
    ) -> Result<usize> {
        let timeout = timeout.map(duration).transpose()?;
        self.get(py)?.wait_for_subscribers(py, count, timeout, &self.open)
    }

    /// How many messages were lost so far: overwritten before they were received, or not receivable.
    #[getter]
    fn missed(&self, py: Python<'_>) -> Result<u64> {
        Ok(self.get_own(py)?.stats().missed)
    }

    /// Why the last `missed` message could not be received, as an exception. None if it was overwritten, if
    /// none was missed, or if the reason was returned before.
    fn last_loss(&self, py: Python<'_>) -> Result<Option<PyErr>> {
        Ok(self.get_own(py)?.last_loss().map(|error| Raised::from(error).into()))
    }

    /// The error of receiving, as an exception, or None: for example, a publisher of this topic sends another
    /// type. Each error is reported once, here or raised by another call; only `Forked` is reported each
    /// time.
    fn last_error(&self, py: Python<'_>) -> Result<Option<PyErr>> {
        Ok(self.get(py)?.last_error().map(|error| Raised::from(error).into()))
    }

    /// The counters of this object, as a dict: the messages that it has `sent`, `received` and `missed`; the
    /// `publishers` that it receives from and the `subscribers` that it sends to, not counting itself; and
    /// `copies`: for each reason, how many messages it copied to send them, and how many bytes.
    ///
    /// >>> with cenote.Topic("example", cenote.Tensor) as topic:
    /// ...     tensor = cenote.Tensor((4,), "uint8")
    /// ...     array = tensor.numpy()               # can write while it is alive
    /// ...     topic.send(tensor)
    /// ...     topic.stats()["copies"]
    /// {'Lent': (1, 4)}
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stats = self.get_own(py)?.stats();
        let dict = PyDict::new(py);
        dict.set_item("sent", stats.sent)?;
        dict.set_item("received", stats.received)?;
        dict.set_item("missed", stats.missed)?;
        dict.set_item("publishers", stats.publishers)?;
        dict.set_item("subscribers", stats.subscribers)?;
        dict.set_item("copies", copies::of_topic(py, &stats.copies)?)?;
        Ok(dict)
    }

    /// Allocates a tensor in the publisher's pool. It shows old bytes until you write it.
    #[pyo3(signature = (shape, dtype=DTypeArg(cenote::DType::F32)))]
    fn alloc_tensor(&self, py: Python<'_>, shape: ShapeArg, dtype: DTypeArg) -> Result<Tensor> {
        let topic = self.get(py)?;
        topic.advertise(py)?;
        Ok(Tensor(topic.alloc(&shape, dtype.0)?))
    }

    /// Allocates an image in the publisher's pool. It shows old bytes until you write it.
    #[pyo3(signature = (width, height, format="rgb8"))]
    fn image(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = size::width)] width: usize,
        #[pyo3(from_py_with = size::height)] height: usize,
        format: &str,
    ) -> Result<Py<Image>> {
        let (topic, format) = (self.get(py)?, format.parse()?);
        topic.advertise(py)?;
        Ok(Py::new(py, Image::init(topic.image(width, height, format)?))?)
    }

    /// Closes the topic: it stops sending and receiving. Subscribers can still receive the messages that it
    /// sent, and received messages stay valid. A thread that waits in `recv`, `send` or `wait_for_subscribers`
    /// fails within a tenth of a second, a task that awaits `recv_async` fails too, and iterations end. A
    /// `with` statement closes the topic at its end.
    fn close(slf: &Bound<'_, Self>) -> Result<()> {
        let (py, topic) = (slf.py(), slf.get());
        let inner = topic.inner.take(py);
        topic.open.close();
        py.detach(|| drop(inner));
        if topic.is_awaited.load(Ordering::Relaxed) {
            static WAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let wake = py_call::imported(py, &WAKE, "cenote._asyncio", "wake")?;
            py_call::call(wake, (slf,), None)?;
        }
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _type: Py<PyAny>,
        _value: Py<PyAny>,
        _traceback: Py<PyAny>,
    ) -> Result<()> {
        Topic::close(slf)
    }

    /// `Topic[Image]`, for type annotations.
    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let alias = py_call::attribute(&py_call::import(cls.py(), "types")?, "GenericAlias")?;
        py_call::call(&alias, (cls, item), None)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.inner.get(py) {
            None => format!("<cenote.Topic {:?}, closed>", self.name),
            Some(topic) => format!("<cenote.Topic {:?} of {}>", self.name, topic.type_name()),
        }
    }
}

/// Opens a topic of the message type that a Python class stands for.
fn open_typed(
    py: Python<'_>,
    name: &str,
    class: Option<&Bound<'_, PyAny>>,
    config: TopicConfig,
) -> Result<Arc<dyn AnyTopic>> {
    let Some(class) = class else {
        return Ok(TypedTopic::<cenote::Tensor>::open(name, config)?);
    };
    Ok(if class.is(PyType::new::<Tensor>(py)) {
        TypedTopic::<cenote::Tensor>::open(name, config)?
    } else if class.is(PyType::new::<Image>(py)) {
        TypedTopic::<cenote::Image>::open(name, config)?
    } else if class.is(PyType::new::<PointCloud>(py)) {
        TypedTopic::<cenote::PointCloud>::open(name, config)?
    } else if class.is(PyType::new::<DepthImage>(py)) {
        TypedTopic::<cenote::DepthImage>::open(name, config)?
    } else {
        let types = "cenote.Image, PointCloud, DepthImage or Tensor";
        let message = format!("a topic carries {types}, not {}", py_call::repr(class)?);
        return Err(PyTypeError::new_err(message).into());
    })
}

/// The policy of a name. Fails if the name is unknown, or if another policy than `"block"` has a timeout.
fn policy_of(name: &str, timeout: Option<f64>) -> Result<Policy> {
    match (name, timeout) {
        ("block", None) => Ok(Policy::Block(Duration::MAX)),
        ("block", Some(seconds)) => Ok(Policy::Block(duration(seconds)?)),
        (_, Some(_)) => Err(bad_argument("only policy=\"block\" takes a timeout")),
        ("keep_last", None) => Ok(Policy::KeepLast),
        ("reject", None) => Ok(Policy::Reject),
        (other, None) => {
            Err(bad_argument(format!("policy must be keep_last, block or reject, not {other:?}")))
        }
    }
}
