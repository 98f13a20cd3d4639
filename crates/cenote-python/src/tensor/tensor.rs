//! `cenote.Tensor`.
#![allow(unsafe_code, reason = "the protocols of buffers and sequences are told of by pointers")]

use std::ffi::c_int;

use cenote::{Device, Domain, PixelFormat, TensorMemory, TensorOptions};
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use crate::args::descriptor::DescriptorArg;
use crate::args::dtype::{self, DTypeArg};
use crate::args::integer::{self, axis as axis_of};
use crate::args::shape::{self, ShapeArg, tuple};
use crate::interop::dlpack::{self, Request};
use crate::interop::export::{self, Access, Export};
use crate::interop::numpy_array::{self, array};
use crate::interop::{buffer_protocol, torch_jax};
use crate::runtime::error::{Raised, Result, bad_argument};
use crate::runtime::{gil, py_call};
use crate::tensor::index;

/// An array of elements of one type, in memory that other processes can see.
///
/// >>> t = cenote.Tensor((2, 3), "float32")
/// >>> t
/// <cenote.Tensor (2, 3) float32, shm>
/// >>> t[...] = 1.5
/// >>> t.numpy().sum()
/// np.float32(9.0)
///
/// A new tensor is zeros, in the pool that every process has, so that it can be sent without a copy;
/// `memory="mem"` asks for the heap, `memory="shm"` for shared memory of its own. `TensorPool.alloc`
/// allocates from a pool of yours.
///
/// Other libraries get at the memory without a copy, and what they get keeps it alive. `numpy()`,
/// `numpy.from_dlpack(t)` and `torch.from_dlpack(t)` can write it as long as it was not sent;
/// `numpy.asarray(t)` and `memoryview(t)` only read. To send it without a copy, let go of what can
/// write it first; `t[...] = x` and `numpy.add(a, b, out=t.numpy())` leave nothing behind.
#[pyclass(frozen, subclass, weakref, module = "cenote")]
#[derive(Debug, Clone)]
pub(crate) struct Tensor(pub(crate) cenote::Tensor);

impl From<cenote::Tensor> for Tensor {
    fn from(tensor: cenote::Tensor) -> Self {
        Tensor(tensor)
    }
}

#[pymethods]
impl Tensor {
    #[new]
    #[pyo3(signature = (shape, dtype=DTypeArg(cenote::DType::F32), *, memory=None))]
    fn new(
        py: Python<'_>,
        shape: ShapeArg,
        dtype: DTypeArg,
        memory: Option<&str>,
    ) -> Result<Tensor> {
        let memory = memory.map(str::parse::<TensorMemory>).transpose()?;
        check_memory(memory)?;
        let made = py.detach(|| match memory {
            None => cenote::Tensor::pooled_zeros(&shape, dtype.0),
            Some(memory) => TensorOptions::new().memory(memory).create(&shape, dtype.0),
        });
        Ok(Tensor(made?))
    }

    /// A tensor with a copy of an array, or of whatever numpy makes an array of.
    ///
    /// >>> cenote.Tensor.from_numpy([[1, 2], [3, 4]])
    /// <cenote.Tensor (2, 2) int64, shm>
    #[staticmethod]
    fn from_numpy(py: Python<'_>, array: &Bound<'_, PyAny>) -> Result<Tensor> {
        let source = numpy_array::adopt(&numpy_array::to_array(array)?)?;
        Ok(Tensor(py.detach(|| source.to_pooled())?))
    }

    /// The tensor of another library's memory, without a copy. It can be read only, changes when that
    /// library changes it, and is copied when it is sent. `copy=True` makes a copy, which is none of that.
    ///
    /// >>> a = numpy.arange(3)
    /// >>> t = cenote.Tensor.from_dlpack(a)
    /// >>> a[0] = 7
    /// >>> t.numpy()
    /// array([7, 1, 2])
    #[staticmethod]
    #[pyo3(signature = (x, *, copy=None))]
    fn from_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> Result<Tensor> {
        Ok(Tensor(dlpack::import(x, copy)?))
    }

