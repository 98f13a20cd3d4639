//! Copying pixels into an image, and views of parts of it.

use crate::copies;
use crate::copies::CopyReason;
use crate::domain::domain::check_roi;
use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::types::dtype::Element;
use crate::types::pixel_format::geometry::Planes;

impl Image {
    /// Copies all pixels of another image. Fails unless it has the same size and format.
    /// [`copies`](crate::copies) counts this and all other copies.
    pub fn copy_from(&mut self, source: &Image) -> Result<()> {
        if (self.size, self.format) != (source.size, source.format) {
            return Err(Error::OtherImage {
                expected: describe(self).into(),
                given: describe(source).into(),
            });
        }
        let bytes = self.tensor.fill_from(&source.tensor)?;
        copies::count(CopyReason::CopiedIn, bytes);
        Ok(())
    }

    /// Copies all pixels from bytes whose rows (those of the first plane) lie `step` bytes apart. The planes
    /// follow each other as in [`PixelFormat::planes`]. Padding of a row is ignored, and may be missing from
    /// the last row. Fails if there are too few bytes.
    ///
    /// [`PixelFormat::planes`]: crate::PixelFormat::planes
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let mut image = Image::from_tensor(Tensor::image(2, 2, PixelFormat::Grey)?)?;
    /// image.copy_from_bytes(&[1, 2, 0, 0, 3, 4], 4)?;
    /// assert_eq!(image.tensor().to_vec::<u8>()?, [1, 2, 3, 4]);
    /// assert!(image.copy_from_bytes(&[1, 2, 0, 0, 3], 4).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn copy_from_bytes(&mut self, bytes: &[u8], step: usize) -> Result<()> {
        let (width, height) = self.size;
        let planes = self.format.planes(width, height, step)?;
        check_bytes(&planes, bytes.len(), step)?;
        let mut map = self.tensor.map_mut()?;
        let mut copied = 0;
        for (index, plane) in planes.iter().enumerate() {
            let mut rows = bytes[plane.offset..].chunks(plane.stride);
            map.plane_mut(index)?.for_each_run(|run| {
                copied += run.len();
                for (to, from) in run.chunks_exact_mut(plane.row_bytes).zip(&mut rows) {
                    to.copy_from_slice(&from[..plane.row_bytes]);
                }
            });
        }
        copies::count(CopyReason::CopiedIn, copied);
        Ok(())
    }

    /// Copies all pixels from a slice without padding between rows. Fails unless its length and its type are
    /// those of the image. (Formats that share chroma have rows of an even number of pixels.)
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let mut image = Image::from_tensor(Tensor::image(2, 2, PixelFormat::Mono16)?)?;
    /// image.copy_from_slice(&[1u16, 2, 3, 4])?;
    /// assert_eq!(image.pixel(1, 1)?, [4]);
    /// assert!(image.copy_from_slice(&[1u16, 2, 3]).is_err());
    /// assert!(image.copy_from_slice(&[1u8; 8]).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn copy_from_slice<T: Element>(&mut self, values: &[T]) -> Result<()> {
        crate::tensor::map::check_dtype::<T>(self.format.dtype())?;
        let (width, height) = self.size;
        let step = self.format.min_row_stride(width)?;
        let bytes = bytemuck::cast_slice::<T, u8>(values);
        let expected = self.format.image_bytes(width, height, step)?;
        if bytes.len() != expected {
            return Err(Error::ImageBytes { expected, given: bytes.len(), step });
        }
        self.copy_from_bytes(bytes, step)
    }

    /// Returns a rectangle of the image, without a copy. It has the same header. Fails if it is not inside
    /// the image.
    ///
    /// `x` and `y` must not split a group of pixels that share values: see
    /// [`PixelFormat::pixel_group`](crate::PixelFormat::pixel_group).
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let image = Image::from_tensor(Tensor::image(640, 480, PixelFormat::Rgb8)?)?;
    /// let face = image.roi(200, 100, 64, 64)?;
    /// assert_eq!((face.width(), face.step()), (64, 1920));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn roi(&self, x: usize, y: usize, width: usize, height: usize) -> Result<Image> {
        check_roi((x, y), (width, height), self.size)?;
        let tensor = self.tensor.roi(x, y, width, height)?;
        Ok(Image { header: self.header, ..Image::from_tensor(tensor)? })
    }

    /// The number of planes: 2 for NV12, 3 for I420.
    pub fn plane_count(&self) -> usize {
        self.format.plane_count()
    }

    /// Returns one plane, as a view of rows of samples: see [`Tensor::plane`]. To write one, see
    /// [`TensorMapMut::plane_mut`](crate::TensorMapMut::plane_mut).
    pub fn plane(&self, index: usize) -> Result<Tensor> {
        self.tensor.plane(index)
    }
}

fn describe(image: &Image) -> String {
    format!("{} {}x{}", image.format, image.width(), image.height())
}

/// Fails if `given` bytes are too few for all samples.
fn check_bytes(planes: &Planes, given: usize, step: usize) -> Result<()> {
    // Cannot overflow: the caller has computed the end of the planes, padding included.
    let end = |last: &crate::types::pixel_format::geometry::Plane| {
        last.offset + (last.rows - 1) * last.stride + last.row_bytes
    };
    let expected = planes.last().map_or(0, end);
    if given >= expected { Ok(()) } else { Err(Error::ImageBytes { expected, given, step }) }
}
