//! `cenote.UnifiedBuffer`.
//!
//! Its arrays keep the memory. An array of the host side holds a loan: while that is alive, the buffer counts
//! the host side as written. An array of the device side holds a view, which never changes. So a buffer can
//! be released at any time: the pool reuses its memory when the last array is gone.
#![allow(unsafe_code, reason = "arrays are made of pointers")]

use cenote::host_pool::SyncState;
use cenote::{DType, Error, Layout, TensorMemory, TensorOptions};
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyEllipsis, PyTuple};

use crate::args::dtype::{self, DTypeArg};
use crate::args::shape::{ShapeArg, tuple};
use crate::host_pool::array_base::{ArrayBase, Side};
use crate::host_pool::locked_buffer::LockedBuffer;
use crate::host_pool::shared_pool::{acquire, global_pool};
use crate::interop::export::Access;
use crate::interop::numpy_array::{self, Elements, array, over};
use crate::runtime::error::Result;
use crate::runtime::py_call;

/// An array with a host side and a device side. Using the side that is older copies the other one first.
///
/// >>> buffer = cenote.UnifiedBuffer((2, 3), "float32")
/// >>> buffer.host[:] = 1.5
/// >>> buffer.device.sum()                             # uploads
/// np.float32(9.0)
/// >>> buffer.state
/// 'in_step'
/// >>> buffer
/// <cenote.UnifiedBuffer (2, 3) float32, in_step>
///
/// The memory comes from the pool of `cenote.get_memory_pool()`; `MemoryPool.acquire` takes it from another
/// pool. It returns to the pool when the buffer is released, at the end of a `with` statement, or when the
/// buffer's last reference is gone. A new buffer shows old bytes until you write it. `pinned=True` requests
/// memory that is never swapped out.
///
/// Arrays of the buffer stay valid after it was released: the pool reuses the memory only when the arrays and
/// their views are gone, too.
#[pyclass(frozen, weakref, module = "cenote")]
#[derive(Debug)]
pub(crate) struct UnifiedBuffer(pub(super) LockedBuffer);

impl From<cenote::UnifiedBuffer> for UnifiedBuffer {
    fn from(buffer: cenote::UnifiedBuffer) -> Self {
        UnifiedBuffer(buffer.into())
    }
}

impl UnifiedBuffer {
    fn layout(&self, py: Python<'_>) -> Result<Layout> {
        self.0.with(py, |buffer| buffer.layout().clone())
    }

    fn element(&self, py: Python<'_>) -> Result<DType> {
        self.0.with(py, |buffer| buffer.dtype())
    }

    /// An array of the host side, for reading during one call. It does not count as a write, unless an array
    /// of `host` is alive.
    fn host_to_read<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        // With a loan alive, the core gives no view. The array of `host` does as well then.
        let view = self.0.on_host(py, |buffer| match buffer.view() {
            Err(Error::Lent) => Ok(None),
            view => view.map(Some),
        })?;
        match view {
            Some(view) => self.array(py, Side::HostView(view)),
            None => self.host(py),
        }
    }

    fn array<'py>(&self, py: Python<'py>, side: Side) -> Result<Bound<'py, PyUntypedArray>> {
        let (layout, descr) = (self.layout(py)?, dtype::descr(py, self.element(py)?)?);
        let (address, len, writable) = side.bytes();
        if len != layout.nbytes() {
            return Err(Error::TransferLen { device: len, host: layout.nbytes() }.into());
        }
        let (shape, strides) = (layout.shape(), layout.strides());
        let base = Bound::new(py, ArrayBase(side))?.into_any();
        // SAFETY: the layout starts at the first byte, has no gaps, and needs `len` bytes, which was just
        // checked. The bytes stay valid while the base keeps the side. They are writable only if the side is
        // a loan.
        unsafe { over(descr, Elements { address, shape, strides, writable }, base) }
    }
}

#[pymethods]
impl UnifiedBuffer {
    #[new]
    #[pyo3(signature = (shape, dtype=DTypeArg(DType::F32), *, pinned=false))]
    fn new(
        py: Python<'_>,
        shape: ShapeArg,
        dtype: DTypeArg,
        pinned: bool,
    ) -> Result<UnifiedBuffer> {
        let pool = global_pool()?;
        Ok(UnifiedBuffer::from(acquire(py, pool, &shape, dtype.0, pinned)?))
    }

