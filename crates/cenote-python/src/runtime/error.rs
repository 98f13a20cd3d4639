//! Errors of the core as Python exceptions, whose classes are in `cenote/_errors.py`.

use cenote::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::runtime::error_text::{for_python, with_dtypes};
use crate::runtime::py_call;

/// What functions that Python calls return.
pub(crate) type Result<T, E = Raised> = std::result::Result<T, E>;

/// An exception: made from an error of the core, or raised by Python code.
#[derive(Debug)]
pub(crate) struct Raised(PyErr);

impl Raised {
    /// Whether its class is `cenote.Error` itself: no subclass, and no other exception.
    pub(crate) fn is_plain(&self, py: Python<'_>) -> bool {
        find(py, "Error").is_ok_and(|class| self.0.get_type(py).is(&class))
    }
}

impl From<PyErr> for Raised {
    fn from(error: PyErr) -> Self {
        Raised(error)
    }
}

impl From<Raised> for PyErr {
    fn from(raised: Raised) -> Self {
        raised.0
    }
}

impl From<Error> for Raised {
    fn from(error: Error) -> Self {
        let (class, message) = (class(&error), for_python(&error.to_string()));
        let message = if class == "DTypeError" { with_dtypes(&message) } else { message };
        raise(class, message, errno(&error))
    }
}

/// Makes an exception of cenote, by the name of its class.
pub(crate) fn raise(class: &str, message: String, errno: Option<i32>) -> Raised {
    Python::attach(|py| match find(py, class) {
        Ok(class) => match errno {
            Some(errno) => PyErr::from_type(class, (errno, message)),
            None => PyErr::from_type(class, (message,)),
        },
        // While the interpreter exits, nothing can be imported.
        Err(_) => PyRuntimeError::new_err(message),
    })
    .into()
}

/// Makes a `cenote.ArgumentError`.
pub(crate) fn bad_argument(message: impl Into<String>) -> Raised {
    raise("ArgumentError", message.into(), None)
}

fn find<'py>(py: Python<'py>, class: &str) -> PyResult<Bound<'py, PyType>> {
    Ok(py_call::attribute(&py_call::import(py, "cenote._errors")?, class)?.cast_into::<PyType>()?)
}

fn errno(error: &Error) -> Option<i32> {
    match error {
        Error::Os { source, .. } | Error::Directory { source, .. } => source.raw_os_error(),
        _ => None,
    }
}

/// The name of the class for an error. An error that is not listed becomes a plain `Error`.
fn class(error: &Error) -> &'static str {
    match error {
        Error::TooManyDims { .. }
        | Error::ZeroDim { .. }
        | Error::ZeroItemSize
        | Error::SizeOverflow { .. }
        | Error::StrideCount { .. }
        | Error::OutOfBuffer { .. }
        | Error::EmptyView { .. }
        | Error::NotAPermutation { .. }
        | Error::ReshapeLen { .. }
        | Error::ReshapeNeedsCopy { .. }
        | Error::SqueezeLen { .. }
        | Error::NotContiguous { .. }
        | Error::Misaligned { .. }
        | Error::InvalidValue { .. }
        | Error::OddStrides { .. }
        | Error::Overlapping { .. }
        | Error::WrongLen { .. }
        | Error::BadAlignment { .. }
        | Error::BadName { .. }
        | Error::UnknownMemory { .. }
        | Error::BadEnv { .. }
        | Error::UnknownFormat { .. }
        | Error::FormatShape { .. }
        | Error::FormatLayout { .. }
        | Error::NoFormat { .. }
        | Error::BadRowStride { .. }
        | Error::UnalignedRoi { .. }
        | Error::PlaneCount { .. }
        | Error::UnknownDevice { .. }
        | Error::BadConfig { .. }
        | Error::TextTooLong { .. }
        | Error::PixelLen { .. }
        | Error::ValueRange { .. }
        | Error::OtherImage { .. }
        | Error::ImageBytes { .. }
        | Error::CloudLayout { .. }
        | Error::BadField { .. }
        | Error::FieldCount { .. }
        | Error::CloudFull { .. }
        | Error::BadIntrinsics { .. }
        | Error::BufferFull { .. }
        | Error::TransferLen { .. }
        | Error::EmptyImage { .. }
        | Error::NoIntrinsics
        | Error::DepthRange { .. }
        | Error::Released
        | Error::OtherPool
        | Error::Unwritten => "ArgumentError",
        Error::NoSuchAxis { .. }
        | Error::OutOfRange { .. }
        | Error::BadIndex { .. }
        | Error::NoSuchPlane { .. }
        | Error::NoSuchPixel { .. }
        | Error::NoSuchPoint { .. }
        | Error::NoSuchRoi { .. } => "OutOfRange",
        Error::WrongDType { .. }
        | Error::UnknownDType { .. }
        | Error::ItemSize { .. }
        | Error::FormatDType { .. }
        | Error::DepthDType { .. } => "DTypeError",
        Error::NotWritable { .. } | Error::Lent | Error::ViewsAlive { .. } => "ReadOnlyError",
        Error::OutOfMemory { .. } => "OutOfMemory",
        Error::PoolFull { .. } | Error::TooManyLeases { .. } => "PoolFull",
        Error::NoSuchPool { .. } | Error::NoSuchField { .. } => "NotFound",
        Error::Stale { .. } => "Stale",
        Error::PoolExists { .. } => "PoolExists",
        Error::NoAnswer { .. } | Error::SlowSubscriber { .. } => "Timeout",
        Error::Forked { .. } | Error::ForkedTopic { .. } => "Forked",
        Error::Disconnected { .. }
        | Error::Connect { .. }
        | Error::AttachRefused { .. }
        | Error::Expelled { .. }
        | Error::NoSuchSegment { .. }
        | Error::NoSuchSlot { .. }
        | Error::BadMessage { .. } => "PeerError",
        Error::TypeMismatch { .. } | Error::WrongKind { .. } => "TypeMismatch",
        Error::Os { .. } | Error::Directory { .. } => "OsError",
        _ => "Error",
    }
}
