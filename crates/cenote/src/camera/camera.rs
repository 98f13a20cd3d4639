//! Cameras: V4L2 devices whose frames are images in DMA-BUFs, without a copy.
//!
//! ```text
//! Camera::open        the driver has buffers; each frame borrows one, and gives it back when nobody
//!                     holds it any more, here or in other processes          (camera/lent.rs)
//! Camera::open_into   the caller has buffers: the driver fills them, and a frame is one of them,
//!                     for good                                               (camera/given.rs)
//! ```

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::camera::config::{CameraConfig, Flaw, Shape, Whose};
use crate::camera::given::Given;
use crate::camera::lent::Lent;
use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::intervals::CAMERA_POLL;
use crate::sys::v4l2::{Device, Filled};
use crate::tensor::Tensor;
use crate::types::pixel_format::PixelFormat;

/// A camera that captures.
///
/// ```no_run
/// use cenote::{Camera, CameraConfig, Image, Topic, TopicConfig};
/// use std::time::Duration;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let mut camera = Camera::open("/dev/video0", CameraConfig::default())?;
///     let config = TopicConfig { depth: 2, ..TopicConfig::default() };
///     let topic: Topic<Image> = Topic::with_config("camera.front", config)?;
///     while let Some(frame) = camera.capture(Duration::from_secs(1))? {
///         topic.send(&frame)?; // no pixel is copied
///     }
///     Err("the camera has delivered nothing for a second".into())
/// }
/// ```
pub struct Camera {
    shape: Shape,
    buffers: Buffers,
    stats: CameraStats,
}

/// What a camera has captured so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CameraStats {
    /// Frames that [`capture`](Camera::capture) has returned.
    pub captured: u64,
    /// Frames that were dropped because the driver said that their data is of no use
    /// (`V4L2_BUF_FLAG_ERROR`).
    pub damaged: u64,
    /// Frames that were dropped because the driver delivered less than an image.
    pub short: u64,
}

/// Whose buffers are filled.
#[derive(Debug)]
enum Buffers {
    Lent(Lent),
    Given(Given),
}

impl Camera {
    /// Starts to capture into buffers of the driver's (`VIDIOC_EXPBUF`).
    ///
    /// A frame is read-only. Its buffer goes back to the driver when nobody has the frame any more, also
    /// in other processes that it was sent to. So a topic that carries frames must keep fewer of them
    /// ([`TopicConfig::depth`](crate::TopicConfig::depth)) than there are
    /// [`buffers`](CameraConfig::buffers), or no more are captured.
    pub fn open(path: impl AsRef<Path>, config: CameraConfig) -> Result<Camera> {
        let (device, shape) = config.apply(path.as_ref(), Whose::Drivers)?;
        let buffers = Buffers::Lent(Lent::start(device, &config, &shape.parts)?);
        Ok(Camera { shape, buffers, stats: CameraStats::default() })
    }

    /// Starts to capture into buffers that `alloc` gives (`V4L2_MEMORY_DMABUF`): tensors of DMA-BUF
    /// memory with at least as many bytes as it is called with, that start where their DMA-BUF does,
    /// and that nobody else has.
    ///
    /// It is called for each frame, so a pool is the best source. The frame is that tensor from then
    /// on: it goes back to its pool, and topics carry it as they do any other.
    ///
    /// ```no_run
    /// use cenote::{Camera, CameraConfig, DType, TensorMemory, TensorPool, TensorPoolConfig};
    ///
    /// let config = TensorPoolConfig {
    ///     memory: TensorMemory::Dma,
    ///     unprotected: true, // or the kernel's udmabuf, where the camera can use it
    ///     ..TensorPoolConfig::default()
    /// };
    /// let pool = TensorPool::new("camera.frames", config)?;
    /// let alloc = move |bytes| pool.alloc(&[bytes], DType::U8);
    /// let camera = Camera::open_into("/dev/video0", CameraConfig::default(), alloc)?;
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn open_into(
        path: impl AsRef<Path>,
        config: CameraConfig,
        alloc: impl FnMut(usize) -> Result<Tensor> + Send + 'static,
    ) -> Result<Camera> {
        let (device, shape) = config.apply(path.as_ref(), Whose::Callers)?;
        let bytes = shape.parts.iter().map(|part| part.bytes).sum();
        let buffers = Buffers::Given(Given::start(device, &config, bytes, Box::new(alloc))?);
        Ok(Camera { shape, buffers, stats: CameraStats::default() })
    }

    /// The device.
    pub fn path(&self) -> &Path {
        self.buffers.device().path()
    }

    /// The width of its images, in pixels.
    pub fn width(&self) -> usize {
        self.shape.width
    }

    /// The height of its images, in pixels.
    pub fn height(&self) -> usize {
        self.shape.height
    }

