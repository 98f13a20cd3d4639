//! What a call returns that takes a buffer and fails.

use std::{error, fmt};

use crate::error::Error;

/// A buffer that a call could not use, and why. Nothing is lost: the buffer is as it was.
///
/// `?` keeps the error and drops the buffer.
///
/// ```
/// # let pool = cenote::BufferPool::unbounded();
/// let room = pool.acquire::<f32>(3)?;
/// let refused = room.write_slice(&[1.0, 2.0]).unwrap_err();
/// println!("{refused}");
/// let filled = refused.buffer.write_slice(&[1.0, 2.0, 3.0])?;
/// assert_eq!(pool.stats().misses, 1);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct GivenBack<B> {
    /// The buffer.
    pub buffer: B,
    /// What is wrong. (Boxed: a result that is returned often should be small.)
    pub error: Box<Error>,
}

impl<B> fmt::Debug for GivenBack<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> fmt::Display for GivenBack<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> error::Error for GivenBack<B> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&*self.error)
    }
}

impl<B> From<GivenBack<B>> for Error {
    fn from(given_back: GivenBack<B>) -> Error {
        *given_back.error
    }
}

impl<B> GivenBack<B> {
    pub(super) fn new(buffer: B, error: Error) -> Self {
        GivenBack { buffer, error: Box::new(error) }
    }
}
