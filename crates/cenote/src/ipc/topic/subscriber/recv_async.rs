//! Receiving in tokio.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::error::{Error, Result};
use crate::ipc::topic::message::Message;
use crate::ipc::topic::topic::Topic;

impl<T: Message> Topic<T> {
    /// Waits for the next message, without limit. Needs a tokio runtime with I/O, and the feature `tokio`. Dropping the future
    /// loses no message.
    ///
    /// ```
    /// # let dir = std::env::temp_dir().join(format!("cenote-async-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?; unsafe { std::env::set_var("CENOTE_DIR", &dir) };
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    /// # runtime.block_on(async {
    /// let topic: cenote::Topic<u32> = cenote::Topic::new("ticks")?;
    /// topic.send(&7)?;
    /// assert_eq!(topic.recv_async().await?, 7);
    /// # Ok::<(), cenote::Error>(())
    /// # })?; std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn recv_async(&self) -> Result<T> {
        if let Some(message) = self.recv() {
            return Ok(message);
        }
        let watched = self.watched()?;
        loop {
            // Before sleeping: a message that arrives after this makes the descriptor readable again.
            if let Some(message) = self.recv() {
                return Ok(message);
            }
            self.check_types()?;
            let mut ready = watched
                .readable()
                .await
                .map_err(|source| Error::os("waiting for a message", source))?;
            ready.clear_ready();
        }
    }

    /// A separate descriptor for each call, because several may wait at once.
    #[allow(unsafe_code, reason = "tokio requires a promise about the descriptor")]
    fn watched(&self) -> Result<AsyncFd<OwnedFd>> {
        let error = |source| Error::os("watching a topic", source);
        // Without a runtime, tokio would panic.
        Handle::try_current().map_err(|none| error(io::Error::other(none)))?;
        let fd = self.fd()?.try_clone_to_owned().map_err(error)?;
        // SAFETY: an `OwnedFd` is open, and stays the same one for as long as it lives.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        watched.map_err(|refused| error(refused.into_parts().1))
    }
}
