//! What can be sent: how a value becomes the words of a ring entry, and how a subscriber makes it from them.

use crate::domain::Domain;
use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::ipc::ring::codec;
use crate::ipc::ring::codec::TensorEntry;
use crate::ipc::ring::layout_cache::LayoutCache;
use crate::ipc::ring::ring::RingShape;
use crate::ipc::topic::plain::Plain;
use crate::ipc::topic::signature::Signature;
use crate::tensor::Tensor;
use crate::tensor::buffer::handle::Handle;
use crate::types::metadata::header::Header;
use crate::types::metadata::{MAX_META, Words};
use crate::types::pixel_format::PixelFormat;

/// Something that a [`Topic`](crate::Topic) carries: an [`Image`](crate::Image), a
/// [`PointCloud`](crate::PointCloud), a [`DepthImage`](crate::DepthImage), a [`Tensor`], or any plain
/// data.
///
/// Plain data is any type of at most 64 KiB that is [`Plain`]: numbers, arrays, and structs of them. A
/// struct has no padding and is valid whatever its bits are, which the compiler checks
/// (`#[derive(bytemuck::Pod, bytemuck::Zeroable)]` and `#[repr(C)]`), and lists its fields, so that
/// processes can compare them:
///
/// ```
/// # use cenote::bytemuck;
/// #[repr(C)]
/// #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
/// struct Pose {
///     position: [f64; 3],
///     rotation: [f64; 4],
/// }
/// cenote::plain!(Pose { position, rotation });
/// # fn sends<T: cenote::Message>() {}
/// sends::<Pose>();
/// ```
///
/// ```compile_fail
/// # fn sends<T: cenote::Message>() {}
/// sends::<(u8, u32)>(); // has padding
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent on a topic",
    note = "a topic carries images, point clouds, depth images, tensors, and plain data: numbers, arrays, \
            and structs that are `bytemuck::Pod` and list their fields with `cenote::plain!`"
)]
pub trait Message: Carry {}

impl<T: Carry> Message for T {}

/// How a message is encoded and decoded. Users cannot name this trait, so only this file implements it.
pub trait Carry: Sized + Send + 'static {
    /// The type, in a form that two processes can compare.
    fn signature() -> Signature;

    /// The most words that a message takes in a ring.
    fn max_words() -> usize;

    /// The tensor that the message carries, if it is not plain data.
    fn carried(&self) -> Option<&Tensor>;

    /// Encodes the message into `words`, which has room for it; returns how many words it used. `shared` is sent in place
    /// of the tensor that it carries; `own` is the uid of the publisher's pool. Publishes the tensor: from here on no process can
    /// write it.
    fn encode(&self, shared: Option<&Tensor>, own: u64, words: &mut [u64]) -> Result<usize>;

    /// A message after [`decode`](Carry::decode), from which [`make`](Carry::make) builds it. It is small; the message
    /// is too large to be moved from one function to the next.
    type Decoded;

    /// Decodes and checks a message, and resolves the buffer of its tensor. `layouts` is the cache of its publisher. The
    /// words are input from another process.
    fn decode(
        words: &[u64],
        layouts: &mut LayoutCache,
        buffers: &mut impl ResolveBuffer,
    ) -> Result<Self::Decoded, Unread>;

    /// Makes the message that was decoded last with these `layouts`. It cannot fail.
    fn make(decoded: Self::Decoded, layouts: &LayoutCache) -> Self;
}

/// Finds the buffer of a message's tensor.
pub trait ResolveBuffer {
    /// Leases the slot that the entry names, and returns its buffer.
    fn resolve(&mut self, tensor: &TensorEntry<'_>) -> Result<Handle, Unread>;
}

/// Why a message was not received.
#[derive(Debug)]
pub enum Unread {
    /// Its slot cannot be leased yet. The message stays in the queue.
    NotYet,
    /// It was overwritten meanwhile.
    Overwritten,
    /// It can never be received.
    Lost(Box<Error>),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Unread::Lost(Box::new(error))
    }
}

/// The words that `bytes` bytes take.
const fn words(bytes: usize) -> usize {
    bytes.div_ceil(size_of::<u64>())
}

impl<T: Plain> Carry for T {
    fn signature() -> Signature {
        Signature::plain::<T>()
    }

    fn max_words() -> usize {
        const {
            assert!(
                size_of::<T>() <= 1 << 16 && words(1 << 16) <= RingShape::MAX_PAYLOAD,
                "plain data has at most 64 KiB; send a tensor"
            );
        };
        words(size_of::<T>())
    }

    #[inline]
    fn carried(&self) -> Option<&Tensor> {
        None
    }

