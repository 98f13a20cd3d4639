//! Images, point clouds and depth images in pool memory: allocation, copies, and descriptors.
//!
//! The types themselves are in `domain/`, which knows nothing of pools.

use crate::copies::CopyReason;
use crate::domain::cloud::PointCloud;
use crate::domain::cloud::field::Field;
use crate::domain::depth::DepthImage;
use crate::domain::domain::check_size;
#[cfg(target_os = "linux")]
use crate::domain::domain::{Domain, kind_name};
use crate::domain::image::Image;
#[cfg(target_os = "linux")]
use crate::error::Error;
use crate::error::Result;
#[cfg(target_os = "linux")]
use crate::ipc::pool::descriptor::TensorDescriptor;
use crate::ipc::pool::process_pool;
#[cfg(target_os = "linux")]
use crate::ipc::pool::tensor_pool::TensorPool;
use crate::tensor::map::TensorMapMut;
#[cfg(target_os = "linux")]
use crate::tensor::tensor::Tensor;
use crate::types::dtype::DType;
#[cfg(target_os = "linux")]
use crate::types::metadata::header::Header;
use crate::types::pixel_format::PixelFormat;

impl Image {
    /// Allocates a black image in the [pool of this process](crate::TensorPool::of_process), so that it can
    /// be sent without a copy. Where there is no shared memory, it is on the heap.
    ///
    /// Clearing a large image takes longer than allocating it. [`new_in`](Image::new_in) does not clear it.
    pub fn new(width: usize, height: usize, format: PixelFormat) -> Result<Image> {
        check_size(width, height)?;
        Image::from_tensor(process_pool::black(width, height, format)?)
    }

    /// Allocates an image in a pool. Its bytes are undefined: they are what the memory held before.
    #[cfg(target_os = "linux")]
    #[inline]
    pub fn new_in(
        pool: &TensorPool,
        width: usize,
        height: usize,
        format: PixelFormat,
    ) -> Result<Image> {
        Image::new_with(pool, (width, height), format, || false)
    }

    /// Like [`new_in`](Image::new_in). If the pool is full, it calls `make_room`, and tries again if that
    /// returns true.
    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn new_with(
        pool: &TensorPool,
        size: (usize, usize),
        format: PixelFormat,
        make_room: impl FnMut() -> bool,
    ) -> Result<Image> {
        check_size(size.0, size.1)?;
        let tensor = pool.image_with(size, format, make_room)?;
        Ok(Image::of(tensor, (format, size), Header::default()))
    }

    /// Copies the image without padding between rows, into memory that can be sent without another copy.
    pub fn to_contiguous(&self) -> Result<Image> {
        let tensor = process_pool::copy(&self.tensor, CopyReason::ToContiguous)?;
        Ok(Image { header: self.header, ..Image::from_tensor(tensor)? })
    }
}

impl PointCloud {
    /// Allocates `points` points of `values` values, all zero. The fields are `x`, `y`, `z`, `intensity`, and
    /// from the fifth on `f4`, `f5` and so on.
    ///
    /// The memory is in the [pool of this process](crate::TensorPool::of_process), so that the cloud can be
    /// sent without a copy. Where there is no shared memory, it is on the heap.
    pub fn new(points: usize, values: usize, dtype: DType) -> Result<PointCloud> {
        PointCloud::with_fields(points, &PointCloud::numbered_fields(values, dtype)?)
    }