    /// The tensor that a descriptor stands for, of any process of this user. To be read only.
    ///
    /// An error (`Stale`) if nobody held it meanwhile and its memory was used again.
    #[staticmethod]
    fn from_descriptor(py: Python<'_>, descriptor: DescriptorArg) -> Result<Tensor> {
        Ok(Tensor(py.detach(|| cenote::Tensor::from_descriptor(&descriptor.0))?))
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The distance in bytes from one element to the next, for each dimension.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    /// What its elements are, as a dtype of numpy. bfloat16 needs the package `ml_dtypes`.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyArrayDescr>> {
        dtype::descr(py, self.0.dtype()).cloned()
    }

    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.0.ndim()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.0.len()
    }

    /// The number of bytes in its elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// The number of bytes in one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.dtype().size()
    }

    /// The device it is meant for: `"cpu"`, or a tag such as `"cuda:0"`. The bytes are where `memory`
    /// says.
    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    /// The kind of memory that it is in: `"shm"` (shared memory), `"mem"` (the heap), or `"dma"` (a
    /// DMA-BUF, of a camera say, that was received).
    #[getter]
    fn memory(&self) -> &'static str {
        self.0.memory().name()
    }

    /// The pixel format, if it is an image.
    #[getter]
    fn format(&self) -> Option<String> {
        self.0.format().map(|format| format.to_string())
    }

    /// Whether it can still be written: it is of this process, and was never sent.
    #[getter]
    pub(crate) fn writable(&self) -> bool {
        export::may_write(&self.0)
    }

    /// Whether something that can write it is alive, such as an array of `numpy()`. If it were sent
    /// now, it would be copied first.
    #[getter]
    fn lent(&self) -> bool {
        self.0.is_lent()
    }

    /// The same elements with the order of the axes reversed.
    #[getter]
    #[pyo3(name = "T")]
    fn transposed(&self) -> Tensor {
        Tensor(self.0.transpose())
    }

    /// The array over the same memory, without a copy. It keeps the memory alive, whatever becomes of
    /// tensor and pool.
    ///
    /// It can be written while the tensor can, and not any more once it was sent or if it was received.
    /// As long as such an array is alive, or a view of it, sending the tensor copies it first.
    ///
    /// >>> t = cenote.Tensor((3,), "int32")
    /// >>> a = t.numpy()
    /// >>> a[1] = 5
    /// >>> t.tolist(), t.lent
    /// ([0, 5, 0], True)
    fn numpy<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyUntypedArray>> {
        let tensor = &slf.get().0;
        match tensor.is_settled() && is_closed(slf) {
            // SAFETY: the object is frozen, and has the tensor.
            true => unsafe { numpy_array::settled(tensor, slf.clone().into_any()) },
            false => array(slf.py(), tensor, Access::WriteIfAllowed),
        }
    }

    /// A torch tensor: over the same memory while that can be written, and a copy otherwise, because
    /// torch knows no read-only memory. `copy=False` makes that an error, `copy=True` always copies.
    #[pyo3(signature = (*, copy=None))]
    fn torch<'py>(&self, py: Python<'py>, copy: Option<bool>) -> Result<Bound<'py, PyAny>> {
        torch_jax::torch(py, &self.0, copy)
    }

    /// A jax array: over the same memory once that cannot change any more (it was sent, or received),
    /// and else a copy, because jax relies on that. `copy=False` makes that an error, `copy=True`
    /// always copies. (jax copies by itself what is not aligned as it likes.)
    #[pyo3(signature = (*, copy=None))]
    fn jax<'py>(&self, py: Python<'py>, copy: Option<bool>) -> Result<Bound<'py, PyAny>> {
        torch_jax::jax(py, &self.0, copy)
    }

    /// The elements in row-major order, copied.
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let copy = |bytes: &mut [u8]| {
            gil::detach_if_large(py, bytes.len(), || copy_out(&self.0, bytes))
                .map_err(Raised::from)?;
            Ok(())
        };
        Ok(PyBytes::new_with(py, self.0.nbytes(), copy)?)
    }

    /// The elements as Python numbers, in lists of lists.
    fn tolist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::method(array(py, &self.0, Access::Read)?.as_any(), "tolist", ())?)
    }

    /// The one element, as a Python number.
    pub(crate) fn item<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::method(array(py, &self.0, Access::Read)?.as_any(), "item", ())?)
    }

    /// Sets all elements to a value.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        py_call::method(array(py, &self.0, Access::Write)?.as_any(), "fill", (value,))?;
        Ok(())
    }

    /// A copy that can be written, in the pool of this process.
    fn copy(&self, py: Python<'_>) -> Result<Tensor> {
        Ok(Tensor(py.detach(|| self.0.to_pooled())?))
    }

    /// The same elements in another shape, without a copy; an error where that takes one. One length can be
    /// -1: whatever is left.
    ///
    /// >>> cenote.Tensor((4, 6)).reshape(3, -1).shape
    /// (3, 8)
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> Result<Tensor> {
        Ok(Tensor(self.0.reshape(&shape::completed(&spread(shape)?, self.0.len())?)?))
    }

    /// The same elements with the axes in the order given, or reversed.
    #[pyo3(signature = (*axes))]
    fn transpose(&self, axes: &Bound<'_, PyTuple>) -> Result<Tensor> {
        match axes.is_empty() {
            true => Ok(self.transposed()),
            false => Ok(Tensor(self.0.permute(&shape::axes(&spread(axes)?, self.0.ndim())?)?)),
        }
    }

    /// The same elements without an axis of length 1, or without any such axis.
    #[pyo3(signature = (axis=None))]
    fn squeeze(&self, axis: Option<&Bound<'_, PyAny>>) -> Result<Tensor> {
        if let Some(given) = axis {
            return Ok(Tensor(self.0.squeeze(axis_of(given, self.0.ndim())?)?));
        }
        let mut squeezed = self.0.clone();
        for axis in (0..squeezed.ndim()).rev().filter(|&axis| self.0.shape()[axis] == 1) {
            squeezed = squeezed.squeeze(axis)?;
        }
        Ok(Tensor(squeezed))
    }

    /// The same elements with one axis backwards.
    fn flip(&self, axis: &Bound<'_, PyAny>) -> Result<Tensor> {
        Ok(Tensor(self.0.flip(axis_of(axis, self.0.ndim())?)?))
    }

    /// The same tensor, tagged with a device: `"cpu"` or `"cuda:0"`.
    fn with_device(&self, device: &str) -> Result<Tensor> {
        Ok(Tensor(self.0.clone().with_device(device.parse::<Device>()?)))
    }

    /// Some hundred bytes that stand for this tensor in any process of this user: see
    /// `from_descriptor`. Hold the tensor until that was called. From here on nobody can write it.
    ///
    /// An error if it is in no pool, or while something that can write it is alive.
    fn descriptor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.descriptor()?.as_bytes()))
    }

    /// Whether an element is equal to a value.
    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<bool> {
        let all = array(py, &self.0, Access::Read)?;
        Ok(py_call::method(all.as_any(), "__contains__", (value,))?.is_truthy()?)
    }

    fn __len__(&self) -> PyResult<usize> {
        let none = || PyTypeError::new_err("a tensor of no dimensions has no len()");
        self.0.shape().first().copied().ok_or_else(none)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().__len__()?;
        // SAFETY: an object that has `__getitem__`, borrowed for longer than the call.
        let made = unsafe { ffi::PySeqIter_New(slf.as_ptr()) };
        // SAFETY: a new reference comes back, or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), made) }
    }

    /// A view: integers, slices, `...` and None, as in numpy. For more use `numpy()[...]`.
    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> Result<Tensor> {
        Ok(Tensor(index::view(&self.0, key)?))
    }

    /// Writes elements, as numpy does: `t[...] = x`, `t[mask] = 0`.
    fn __setitem__(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> Result<()> {
        Ok(py_call::set_item(array(py, &self.0, Access::Write)?.as_any(), key, value)?)
    }

    fn __repr__(&self) -> String {
        let tensor = &self.0;
        let mut text = format!("<cenote.{} {}", cenote::Tensor::NAME, tuple(tensor.shape()));
        text += &format!(" {}, {}", tensor.dtype().numpy_name(), tensor.memory());
        if let Some(format) = tensor.format() {
            text += &format!(", {format}");
        }
        if !tensor.device().is_cpu() {
            text += &format!(", for {}", tensor.device());
        }
        if !self.writable() {
            text += ", read-only";
        }
        text + ">"
    }

    /// What `numpy.asarray` asks for where buffers do not do, as with bfloat16. To be read, as those are:
    /// use `numpy()` to write.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        numpy_array::converted(array(py, &self.0, Access::Read)?, dtype, copy)
    }

    /// The old array interface. What is made of it cannot write: use `numpy()` for that.
    #[getter]
    pub(crate) fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let none = || PyAttributeError::new_err("the array interface knows no such dtype");
        let kind = dtype::kind(self.0.dtype()).ok_or_else(none)?;
        let order = match self.0.dtype().size() {
            1 => '|',
            _ if cfg!(target_endian = "little") => '<',
            _ => '>',
        };
        let address = Export::new(&self.0, Access::Read)?.address();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("strides", self.strides(py)?)?;
        interface.set_item("typestr", format!("{order}{kind}{}", self.0.dtype().size()))?;
        interface.set_item("data", (address.addr(), true))?;
        Ok(interface)
    }

    /// A capsule for `from_dlpack` of other libraries. `max_version`, `dl_device` and `copy` are
    /// heeded; `stream` must be None.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("the CPU has no streams").into());
        }
        let request = Request { max_version, device: dl_device, copy, trusted: false };
        dlpack::export(py, &self.0, request)
    }

    /// `(1, 0)`: the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    /// # Safety
    /// `view` is null or can be written, as Python promises.
    pub(crate) unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        // SAFETY: the caller's promise.
        unsafe { buffer_protocol::get(slf.py(), &slf.get().0, view, flags) }
    }

    /// Pickled with its elements; between processes of `multiprocessing` it goes by descriptor.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, Pickled<'py>)> {
        let (py, tensor) = (slf.py(), &slf.get().0);
        let array = array(py, tensor, Access::Read)?;
        let format = tensor.format().map(|format| format.to_string());
        let again = PyType::new::<Self>(py).getattr("_unpickle")?;
        Ok((again, (array, tensor.device().to_string(), format)))
    }

    /// What `__reduce__` asks for.
    #[staticmethod]
    fn _unpickle(
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        device: &str,
        format: Option<&str>,
    ) -> Result<Tensor> {
        let tensor = Tensor::from_numpy(py, array)?.with_device(device)?;
        match format {
            Some(format) => Ok(Tensor(tensor.0.with_format(format.parse::<PixelFormat>()?)?)),
            None => Ok(tensor),
        }
    }
}