    fn encode(&self, _: Option<&Tensor>, _: u64, to: &mut [u64]) -> Result<usize> {
        let len = words(size_of::<T>());
        let from = bytemuck::bytes_of(self);
        if let Some(last) = to[..len].last_mut() {
            *last = 0; // the bytes after the value
        }
        bytemuck::cast_slice_mut(&mut to[..len])[..from.len()].copy_from_slice(from);
        Ok(len)
    }

    type Decoded = T;

    #[inline]
    fn decode(from: &[u64], _: &mut LayoutCache, _: &mut impl ResolveBuffer) -> Result<T, Unread> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        let short = || Error::BadMessage { what: "it is shorter than its type" };
        let bytes = bytes.get(..size_of::<T>()).ok_or_else(short)?;
        Ok(bytemuck::pod_read_unaligned(bytes))
    }

    #[inline]
    fn make(decoded: T, _: &LayoutCache) -> T {
        decoded
    }
}

/// The methods that all types over a tensor share.
macro_rules! over_tensor {
    () => {
        fn signature() -> Signature {
            Signature::tensor(Self::KIND, Self::NAME)
        }

        fn max_words() -> usize {
            codec::max_words(MAX_META)
        }

        #[inline]
        fn carried(&self) -> Option<&Tensor> {
            Some(self.tensor())
        }
    };
}

/// The methods of types with metadata.
macro_rules! with_meta {
    () => {
        over_tensor!();

        #[inline]
        fn encode(&self, shared: Option<&Tensor>, own: u64, words: &mut [u64]) -> Result<usize> {
            let tensor = shared.unwrap_or(self.tensor());
            codec::encode(tensor, own, Self::KIND, |room| self.write_meta(room), words)
        }
    };
}

/// Fails if the message is of another kind than `T`.
#[inline]
fn check_kind<T: Domain>(entry: &TensorEntry<'_>) -> Result<()> {
    match entry.kind == T::KIND {
        true => Ok(()),
        false => Err(Error::BadMessage { what: "a message of another kind" }),
    }
}

/// An image is built in place, because images are sent most.
impl Carry for Image {
    with_meta!();

    /// The buffer, format and size, and the header.
    type Decoded = (Handle, (PixelFormat, (usize, usize)), Header);

    #[inline(always)]
    fn decode(
        words: &[u64],
        layouts: &mut LayoutCache,
        buffers: &mut impl ResolveBuffer,
    ) -> Result<Self::Decoded, Unread> {
        let entry = layouts.decode(words)?;
        check_kind::<Image>(&entry)?;
        let header = Header::read_all(Words::of(entry.meta))?;
        let buffer = buffers.resolve(&entry)?;
        layouts.check_fits(&buffer)?;
        let none = || Error::BadMessage { what: "an image without a format" };
        Ok((buffer, layouts.image_info().ok_or_else(none)?, header))
    }

    #[inline(always)]
    fn make((buffer, format_and_size, header): Self::Decoded, layouts: &LayoutCache) -> Image {
        Image::of(layouts.make_tensor(buffer), format_and_size, header)
    }
}

macro_rules! made_of_parts {
    ($($type:ty),*) => {$(
        impl Carry for $type {
            with_meta!();

            type Decoded = Self;

            #[inline]
            fn decode(
                words: &[u64],
                layouts: &mut LayoutCache,
                buffers: &mut impl ResolveBuffer,
            ) -> Result<Self, Unread> {
                let entry = layouts.decode(words)?;
                check_kind::<Self>(&entry)?;
                let buffer = buffers.resolve(&entry)?;
                layouts.check_fits(&buffer)?;
                Ok(Self::from_parts(layouts.make_tensor(buffer), Words::of(entry.meta))?)
            }

            #[inline]
            fn make(decoded: Self, _: &LayoutCache) -> Self {
                decoded
            }
        }
    )*};
}

made_of_parts!(crate::domain::cloud::PointCloud, crate::domain::depth::DepthImage);

/// A tensor. It ignores metadata, so that a subscriber of tensors can also receive images.
impl Carry for Tensor {
    over_tensor!();

    #[inline]
    fn encode(&self, shared: Option<&Tensor>, own: u64, words: &mut [u64]) -> Result<usize> {
        codec::encode(shared.unwrap_or(self), own, Self::KIND, |_| {}, words)
    }

    type Decoded = Handle;

    #[inline(always)]
    fn decode(
        words: &[u64],
        layouts: &mut LayoutCache,
        buffers: &mut impl ResolveBuffer,
    ) -> Result<Handle, Unread> {
        let entry = layouts.decode(words)?;
        let buffer = buffers.resolve(&entry)?;
        layouts.check_fits(&buffer)?;
        Ok(buffer)
    }

    #[inline(always)]
    fn make(buffer: Handle, layouts: &LayoutCache) -> Tensor {
        layouts.make_tensor(buffer)
    }
}