    /// Allocates points of zeros with these fields, packed in this order. Each field lies at a multiple of
    /// the size of its dtype.
    ///
    /// ```
    /// use cenote::{DType, Field, PointCloud};
    /// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
    ///
    /// let fields = [
    ///     Field::new("x", DType::F32),
    ///     Field::new("y", DType::F32),
    ///     Field::new("z", DType::F32),
    ///     Field::new("ring", DType::U16),
    ///     Field::new("time", DType::F64),
    /// ];
    /// let cloud = PointCloud::with_fields(1000, &fields)?;
    /// assert_eq!(cloud.field("ring")?.offset(), 12);
    /// assert_eq!(cloud.field("time")?.offset(), 16);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn with_fields(points: usize, fields: &[Field]) -> Result<PointCloud> {
        PointCloud::alloc(process_pool::zeros, points, fields)
    }

    /// Allocates points in a pool. Their values are undefined: they are what the memory held before.
    #[cfg(target_os = "linux")]
    pub fn new_in(pool: &TensorPool, points: usize, fields: &[Field]) -> Result<PointCloud> {
        PointCloud::alloc(|shape, dtype| pool.alloc(shape, dtype), points, fields)
    }
}

impl DepthImage {
    /// Allocates a depth image without a measurement. The height comes first, as in the shape of the tensor.
    /// `dtype` is [`F32`](DType::F32) for metres or [`U16`](DType::U16) for millimetres.
    ///
    /// The memory is in the [pool of this process](crate::TensorPool::of_process), so that the image can be
    /// sent without a copy. Where there is no shared memory, it is on the heap.
    pub fn new(height: usize, width: usize, dtype: DType) -> Result<DepthImage> {
        check_size(width, height)?;
        let format = DepthImage::format_of(dtype)?;
        DepthImage::from_tensor(process_pool::black(width, height, format)?)
    }

    /// Allocates a depth image in a pool. Its bytes are undefined: they are what the memory held before.
    #[cfg(target_os = "linux")]
    pub fn new_in(
        pool: &TensorPool,
        height: usize,
        width: usize,
        dtype: DType,
    ) -> Result<DepthImage> {
        check_size(width, height)?;
        DepthImage::from_tensor(pool.image(width, height, DepthImage::format_of(dtype)?)?)
    }
}

/// The methods that all three types have.
macro_rules! pooled_methods {
    ($($type:ty),*) => {$(
        impl $type {
            /// Write access: to the bytes themselves if [`map_mut`](Self::map_mut) allows it. Otherwise this
            /// value gets a copy, which can be sent like the original; other holders keep the old bytes.
            /// [`copies`](crate::copies) counts the copy.
            pub fn make_mut(&mut self) -> Result<TensorMapMut<'_>> {
                process_pool::make_mut(&mut self.tensor)
            }

            /// Returns the words that describe this value to another process, metadata included. Fails if its
            /// memory is in no pool. From then on the bytes cannot be written.
            #[cfg(target_os = "linux")]
            pub fn descriptor(&self) -> Result<TensorDescriptor> {
                TensorDescriptor::describe(self)
            }

            /// Opens what a descriptor describes, in any pool that this process can attach. Fails if that is
            /// another type; [`Tensor::from_descriptor`](crate::Tensor::from_descriptor) accepts every type.
            #[cfg(target_os = "linux")]
            pub fn from_descriptor(descriptor: &TensorDescriptor) -> Result<Self> {
                descriptor.open()
            }
        }
    )*};
}

pooled_methods!(Image, PointCloud, DepthImage);

#[cfg(target_os = "linux")]
impl TensorDescriptor {
    /// The descriptor of a tensor or of a type over one, with its metadata. Fails if the memory is in no
    /// pool.
    #[doc(hidden)]
    pub fn describe<T: Domain>(value: &T) -> Result<TensorDescriptor> {
        let mut descriptor = value.tensor().descriptor()?;
        descriptor.set_meta(T::KIND, &value.meta());
        Ok(descriptor)
    }

    /// Opens what it describes. Fails if that is no `T`; everything is a [`Tensor`].
    fn open<T: Domain>(&self) -> Result<T> {
        if T::KIND != Tensor::KIND && T::KIND != self.kind() {
            return Err(Error::WrongKind { asked: T::NAME, found: kind_name(self.kind()) });
        }
        let meta = self.meta()?;
        T::from_parts(Tensor::from_descriptor(self)?, meta.reader())
    }
}
