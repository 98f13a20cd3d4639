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

/// Sends and receives messages of one type, under one name.
///
/// >>> topic = cenote.Topic("camera.rgb", cenote.Image)
/// >>> image = cenote.Image(640, 480, "rgb8", seq=7)
/// >>> topic.send(image)                  # here, and to every other process; no pixel is copied
/// >>> topic.recv(timeout=5)              # anywhere else: for image in cenote.Topic("camera.rgb", cenote.Image)
/// <cenote.Image 640x480 rgb8, shm, read-only, seq=7>
/// >>> topic.close()
///
/// `type` is `Image`, `PointCloud`, `DepthImage` or `Tensor`. A topic of tensors, which it is without a type,
/// receives all of them, but as tensors: without `seq`, `stamp_ns`, `frame_id` and whatever else they carry. One
/// object does both: it begins to publish with the first `send`, and to subscribe with the first `recv`.
/// (`advertise` and `subscribe` do so at once.) Any thread can use it.
///
/// What was sent is for good: nobody can write it any more. If something that can write it is alive, such as
/// an array of `numpy()` or a view of one, a copy is sent; `stats()["copies"]` counts that.
///
/// `depth` is how many messages are kept for subscribers. If one is slower than that, `policy` decides:
/// `"keep_last"` pushes out the oldest, and the subscriber is told how many it `missed`; `"block"` waits for
/// the subscriber, but not longer than `timeout` seconds (None: for as long as it lives); `"reject"` fails at
/// once. `history` is how many messages from before it came a subscriber asks for. `ignore_own` has it not
/// receive what was sent through this very object. `size_mb` and `max_slots` are of the publisher's pool, which
/// `alloc_tensor` and `image` allocate from.
#[pyclass(frozen, weakref, module = "cenote")]
pub(crate) struct Topic {
    name: String,
    open: OpenFlag,
    /// Whether somebody may await it, and has to be told when it is closed.
    awaited: AtomicBool,
    /// Until it is closed.
    inner: GilCell<dyn AnyTopic>,
}

impl Topic {
    /// The topic, unless it was closed.
    #[inline]
    fn get(&self, py: Python<'_>) -> Result<Arc<dyn AnyTopic>> {
        self.inner.get(py).ok_or_else(closed)
    }

    /// The topic, if it is of this process: what it was before a fork tells nothing.
    fn here(&self, py: Python<'_>) -> Result<Arc<dyn AnyTopic>> {
        let topic = self.get(py)?;
        topic.check_process()?;
        Ok(topic)
    }