/// The arguments of `_unpickle`.
type Pickled<'py> = (Bound<'py, PyUntypedArray>, String, Option<String>);

/// An error for memory that Python does not allocate.
fn check_memory(memory: Option<TensorMemory>) -> Result<()> {
    match memory {
        Some(TensorMemory::Dma) => {
            let why = "memory \"dma\" can only be read here, and a new tensor is to be written";
            Err(bad_argument(why))
        }
        Some(TensorMemory::Pbo) => {
            Err(bad_argument("memory \"pbo\" is OpenGL's, which cenote has in Rust only"))
        }
        _ => Ok(()),
    }
}

/// Whether it is of a class of ours, so that it cannot refer to an array that keeps it: nobody would find such
/// a cycle, for arrays do not tell what they keep.
fn is_closed(tensor: &Bound<'_, Tensor>) -> bool {
    // SAFETY: the type of an object, which lives as long as that does.
    let flags = unsafe { ffi::PyType_GetFlags(tensor.get_type_ptr()) };
    // Classes made in Python can be extended, those over ours cannot.
    tensor.is_exact_instance_of::<Tensor>() || flags & ffi::Py_TPFLAGS_BASETYPE == 0
}

/// The elements in row-major order.
fn copy_out(tensor: &cenote::Tensor, mut bytes: &mut [u8]) -> cenote::Result<()> {
    for run in tensor.map()?.runs() {
        let (here, rest) = bytes.split_at_mut(run.len());
        here.copy_from_slice(run);
        bytes = rest;
    }
    Ok(())
}

/// Numbers given one by one, or as one sequence.
fn spread<'py>(given: &Bound<'py, PyTuple>) -> Result<Vec<Bound<'py, PyAny>>> {
    let mut numbers = Vec::new();
    let one = (given.len() == 1).then(|| given.get_item(0)).transpose()?;
    match one.filter(|one| !integer::is_integer(one)) {
        Some(one) => py_call::for_each(&one, |number| {
            numbers.push(number);
            Ok::<_, PyErr>(())
        })?,
        None => numbers.extend(given.iter()),
    }
    Ok(numbers)
}
