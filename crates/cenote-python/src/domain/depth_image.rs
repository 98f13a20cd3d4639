//! `cenote.DepthImage`.

use cenote::{DType, Domain, Intrinsics};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::args::dtype::DTypeArg;
use crate::args::integer::{coordinate, count, size};
use crate::domain::class::{LockedValue, MessageClass, domain_class};
use crate::domain::header::{HeaderParts, header, parts, shown};
use crate::domain::point_cloud::PointCloud;
use crate::interop::numpy_array;
use crate::pool::TensorPool;
use crate::runtime::error::Result;
use crate::runtime::py_call::float;
use crate::tensor::Tensor;

/// A depth image: metres as `float32`, or millimetres as `uint16`. 0 means that nothing was measured.
///
/// >>> depth = cenote.DepthImage(480, 640, intrinsics=(525.0, 525.0, 319.5, 239.5))
/// >>> depth
/// <cenote.DepthImage 640x480 float32, shm>
/// >>> depth[200, 300] = 1.5
/// >>> depth.depth_at(300, 200), depth.depth_at(0, 0)
/// (1.5, None)
///
/// The height comes first, as in the shape. The memory is in the pool of this process, or in `pool`, where it
/// shows old bytes until you write it. `intrinsics` describes the camera: focal lengths and optical centre,
/// `(fx, fy, cx, cy)`, in pixels.
#[pyclass(frozen, extends = Tensor, module = "cenote")]
#[derive(Debug)]
pub(crate) struct DepthImage(pub(crate) LockedValue<cenote::DepthImage>);

domain_class!(DepthImage, cenote::DepthImage);

impl DepthImage {
    /// Makes a depth image over a tensor.
    fn over_tensor(
        py: Python<'_>,
        tensor: cenote::Tensor,
        intrinsics: Option<IntrinsicsArg>,
        header: cenote::Header,
    ) -> Result<Py<DepthImage>> {
        let mut depth = cenote::DepthImage::from_tensor(tensor)?;
        depth.set_header(header);
        depth.set_intrinsics(intrinsics.map(|given| given.0))?;
        Ok(DepthImage::make(py, depth)?)
    }

    fn base_of(depth: &cenote::DepthImage) -> cenote::Tensor {
        depth.tensor().clone()
    }
}

/// `(fx, fy, cx, cy)`
type FourNumbers<T> = (T, T, T, T);

/// Intrinsics as an argument: a sequence of four numbers.
struct IntrinsicsArg(Intrinsics);

impl<'py> FromPyObject<'_, 'py> for IntrinsicsArg {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (fx, fy, cx, cy) = given.extract::<FourNumbers<Bound<'py, PyAny>>>()?;
        let [fx, fy, cx, cy] = [float(&fx)?, float(&fy)?, float(&cx)?, float(&cy)?];
        Ok(IntrinsicsArg(Intrinsics { fx, fy, cx, cy }))
    }
}

