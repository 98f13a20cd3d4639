//! How whatever is a tensor is put into a queue of `multiprocessing`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::cloud::PointCloud;
use crate::depth::DepthImage;
use crate::error::Result;
use crate::image::Image;
use crate::tensor::Tensor;
use crate::transit::depart;

/// Descriptor, address and token, for `_arrived`.
type Departed<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// What `multiprocessing` pickles instead of something over a tensor.
#[pyfunction]
pub(crate) fn _depart<'py>(what: &Bound<'py, PyAny>) -> Result<Departed<'py>> {
    // A tensor last, for the others are tensors, too.
    let (descriptor, address, token) = if let Ok(image) = what.cast::<Image>() {
        depart(what.py(), &image.get().0.get())?
    } else if let Ok(cloud) = what.cast::<PointCloud>() {
        depart(what.py(), &cloud.get().0.get())?
    } else if let Ok(depth) = what.cast::<DepthImage>() {
        depart(what.py(), &depth.get().0.get())?
    } else if let Ok(tensor) = what.cast::<Tensor>() {
        depart(what.py(), &tensor.get().0)?
    } else {
        return Err(PyTypeError::new_err("only tensors, and what is made of them").into());
    };
    let bytes = |bytes: &[u8]| PyBytes::new(what.py(), bytes);
    Ok((bytes(descriptor.as_bytes()), bytes(address.as_bytes()), bytes(&token)))
}
