//! A tensor in one message over a Unix socket: its layout, and the descriptors of its buffers.
//!
//! Every word of a message is untrusted input. It is read once into plain integers, and then checked by the
//! same constructors as the arguments of a caller.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytemuck::{Pod, Zeroable};

use crate::error::{Error, Result};
use crate::memory::choose::request::Import;
use crate::memory::choose::selection::{Origin, Selection};
use crate::memory::import;
use crate::memory::kind::TensorMemory;
use crate::sys::socket::message;
use crate::sys::socket::message::MAX_FDS;
use crate::tensor::buffer::handle::Handle;
use crate::tensor::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::layout::{Layout, MAX_DIMS};
use crate::types::pixel_format::PixelFormat;

/// "cenote", and the version of this format.
const MAGIC: [u8; 8] = *b"cenote\0\x01";

/// The message. All integers are in the byte order of the machine, which both sides share.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct TensorMessage {
    magic: [u8; 8],
    memory: u8,
    dtype: u8,
    /// The code of the pixel format; 0 for none.
    format: u8,
    /// The number of views: 1, or as many as the image has planes if they are in several buffers.
    views: u8,
    /// The number of file descriptors in the message.
    buffers: u8,
    _pad: [u8; 3],
    view: [ViewWords; MAX_FDS],
}

/// A layout over one of the buffers.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct ViewWords {
    /// The index of the file descriptor.
    buffer: u32,
    ndim: u32,
    offset: u64,
    shape: [u64; MAX_DIMS],
    strides: [i64; MAX_DIMS],
}

impl Tensor {
    /// Sends the tensor over a Unix socket: its shape, dtype, format and offset, and a descriptor of its memory. No
    /// bytes are copied. Works for views. Fails for heap memory, which cannot be shared.
    ///
    /// From then on no process can write this memory, even if sending fails. (Imported memory keeps the protection
    /// that it came with: if it was not sealed, other processes can still write it.) The receiver of a view gets the
    /// descriptor of the whole buffer.
    ///
    /// ```
    /// use cenote::{Tensor, TensorMemory};
    /// use std::os::unix::net::UnixStream;
    ///
    /// let (here, there) = UnixStream::pair()?;
    /// let tensor = Tensor::options()
    ///     .memory(TensorMemory::Shm)
    ///     .create_from_slice(&[1u16, 2, 3, 4, 5, 6], &[2, 3])?;
    /// tensor.index(1, 2)?.send(&here)?;
    /// assert_eq!(Tensor::recv(&there)?.to_vec::<u16>()?, [3, 6]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send(&self, socket: impl AsFd) -> Result<()> {
        message::check_unix(socket.as_fd())?;
        let views = self.views();
        let buffers = distinct_buffers(&views);
        let fds = buffers
            .iter()
            .map(|buffer| buffer.publish("file descriptor to send"))
            .collect::<Result<Vec<BorrowedFd<'_>>>>()?;
        let message = self.describe(&views, &buffers);
        let bytes = bytemuck::bytes_of(&message);
        message::send(socket.as_fd(), bytes, &fds)
            .map_err(|source| Error::os("sending a tensor", source))
    }

    /// Receives a tensor that [`send`](Tensor::send) sent. It is read-only.
    ///
    /// Waits for a message, unless the socket is non-blocking. Fails with [`Error::Disconnected`] if the peer has
    /// closed the connection, and with [`Error::BadMessage`] for an invalid message. Close the connection then.
    pub fn recv(socket: impl AsFd) -> Result<Tensor> {
        let mut message = TensorMessage::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut message);
        let whole = bytes.len();
        let received = message::recv(socket.as_fd(), bytes)
            .map_err(|source| Error::os("receiving a tensor", source))?;
        let bad = |what| Err(Error::BadMessage { what });
        if received.lost_fds {
            return bad("more file descriptors than a tensor has, or than this process can open");
        }
        if received.wrong_len {
            return bad("it is longer or shorter than a tensor's message");
        }
        if received.len < whole {
            return Err(Error::Disconnected { mid_message: received.len > 0 });
        }
        message.build(received.fds)
    }

    /// Returns this tensor and its far planes.
    fn views(&self) -> Vec<&Tensor> {
        std::iter::once(self).chain(self.far_planes.iter().flat_map(|far| far.iter())).collect()
    }

    /// The message for these views over these buffers.
    fn describe(&self, views: &[&Tensor], buffers: &[&Handle]) -> TensorMessage {
        let mut message = TensorMessage {
            magic: MAGIC,
            memory: self.memory().code(),
            dtype: self.dtype.code(),
            format: self.format.map_or(0, PixelFormat::code),
            views: small(views.len()),
            buffers: small(buffers.len()),
            ..TensorMessage::zeroed()
        };
        for (slot, view) in message.view.iter_mut().zip(views) {
            let buffer = buffers.iter().position(|buffer| buffer.same_buffer(&view.buffer));
            *slot = ViewWords::of(&view.layout, buffer.unwrap_or(0));
        }
        message
    }
}

