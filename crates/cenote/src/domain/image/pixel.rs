//! Reading and writing single pixels, and filling an image.

use std::fmt;
use std::ops::Deref;

use crate::domain::image::Image;
use crate::error::{Error, Result};
use crate::tensor::map::{TensorMap, TensorMapMut};
use crate::types::dtype::{DType, Element};
use crate::types::pixel_format::few::Few;
use crate::types::pixel_format::sample::Place;

mod sealed {
    pub trait Sealed {}
}

/// A number that a pixel can be written with. Sealed: `u8`, `u16`, `u32`, `i32`, `f32`, `f64`.
///
/// It need not have the image's type, so that `image.fill(&[255, 0, 0])` works. A value that the image's type
/// cannot hold is an error.
pub trait PixelValue: sealed::Sealed + Copy {
    /// The same number as `f64`.
    fn to_f64(self) -> f64;
}

/// The type of a pixel that [`Image::pixel_as`] returns: one value, or an array of them. Sealed.
pub trait PixelArray: sealed::Sealed + Sized {
    /// The type of the values.
    type Element: Element;
    /// The number of values.
    const LEN: usize;

    /// Makes a pixel of the values that `get` returns. Fails if `get` fails.
    #[doc(hidden)]
    fn try_from_fn(get: impl FnMut(usize) -> Result<Self::Element>) -> Result<Self>;
}