#[pymethods]
impl DepthImage {
    #[new]
    #[pyo3(signature = (
        height, width, dtype=DTypeArg(DType::F32), *, intrinsics=None, frame_id="", stamp_ns=0, seq=0,
        pool=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = size::height)] height: usize,
        #[pyo3(from_py_with = size::width)] width: usize,
        dtype: DTypeArg,
        intrinsics: Option<IntrinsicsArg>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
        pool: Option<&Bound<'_, TensorPool>>,
    ) -> Result<PyClassInitializer<DepthImage>> {
        let header = header(frame_id, stamp_ns, seq)?;
        let mut depth = match pool {
            Some(pool) => pool
                .get()
                .alloc_with(py, |pool| cenote::DepthImage::new_in(pool, height, width, dtype.0))?,
            None => py.detach(|| cenote::DepthImage::new(height, width, dtype.0))?,
        };
        depth.set_header(header);
        depth.set_intrinsics(intrinsics.map(|given| given.0))?;
        Ok(DepthImage::init(depth))
    }

    /// A depth image with a copy of an array of shape `(height, width)`, of `float32` or `uint16`.
    ///
    /// >>> cenote.DepthImage.from_numpy(numpy.ones((480, 640), "uint16"))
    /// <cenote.DepthImage 640x480 uint16, shm>
    #[staticmethod]
    #[pyo3(signature = (array, *, intrinsics=None, frame_id="", stamp_ns=0, seq=0))]
    fn from_numpy(
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        intrinsics: Option<IntrinsicsArg>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
    ) -> Result<Py<DepthImage>> {
        let source = numpy_array::adopt(&numpy_array::to_array(array)?)?;
        let copy = py.detach(|| source.to_pooled())?;
        DepthImage::over_tensor(py, copy, intrinsics, header(frame_id, stamp_ns, seq)?)
    }

    /// A depth image over a tensor, without a copy.
    #[staticmethod]
    #[pyo3(signature = (tensor, *, intrinsics=None, frame_id="", stamp_ns=0, seq=0))]
    fn from_tensor(
        py: Python<'_>,
        tensor: &Bound<'_, Tensor>,
        intrinsics: Option<IntrinsicsArg>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
    ) -> Result<Py<DepthImage>> {
        let tensor = tensor.get().0.clone();
        DepthImage::over_tensor(py, tensor, intrinsics, header(frame_id, stamp_ns, seq)?)
    }

    /// The width in pixels.
    #[getter]
    fn width(&self) -> usize {
        self.0.lock().width()
    }

    /// The height in pixels.
    #[getter]
    fn height(&self) -> usize {
        self.0.lock().height()
    }

    /// The number of bytes from one row to the next.
    #[getter]
    fn step(&self) -> usize {
        self.0.lock().step()
    }

    /// The camera's focal lengths and optical centre, `(fx, fy, cx, cy)` in pixels, or None.
    #[getter]
    fn intrinsics(&self) -> Option<FourNumbers<f64>> {
        let camera = self.0.lock().intrinsics()?;
        Some((camera.fx, camera.fy, camera.cx, camera.cy))
    }

    #[setter]
    fn set_intrinsics(&self, intrinsics: Option<IntrinsicsArg>) -> Result<()> {
        Ok(self.0.with(|depth| depth.set_intrinsics(intrinsics.map(|given| given.0)))?)
    }

    /// The depth at a pixel in metres, or None if nothing was measured there.
    fn depth_at(
        &self,
        #[pyo3(from_py_with = coordinate)] x: usize,
        #[pyo3(from_py_with = coordinate)] y: usize,
    ) -> Result<Option<f32>> {
        let depth = self.0.get();
        let (width, height) = (depth.width(), depth.height());
        match x < width && y < height {
            true => Ok(depth.depth_at(x, y)),
            false => Err(cenote::Error::NoSuchPixel { x, y, width, height }.into()),
        }
    }

    /// The number of measured depths (`valid`), and their `min`, `max` and `mean` in metres, as a dict. None
    /// if nothing was measured.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyDict>>> {
        let depth = self.0.get();
        let Some(stats) = py.detach(|| depth.stats())? else { return Ok(None) };
        let dict = PyDict::new(py);
        dict.set_item("valid", stats.valid)?;
        dict.set_item("min", stats.min)?;
        dict.set_item("max", stats.max)?;
        dict.set_item("mean", stats.mean)?;
        Ok(Some(dict))
    }

    /// The measured points in space, in the coordinates of the camera. Fails without `intrinsics`.
    fn to_point_cloud(&self, py: Python<'_>) -> Result<Py<PointCloud>> {
        let depth = self.0.get();
        let cloud = py.detach(|| depth.to_point_cloud())?.into_object(py)?;
        Ok(cloud.cast_into().map_err(PyErr::from)?.unbind())
    }

    /// A rectangle of the image, without a copy. Its optical centre is adjusted.
    fn roi(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = coordinate)] x: usize,
        #[pyo3(from_py_with = coordinate)] y: usize,
        #[pyo3(from_py_with = size::width)] width: usize,
        #[pyo3(from_py_with = size::height)] height: usize,
    ) -> Result<Py<DepthImage>> {
        let part = self.0.with(|depth| depth.roi(x, y, width, height))?;
        Ok(DepthImage::make(py, part)?)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let depth = slf.get().0.get();
        let dtype = depth.dtype().numpy_name();
        let size = format!("{}x{} {dtype}", depth.width(), depth.height());
        let read_only = if slf.as_super().get().writable() { "" } else { ", read-only" };
        let (memory, header) = (depth.tensor().memory(), shown(depth.header()));
        format!("<cenote.{} {size}, {memory}{read_only}{header}>", cenote::DepthImage::NAME)
    }

    /// Pickles the depths. Between processes of `multiprocessing` only a descriptor is sent instead.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, Pickled)> {
        let depth = slf.get().0.get();
        let unpickle = PyType::new::<Self>(slf.py()).getattr("_unpickle")?;
        let (header, camera) = (parts(depth.header()), slf.get().intrinsics());
        let tensor = Py::new(slf.py(), Tensor(depth.into_tensor()))?;
        Ok((unpickle, (tensor, header, camera)))
    }

    /// Makes the depth image again, from the values that `__reduce__` returned.
    #[staticmethod]
    fn _unpickle(
        py: Python<'_>,
        tensor: &Bound<'_, Tensor>,
        header: HeaderParts,
        intrinsics: Option<IntrinsicsArg>,
    ) -> Result<Py<DepthImage>> {
        let (frame_id, stamp_ns, seq) = header;
        DepthImage::from_tensor(py, tensor, intrinsics, &frame_id, stamp_ns, seq)
    }
}

/// The arguments of `_unpickle`.
type Pickled = (Py<Tensor>, HeaderParts, Option<FourNumbers<f64>>);