/// The buffers of the views, each once.
fn distinct_buffers<'a>(views: &[&'a Tensor]) -> Vec<&'a Handle> {
    let mut buffers: Vec<&Handle> = Vec::new();
    for view in views {
        if !buffers.iter().any(|buffer| buffer.same_buffer(&view.buffer)) {
            buffers.push(&view.buffer);
        }
    }
    buffers
}

/// A number of planes or dimensions, which is small.
fn small(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

impl ViewWords {
    fn of(layout: &Layout, buffer: usize) -> ViewWords {
        let mut view = ViewWords {
            buffer: u32::from(small(buffer)),
            ndim: u32::from(small(layout.ndim())),
            offset: layout.offset() as u64,
            ..ViewWords::zeroed()
        };
        for (to, &from) in view.shape.iter_mut().zip(layout.shape()) {
            *to = from as u64;
        }
        for (to, &from) in view.strides.iter_mut().zip(layout.strides()) {
            *to = from as i64;
        }
        view
    }

    fn layout(&self, item_size: usize) -> Result<Layout> {
        let ndim = usize::try_from(self.ndim).unwrap_or(usize::MAX);
        let shape = self.shape.get(..ndim);
        let shape = shape.ok_or(Error::BadMessage { what: "too many dimensions" })?;
        Layout::from_words(shape, &self.strides[..ndim], self.offset, item_size)
    }
}

impl TensorMessage {
    /// Makes the tensor that the message describes. Fails if anything in it is invalid.
    fn build(&self, fds: Vec<OwnedFd>) -> Result<Tensor> {
        let bad = |what| Error::BadMessage { what };
        if self.magic != MAGIC {
            return Err(bad("it does not start like one, or is of another version"));
        }
        // Only checked: the kind of memory is taken from the descriptors.
        let shared = [TensorMemory::Shm, TensorMemory::Dma];
        if !TensorMemory::from_code(self.memory).is_some_and(|memory| shared.contains(&memory)) {
            return Err(bad("its memory cannot be shared"));
        }
        let dtype = DType::from_code(self.dtype).ok_or(bad("unknown dtype"))?;
        let format = match self.format {
            0 => None,
            code => Some(PixelFormat::from_code(code).ok_or(bad("unknown pixel format"))?),
        };
        let views = self.view.get(..usize::from(self.views)).ok_or(bad("too many planes"))?;
        if fds.len() != usize::from(self.buffers) {
            return Err(bad("it has another number of file descriptors than it says"));
        }
        let used = |index: usize| views.iter().any(|view| view.buffer as usize == index);
        if !(0..fds.len()).all(used) {
            return Err(bad("a file descriptor is used by no plane"));
        }
        let views = views_over(fds, views, dtype)?;
        assemble(views, format)
    }
}

/// Maps the descriptors, and makes a tensor for each view.
fn views_over(fds: Vec<OwnedFd>, views: &[ViewWords], dtype: DType) -> Result<Vec<Tensor>> {
    let layouts = views.iter().map(|view| view.layout(dtype.size())).collect::<Result<Vec<_>>>()?;
    let needed = |index: usize| {
        let mine = views.iter().zip(&layouts).filter(|(view, _)| view.buffer as usize == index);
        mine.map(|(_, layout)| layout.byte_range().end).max().unwrap_or(0)
    };
    let over_fd = |(index, fd)| {
        let storage = import::import(fd, needed(index), Import::ReadOnly)?;
        let selection = Selection::given(storage.memory, Origin::Imported);
        Ok(Handle::new(storage, selection))
    };
    let buffers = fds.into_iter().enumerate().map(over_fd).collect::<Result<Vec<_>>>()?;
    let over = |(view, layout): (&ViewWords, &Layout)| {
        let buffer = buffers.get(view.buffer as usize);
        let buffer = buffer.ok_or(Error::BadMessage { what: "a plane is in no buffer" })?;
        Tensor::over(buffer.clone(), layout.clone(), dtype)
    };
    views.iter().zip(&layouts).map(over).collect()
}

/// Makes a tensor of the views: one is the tensor itself, several are the planes of an image.
fn assemble(mut views: Vec<Tensor>, format: Option<PixelFormat>) -> Result<Tensor> {
    match (views.len(), format) {
        (1, None) => Ok(views.swap_remove(0)),
        (1, Some(format)) => views.swap_remove(0).with_format(format),
        (count, Some(format)) if count == format.plane_count() => {
            Tensor::from_far_planes(format, views)
        }
        _ => Err(Error::BadMessage { what: "its planes do not fit its format" }),
    }
}
