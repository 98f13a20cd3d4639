//! Video capture devices (V4L2).
//!
//! See "Video for Linux API" in the kernel's documentation, and `linux/videodev2.h`. Both interfaces are
//! supported: single-planar, and multi-planar, in which a buffer may have several pieces of memory.
//!
//! # Contract
//! Each ioctl is called with the structure that its header declares for 64-bit machines, laid out as in C.
//! Pointers in it are valid until the call returns.
#![allow(unsafe_code, reason = "ioctl(2) takes whatever the driver wants")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

use crate::error::Error;
use crate::sys::fork::Creator;

const QUERYCAP: Opcode = opcode::read::<Capability>(b'V', 0);
const S_FMT: Opcode = opcode::read_write::<Format>(b'V', 5);
const REQBUFS: Opcode = opcode::read_write::<RequestBuffers>(b'V', 8);
const QUERYBUF: Opcode = opcode::read_write::<Buffer>(b'V', 9);
const QBUF: Opcode = opcode::read_write::<Buffer>(b'V', 15);
const EXPBUF: Opcode = opcode::read_write::<ExportBuffer>(b'V', 16);
const DQBUF: Opcode = opcode::read_write::<Buffer>(b'V', 17);
const STREAMON: Opcode = opcode::write::<i32>(b'V', 18);
const STREAMOFF: Opcode = opcode::write::<i32>(b'V', 19);
const S_PARM: Opcode = opcode::read_write::<StreamParm>(b'V', 22);

const CAP_CAPTURE: u32 = 1;
const CAP_CAPTURE_MPLANE: u32 = 0x1000;
const CAP_STREAMING: u32 = 0x0400_0000;
const CAP_DEVICE_CAPS: u32 = 0x8000_0000;

const FIELD_NONE: u32 = 1;
/// Fields whose buffer has all rows of a picture, in order: unknown, progressive, and interlaced with
/// either field first. The others have every second row, or one half after the other.
const WHOLE_FIELDS: [u32; 5] = [0, FIELD_NONE, 4, 8, 9];
const FLAG_ERROR: u32 = 0x40;

/// The words of a union of 200 bytes.
const UNION: usize = 50;

/// The most pieces of memory of a buffer: as many as a pixel format has planes. (V4L2 allows 8.)
pub(crate) const MAX_PLANES: usize = 4;

/// `struct v4l2_capability`.
#[repr(C)]
struct Capability {
    names: [u8; 80],
    version: u32,
    capabilities: u32,
    device_caps: u32,
    reserved: [u32; 3],
}

/// `struct v4l2_format`.
#[repr(C)]
struct Format {
    kind: u32,
    _pad: u32,
    words: [u32; UNION],
}

/// `struct v4l2_streamparm`.
#[repr(C)]
struct StreamParm {
    kind: u32,
    words: [u32; UNION],
}

/// `struct v4l2_requestbuffers`.
#[repr(C)]
struct RequestBuffers {
    count: u32,
    kind: u32,
    memory: u32,
    capabilities: u32,
    flags: u32,
}

/// `struct v4l2_exportbuffer`.
#[repr(C)]
struct ExportBuffer {
    kind: u32,
    index: u32,
    plane: u32,
    flags: u32,
    fd: i32,
    reserved: [u32; 11],
}

/// `struct v4l2_buffer`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Buffer {
    index: u32,
    kind: u32,
    bytesused: u32,
    flags: u32,
    field: u32,
    _pad: u32,
    seconds: i64,
    micros: i64,
    timecode: [u32; 4],
    sequence: u32,
    memory: u32,
    /// An offset, a descriptor, or a pointer to planes.
    place: u64,
    length: u32,
    reserved: u32,
    request: u32,
    _end: u32,
}

/// `struct v4l2_plane`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Plane {
    bytesused: u32,
    length: u32,
    /// An offset, or a descriptor.
    place: u64,
    data_offset: u32,
    reserved: [u32; 11],
}

const _: () = {
    assert!(size_of::<Capability>() == 104);
    assert!(size_of::<Format>() == 208);
    assert!(size_of::<StreamParm>() == 204);
    assert!(size_of::<RequestBuffers>() == 20);
    assert!(size_of::<ExportBuffer>() == 64);
    assert!(size_of::<Buffer>() == 88);
    assert!(size_of::<Plane>() == 64);
};

