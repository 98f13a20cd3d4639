//! What images, point clouds and depth images have in common: each is one tensor, and metadata that
//! travels in its descriptor.

#[cfg(target_os = "linux")]
use crate::error::Error;
use crate::error::Result;
use crate::meta::Meta;
use crate::tensor::Tensor;
#[cfg(target_os = "linux")]
use crate::tensor::TensorDescriptor;

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

    /// What travels beside the tensor.
    #[doc(hidden)]
    fn meta(&self) -> Meta;

    /// Puts together what a peer sent. Everything is checked.
    #[doc(hidden)]
    fn from_parts(tensor: Tensor, meta: &Meta) -> Result<Self>;
}

impl sealed::Sealed for Tensor {}

impl Domain for Tensor {
    const KIND: u16 = 0;

    fn tensor(&self) -> &Tensor {
        self
    }

    fn meta(&self) -> Meta {
        Meta::new()
    }

    /// Any metadata will do: an image is a tensor, too.
    fn from_parts(tensor: Tensor, _meta: &Meta) -> Result<Tensor> {
        Ok(tensor)
    }
}

/// The descriptor of the tensor, with the metadata.
#[cfg(target_os = "linux")]
pub(crate) fn describe<T: Domain>(what: &T) -> Result<TensorDescriptor> {
    Ok(what.tensor().descriptor()?.with_meta(T::KIND, &what.meta()))
}

/// What a descriptor describes, if it is a `T`. Everything is a [`Tensor`].
#[cfg(target_os = "linux")]
pub(crate) fn import<T: Domain>(descriptor: &TensorDescriptor) -> Result<T> {
    if T::KIND != Tensor::KIND && T::KIND != descriptor.kind() {
        return Err(Error::WrongKind { asked: T::NAME, found: kind_name(descriptor.kind()) });
    }
    let meta = descriptor.meta()?;
    T::from_parts(Tensor::from_descriptor(descriptor)?, &meta)
}

/// The name of the type with this code.
#[cfg(target_os = "linux")]
fn kind_name(kind: u16) -> &'static str {
    NAMES.get(usize::from(kind)).unwrap_or(&"type that this version of cenote does not know")
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
                $crate::tensor::process_pool::make_mut(&mut self.tensor)
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