    /// The next message, for which it waits; None if there was none for so long.
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
        let inner: Arc<dyn AnyTopic> = match r#type {
            None => TypedTopic::<cenote::Tensor>::open(name, config)?,
            Some(given) if given.is(PyType::new::<Tensor>(py)) => {
                TypedTopic::<cenote::Tensor>::open(name, config)?
            }
            Some(given) if given.is(PyType::new::<Image>(py)) => {
                TypedTopic::<cenote::Image>::open(name, config)?
            }
            Some(given) if given.is(PyType::new::<PointCloud>(py)) => {
                TypedTopic::<cenote::PointCloud>::open(name, config)?
            }
            Some(given) if given.is(PyType::new::<DepthImage>(py)) => {
                TypedTopic::<cenote::DepthImage>::open(name, config)?
            }
            Some(other) => {
                let kinds = "cenote.Image, PointCloud, DepthImage or Tensor";
                let message = format!("a topic carries {kinds}, not {}", py_call::repr(other)?);
                return Err(PyTypeError::new_err(message).into());
            }
        };
        let (name, awaited) = (inner.name().to_owned(), AtomicBool::new(false));
        Ok(Topic { name, open: OpenFlag::new(), awaited, inner: GilCell::new(inner) })
    }

    /// The name, with dots.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.open.get()
    }

    /// Sends a message to every subscriber there is, this object included unless `ignore_own` is set.
    /// `policy` decides what happens if one of them is slow: `"block"` raises `cenote.Timeout` when its
    /// time is over, `"reject"` at once.
    #[pyo3(signature = (message, /))]
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<()> {
        self.get(py)?.send(py, message, &self.open)
    }

    /// Sends a message if no subscriber has to be waited for; tells whether it did.
    #[pyo3(signature = (message, /))]
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> Result<bool> {
        self.get(py)?.try_send(py, message)
    }

    /// The next message. Waits for it: without a timeout for ever, else for so many seconds, after which
    /// it gives None. `timeout=0` never waits.
    ///
    /// Messages of one publisher come in the order they were sent; publishers take turns.
    #[pyo3(signature = (timeout=None))]
    fn recv<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = optional_seconds)] timeout: Option<f64>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        self.recv_within(py, timeout.map(duration).transpose()?)
    }

    /// The newest message that was not received yet, or None. Those before it are skipped, and not
    /// counted as missed. Never waits.
    fn latest<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        self.get(py)?.latest(py)
    }

    /// The next message, to be awaited in asyncio. `async for` does so again and again.
    ///
    /// Closing the topic is an error for who awaits it; cancelling the task loses no message.
    fn recv_async<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().awaited.store(true, Ordering::Relaxed);
        static RECV: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let recv = py_call::imported(slf.py(), &RECV, "cenote._asyncio", "recv")?;
        Ok(py_call::call(recv, (slf,), None)?)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends when the topic is closed.
    fn __next__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let ended = || PyStopIteration::new_err(()).into();
        if !self.open.get() {
            return Err(ended());
        }
        match self.recv_within(py, None) {
            Ok(message) => message.ok_or_else(ended),
            // What a signal handler raised is not for us to end.
            Err(raised) if !self.open.get() && raised.is_plain(py) => Err(ended()),
            Err(raised) => Err(raised),
        }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyAny>> {
        slf.get().awaited.store(true, Ordering::Relaxed);
        static NEXT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let next = py_call::imported(slf.py(), &NEXT, "cenote._asyncio", "next_of")?;
        Ok(py_call::call(next, (slf,), None)?)
    }

    /// A descriptor that is readable when there may be something to receive: for `select`, `selectors`
    /// and event loops. Then call `recv(timeout=0)` until it gives None. It belongs to the topic.
    fn fileno(&self, py: Python<'_>) -> Result<RawFd> {
        self.get(py)?.fileno(py)
    }

    /// As `fileno`, but the caller's own, whenever the topic is closed.
    fn _dup(&self, py: Python<'_>) -> Result<RawFd> {
        Ok(self.get(py)?.dup(py)?.into_raw_fd())
    }

    /// Begins to publish, so that subscribers find this publisher before it sends anything.
    fn advertise(&self, py: Python<'_>) -> Result<()> {
        self.get(py)?.advertise(py)
    }

    /// Begins to subscribe: whatever is sent from here on is received.
    fn subscribe(&self, py: Python<'_>) -> Result<()> {
        self.get(py)?.subscribe(py)
    }

    /// Waits until there are `count` subscribers, this object not counted, but not longer than `timeout`
    /// seconds; tells how many there are.
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

    /// How many messages were lost so far: overwritten before they were taken, or not to be had.
    #[getter]
    fn missed(&self, py: Python<'_>) -> Result<u64> {
        Ok(self.here(py)?.stats().missed)
    }

    /// Why the last message that was `missed` could not be had, as an exception; None if it was overwritten,
    /// or none was missed. Told once.
    fn last_loss(&self, py: Python<'_>) -> Result<Option<PyErr>> {
        Ok(self.here(py)?.last_loss().map(|error| Raised::from(error).into()))
    }

    /// What is wrong with receiving, as an exception, if no call has raised it yet: a publisher sends something
    /// else, say. None if nothing is. Told once, here or by what raises it, but for `Forked`, which lasts.
    fn last_error(&self, py: Python<'_>) -> Result<Option<PyErr>> {
        Ok(self.get(py)?.last_error().map(|error| Raised::from(error).into()))
    }

    /// What this object has done so far: how many messages it has `sent`, `received` and `missed`; how many
    /// others there are now, `publishers` that it receives from and `subscribers` that it sends to, itself not
    /// counted; and its `copies`: for each reason, how many messages were copied to be sent, and how many
    /// bytes.
    ///
    /// >>> with cenote.Topic("example", cenote.Tensor) as topic:
    /// ...     tensor = cenote.Tensor((4,), "uint8")
    /// ...     array = tensor.numpy()               # can write as long as it lives
    /// ...     topic.send(tensor)
    /// ...     topic.stats()["copies"]
    /// {'Lent': (1, 4)}
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stats = self.here(py)?.stats();
        let dict = PyDict::new(py);
        dict.set_item("sent", stats.sent)?;
        dict.set_item("received", stats.received)?;
        dict.set_item("missed", stats.missed)?;
        dict.set_item("publishers", stats.publishers)?;
        dict.set_item("subscribers", stats.subscribers)?;
        dict.set_item("copies", copies::of_topic(py, &stats.copies)?)?;
        Ok(dict)
    }

    /// Allocates a tensor from the topic's own pool. It holds whatever the memory held before.
    #[pyo3(signature = (shape, dtype=DTypeArg(cenote::DType::F32)))]
    fn alloc_tensor(&self, py: Python<'_>, shape: ShapeArg, dtype: DTypeArg) -> Result<Tensor> {
        let topic = self.get(py)?;
        topic.advertise(py)?;
        Ok(Tensor(topic.alloc(&shape, dtype.0)?))
    }

    /// Allocates an image from the topic's own pool. It holds whatever the memory held before.
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

    /// Closes the topic: it neither sends nor receives any more. What was sent can still be received, and
    /// what was received stays as it is. A thread that waits in `recv`, `send` or `wait_for_subscribers` gets
    /// an error within a tenth of a second, as does a task that awaits `recv_async`, and iterations end. The
    /// `with` statement does this at its end.
    fn close(slf: &Bound<'_, Self>) -> Result<()> {
        let (py, topic) = (slf.py(), slf.get());
        let inner = topic.inner.take(py);
        topic.open.close();
        py.detach(|| drop(inner));
        if topic.awaited.load(Ordering::Relaxed) {
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

    /// `Topic[Image]`, for annotations.
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
            Some(topic) => format!("<cenote.Topic {:?} of {}>", self.name, topic.kind()),
        }
    }
}

fn policy_of(name: &str, timeout: Option<f64>) -> Result<Policy> {
    match (name, timeout) {
        ("block", None) => Ok(Policy::Block(Duration::MAX)),
        ("block", Some(seconds)) => Ok(Policy::Block(duration(seconds)?)),
        (_, Some(_)) => Err(bad_argument("a timeout is for policy=\"block\"")),
        ("keep_last", None) => Ok(Policy::KeepLast),
        ("reject", None) => Ok(Policy::Reject),
        (other, None) => {
            Err(bad_argument(format!("a policy is keep_last, block or reject, not {other:?}")))
        }
    }
}