    /// How their pixels are stored.
    pub fn format(&self) -> PixelFormat {
        self.shape.format
    }

    /// What it has captured so far, and what it has dropped.
    pub fn stats(&self) -> CameraStats {
        self.stats
    }

    /// The next frame, with the driver's sequence number and time stamp. `None` if none comes within
    /// `timeout`. If that is because all buffers are held by those who have frames, it is an error.
    ///
    /// A buffer that the driver refuses is an error only if it has no other to fill; it is tried again.
    ///
    /// Frames that are damaged, or not all there, are passed over, and [counted](Camera::stats).
    pub fn capture(&mut self, timeout: Duration) -> Result<Option<Image>> {
        if self.buffers.device().inherited() {
            return Err(Error::CameraForked { path: self.path().into() });
        }
        let start = Instant::now();
        loop {
            let queued = self.buffers.refill()?;
            if let Some(filled) = self.next()? {
                return self.frame(filled).map(Some);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() && queued > 0 {
                return Ok(None);
            }
            if left.is_zero() {
                return Err(self.starved());
            }
            self.look(
                if queued < self.buffers.count() { left.min(CAMERA_POLL) } else { left },
                queued,
            )?;
        }
    }

    fn starved(&mut self) -> Error {
        let why = match &mut self.buffers {
            Buffers::Lent(_) => None,
            Buffers::Given(given) => given.why_starved(),
        };
        let buffers = self.buffers.count();
        why.unwrap_or_else(|| Error::CameraStarved { path: self.path().into(), buffers })
    }

    /// A frame that is there, and whole.
    fn next(&mut self) -> Result<Option<Filled>> {
        loop {
            let Some(filled) = self.buffers.dequeue()? else { return Ok(None) };
            match self.shape.flaw(&filled) {
                None => return Ok(Some(filled)),
                Some(Flaw::Damaged) => self.stats.damaged += 1,
                Some(Flaw::Short) => self.stats.short += 1,
            }
            self.buffers.discard(filled.index);
        }
    }

    /// Sleeps until a frame is there, or for so long.
    fn look(&self, patience: Duration, queued: usize) -> Result<()> {
        let device = self.buffers.device();
        if queued == 0 {
            // The driver would say at once that it has nothing to wait for.
            std::thread::sleep(patience);
            return Ok(());
        }
        let patience = Timespec::try_from(patience).ok();
        let mut fds = [PollFd::new(device, PollFlags::IN)];
        match poll(&mut fds, patience.as_ref()) {
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => {
                Err(device.error("capturing", Errno::IO))
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(source) => Err(device.error("waiting for a frame", source)),
        }
    }

    fn frame(&mut self, filled: Filled) -> Result<Image> {
        let memory = self.buffers.take(filled.index)?;
        let tensor = self.shape.over(&memory, &filled)?;
        drop(memory);
        let mut image = Image::from_tensor(tensor)?;
        image.set_seq(u64::from(filled.sequence));
        image.set_stamp_ns(filled.stamp_ns);
        self.stats.captured += 1;
        Ok(image)
    }
}

impl Buffers {
    fn device(&self) -> &Device {
        match self {
            Buffers::Lent(lent) => lent.device(),
            Buffers::Given(given) => given.device(),
        }
    }

    fn count(&self) -> usize {
        match self {
            Buffers::Lent(lent) => lent.count(),
            Buffers::Given(given) => given.count(),
        }
    }

    /// Gives the driver what it can have; tells how many buffers it has then.
    fn refill(&mut self) -> Result<usize> {
        match self {
            Buffers::Lent(lent) => lent.refill(),
            Buffers::Given(given) => given.refill(),
        }
    }

    fn dequeue(&mut self) -> Result<Option<Filled>> {
        let filled = match self {
            Buffers::Lent(lent) => lent.dequeue(),
            Buffers::Given(given) => given.dequeue(),
        };
        filled.map_err(|source| self.device().error("capturing", source))
    }

    /// Gives a buffer back whose content is of no use.
    fn discard(&mut self, index: u32) {
        match self {
            Buffers::Lent(lent) => lent.discard(index),
            Buffers::Given(given) => given.discard(index),
        }
    }

    /// The bytes of a buffer that was filled, in as many pieces as it has.
    fn take(&mut self, index: u32) -> Result<Vec<Tensor>> {
        match self {
            Buffers::Lent(lent) => lent.take(index),
            Buffers::Given(given) => Ok(vec![given.take(index)?]),
        }
    }
}

impl fmt::Debug for Camera {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Camera")
            .field("path", &self.path())
            .field("width", &self.width())
            .field("height", &self.height())
            .field("format", &self.format())
            .finish_non_exhaustive()
    }
}
