//! `cenote.Tensor`: how it is made, what it says about itself, and how its elements become Python objects.
#![allow(unsafe_code, reason = "Python's C interface takes pointers")]

use cenote::{Device, Domain, TensorMemory, TensorOptions};
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::args::descriptor::DescriptorArg;
use crate::args::dtype::{self, DTypeArg};
use crate::args::shape::{ShapeArg, tuple};
use crate::interop::dlpack::import::import;
use crate::interop::export::{self, Access};
use crate::interop::numpy_array::{self, array};
use crate::runtime::error::{Raised, Result, bad_argument};
use crate::runtime::{gil, py_call};

/// An array of elements of one type, in memory that other processes can map.
///
/// >>> t = cenote.Tensor((2, 3), "float32")
/// >>> t
/// <cenote.Tensor (2, 3) float32, shm>
/// >>> t[...] = 1.5
/// >>> t.numpy().sum()
/// np.float32(9.0)
///
/// A new tensor is filled with zeros. It is in the pool of this process, so `Topic.send` does not copy it.
/// `memory="mem"` puts it on the heap, `memory="shm"` into a separate block of shared memory.
/// `TensorPool.alloc` allocates it in a pool that you made.
///
/// Other libraries use the memory without a copy, and their objects keep it alive. `numpy()`,
/// `numpy.from_dlpack(t)` and `torch.from_dlpack(t)` can write it until the tensor is sent;
/// `numpy.asarray(t)` and `memoryview(t)` only read it. If such a writable object is alive when the tensor is
/// sent, a copy is sent. `t[...] = x` and `numpy.add(a, b, out=t.numpy())` leave no such object.
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

    /// A tensor with a copy of an array, or of an object that numpy converts to an array.
    ///
    /// >>> cenote.Tensor.from_numpy([[1, 2], [3, 4]])
    /// <cenote.Tensor (2, 2) int64, shm>
    #[staticmethod]
    pub(crate) fn from_numpy(py: Python<'_>, array: &Bound<'_, PyAny>) -> Result<Tensor> {
        let source = numpy_array::adopt(&numpy_array::to_array(array)?)?;
        Ok(Tensor(py.detach(|| source.to_pooled())?))
    }

    /// A tensor over another library's memory, without a copy. It is read-only, it changes when that library
    /// writes, and sending it copies it. With `copy=True` it is a writable copy instead.
    ///
    /// >>> a = numpy.arange(3)
    /// >>> t = cenote.Tensor.from_dlpack(a)
    /// >>> a[0] = 7
    /// >>> t.numpy()
    /// array([7, 1, 2])
    #[staticmethod]
    #[pyo3(signature = (x, *, copy=None))]
    fn from_dlpack(x: &Bound<'_, PyAny>, copy: Option<bool>) -> Result<Tensor> {
        Ok(Tensor(import(x, copy)?))
    }

    /// The tensor that a descriptor names, of any process of this user. It is read-only.
    ///
    /// Fails with `Stale` if no process held the tensor meanwhile and its memory was reused.
    #[staticmethod]
    fn from_descriptor(py: Python<'_>, descriptor: DescriptorArg) -> Result<Tensor> {
        Ok(Tensor(py.detach(|| cenote::Tensor::from_descriptor(&descriptor.0))?))
    }

    /// The length of each dimension.
    #[getter]
    pub(crate) fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape())
    }

    /// The distance in bytes from one element to the next, for each dimension.
    #[getter]
    pub(crate) fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.strides())
    }

    /// The type of the elements, as numpy's dtype. bfloat16 needs the package `ml_dtypes`.
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

    /// The number of bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    /// The number of bytes of one element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.dtype().size()
    }

    /// The device that the tensor is meant for: `"cpu"`, or a tag such as `"cuda:0"`. The tag moves no bytes:
    /// they are in the memory that `memory` names.
    #[getter]
    fn device(&self) -> String {
        self.0.device().to_string()
    }

    /// The kind of memory: `"shm"` (shared memory), `"mem"` (the heap), or `"dma"` (a received DMA-BUF, for
    /// example of a camera).
    #[getter]
    fn memory(&self) -> &'static str {
        self.0.memory().name()
    }

    /// The pixel format, or None if the tensor has none.
    #[getter]
    fn format(&self) -> Option<String> {
        self.0.format().map(|format| format.to_string())
    }

    /// Whether the tensor can still be written: this process made it, and has not sent it.
    #[getter]
    pub(crate) fn writable(&self) -> bool {
        export::may_write(&self.0)
    }

    /// Whether an object that can write the memory is alive, such as an array of `numpy()`. If so, sending
    /// the tensor copies it first.
    #[getter]
    fn lent(&self) -> bool {
        self.0.is_lent()
    }

    /// An array over the same memory, without a copy. It keeps the memory alive, also after the tensor and
    /// its pool are gone.
    ///
    /// The array is writable while the tensor is: not after the tensor was sent, and not if it was received.
    /// While a writable array or a view of it is alive, sending the tensor copies it first.
    ///
    /// >>> t = cenote.Tensor((3,), "int32")
    /// >>> a = t.numpy()
    /// >>> a[1] = 5
    /// >>> t.tolist(), t.lent
    /// ([0, 5, 0], True)
    fn numpy<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyUntypedArray>> {
        let tensor = &slf.get().0;
        match tensor.is_immutable() && has_own_class(slf) {
            // SAFETY: the object is frozen, so it holds the tensor for as long as it lives.
            true => unsafe { numpy_array::immutable(tensor, slf.clone().into_any()) },
            false => array(slf.py(), tensor, Access::WriteIfAllowed),
        }
    }

    /// A copy of the elements in row-major order.
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let copy = |bytes: &mut [u8]| {
            let copied = gil::detach_if_large(py, bytes.len(), || copy_out(&self.0, bytes));
            Ok(copied.map_err(Raised::from)?)
        };
        Ok(PyBytes::new_with(py, self.0.nbytes(), copy)?)
    }

    /// The elements as Python numbers, in nested lists.
    fn tolist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::method(array(py, &self.0, Access::Read)?.as_any(), "tolist", ())?)
    }

    /// The element of a tensor with one element, as a Python number.
    pub(crate) fn item<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        Ok(py_call::method(array(py, &self.0, Access::Read)?.as_any(), "item", ())?)
    }

    /// Sets all elements to a value.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        py_call::method(array(py, &self.0, Access::Write)?.as_any(), "fill", (value,))?;
        Ok(())
    }

    /// A writable copy in the pool of this process.
    fn copy(&self, py: Python<'_>) -> Result<Tensor> {
        Ok(Tensor(py.detach(|| self.0.to_pooled())?))
    }

    /// The same tensor, tagged with a device: `"cpu"` or `"cuda:0"`.
    pub(crate) fn with_device(&self, device: &str) -> Result<Tensor> {
        Ok(Tensor(self.0.clone().with_device(device.parse::<Device>()?)))
    }

    /// Some hundred bytes that name this tensor, for `from_descriptor` in any process of this user. Keep the
    /// tensor until the other process has called that. From now on the memory is read-only.
    ///
    /// Fails if the tensor is in no pool, or while an object that can write the memory is alive.
    fn descriptor<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.descriptor()?.as_bytes()))
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
}

