//! Conversion from and to the `image` crate, and PNG files for viewing.

use std::array;
use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::Path;

use ::image::{DynamicImage, ImageBuffer, ImageError, ImageFormat, ImageReader};

use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::types::dtype::Element;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::sample::Place;

impl Image {
    /// Copies the image to one of the `image` crate. The values stay the same where that crate has such
    /// pixels; otherwise they are converted for viewing.
    ///
    /// - Grey, 16-bit, RGB and RGBA images keep their values; BGR is reordered.
    /// - YUV becomes RGB (BT.601 with video range, as most cameras have it).
    /// - Bayer mosaics become grey images.
    /// - `f32` of one channel becomes 16-bit grey: 0 is black, 1 is white, and values beyond
    ///   are clamped. (RGB as `f32` keeps its values.)
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let mut image = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Bgr8)?)?;
    /// image.fill(&[255, 0, 0])?; // blue
    /// assert_eq!(image.to_dynamic()?.into_rgb8().get_pixel(0, 0).0, [0, 0, 255]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn to_dynamic(&self) -> Result<DynamicImage> {
        use DynamicImage::{ImageLuma8, ImageLuma16, ImageRgb8, ImageRgb32F, ImageRgba8};
        use PixelFormat::*;
        match self.format {
            Mono16 | Depth16 => self.collect(ImageLuma16, |pixel: [u16; 1]| pixel),
            Mono32F => self.collect(ImageLuma16, |[value]| [to_u16(value)]),
            Rgb32F => self.collect(ImageRgb32F, |pixel: [f32; 3]| pixel),
            Rgba8 | PlanarRgba => self.collect(ImageRgba8, |pixel: [u8; 4]| pixel),
            Bgra8 => self.collect(ImageRgba8, |[b, g, r, a]: [u8; 4]| [r, g, b, a]),
            Rgb8 | PlanarRgb => self.collect(ImageRgb8, |pixel: [u8; 3]| pixel),
            Bgr8 => self.collect(ImageRgb8, |[b, g, r]: [u8; 3]| [r, g, b]),
            Grey | BayerRggb8 | BayerBggr8 | BayerGbrg8 | BayerGrbg8 => {
                self.collect(ImageLuma8, |pixel: [u8; 1]| pixel)
            }
            Yuyv | Uyvy | Vyuy | Nv12 | Nv21 | Nv16 | Nv24 | I420 => {
                self.collect(ImageRgb8, rgb_of_yuv)
            }
        }
    }

    /// Copies an image of the `image` crate. Pixels without a [`PixelFormat`] become
    /// [`Rgba8`](PixelFormat::Rgba8).
    ///
    /// ```
    /// use cenote::{Image, PixelFormat};
    /// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
    ///
    /// let picture = image::DynamicImage::new_luma8(64, 48);
    /// let grey = Image::from_dynamic(&picture)?;
    /// assert_eq!((grey.width(), grey.format()), (64, PixelFormat::Grey));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn from_dynamic(picture: &DynamicImage) -> Result<Image> {
        use DynamicImage::{ImageLuma8, ImageLuma16, ImageRgb8, ImageRgb32F, ImageRgba8};
        let size = (picture.width() as usize, picture.height() as usize);
        match picture {
            ImageLuma8(buffer) => with_pixels(size, PixelFormat::Grey, buffer.as_raw()),
            ImageLuma16(buffer) => with_pixels(size, PixelFormat::Mono16, buffer.as_raw()),
            ImageRgb8(buffer) => with_pixels(size, PixelFormat::Rgb8, buffer.as_raw()),
            ImageRgba8(buffer) => with_pixels(size, PixelFormat::Rgba8, buffer.as_raw()),
            ImageRgb32F(buffer) => with_pixels(size, PixelFormat::Rgb32F, buffer.as_raw()),
            other => with_pixels(size, PixelFormat::Rgba8, other.to_rgba8().as_raw()),
        }
    }

    /// Writes a PNG file of what [`to_dynamic`](Image::to_dynamic) returns. RGB as `f32` becomes 16-bit, where
    /// 1 is the brightest.
    pub fn save_png(&self, path: impl AsRef<Path>) -> Result<()> {
        let saved = self.to_viewable()?.save_with_format(&path, ImageFormat::Png);
        saved.map_err(|source| file_error("writing", path.as_ref(), source))
    }

    /// Returns the bytes that [`save_png`](Image::save_png) writes.
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let image = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Nv12)?)?;
    /// assert!(image.to_png()?.starts_with(b"\x89PNG"));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let mut png = Cursor::new(Vec::new());
        let written = self.to_viewable()?.write_to(&mut png, ImageFormat::Png);
        written.map_err(|source| file_error("writing", Path::new("a PNG"), source))?;
        Ok(png.into_inner())
    }

    /// Converts to pixels that PNG has.
    fn to_viewable(&self) -> Result<DynamicImage> {
        Ok(match self.to_dynamic()? {
            float @ DynamicImage::ImageRgb32F(_) => DynamicImage::ImageRgb16(float.to_rgb16()),
            other => other,
        })
    }

    /// Reads a PNG file: see [`from_dynamic`](Image::from_dynamic).
    pub fn load_png(path: impl AsRef<Path>) -> Result<Image> {
        let error = |source| file_error("reading", path.as_ref(), source);
        let file = File::open(&path).map_err(|source| error(source.into()))?;
        let reader = ImageReader::with_format(BufReader::new(file), ImageFormat::Png);
        Image::from_dynamic(&reader.decode().map_err(error)?)
    }

    /// Converts pixel by pixel, and wraps the result.
    fn collect<P, T, const N: usize, const M: usize>(
        &self,
        wrap: impl FnOnce(ImageBuffer<P, Vec<P::Subpixel>>) -> DynamicImage,
        convert: impl Fn([T; N]) -> [P::Subpixel; M],
    ) -> Result<DynamicImage>
    where
        P: ::image::Pixel,
        T: Element,
    {
        let planes = self.planes::<T>()?;
        let (width, height) = self.size;
        let mut values = Vec::with_capacity(width * height * M);
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let value = |value| {
                let place = self.format.place(value, x, y);
                planes[place.plane].at(place)
            };
            values.extend_from_slice(&convert(array::from_fn(value)));
        }
        let too_large = Error::SizeOverflow { shape: [height, width].into(), item_size: M };
        let size = u32::try_from(width).ok().zip(u32::try_from(height).ok());
        let buffer = size.and_then(|(width, height)| ImageBuffer::from_raw(width, height, values));
        buffer.map(wrap).ok_or(too_large)
    }

    /// Copies the samples of every plane.
    fn planes<T: Element>(&self) -> Result<Vec<Samples<T>>> {
        let samples = |plane: usize| {
            let tensor = self.tensor.samples(plane)?;
            let channels = self.format.plane_channels(plane);
            let row = tensor.shape()[1] * channels;
            Ok(Samples { values: tensor.to_vec::<T>()?, row, channels })
        };
        (0..self.plane_count()).map(samples).collect()
    }
}