    /// The host side as an array. Downloads the device side first if that is newer.
    ///
    /// While the array or a view of it is alive, the buffer counts the host side as the newer one: each use
    /// of the device side uploads first.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3, "int32")
    /// >>> array = buffer.host
    /// >>> array[:] = 1
    /// >>> buffer.device
    /// array([1, 1, 1], dtype=int32)
    /// >>> array[0] = 7
    /// >>> buffer.state, buffer.device
    /// ('host_dirty', array([7, 1, 1], dtype=int32))
    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let loan = self.0.on_host(py, cenote::UnifiedBuffer::lend)?;
        self.array(py, Side::HostLoan(loan))
    }

    /// The device side as an array. Uploads the host side first if that is newer. The array is read-only and
    /// never changes: later uploads go to other memory while it is alive.
    ///
    /// `buffer.device = x` writes all elements of the device side, which then is the newer one. It fails
    /// while an array of `host` is alive.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3, "int32")
    /// >>> buffer.device = [1, 2, 3]
    /// >>> buffer.state
    /// 'device_only'
    /// >>> buffer.host                                 # downloads
    /// array([1, 2, 3], dtype=int32)
    ///
    /// On a machine without a device the device side is host memory, too. The copies are the same as with a
    /// device.
    #[getter]
    fn device<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyUntypedArray>> {
        let view = self.0.with_copy(py, cenote::UnifiedBuffer::device_view)?;
        let unreachable =
            || PyBufferError::new_err("the host cannot reach the memory of this device");
        self.array(py, Side::DeviceView(view.ok_or_else(unreachable)?))
    }

    #[setter]
    fn set_device(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        // numpy broadcasts and casts the value into separate memory, which is uploaded then.
        let options = TensorOptions::new().memory(TensorMemory::Mem);
        let staged = options.create(self.layout(py)?.shape(), self.element(py)?)?;
        assign(array(py, &staged, Access::Write)?.as_any(), value)?;
        self.0.with_copy(py, |buffer| buffer.device_mut()?.upload(staged.map()?.as_bytes()?))
    }

    /// Which side has the data: `"uninitialized"` (none), `"host_only"`, `"device_only"`, `"in_step"` (both),
    /// `"host_dirty"` (the host side is newer) or `"device_dirty"` (the device side is newer).
    #[getter]
    fn state(&self, py: Python<'_>) -> Result<&'static str> {
        Ok(name(self.0.with(py, |buffer| buffer.state())?))
    }

    /// Copies an array, or an object that numpy converts to an array, to the host side. Broadcasts and casts
    /// as numpy does.
    ///
    /// >>> buffer = cenote.UnifiedBuffer((2, 2), "uint8")
    /// >>> buffer.copy_from([[1, 2], [3, 4]])
    /// >>> buffer.host.tolist()
    /// [[1, 2], [3, 4]]
    fn copy_from(&self, py: Python<'_>, source: &Bound<'_, PyAny>) -> Result<()> {
        let host = self.host(py)?;
        match source.cast::<UnifiedBuffer>() {
            Ok(source) => assign(&host, source.get().host_to_read(py)?.as_any()),
            Err(_) => assign(&host, source),
        }
    }

    /// Copies the elements to an array, a tensor or another buffer.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3, "uint8")
    /// >>> buffer.fill(9)
    /// >>> array = numpy.zeros(3)
    /// >>> buffer.copy_to(array)
    /// >>> array
    /// array([9., 9., 9.])
    fn copy_to(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> Result<()> {
        match target.cast::<UnifiedBuffer>() {
            Ok(target) => {
                let host = target.get().host(py)?;
                assign(&host, self.host_to_read(py)?.as_any())
            }
            Err(_) => assign(target, self.host_to_read(py)?.as_any()),
        }
    }

    /// Sets all elements of the host side to a value.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        py_call::method(self.host(py)?.as_any(), "fill", (value,))?;
        Ok(())
    }

    /// Sets all elements of the host side to zero.
    fn zeros(&self, py: Python<'_>) -> Result<()> {
        py_call::method(self.host(py)?.as_any(), "fill", (0,))?;
        Ok(())
    }

    /// Copies the newer side to the older one, so that both are the same.
    ///
    /// >>> buffer = cenote.UnifiedBuffer(3)
    /// >>> buffer.zeros()
    /// >>> buffer.synchronize()
    /// >>> buffer.state
    /// 'in_step'
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        self.0.with_copy(py, cenote::UnifiedBuffer::sync)
    }

    /// Releases the buffer to its pool, as `MemoryPool.release` does. From now on each use of it fails. Its
    /// arrays stay valid.
    fn release(&self, py: Python<'_>) -> Result<()> {
        Ok(self.0.with(py, cenote::UnifiedBuffer::release)??)
    }

    /// Whether the buffer was released.
    #[getter]
    fn released(&self, py: Python<'_>) -> Result<bool> {
        self.0.with(py, |buffer| buffer.is_released())
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(py, self.layout(py)?.shape())?)
    }

    /// The type of the elements, as numpy's dtype. bfloat16 needs the package `ml_dtypes`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArrayDescr>> {
        dtype::descr(py, self.element(py)?).cloned()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.layout(py)?.ndim())
    }

    /// The number of elements.
    #[getter]
    fn size(&self, py: Python<'_>) -> Result<usize> {
        Ok(self.layout(py)?.len())
    }

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> Result<usize> {
        self.0.with(py, |buffer| buffer.nbytes())
    }

    /// Whether the host side is never swapped out: `pinned=True` was given, and the kernel allowed it.
    #[getter]
    fn pinned(&self, py: Python<'_>) -> Result<bool> {
        self.0.with(py, |buffer| buffer.is_pinned())
    }

    /// Whether the device side is on a device; False if it is host memory.
    #[getter]
    fn is_device(&self, py: Python<'_>) -> Result<bool> {
        self.0.with(py, |buffer| buffer.is_device())
    }

    /// Used by `numpy.asarray`: the array of `host`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        numpy_array::converted(self.host(py)?, dtype, copy)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: Py<PyAny>,
        _value: Py<PyAny>,
        _traceback: Py<PyAny>,
    ) -> Result<()> {
        match self.0.with(py, cenote::UnifiedBuffer::release)? {
            Err(Error::Released) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        self.0.with(py, |buffer| {
            let state = if buffer.is_released() { "released" } else { name(buffer.state()) };
            let (shape, dtype) = (tuple(buffer.shape()), buffer.dtype().numpy_name());
            format!("<cenote.UnifiedBuffer {shape} {dtype}, {state}>")
        })
    }
}

/// `target[...] = value`
fn assign(target: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<()> {
    Ok(py_call::set_item(target, PyEllipsis::get(target.py()).as_any(), value)?)
}

/// The name of a state in Python.
fn name(state: SyncState) -> &'static str {
    match state {
        SyncState::Uninitialized => "uninitialized",
        SyncState::HostOnly => "host_only",
        SyncState::DeviceOnly => "device_only",
        SyncState::InStep => "in_step",
        SyncState::HostDirty => "host_dirty",
        SyncState::DeviceDirty => "device_dirty",
        _ => "unknown",
    }
}
