//! What images, point clouds and depth images have in common: each is one tensor, with metadata that
//! travels beside it.

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::metadata::{Meta, Room, Words};

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The names of the types, by their codes.
const NAMES: [&str; 4] = ["Tensor", "Image", "PointCloud", "DepthImage"];

/// A tensor, or a type that says what a tensor means: [`Image`](crate::Image),
/// [`PointCloud`](crate::PointCloud), [`DepthImage`](crate::DepthImage).
///
/// The trait is sealed. It is for code that handles all of these types:
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
    /// The code of the type between processes. It never changes.
    #[doc(hidden)]
    const KIND: u16;

    /// The name of the type.
    const NAME: &'static str = NAMES[Self::KIND as usize];

    /// The tensor that holds the bytes.
    fn tensor(&self) -> &Tensor;

    /// Adds the metadata, which travels beside the tensor.
    #[doc(hidden)]
    fn write_meta(&self, room: &mut Room<'_>);

    /// The metadata, which travels beside the tensor.
    #[doc(hidden)]
    fn meta(&self) -> Meta {
        Meta::of(|room| self.write_meta(room))
    }

    /// Makes a value of what a peer sent. Fails if anything in it is invalid.
    #[doc(hidden)]
    fn from_parts(tensor: Tensor, words: Words<'_>) -> Result<Self>;

    /// The same value over another tensor, with this metadata. Fails if they do not match.
    #[doc(hidden)]
    fn over(&self, tensor: Tensor) -> Result<Self> {
        Self::from_parts(tensor, self.meta().reader())
    }
}

impl sealed::Sealed for Tensor {}

impl Domain for Tensor {
    const KIND: u16 = 0;

    fn tensor(&self) -> &Tensor {
        self
    }

    fn write_meta(&self, _room: &mut Room<'_>) {}

    /// Ignores the metadata: an image is a tensor, too.
    fn from_parts(tensor: Tensor, _words: Words<'_>) -> Result<Tensor> {
        Ok(tensor)
    }
}

/// Fails for an image without pixels.
pub(crate) fn check_size(width: usize, height: usize) -> Result<()> {
    if width > 0 && height > 0 { Ok(()) } else { Err(Error::EmptyImage { width, height }) }
}

/// Fails for a rectangle that is not inside an image.
pub(crate) fn check_roi(
    corner: (usize, usize),
    size: (usize, usize),
    image: (usize, usize),
) -> Result<()> {
    let ((x, y), (width, height)) = (corner, size);
    check_size(width, height)?;
    let within =
        |start: usize, len: usize, all| start.checked_add(len).is_some_and(|end| end <= all);
    match within(x, width, image.0) && within(y, height, image.1) {
        true => Ok(()),
        false => Err(Error::NoSuchRoi { x, y, width, height, image }),
    }
}

/// The name of the type with this code.
#[cfg(target_os = "linux")]
pub(crate) fn kind_name(kind: u16) -> &'static str {
    NAMES.get(usize::from(kind)).unwrap_or(&"a type that this version of cenote does not know")
}

/// The methods of every type with a field `tensor`.
macro_rules! tensor_accessors {
    ($type:ty) => {
        impl $type {
            /// The tensor that holds the bytes.
            pub fn tensor(&self) -> &$crate::Tensor {
                &self.tensor
            }

            /// Returns the tensor, without the metadata.
            pub fn into_tensor(self) -> $crate::Tensor {
                self.tensor
            }

            /// Returns why it cannot be written now, or `None` if it can: see [`Tensor::map_mut`].
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

            /// Makes its elements accessible for writing. Fails unless this is the only holder, and it was
            /// never sent: see [`Tensor::map_mut`].
            ///
            /// [`Tensor::map_mut`]: $crate::Tensor::map_mut
            pub fn map_mut(&mut self) -> $crate::Result<$crate::TensorMapMut<'_>> {
                self.tensor.map_mut()
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

    /// An accepted value writes metadata that is accepted again, with the same words.
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
        fn random_metadata_is_refused_or_makes_a_usable_value(words in vec(word(), 0..=MAX_META)) {
            let meta = Meta::from_words(&words).unwrap();
            tensors().iter().for_each(|tensor| use_all(tensor, &meta));
        }

        #[test]
        fn a_cloud_with_one_wrong_word_is_refused_or_usable(index in 0_usize..14, wrong in word()) {
            let fields = [
                Field::new("x", DType::F32),
                Field::new("rgb", DType::U8).with_count(3),
                Field::new("quite_a_long_one", DType::U16),
            ];
            let cloud = PointCloud::from_tensor_with_fields(tensors().remove(6), &fields).unwrap();
            let mut words = cloud.meta().as_words().to_vec();
            if let Some(word) = words.get_mut(index) {
                *word = wrong;
            }
            let meta = Meta::from_words(&words).unwrap();
            tensors().iter().for_each(|tensor| use_all(tensor, &meta));
        }
    }

    fn word() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..20, any::<u64>(), Just(u64::MAX), (0_u64..3).prop_map(|n| n << 56)]
    }

    #[test]
    fn every_type_has_the_name_of_its_code() {
        assert_eq!(NAMES[usize::from(Image::KIND)], "Image");
        assert_eq!(NAMES[usize::from(PointCloud::KIND)], "PointCloud");
        assert_eq!((DepthImage::NAME, Tensor::NAME), ("DepthImage", "Tensor"));
    }
}