macro_rules! values {
    ($($type:ty)*) => {$(
        impl sealed::Sealed for $type {}
        impl PixelValue for $type {
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}
values!(u8 u16 u32 i32 f32 f64);

macro_rules! samples {
    ($($type:ty)*) => {$(
        impl PixelArray for $type {
            type Element = $type;
            const LEN: usize = 1;

            fn try_from_fn(mut get: impl FnMut(usize) -> Result<$type>) -> Result<$type> {
                get(0)
            }
        }
    )*};
}
samples!(u8 u16 f32);

impl<T: Element, const N: usize> sealed::Sealed for [T; N] {}

impl<T: Element, const N: usize> PixelArray for [T; N] {
    type Element = T;
    const LEN: usize = N;

    fn try_from_fn(mut get: impl FnMut(usize) -> Result<T>) -> Result<[T; N]> {
        let mut array = [T::default(); N];
        for (index, value) in array.iter_mut().enumerate() {
            *value = get(index)?;
        }
        Ok(array)
    }
}

/// The values of one pixel, of any format.
///
/// It dereferences to a slice of `f64`, which is exact for every format, and compares with arrays of any
/// number type. YUV formats have Y, U and V, in this order.
#[derive(Clone, Copy, PartialEq)]
pub struct Pixel {
    values: Few<f64, 4>,
    dtype: DType,
}

impl Pixel {
    /// The type in which the image stores the values.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl Deref for Pixel {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.values
    }
}

impl<V: PixelValue, const N: usize> PartialEq<[V; N]> for Pixel {
    /// Compares the numbers as the image would store them: in an `f32` image, `0.1` equals `0.1f32`.
    fn eq(&self, other: &[V; N]) -> bool {
        let same =
            |(&ours, theirs): (&f64, &V)| fit(theirs.to_f64(), self.dtype).ok() == Some(ours);
        self.len() == N && self.iter().zip(other).all(same)
    }
}

impl fmt::Debug for Pixel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Image {
    /// Returns one pixel, including the values that it shares with its neighbours. Fails if it is outside the
    /// image.
    ///
    /// For many pixels [`map`](Image::map) is faster.
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let mut image = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Rgb8)?)?;
    /// image.set_pixel(3, 2, &[255, 128, 0])?;
    /// assert_eq!(image.pixel(3, 2)?, [255, 128, 0]);
    /// assert_eq!(image.pixel(3, 2)?[1], 128.0);
    /// assert!(image.pixel(64, 0).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn pixel(&self, x: usize, y: usize) -> Result<Pixel> {
        let dtype = self.format.dtype();
        let mut values = Few::new([]);
        for value in 0..self.format.pixel_len() {
            values.push(self.with_value(value, x, y, |map, index| get(map, dtype, index))?);
        }
        Ok(Pixel { values, dtype })
    }

    /// Returns one pixel in the type in which the image stores it: an array of its values, or the value itself
    /// if it has only one. Fails if the type or the number of values is another.
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let rgb = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Rgb8)?)?;
    /// assert_eq!(rgb.pixel_as::<[u8; 3]>(0, 0)?, [0, 0, 0]);
    /// let depth = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Depth16)?)?;
    /// assert_eq!(depth.pixel_as::<u16>(0, 0)?, 0);
    /// assert!(depth.pixel_as::<u8>(0, 0).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn pixel_as<P: PixelArray>(&self, x: usize, y: usize) -> Result<P> {
        self.check_pixel_len(P::LEN)?;
        P::try_from_fn(|value| {
            self.with_value(value, x, y, |map, index| map.get::<P::Element>(index))
        })
    }

    /// Sets one pixel. Values that it shares with its neighbours change for them too.
    ///
    /// Fails, without changing anything, unless there are [`PixelFormat::pixel_len`] values that the type of
    /// the image can hold.
    ///
    /// [`PixelFormat::pixel_len`]: crate::PixelFormat::pixel_len
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let mut frame = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Nv12)?)?;
    /// frame.set_pixel(10, 10, &[235, 128, 128])?; // Y, U, V
    /// assert_eq!(frame.pixel(11, 11)?, [0, 128, 128]); // in the same group of 2x2 pixels
    ///
    /// let mut float = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Mono32F)?)?;
    /// float.set_pixel(0, 0, &[0.25])?;
    /// assert_eq!(float.pixel(0, 0)?, [0.25]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn set_pixel<V: PixelValue>(&mut self, x: usize, y: usize, values: &[V]) -> Result<()> {
        let values = self.fit(values)?;
        self.check_inside(x, y)?;
        let (format, ndim) = (self.format, self.tensor.ndim());
        let mut map = self.tensor.map_mut()?;
        for (value, &number) in values.iter().enumerate() {
            let place = format.place(value, x, y);
            if format.lies_as_shaped() {
                set(&mut map, format.dtype(), &index(place)[..ndim], number)?;
            } else {
                let ndim = format.plane_ndim(place.plane);
                let mut plane = map.plane_mut(place.plane)?;
                set(&mut plane, format.dtype(), &index(place)[..ndim], number)?;
            }
        }
        Ok(())
    }

    /// Sets every pixel. Fails as [`set_pixel`](Image::set_pixel) does.
    ///
    /// ```
    /// use cenote::{Image, PixelFormat, Tensor};
    ///
    /// let mut image = Image::from_tensor(Tensor::image(64, 48, PixelFormat::Rgb8)?)?;
    /// image.fill(&[255, 0, 0])?; // red
    /// assert_eq!(image.pixel(63, 47)?, [255, 0, 0]);
    /// assert!(image.fill(&[256, 0, 0]).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn fill<V: PixelValue>(&mut self, pixel: &[V]) -> Result<()> {
        let values = self.fit(pixel)?;
        let patterns: Vec<Vec<u8>> =
            (0..self.format.plane_count()).map(|plane| self.pattern(plane, &values)).collect();
        let mut map = self.tensor.map_mut()?;
        for (plane, pattern) in patterns.iter().enumerate() {
            map.plane_mut(plane)?.for_each_run(|run| repeat(run, pattern));
        }
        Ok(())
    }

    /// The bytes that repeat in a plane if all pixels are the same.
    fn pattern(&self, plane: usize, values: &[f64]) -> Vec<u8> {
        let (format, size) = (self.format, self.format.dtype().size());
        let columns = if format.is_packed_yuv() { 2 } else { 1 };
        let channels = format.plane_channels(plane);
        let mut pattern = vec![0; columns * channels * size];
        for (value, &number) in values.iter().enumerate() {
            for x in 0..columns {
                let place = format.place(value, x, 0);
                if place.plane == plane {
                    let start = (place.column * channels + place.channel) * size;
                    store(number, format.dtype(), &mut pattern[start..start + size]);
                }
            }
        }
        pattern
    }

    /// Calls `f` with a map, and the index in it of one value of a pixel.
    fn with_value<T>(
        &self,
        value: usize,
        x: usize,
        y: usize,
        f: impl FnOnce(&TensorMap<'_>, &[usize]) -> Result<T>,
    ) -> Result<T> {
        self.check_inside(x, y)?;
        let place = self.format.place(value, x, y);
        if self.format.lies_as_shaped() {
            return f(&self.tensor.map()?, &index(place)[..self.tensor.ndim()]);
        }
        let plane = self.tensor.samples(place.plane)?;
        f(&plane.map()?, &index(place)[..plane.ndim()])
    }

    fn check_inside(&self, x: usize, y: usize) -> Result<()> {
        let (width, height) = self.size;
        if x < width && y < height {
            return Ok(());
        }
        Err(Error::NoSuchPixel { x, y, width, height })
    }

    fn check_pixel_len(&self, given: usize) -> Result<()> {
        let expected = self.format.pixel_len();
        if expected == given {
            return Ok(());
        }
        Err(Error::PixelLen { format: self.format.name(), expected, given })
    }

    /// Returns the values of a pixel as the image would store them. Fails if it cannot.
    fn fit<V: PixelValue>(&self, values: &[V]) -> Result<Few<f64, 4>> {
        self.check_pixel_len(values.len())?;
        let mut fitted = Few::new([]);
        for value in values {
            fitted.push(fit(value.to_f64(), self.format.dtype())?);
        }
        Ok(fitted)
    }
}

