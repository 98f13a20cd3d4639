//! `cenote.Image`.

use cenote::{DType, Domain, PixelFormat};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};

use crate::args::integer::{coordinate, count, plane, size};
use crate::args::shape::tuple;
use crate::domain::class::{LockedValue, domain_class};
use crate::domain::header::{HeaderParts, header, parts, shown};
use crate::interop::export::Access;
use crate::interop::numpy_array::{self, array};
use crate::pool::TensorPool;
use crate::runtime::error::{Result, bad_argument};
use crate::runtime::py_call;
use crate::tensor::Tensor;
use crate::tensor::index;

/// An image: a tensor with a pixel format and a header (frame, time, number).
///
/// >>> image = cenote.Image(640, 480, "rgb8", frame_id="camera_front")
/// >>> image
/// <cenote.Image 640x480 rgb8, shm, frame_id="camera_front">
/// >>> image.fill((255, 0, 0))
/// >>> image.numpy().shape, image.pixel(0, 0)
/// ((480, 640, 3), (255, 0, 0))
///
/// A new image is filled with zeros. It is in the pool of this process, so `Topic.send` does not copy it.
/// With `pool` it is in that pool, and shows old bytes until you write it. Formats are `grey`, `mono16`,
/// `mono32f`, `rgb8`, `bgr8`, `rgba8`, `bgra8`, `rgb32f`, `yuyv`, `uyvy`, `vyuy`, `nv12`, `nv21`, `nv16`,
/// `nv24`, `i420`, `planar_rgb`, `planar_rgba`, `bayer_rggb8` (and `bggr8`, `gbrg8`, `grbg8`) and `depth16`.
///
/// Notebooks display it as a picture.
#[pyclass(frozen, extends = Tensor, module = "cenote")]
#[derive(Debug)]
pub(crate) struct Image(pub(crate) LockedValue<cenote::Image>);

domain_class!(Image, cenote::Image);

impl Image {
    fn base_of(image: &cenote::Image) -> cenote::Tensor {
        image.tensor().clone()
    }
}

