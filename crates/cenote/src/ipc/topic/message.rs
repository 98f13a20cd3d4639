//! What can be sent: how a value becomes the words of a ring entry, and comes back.

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

/// How a message travels. Unnameable elsewhere, so that only this file implements it.
pub trait Carry: Sized + Send + 'static {
    /// The type, in words that can be compared with a peer's.
    fn signature() -> Signature;

    /// The most words that a message takes in a ring.
    fn max_words() -> usize;

    /// The tensor that the message stands for.
    fn carried(&self) -> Option<&Tensor>;

    /// Writes the message to `words`, which has room for it, and tells how many it took. `shared`
    /// takes the place of the tensor that it carries; `own` is the pool of the publisher. From here on
    /// nobody can write that tensor.
    fn write(&self, shared: Option<&Tensor>, own: u64, words: &mut [u64]) -> Result<usize>;

    /// What a message is made of as the last thing, when nothing can go wrong any more: messages are too
    /// large to be handed from one function to the next.
    type Taken;

    /// Reads a message; its tensor is to be had from `tensors`, and the `layouts` is that of its publisher.
    /// The words are input.
    fn read(
        words: &[u64],
        layouts: &mut LayoutCache,
        tensors: &mut impl Tensors,
    ) -> Result<Self::Taken, Unread>;

    /// Makes the message that was read last with this `layouts`.
    fn make(taken: Self::Taken, layouts: &LayoutCache) -> Self;
}

/// Where the tensor of a message comes from.
pub trait Tensors {
    /// The buffer that it lies in.
    fn buffer(&mut self, packed: &TensorEntry<'_>) -> Result<Handle, Unread>;
}

/// Why a message was not read.
#[derive(Debug)]
pub enum Unread {
    /// Its pool is not attached to yet. It stays in the queue.
    Later,
    /// It was overwritten meanwhile.
    Passed,
    /// It never can be.
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

    fn write(&self, _: Option<&Tensor>, _: u64, to: &mut [u64]) -> Result<usize> {
        let len = words(size_of::<T>());
        let from = bytemuck::bytes_of(self);
        if let Some(last) = to[..len].last_mut() {
            *last = 0; // the bytes beyond the value
        }
        bytemuck::cast_slice_mut(&mut to[..len])[..from.len()].copy_from_slice(from);
        Ok(len)
    }

    type Taken = T;

    #[inline]
    fn read(from: &[u64], _: &mut LayoutCache, _: &mut impl Tensors) -> Result<T, Unread> {
        let bytes: &[u8] = bytemuck::cast_slice(from);
        let short = || Error::BadMessage { what: "it is shorter than its type" };
        let bytes = bytes.get(..size_of::<T>()).ok_or_else(short)?;
        Ok(bytemuck::pod_read_unaligned(bytes))
    }

    #[inline]
    fn make(taken: T, _: &LayoutCache) -> T {
        taken
    }
}

/// What types over a tensor have in common.
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

/// And those with metadata.
macro_rules! with_meta {
    () => {
        over_tensor!();

        #[inline]
        fn write(&self, shared: Option<&Tensor>, own: u64, words: &mut [u64]) -> Result<usize> {
            let tensor = shared.unwrap_or(self.tensor());
            codec::encode(tensor, own, Self::KIND, |room| self.write_meta(room), words)
        }
    };
}

/// An error for a message of another kind than `T`.
#[inline]
fn check_kind<T: Domain>(packed: &TensorEntry<'_>) -> Result<()> {
    match packed.kind == T::KIND {
        true => Ok(()),
        false => Err(Error::BadMessage { what: "a message of another kind" }),
    }
}

/// What is sent most: it is made in place.
impl Carry for Image {
    with_meta!();

    /// Its buffer, what that shows, and where and when it was recorded.
    type Taken = (Handle, (PixelFormat, (usize, usize)), Header);

    #[inline(always)]
    fn read(
        words: &[u64],
        layouts: &mut LayoutCache,
        tensors: &mut impl Tensors,
    ) -> Result<Self::Taken, Unread> {
        let packed = layouts.decode(words)?;
        check_kind::<Image>(&packed)?;
        let header = Header::read_all(Words::of(packed.meta))?;
        let buffer = tensors.buffer(&packed)?;
        layouts.check_fits(&buffer)?;
        let none = || Error::BadMessage { what: "an image without a format" };
        Ok((buffer, layouts.image_info().ok_or_else(none)?, header))
    }

    #[inline(always)]
    fn make((buffer, picture, header): Self::Taken, layouts: &LayoutCache) -> Image {
        Image::of(layouts.make_tensor(buffer), picture, header)
    }
}

macro_rules! made_of_parts {
    ($($type:ty),*) => {$(
        impl Carry for $type {
            with_meta!();

            type Taken = Self;

            #[inline]
            fn read(
                words: &[u64],
                layouts: &mut LayoutCache,
                tensors: &mut impl Tensors,
            ) -> Result<Self, Unread> {
                let packed = layouts.decode(words)?;
                check_kind::<Self>(&packed)?;
                let buffer = tensors.buffer(&packed)?;
                layouts.check_fits(&buffer)?;
                Ok(Self::from_parts(layouts.make_tensor(buffer), Words::of(packed.meta))?)
            }

            #[inline]
            fn make(taken: Self, _: &LayoutCache) -> Self {
                taken
            }
        }
    )*};
}

made_of_parts!(crate::domain::cloud::PointCloud, crate::domain::depth::DepthImage);

/// Without metadata, or in spite of it: an image is a tensor, too.
impl Carry for Tensor {
    over_tensor!();

    #[inline]
    fn write(&self, shared: Option<&Tensor>, own: u64, words: &mut [u64]) -> Result<usize> {
        codec::encode(shared.unwrap_or(self), own, Self::KIND, |_| {}, words)
    }

    type Taken = Handle;

    #[inline(always)]
    fn read(
        words: &[u64],
        layouts: &mut LayoutCache,
        tensors: &mut impl Tensors,
    ) -> Result<Handle, Unread> {
        let packed = layouts.decode(words)?;
        let buffer = tensors.buffer(&packed)?;
        layouts.check_fits(&buffer)?;
        Ok(buffer)
    }

    #[inline(always)]
    fn make(buffer: Handle, layouts: &LayoutCache) -> Tensor {
        layouts.make_tensor(buffer)
    }
}