fn index(place: Place) -> [usize; 3] {
    [place.row, place.column, place.channel]
}

fn get(map: &TensorMap<'_>, dtype: DType, index: &[usize]) -> Result<f64> {
    match dtype {
        DType::U8 => map.get::<u8>(index).map(f64::from),
        DType::U16 => map.get::<u16>(index).map(f64::from),
        _ => map.get::<f32>(index).map(f64::from),
    }
}

fn set(map: &mut TensorMapMut<'_>, dtype: DType, index: &[usize], value: f64) -> Result<()> {
    match dtype {
        DType::U8 => map.set(index, as_u8(value)),
        DType::U16 => map.set(index, as_u16(value)),
        _ => map.set(index, as_f32(value)),
    }
}

fn store(value: f64, dtype: DType, to: &mut [u8]) {
    match dtype {
        DType::U8 => to.copy_from_slice(&[as_u8(value)]),
        DType::U16 => to.copy_from_slice(&as_u16(value).to_ne_bytes()),
        _ => to.copy_from_slice(&as_f32(value).to_ne_bytes()),
    }
}

/// Returns the number that an image of this dtype stores. Fails if an integer would change; floats are
/// rounded.
fn fit(value: f64, dtype: DType) -> Result<f64> {
    let stored = match dtype {
        DType::U8 => f64::from(as_u8(value)),
        DType::U16 => f64::from(as_u16(value)),
        _ => return Ok(f64::from(as_f32(value))),
    };
    // The comparison is exact for integers of up to 16 bits.
    #[allow(clippy::float_cmp, reason = "a value that would be stored as another one is refused")]
    if stored == value { Ok(stored) } else { Err(Error::ValueRange { value, dtype: dtype.name() }) }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`fit` compares")]
fn as_u8(value: f64) -> u8 {
    value as u8
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`fit` compares")]
fn as_u16(value: f64) -> u16 {
    value as u16
}

#[allow(clippy::cast_possible_truncation, reason = "floats are rounded")]
fn as_f32(value: f64) -> f32 {
    value as f32
}

/// Fills `run` with repetitions of `pattern`. Its length is a multiple of the pattern's.
fn repeat(run: &mut [u8], pattern: &[u8]) {
    if let [byte] = pattern {
        return run.fill(*byte);
    }
    // Copies what is already filled, so that the pieces double in size.
    let mut done = pattern.len().min(run.len());
    run[..done].copy_from_slice(&pattern[..done]);
    while done < run.len() {
        let step = done.min(run.len() - done);
        run.copy_within(..step, done);
        done += step;
    }
}