/// Which of the two interfaces a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Single = 1,
    Multi = 9,
}

/// Whose memory the device captures into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The driver's.
    Driver = 1,
    /// DMA-BUFs that the application provides.
    DmaBuf = 4,
}

/// How images are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// V4L2's four characters.
    pub(crate) fourcc: u32,
    /// Pieces of memory that an image lies in.
    pub(crate) planes: u32,
    /// The layout of each of them.
    pub(crate) extents: [Extent; MAX_PLANES],
    /// Whether a buffer has all rows of an image, in order.
    pub(crate) whole: bool,
}

/// A piece of memory for images, or for a plane of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    pub(crate) row_stride: u32,
    pub(crate) bytes: u32,
}

/// The part of a piece of memory that the driver wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Written {
    /// Where it begins.
    pub(crate) offset: u32,
    /// The bytes from there on.
    pub(crate) bytes: u32,
}

/// A buffer that the driver has filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) index: u32,
    pub(crate) sequence: u32,
    /// By the clock of the driver, which is mostly the monotonic one.
    pub(crate) stamp_ns: u64,
    /// Whether the driver failed to fill it. Such a buffer is returned, too; its content is useless.
    pub(crate) broken: bool,
    /// It has all rows of an image, not only every second one.
    pub(crate) whole: bool,
    /// In each piece of its memory.
    pub(crate) written: [Written; MAX_PLANES],
}

/// A capture device.
#[derive(Debug)]
pub(crate) struct Device {
    path: PathBuf,
    fd: OwnedFd,
    kind: Kind,
    /// Pieces of memory in a buffer.
    planes: u32,
    /// The process that opened it. A forked child has the same device, and must not use it.
    creator: Creator,
}

