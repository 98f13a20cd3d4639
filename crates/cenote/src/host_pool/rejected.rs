//! The error of a call that takes a buffer by value.

use std::{error, fmt};

use crate::error::Error;

/// A buffer that a call rejected, unchanged, and the reason.
///
/// `?` keeps the error and drops the buffer.
///
/// ```
/// # let pool = cenote::BufferPool::unbounded();
/// let room = pool.acquire::<f32>(3)?;
/// let rejected = room.write_slice(&[1.0, 2.0]).unwrap_err();
/// println!("{rejected}");
/// let filled = rejected.buffer.write_slice(&[1.0, 2.0, 3.0])?;
/// assert_eq!(pool.stats().misses, 1);
/// # Ok::<(), cenote::Error>(())
/// ```
pub struct Rejected<B> {
    /// The buffer.
    pub buffer: B,
    /// The reason. (Boxed to keep results small.)
    pub error: Box<Error>,
}

impl<B> fmt::Debug for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> fmt::Display for Rejected<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> error::Error for Rejected<B> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        error::Error::source(&*self.error)
    }
}

impl<B> From<Rejected<B>> for Error {
    fn from(rejected: Rejected<B>) -> Error {
        *rejected.error
    }
}

impl<B> Rejected<B> {
    pub(super) fn new(buffer: B, error: Error) -> Self {
        Rejected { buffer, error: Box::new(error) }
    }
}
