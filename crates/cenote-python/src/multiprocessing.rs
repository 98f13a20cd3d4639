//! What `_multiprocessing.py` calls to put a tensor, or an object made of one, into a queue.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::domain::depth_image::DepthImage;
use crate::domain::image::Image;
use crate::domain::point_cloud::PointCloud;
use crate::outbox::outbox::hold;
use crate::runtime::error::Result;
use crate::tensor::Tensor;

/// Descriptor, address and token. The receiver passes the last two to `_acknowledge`.
type SentTensor<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Holds a tensor, or an object made of one, and returns what `multiprocessing` pickles instead of it.
#[pyfunction]
pub(crate) fn _hold<'py>(value: &Bound<'py, PyAny>) -> Result<SentTensor<'py>> {
    let py = value.py();
    // `Tensor` comes last: the other classes extend it.
    let (descriptor, address, token) = if let Ok(image) = value.cast::<Image>() {
        hold(py, &image.get().0.get())?
    } else if let Ok(cloud) = value.cast::<PointCloud>() {
        hold(py, &cloud.get().0.get())?
    } else if let Ok(depth) = value.cast::<DepthImage>() {
        hold(py, &depth.get().0.get())?
    } else if let Ok(tensor) = value.cast::<Tensor>() {
        hold(py, &tensor.get().0)?
    } else {
        return Err(PyTypeError::new_err("only tensors, and objects made of them").into());
    };
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    Ok((bytes(descriptor.as_bytes()), bytes(address.as_bytes()), bytes(&token)))
}
