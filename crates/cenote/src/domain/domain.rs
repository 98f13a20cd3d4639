//! What images, point clouds and depth images have in common: each is one tensor, and metadata that
//! travels in its descriptor.

use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use crate::ipc::pool::descriptor::TensorDescriptor;
use crate::tensor::Tensor;
use crate::types::metadata::{Meta, Room, Words};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// By their codes.
const NAMES: [&str; 4] = ["Tensor", "Image", "PointCloud", "DepthImage"];

/// A tensor, or a type that says what a tensor means: [`Image`](crate::Image),
/// [`PointCloud`](crate::PointCloud), [`DepthImage`](crate::DepthImage).
///
/// Sealed. It is for code that handles all of them alike:
///
/// ```
/// use cenote::{DType, Domain, Image, PixelFormat, Tensor};
///
/// fn bytes<T: Domain>(what: &T) -> String {
///     format!("{} of {} bytes", T::NAME, what.tensor().nbytes())
/// }
///
/// let tensor = Tensor::new(&[4, 4], DType::F32)?;
/// assert_eq!(bytes(&tensor), "Tensor of 64 bytes");
/// let image = Image::from_tensor(Tensor::image(8, 4, PixelFormat::Rgb8)?)?;
/// assert_eq!(bytes(&image), "Image of 96 bytes");
/// # Ok::<(), cenote::Error>(())
/// ```
pub trait Domain: sealed::Sealed + Sized + Clone + Send + 'static {
    /// Stands for the type between processes. It never changes.
    #[doc(hidden)]
    const KIND: u16;

    /// The name of the type.
    const NAME: &'static str = NAMES[Self::KIND as usize];

    /// The tensor that has the bytes.
    fn tensor(&self) -> &Tensor;

    /// Adds what travels beside the tensor.
    #[doc(hidden)]
    fn write_meta(&self, room: &mut Room<'_>);

    /// What travels beside the tensor.
    #[doc(hidden)]
    fn meta(&self) -> Meta {
        Meta::of(|room| self.write_meta(room))
    }

    /// Puts together what a peer sent. Everything is checked.
    #[doc(hidden)]
    fn from_parts(tensor: Tensor, words: Words<'_>) -> Result<Self>;

    /// The same of other memory, with the metadata of this one.
    #[doc(hidden)]
    fn over(&self, tensor: Tensor) -> Result<Self> {
        Self::from_parts(tensor, self.meta().reader())
    }

    /// The words that stand for it in another process, metadata included.
    #[cfg(target_os = "linux")]
    #[doc(hidden)]
    fn describe(&self) -> Result<TensorDescriptor> {
        describe(self)
    }
}

impl sealed::Sealed for Tensor {}

impl Domain for Tensor {
    const KIND: u16 = 0;

    fn tensor(&self) -> &Tensor {
        self
    }

    fn write_meta(&self, _room: &mut Room<'_>) {}

    /// Any metadata will do: an image is a tensor, too.
    fn from_parts(tensor: Tensor, _words: Words<'_>) -> Result<Tensor> {
        Ok(tensor)
    }
}

/// An error for an image without pixels, in the words of whoever asks for one.
pub(crate) fn check_size(width: usize, height: usize) -> Result<()> {
    if width > 0 && height > 0 { Ok(()) } else { Err(Error::EmptyImage { width, height }) }
}

/// An error for a rectangle that an image does not have.
pub(crate) fn check_roi(
    at: (usize, usize),
    size: (usize, usize),
    image: (usize, usize),
) -> Result<()> {
    let ((x, y), (width, height)) = (at, size);
    check_size(width, height)?;
    let within =
        |start: usize, len: usize, all| start.checked_add(len).is_some_and(|end| end <= all);
    match within(x, width, image.0) && within(y, height, image.1) {
        true => Ok(()),
        false => Err(Error::NoSuchRoi { x, y, width, height, image }),
    }
}

/// The descriptor of the tensor, with the metadata.
#[cfg(target_os = "linux")]
pub(crate) fn describe<T: Domain>(what: &T) -> Result<TensorDescriptor> {
    let mut descriptor = what.tensor().descriptor()?;
    descriptor.set_meta(T::KIND, &what.meta());
    Ok(descriptor)
}

/// What a descriptor describes, if it is a `T`. Everything is a [`Tensor`].
#[cfg(target_os = "linux")]
pub(crate) fn import<T: Domain>(descriptor: &TensorDescriptor) -> Result<T> {
    if T::KIND != Tensor::KIND && T::KIND != descriptor.kind() {
        return Err(Error::WrongKind { asked: T::NAME, found: kind_name(descriptor.kind()) });
    }
    let meta = descriptor.meta()?;
    T::from_parts(Tensor::from_descriptor(descriptor)?, meta.reader())
}

/// The name of the type with this code.
#[cfg(target_os = "linux")]
fn kind_name(kind: u16) -> &'static str {
    NAMES.get(usize::from(kind)).unwrap_or(&"a type that this version of cenote does not know")
}

/// What every type over one field `tensor` can do with it.
macro_rules! tensor_accessors {
    ($type:ty) => {
        impl $type {
            /// The tensor that has the bytes.
            pub fn tensor(&self) -> &$crate::Tensor {
                &self.tensor
            }

            /// The tensor alone.
            pub fn into_tensor(self) -> $crate::Tensor {
                self.tensor
            }

            /// Why it cannot be written now, or `None` if it can: see [`Tensor::map_mut`].
            ///
            /// [`Tensor::map_mut`]: $crate::Tensor::map_mut
            pub fn not_writable(&self) -> Option<$crate::NotWritable> {
                self.tensor.not_writable()
            }

            /// Makes its elements accessible for reading: see [`Tensor::map`].
            ///
            /// [`Tensor::map`]: $crate::Tensor::map
            pub fn map(&self) -> $crate::Result<$crate::TensorMap<'_>> {
                self.tensor.map()
            }

            /// Makes its elements accessible for writing, for the sole holder of what was never
            /// sent: see [`Tensor::map_mut`].
            ///
            /// [`Tensor::map_mut`]: $crate::Tensor::map_mut
            pub fn map_mut(&mut self) -> $crate::Result<$crate::TensorMapMut<'_>> {
                self.tensor.map_mut()
            }

            /// Write access: to these very bytes where [`map_mut`](Self::map_mut) allows it, else
            /// to a copy that takes their place here. Others keep the old bytes, and the copy can
            /// be sent like any other. [`copies`]($crate::copies) counts it.
            pub fn make_mut(&mut self) -> $crate::Result<$crate::TensorMapMut<'_>> {
                $crate::ipc::pool::process_pool::make_mut(&mut self.tensor)
            }

            /// The words that stand for it in another process, metadata included. An error for
            /// memory that is in no pool. From then on nobody can write its bytes.
            #[cfg(target_os = "linux")]
            pub fn descriptor(&self) -> $crate::Result<$crate::TensorDescriptor> {
                $crate::domain::describe(self)
            }

            /// What a descriptor stands for, wherever its pool is. An error if that is something
            /// else: see also [`Tensor::from_descriptor`], which takes anything.
            ///
            /// [`Tensor::from_descriptor`]: $crate::Tensor::from_descriptor
            #[cfg(target_os = "linux")]
            pub fn from_descriptor(descriptor: &$crate::TensorDescriptor) -> $crate::Result<Self> {
                $crate::domain::import(descriptor)
            }
        }
    };
}
pub(crate) use tensor_accessors;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::domain::cloud::PointCloud;
    use crate::domain::cloud::field::Field;
    use crate::domain::depth::DepthImage;
    use crate::domain::image::Image;
    use crate::types::dtype::DType;
    use crate::types::metadata::MAX_META;

    fn tensor(shape: &[usize], dtype: DType) -> Tensor {
        Tensor::options()
            .memory(crate::memory::kind::TensorMemory::Mem)
            .create(shape, dtype)
            .unwrap()
    }

    fn tensors() -> Vec<Tensor> {
        let image = tensor(&[6, 4, 3], DType::U8)
            .with_format(crate::types::pixel_format::PixelFormat::Rgb8)
            .unwrap();
        vec![
            image,
            tensor(&[6, 4], DType::U16),
            tensor(&[6, 4], DType::F32),
            tensor(&[6, 4], DType::F32).transpose(),
            tensor(&[5], DType::F32),
            tensor(&[], DType::F64),
            tensor(&[6, 20], DType::U8),
            tensor(&[6, 20], DType::U8).narrow(1, 3, 17).unwrap(),
        ]
    }

    /// What was accepted says the same again, and can be used.
    fn check<T: Domain>(tensor: &Tensor, meta: &Meta) -> Option<T> {
        let accepted = T::from_parts(tensor.clone(), meta.reader()).ok()?;
        let again = T::from_parts(accepted.tensor().clone(), accepted.meta().reader()).unwrap();
        assert_eq!(again.meta().as_words(), accepted.meta().as_words());
        Some(accepted)
    }

    fn use_all(tensor: &Tensor, meta: &Meta) {
        if let Some(image) = check::<Image>(tensor, meta) {
            image.pixel(image.width() - 1, image.height() - 1).unwrap();
            image.pixel(image.width(), 0).unwrap_err();
        }
        if let Some(depth) = check::<DepthImage>(tensor, meta) {
            depth.stats().unwrap();
            let _ = (depth.depth_at(99, 99), depth.roi(0, 0, 9, 9));
        }
        if let Some(cloud) = check::<PointCloud>(tensor, meta) {
            for field in cloud.fields() {
                let _ = (cloud.column(field.name()), cloud.field(field.name()).unwrap());
            }
            for point in &cloud {
                let _ = (point.xyz(), point.rgb(), format!("{point:?}"));
            }
            let _ = cloud.xyz();
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused_or_can_be_used(words in vec(word(), 0..=MAX_META)) {
            let meta = Meta::from_words(&words).unwrap();
            tensors().iter().for_each(|tensor| use_all(tensor, &meta));
        }

        #[test]
        fn a_cloud_with_one_word_wrong(at in 0_usize..14, wrong in word()) {
            let fields = [
                Field::new("x", DType::F32),
                Field::new("rgb", DType::U8).with_count(3),
                Field::new("quite_a_long_one", DType::U16),
            ];
            let cloud = PointCloud::from_tensor_with_fields(tensors().remove(6), &fields).unwrap();
            let mut words = cloud.meta().as_words().to_vec();
            if let Some(place) = words.get_mut(at) {
                *place = wrong;
            }
            let meta = Meta::from_words(&words).unwrap();
            tensors().iter().for_each(|tensor| use_all(tensor, &meta));
        }
    }

    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..20, any::<u64>(), Just(u64::MAX), (0_u64..3).prop_map(|n| n << 56)]
    }

    #[test]
    fn names_go_with_codes() {
        assert_eq!(NAMES[usize::from(Image::KIND)], "Image");
        assert_eq!(NAMES[usize::from(PointCloud::KIND)], "PointCloud");
        assert_eq!((DepthImage::NAME, Tensor::NAME), ("DepthImage", "Tensor"));
    }
}
