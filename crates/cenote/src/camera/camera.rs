//! The handle of a camera.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::camera::caller_buffers::CallerBuffers;
use crate::camera::config::{BufferOwner, CameraConfig};
use crate::camera::driver_buffers::DriverBuffers;
use crate::camera::frame_layout::{Flaw, FrameLayout};
use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::intervals::CAMERA_POLL;
use crate::sys::v4l2::{Device, Filled};
use crate::tensor::Tensor;
use crate::types::pixel_format::PixelFormat;

/// A camera that is capturing.
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
    layout: FrameLayout,
    buffers: Buffers,
    stats: CameraStats,
}

/// How many frames a camera has captured and dropped so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CameraStats {
    /// Frames that [`capture`](Camera::capture) has returned.
    pub captured: u64,
    /// Frames that were dropped because the driver marked their data as damaged (`V4L2_BUF_FLAG_ERROR`).
    pub damaged: u64,
    /// Frames that were dropped because the driver delivered less than an image.
    pub short: u64,
}

/// The buffers that the driver fills.
#[derive(Debug)]
enum Buffers {
    Driver(DriverBuffers),
    Caller(CallerBuffers),
}

impl Camera {
    /// Starts to capture into buffers of the driver (`VIDIOC_EXPBUF`).
    ///
    /// A frame is read-only. Its buffer returns to the driver when the last holder drops the frame, in this
    /// process or another. So a topic that carries frames must keep fewer of them
    /// ([`TopicConfig::depth`](crate::TopicConfig::depth)) than there are [`buffers`](CameraConfig::buffers).
    /// Otherwise capturing stops.
    ///
    /// Fails if the device is no camera, or does not have the size and format of `config`.
    pub fn open(path: impl AsRef<Path>, config: CameraConfig) -> Result<Camera> {
        let (device, layout) = config.apply(path.as_ref(), BufferOwner::Driver)?;
        let buffers = Buffers::Driver(DriverBuffers::start(device, &config, &layout.parts)?);
        Ok(Camera { layout, buffers, stats: CameraStats::default() })
    }

    /// Starts to capture into buffers that `alloc` returns (`V4L2_MEMORY_DMABUF`). Each must be a tensor in
    /// DMA-BUF memory with at least as many bytes as `alloc` is called with. It must start at the start of
    /// its DMA-BUF, and have no other holder.
    ///
    /// `alloc` is called for each frame, so a pool is the best source. The frame is that tensor from then
    /// on: dropping it returns it to its pool, and topics carry it like any other.
    ///
    /// Fails as [`open`](Camera::open) does, and if `alloc` fails or returns an unsuitable tensor.
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
        let (device, layout) = config.apply(path.as_ref(), BufferOwner::Caller)?;
        let bytes = layout.parts.iter().map(|part| part.bytes).sum();
        let buffers =
            Buffers::Caller(CallerBuffers::start(device, &config, bytes, Box::new(alloc))?);
        Ok(Camera { layout, buffers, stats: CameraStats::default() })
    }

    /// The path of the device.
    pub fn path(&self) -> &Path {
        self.buffers.device().path()
    }

    /// The width of its images, in pixels.
    pub fn width(&self) -> usize {
        self.layout.width
    }

    /// The height of its images, in pixels.
    pub fn height(&self) -> usize {
        self.layout.height
    }

    /// The pixel format of its images.
    pub fn format(&self) -> PixelFormat {
        self.layout.format
    }

    /// Returns how many frames it has captured and dropped so far.
    pub fn stats(&self) -> CameraStats {
        self.stats
    }

    /// Returns the next frame, with the driver's sequence number and time stamp. Returns `None` if no frame
    /// arrives within `timeout`. Fails with [`CameraStarved`](Error::CameraStarved) if that is because frames
    /// hold all buffers.
    ///
    /// If the driver refuses a buffer, a later call tries it again. This fails only if the driver has no
    /// other buffer to fill.
    ///
    /// Frames that are damaged or incomplete are dropped and [counted](Camera::stats).
    pub fn capture(&mut self, timeout: Duration) -> Result<Option<Image>> {
        if self.buffers.device().is_inherited() {
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
            self.wait(
                if queued < self.buffers.count() { left.min(CAMERA_POLL) } else { left },
                queued,
            )?;
        }
    }

    /// The error for a driver that has no buffer to fill.
    fn starved(&mut self) -> Error {
        let why = match &mut self.buffers {
            Buffers::Driver(_) => None,
            Buffers::Caller(buffers) => buffers.take_pool_full(),
        };
        let buffers = self.buffers.count();
        why.unwrap_or_else(|| Error::CameraStarved { path: self.path().into(), buffers })
    }

    /// Dequeues a complete frame, if there is one.
    fn next(&mut self) -> Result<Option<Filled>> {
        loop {
            let Some(filled) = self.buffers.dequeue()? else { return Ok(None) };
            match self.layout.flaw(&filled) {
                None => return Ok(Some(filled)),
                Some(Flaw::Damaged) => self.stats.damaged += 1,
                Some(Flaw::Short) => self.stats.short += 1,
            }
            self.buffers.discard(filled.index);
        }
    }

    /// Waits until a frame is there, at most for `timeout`.
    fn wait(&self, timeout: Duration, queued: usize) -> Result<()> {
        let device = self.buffers.device();
        if queued == 0 {
            // With no buffer queued, `poll` would return an error at once.
            std::thread::sleep(timeout);
            return Ok(());
        }
        let timeout = Timespec::try_from(timeout).ok();
        let mut fds = [PollFd::new(device, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => {
                Err(device.error("capturing", Errno::IO))
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(source) => Err(device.error("waiting for a frame", source)),
        }
    }

    /// Makes an image of a filled buffer.
    fn frame(&mut self, filled: Filled) -> Result<Image> {
        let memory = self.buffers.take(filled.index)?;
        let tensor = self.layout.image(&memory, &filled)?;
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
            Buffers::Driver(buffers) => buffers.device(),
            Buffers::Caller(buffers) => buffers.device(),
        }
    }

    fn count(&self) -> usize {
        match self {
            Buffers::Driver(buffers) => buffers.count(),
            Buffers::Caller(buffers) => buffers.count(),
        }
    }

    /// Queues the buffers that the driver can fill. Returns how many it has then.
    fn refill(&mut self) -> Result<usize> {
        match self {
            Buffers::Driver(buffers) => buffers.refill(),
            Buffers::Caller(buffers) => buffers.refill(),
        }
    }

    fn dequeue(&mut self) -> Result<Option<Filled>> {
        let filled = match self {
            Buffers::Driver(buffers) => buffers.dequeue(),
            Buffers::Caller(buffers) => buffers.dequeue(),
        };
        filled.map_err(|source| self.device().error("capturing", source))
    }

    /// Makes a buffer whose contents are not used available again.
    fn discard(&mut self, index: u32) {
        match self {
            Buffers::Driver(buffers) => buffers.discard(index),
            Buffers::Caller(buffers) => buffers.discard(index),
        }
    }

    /// Returns the memory of a filled buffer: one tensor, or one for each plane.
    fn take(&mut self, index: u32) -> Result<Vec<Tensor>> {
        match self {
            Buffers::Driver(buffers) => buffers.take(index),
            Buffers::Caller(buffers) => Ok(vec![buffers.take(index)?]),
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