#[pymethods]
impl Image {
    #[new]
    #[pyo3(signature = (width, height, format="rgb8", *, frame_id="", stamp_ns=0, seq=0, pool=None))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = size::width)] width: usize,
        #[pyo3(from_py_with = size::height)] height: usize,
        format: &str,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
        pool: Option<&Bound<'_, TensorPool>>,
    ) -> Result<PyClassInitializer<Image>> {
        let (format, header) = (format.parse()?, header(frame_id, stamp_ns, seq)?);
        let mut image = match pool {
            Some(pool) => pool
                .get()
                .alloc_with(py, |pool| cenote::Image::new_in(pool, width, height, format))?,
            None => py.detach(|| cenote::Image::new(width, height, format))?,
        };
        image.set_header(header);
        Ok(Image::init(image))
    }

    /// An image with a copy of an array. Without a format, shape and dtype decide: grey, RGB or RGBA.
    /// OpenCV's images are `"bgr8"`.
    ///
    /// >>> cenote.Image.from_numpy(numpy.zeros((480, 640, 3), "uint8"), "bgr8")
    /// <cenote.Image 640x480 bgr8, shm>
    #[staticmethod]
    #[pyo3(signature = (array, format=None, *, frame_id="", stamp_ns=0, seq=0))]
    fn from_numpy(
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        format: Option<&str>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
    ) -> Result<Py<Image>> {
        let source = numpy_array::adopt(&numpy_array::to_array(array)?)?;
        let header = header(frame_id, stamp_ns, seq)?;
        // The copy comes first: it is contiguous, and an array may have strides that no image has.
        let copied = py.detach(|| source.to_pooled())?;
        let mut image = cenote::Image::from_tensor(formatted(copied, format)?)?;
        image.set_header(header);
        Ok(Image::make(py, image)?)
    }

    /// An image over a tensor, without a copy: for example over `pool.alloc((480, 640, 3), "uint8")`.
    #[staticmethod]
    #[pyo3(signature = (tensor, format=None, *, frame_id="", stamp_ns=0, seq=0))]
    fn from_tensor(
        py: Python<'_>,
        tensor: &Bound<'_, Tensor>,
        format: Option<&str>,
        frame_id: &str,
        #[pyo3(from_py_with = count::stamp_ns)] stamp_ns: u64,
        #[pyo3(from_py_with = count::seq)] seq: u64,
    ) -> Result<Py<Image>> {
        let tensor = formatted(tensor.get().0.clone(), format)?;
        let mut image = cenote::Image::from_tensor(tensor)?;
        image.set_header(header(frame_id, stamp_ns, seq)?);
        Ok(Image::make(py, image)?)
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

    /// The pixel format.
    #[getter]
    fn format(&self) -> &'static str {
        self.0.lock().format().name()
    }

    /// The number of bytes from one row of the first plane to the next.
    #[getter]
    fn step(&self) -> usize {
        self.0.lock().step()
    }

    /// The number of values of one pixel along the axis of channels.
    #[getter]
    fn channels(&self) -> usize {
        self.0.lock().channels()
    }

    /// A rectangle of the image, without a copy.
    ///
    /// >>> cenote.Image(640, 480).roi(10, 20, 100, 50)
    /// <cenote.Image 100x50 rgb8, shm>
    fn roi(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = coordinate)] x: usize,
        #[pyo3(from_py_with = coordinate)] y: usize,
        #[pyo3(from_py_with = size::width)] width: usize,
        #[pyo3(from_py_with = size::height)] height: usize,
    ) -> Result<Py<Image>> {
        let part = self.0.with(|image| image.roi(x, y, width, height))?;
        Ok(Image::make(py, part)?)
    }

    /// The values of a pixel.
    fn pixel<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = coordinate)] x: usize,
        #[pyo3(from_py_with = coordinate)] y: usize,
    ) -> Result<Bound<'py, PyTuple>> {
        let pixel = self.0.get().pixel(x, y)?;
        match pixel.dtype() {
            DType::F32 => Ok(PyTuple::new(py, &*pixel)?),
            #[allow(clippy::cast_possible_truncation, reason = "integers of at most 16 bits")]
            _ => Ok(PyTuple::new(py, pixel.iter().map(|&value| value as i64))?),
        }
    }

    /// The number of planes: for example 2 for NV12, 3 for I420.
    #[getter]
    fn plane_count(&self) -> usize {
        self.0.lock().plane_count()
    }

    /// One plane, without a copy.
    ///
    /// >>> image = cenote.Image(640, 480, "nv12")
    /// >>> image.plane(1).shape                # U and V, side by side
    /// (240, 320, 2)
    fn plane(&self, #[pyo3(from_py_with = plane)] plane: usize) -> Result<Tensor> {
        Ok(Tensor(self.0.with(|image| image.plane(plane))?))
    }

    /// Sets all pixels to a number, or to one number for each channel. For a format with several planes it
    /// sets all bytes.
    fn fill(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<()> {
        let tensor = self.0.get().into_tensor();
        let array = array(py, &tensor, Access::Write)?;
        Ok(py_call::set_item(array.as_any(), index::ellipsis(py).as_any(), value)?)
    }

    /// The image as a PNG file, for viewing: YUV becomes RGB, Bayer stays grey, floats are clamped to 0 and 1.
    fn to_png<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let image = self.0.get();
        Ok(PyBytes::new(py, &py.detach(|| image.to_png())?))
    }

    /// Notebooks call this to display the image.
    fn _repr_png_<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        self.to_png(py)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        let image = slf.get().0.get();
        let size = format!("{}x{} {}", image.width(), image.height(), image.format());
        let read_only = if slf.as_super().get().writable() { "" } else { ", read-only" };
        let (memory, header) = (image.tensor().memory(), shown(image.header()));
        format!("<cenote.{} {size}, {memory}{read_only}{header}>", cenote::Image::NAME)
    }

    /// Pickles the pixels. Between processes of `multiprocessing` only a descriptor is sent instead.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> Result<(Bound<'py, PyAny>, Pickled)> {
        let image = slf.get().0.get();
        let unpickle = PyType::new::<Self>(slf.py()).getattr("_unpickle")?;
        let header = parts(image.header());
        let tensor = Py::new(slf.py(), Tensor(image.into_tensor()))?;
        Ok((unpickle, (tensor, header)))
    }

    /// Makes the image again, from the values that `__reduce__` returned.
    #[staticmethod]
    fn _unpickle(
        py: Python<'_>,
        tensor: &Bound<'_, Tensor>,
        header: HeaderParts,
    ) -> Result<Py<Image>> {
        let (frame_id, stamp_ns, seq) = header;
        Image::from_tensor(py, tensor, None, &frame_id, stamp_ns, seq)
    }
}

/// The arguments of `_unpickle`.
type Pickled = (Py<Tensor>, HeaderParts);

/// The tensor with the given format, or with the format that it has, or with one that its shape and dtype
/// suggest.
fn formatted(tensor: cenote::Tensor, format: Option<&str>) -> Result<cenote::Tensor> {
    let format = match format {
        Some(format) => format.parse()?,
        None if tensor.format().is_some() => return Ok(tensor),
        None => guess_format(&tensor)?,
    };
    Ok(tensor.with_format(format)?)
}

/// The usual format for a shape and dtype. Fails if there is none.
fn guess_format(tensor: &cenote::Tensor) -> Result<PixelFormat> {
    let channels = match tensor.shape() {
        [_, _] => 1,
        &[_, _, channels] => channels,
        _ => 0,
    };
    match (tensor.dtype(), channels) {
        (DType::U8, 1) => Ok(PixelFormat::Grey),
        (DType::U8, 3) => Ok(PixelFormat::Rgb8),
        (DType::U8, 4) => Ok(PixelFormat::Rgba8),
        (DType::U16, 1) => Ok(PixelFormat::Mono16),
        (DType::F32, 1) => Ok(PixelFormat::Mono32F),
        (DType::F32, 3) => Ok(PixelFormat::Rgb32F),
        (dtype, _) => Err(bad_argument(format!(
            "cannot guess the pixel format of {} of shape {}: pass `format`",
            dtype.numpy_name(),
            tuple(tensor.shape())
        ))),
    }
}