/// Fails for kinds of memory that Python code does not allocate.
fn check_memory(memory: Option<TensorMemory>) -> Result<()> {
    match memory {
        Some(TensorMemory::Dma) => {
            let why = "memory \"dma\" is read-only in Python, and a new tensor has to be written";
            Err(bad_argument(why))
        }
        Some(TensorMemory::Pbo) => {
            Err(bad_argument("memory \"pbo\" is OpenGL's, which cenote has in Rust only"))
        }
        _ => Ok(()),
    }
}

/// Whether the object's class is one of cenote's, not one that Python code derived from them.
///
/// An object of a derived class can refer to an array whose base it is. Such a cycle would never be freed:
/// numpy's arrays do not report their base to the garbage collector.
fn has_own_class(tensor: &Bound<'_, Tensor>) -> bool {
    // SAFETY: the type of an object, which lives at least as long as the object.
    let flags = unsafe { ffi::PyType_GetFlags(tensor.get_type_ptr()) };
    // Python code can derive from classes made in Python, but not from cenote's subclasses of `Tensor`.
    tensor.is_exact_instance_of::<Tensor>() || flags & ffi::Py_TPFLAGS_BASETYPE == 0
}

/// Copies the elements in row-major order.
fn copy_out(tensor: &cenote::Tensor, mut bytes: &mut [u8]) -> cenote::Result<()> {
    for run in tensor.map()?.runs() {
        let (here, rest) = bytes.split_at_mut(run.len());
        here.copy_from_slice(run);
        bytes = rest;
    }
    Ok(())
}