/// The samples of a plane, without padding.
struct Samples<T> {
    values: Vec<T>,
    /// Values in a row.
    row: usize,
    channels: usize,
}

impl<T: Element> Samples<T> {
    fn at(&self, place: Place) -> T {
        self.values[place.row * self.row + place.column * self.channels + place.channel]
    }
}

/// Allocates an image and copies pixels into it.
fn with_pixels<T: Element>(
    (width, height): (usize, usize),
    format: PixelFormat,
    values: &[T],
) -> Result<Image> {
    let mut image = Image::new(width, height, format)?;
    image.copy_from_slice(values)?;
    Ok(image)
}

fn file_error(op: &'static str, path: &Path, source: ImageError) -> Error {
    Error::ImageFile { op, path: path.into(), source: source.into() }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` clamps")]
fn to_u16(value: f32) -> u16 {
    (value * f32::from(u16::MAX)).round() as u16
}

/// ITU-R BT.601, where luma is 16 to 235 and chroma 16 to 240.
fn rgb_of_yuv([y, u, v]: [u8; 3]) -> [u8; 3] {
    let y = 1.164_383 * (f32::from(y) - 16.0);
    let (u, v) = (f32::from(u) - 128.0, f32::from(v) - 128.0);
    let rgb = [y + 1.596_027 * v, y - 0.391_762 * u - 0.812_968 * v, y + 2.017_232 * u];
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` clamps")]
    rgb.map(|value| value.round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yuv_becomes_the_rgb_of_bt_601() {
        assert_eq!(rgb_of_yuv([16, 128, 128]), [0, 0, 0]);
        assert_eq!(rgb_of_yuv([235, 128, 128]), [255, 255, 255]);
        // The colour bars: red, green, blue.
        assert_eq!(rgb_of_yuv([82, 90, 240]), [255, 1, 0]);
        assert_eq!(rgb_of_yuv([145, 54, 34]), [0, 255, 1]);
        assert_eq!(rgb_of_yuv([41, 240, 110]), [0, 0, 255]);
        assert_eq!(rgb_of_yuv([255, 255, 255]), [255, 125, 255]);
    }

    #[test]
    fn floats_are_clamped() {
        assert_eq!(
            [-1.0, 0.0, 0.5, 1.0, 2.0, f32::NAN].map(to_u16),
            [0, 0, 32768, 65535, 65535, 0]
        );
    }
}