impl Device {
    /// Opens a device. `None` if it does not capture video into buffers.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Device>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        // SAFETY: this ioctl takes this structure.
        let query = unsafe { Getter::<QUERYCAP, Capability>::new() };
        // SAFETY: the kernel writes the whole structure during the call, and no other memory.
        let found = match unsafe { ioctl(&fd, query) } {
            Err(Errno::NOTTY | Errno::INVAL) => return Ok(None),
            found => found?,
        };
        let all = found.capabilities & CAP_DEVICE_CAPS == 0;
        let caps = if all { found.capabilities } else { found.device_caps };
        let kind = match caps {
            _ if caps & CAP_STREAMING == 0 => return Ok(None),
            _ if caps & CAP_CAPTURE != 0 => Kind::Single,
            _ if caps & CAP_CAPTURE_MPLANE != 0 => Kind::Multi,
            _ => return Ok(None),
        };
        let (path, creator) = (path.to_owned(), Creator::this_process());
        Ok(Some(Device { path, fd, kind, planes: 1, creator }))
    }

    /// The path that was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An error of the system, with the path of this device.
    pub(crate) fn error(&self, op: &'static str, source: impl Into<io::Error>) -> Error {
        Error::Camera { path: self.path.clone(), op, source: source.into() }
    }

    /// The error for a driver that returns the number of a buffer that it does not have.
    pub(crate) fn no_such_buffer(&self) -> Error {
        self.error(
            "capturing",
            io::Error::other("the driver filled a buffer that it was not given"),
        )
    }

    /// Whether this process is a forked child of the one that opened it.
    pub(crate) fn is_inherited(&self) -> bool {
        self.creator.is_inherited()
    }

    /// Stops capturing and frees all buffers.
    pub(crate) fn end(&self, memory: Memory) {
        if !self.is_inherited() {
            // Errors are ignored: closing the device does the same, later.
            let _ = self.set::<STREAMOFF>();
            let _ = self.request(0, memory);
        }
    }

    /// Requests a format. Returns the one that the driver chose.
    pub(crate) fn set_format(&mut self, wanted: Picture) -> io::Result<Picture> {
        let mut format = Format { kind: self.kind as u32, _pad: 0, words: [0; UNION] };
        let words = &mut format.words;
        [words[0], words[1], words[2], words[3]] =
            [wanted.width, wanted.height, wanted.fourcc, FIELD_NONE];
        // The words that hold the row stride and the size of a piece of memory, in each interface.
        let (stride, bytes) = match self.kind {
            Kind::Single => (4, 5),
            Kind::Multi => (6, 5),
        };
        let at = |plane: usize| 5 * plane;
        for (plane, extent) in wanted.extents.iter().enumerate().take(self.most_planes()) {
            words[stride + at(plane)] = extent.row_stride;
        }
        if self.kind == Kind::Multi {
            words[45] = wanted.planes;
        }
        self.update::<S_FMT, _>(&mut format)?;
        let words = &format.words;
        let mut extents = [Extent::default(); MAX_PLANES];
        for (plane, extent) in extents.iter_mut().enumerate().take(self.most_planes()) {
            let (row_stride, bytes) = (words[stride + at(plane)], words[bytes + at(plane)]);
            *extent = Extent { row_stride, bytes };
        }
        self.planes = if self.kind == Kind::Multi { words[45] & 0xff } else { 1 };
        Ok(Picture {
            width: words[0],
            height: words[1],
            fourcc: words[2],
            planes: self.planes,
            extents,
            whole: WHOLE_FIELDS.contains(&words[3]),
        })
    }

    fn most_planes(&self) -> usize {
        if self.kind == Kind::Multi { MAX_PLANES } else { 1 }
    }

    /// Requests a frame rate. A driver may choose another, or ignore this.
    pub(crate) fn set_rate(&self, fps: u32) -> io::Result<()> {
        let mut parm = StreamParm { kind: self.kind as u32, words: [0; UNION] };
        // Capability, mode, then the duration of a frame as a fraction.
        [parm.words[2], parm.words[3]] = [1, fps];
        self.update::<S_PARM, _>(&mut parm)
    }

    /// Requests buffers. Returns how many the driver has.
    pub(crate) fn request(&self, count: u32, memory: Memory) -> io::Result<u32> {
        let kind = self.kind as u32;
        let mut request =
            RequestBuffers { count, kind, memory: memory as u32, capabilities: 0, flags: 0 };
        self.update::<REQBUFS, _>(&mut request)?;
        Ok(request.count)
    }

    /// The size of a piece of a buffer of the driver, in bytes.
    pub(crate) fn length(&self, index: u32, plane: u32) -> io::Result<u32> {
        let (mut buffer, mut planes) = self.buffer(index, Memory::Driver);
        self.exchange::<QUERYBUF>(&mut buffer, &mut planes)?;
        let found = planes.get(plane as usize).map_or(0, |plane| plane.length);
        Ok(if self.kind == Kind::Multi { found } else { buffer.length })
    }

    /// A piece of a buffer of the driver as a DMA-BUF, which no process can map writable.
    pub(crate) fn export(&self, index: u32, plane: u32) -> io::Result<OwnedFd> {
        let flags = (OFlags::RDONLY | OFlags::CLOEXEC).bits();
        let kind = self.kind as u32;
        let mut export = ExportBuffer { kind, index, plane, flags, fd: -1, reserved: [0; 11] };
        self.update::<EXPBUF, _>(&mut export)?;
        // SAFETY: the kernel has just made this descriptor, and only this code has its number.
        Ok(unsafe { OwnedFd::from_raw_fd(export.fd) })
    }

    /// Queues a buffer of the driver to be filled.
    pub(crate) fn queue(&self, index: u32) -> io::Result<()> {
        let (mut buffer, mut plane) = self.buffer(index, Memory::Driver);
        self.exchange::<QBUF>(&mut buffer, &mut plane)
    }

    /// Queues the first `len` bytes of a DMA-BUF to be filled.
    pub(crate) fn queue_dmabuf(&self, index: u32, fd: BorrowedFd<'_>, len: u32) -> io::Result<()> {
        let (mut buffer, mut plane) = self.buffer(index, Memory::DmaBuf);
        let place = u64::from(fd.as_raw_fd().unsigned_abs());
        match self.kind {
            Kind::Single => (buffer.place, buffer.length) = (place, len),
            Kind::Multi => (plane[0].place, plane[0].length) = (place, len),
        }
        self.exchange::<QBUF>(&mut buffer, &mut plane)
    }

    /// Takes a filled buffer; `None` if there is none yet.
    pub(crate) fn dequeue(&self, memory: Memory) -> io::Result<Option<Filled>> {
        let (mut buffer, mut plane) = self.buffer(0, memory);
        match self.exchange::<DQBUF>(&mut buffer, &mut plane) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            done => done?,
        }
        Ok(Some(filled(self.kind, &buffer, &plane)))
    }

    /// Starts capturing.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.set::<STREAMON>()
    }

    fn set<const OPCODE: Opcode>(&self) -> io::Result<()> {
        self.call(|| {
            // SAFETY: the ioctls that this is used with take an `int`.
            let request = unsafe { Setter::<OPCODE, i32>::new(self.kind as i32) };
            // SAFETY: the kernel reads it during the call, and no other memory.
            unsafe { ioctl(&self.fd, request) }
        })
    }

    fn buffer(&self, index: u32, memory: Memory) -> (Buffer, [Plane; MAX_PLANES]) {
        let (kind, memory, field) = (self.kind as u32, memory as u32, FIELD_NONE);
        (Buffer { index, kind, memory, field, ..Buffer::default() }, [Plane::default(); MAX_PLANES])
    }

    /// An ioctl on a buffer. In the multi-planar interface the planes are a separate array.
    fn exchange<const OPCODE: Opcode>(
        &self,
        buffer: &mut Buffer,
        planes: &mut [Plane; MAX_PLANES],
    ) -> io::Result<()> {
        if self.kind == Kind::Multi {
            buffer.place = std::ptr::from_mut(planes).expose_provenance() as u64;
            // The kernel uses at most this many planes, and refuses a number that is too small.
            buffer.length = self.planes.min(u32::try_from(MAX_PLANES).unwrap_or(1));
        }
        self.update::<OPCODE, _>(buffer)
    }

    fn update<const OPCODE: Opcode, T>(&self, value: &mut T) -> io::Result<()> {
        self.call(|| {
            // SAFETY: each ioctl above takes the structure that it is used with.
            let request = unsafe { Updater::<OPCODE, T>::new(value) };
            // SAFETY: the kernel reads and writes the structure during the call, and the planes that a buffer points to,
            // as many as it says (`exchange`), and no other memory.
            unsafe { ioctl(&self.fd, request) }
        })
    }

    fn call(&self, mut call: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
        loop {
            match call() {
                Err(Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }
}

/// Reads what the driver says about a buffer.
fn filled(kind: Kind, buffer: &Buffer, planes: &[Plane; MAX_PLANES]) -> Filled {
    let micros = buffer.micros.saturating_mul(1000);
    let nanos = buffer.seconds.saturating_mul(1_000_000_000).saturating_add(micros);
    // The used bytes include those before the image.
    let written = match kind {
        Kind::Single => {
            let mut written = [Written::default(); MAX_PLANES];
            written[0].bytes = buffer.bytesused;
            written
        }
        Kind::Multi => planes.map(|plane| Written {
            offset: plane.data_offset,
            bytes: plane.bytesused.saturating_sub(plane.data_offset),
        }),
    };
    Filled {
        index: buffer.index,
        sequence: buffer.sequence,
        stamp_ns: u64::try_from(nanos).unwrap_or(0),
        broken: buffer.flags & FLAG_ERROR != 0,
        whole: WHOLE_FIELDS.contains(&buffer.field),
        written,
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_says_of_a_buffer_is_understood() {
        let buffer = Buffer { bytesused: 100, field: FIELD_NONE, ..Buffer::default() };
        let plane = Plane { bytesused: 90, data_offset: 64, ..Plane::default() };
        let senseless = Plane { bytesused: 10, ..plane };
        let plane = [plane, senseless, Plane::default(), Plane::default()];
        let found = filled(Kind::Single, &buffer, &plane);
        let written = |offset, bytes| Written { offset, bytes };
        assert_eq!((found.written[0], found.whole, found.broken), (written(0, 100), true, false));
        let found = filled(Kind::Multi, &buffer, &plane);
        assert_eq!(found.written[..2], [written(64, 26), written(64, 0)]);
        for (field, whole) in [(0, true), (2, false), (3, false), (4, true), (5, false), (7, false)]
        {
            assert_eq!(filled(Kind::Single, &Buffer { field, ..buffer }, &plane).whole, whole);
        }
        let broken = Buffer { flags: FLAG_ERROR, seconds: i64::MAX, micros: i64::MAX, ..buffer };
        let found = filled(Kind::Single, &broken, &plane);
        assert!(found.broken && found.stamp_ns == i64::MAX.unsigned_abs());
        let before = Buffer { seconds: -1, ..buffer };
        assert_eq!(filled(Kind::Single, &before, &plane).stamp_ns, 0);
    }
}
