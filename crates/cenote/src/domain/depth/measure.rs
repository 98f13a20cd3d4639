//! Reading and writing depths in metres, for images of either dtype, and their statistics.

use crate::domain::depth::DepthImage;
use crate::error::{Error, Result};
use crate::types::dtype::DType;

/// Statistics of the valid depths of an image, in metres.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct DepthStats {
    /// The number of valid depths.
    pub valid: usize,
    /// The nearest.
    pub min: f32,
    /// The farthest.
    pub max: f32,
    /// The average.
    pub mean: f64,
}

impl DepthImage {
    /// Returns the depth at a pixel in metres. `None` if nothing was measured (0, `NaN`, infinite or negative),
    /// or the pixel is outside the image.
    ///
    /// ```
    /// use cenote::{DepthImage, Tensor};
    ///
    /// let depth = DepthImage::from_tensor(Tensor::from_vec(vec![1500u16, 0], &[1, 2])?)?;
    /// assert_eq!(depth.depth_at(0, 0), Some(1.5));
    /// assert_eq!(depth.depth_at(1, 0), None);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn depth_at(&self, x: usize, y: usize) -> Option<f32> {
        let map = self.tensor.map().ok()?;
        // An image may have an axis of length 1 for its channel.
        let index = &[y, x, 0][..self.tensor.ndim()];
        match self.dtype() {
            DType::F32 => metres(map.get::<f32>(index).ok()?),
            _ => metres(from_millimetres(map.get::<u16>(index).ok()?)),
        }
    }

    /// Sets the depth at a pixel in metres; `None` means that nothing was measured. Fails for a pixel outside
    /// the image, and for a depth that could not be read back: one that is not valid, or, in millimetres, one
    /// that rounds to 0 or is above 65.535.
    ///
    /// ```
    /// use cenote::{DType, DepthImage, Tensor};
    ///
    /// let mut depth = DepthImage::from_tensor(Tensor::new(&[480, 640], DType::U16)?)?;
    /// depth.set_depth(639, 479, 2.5)?;
    /// assert_eq!(depth.depth_at(639, 479), Some(2.5));
    /// depth.set_depth(639, 479, None)?;
    /// assert!(depth.set_depth(0, 0, 70.0).is_err());
    /// assert!(depth.set_depth(640, 0, 1.0).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn set_depth(&mut self, x: usize, y: usize, depth: impl Into<Option<f32>>) -> Result<()> {
        let stored = stored(depth.into(), self.dtype())?;
        let (width, height) = self.size;
        if x >= width || y >= height {
            return Err(Error::NoSuchPixel { x, y, width, height });
        }
        let index = &[y, x, 0][..self.tensor.ndim()];
        let mut map = self.tensor.map_mut()?;
        match stored {
            Stored::Metres(value) => map.set(index, value),
            Stored::Millimetres(value) => map.set(index, value),
        }
    }

    /// Sets every depth. Fails as [`set_depth`](DepthImage::set_depth) does.
    pub fn fill(&mut self, depth: impl Into<Option<f32>>) -> Result<()> {
        let stored = stored(depth.into(), self.dtype())?;
        self.tensor.map_mut()?.for_each_run(|run| match stored {
            Stored::Metres(value) => repeat(run, value.to_ne_bytes()),
            Stored::Millimetres(value) => repeat(run, value.to_ne_bytes()),
        });
        Ok(())
    }

    /// Returns the number of valid depths, their minimum, maximum and mean. `None` if nothing was measured.
    ///
    /// ```
    /// use cenote::{DepthImage, Tensor};
    ///
    /// let metres = vec![1.0f32, 3.0, 0.0, f32::NAN, -1.0, f32::INFINITY];
    /// let depth = DepthImage::from_tensor(Tensor::from_vec(metres, &[2, 3])?)?;
    /// let stats = depth.stats()?.expect("two of six are valid");
    /// assert_eq!((stats.valid, stats.min, stats.max, stats.mean), (2, 1.0, 3.0, 2.0));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn stats(&self) -> Result<Option<DepthStats>> {
        let (mut valid, mut sum) = (0_usize, 0.0);
        let (mut min, mut max) = (f32::INFINITY, 0.0_f32);
        self.for_each_depth(|_, depth| {
            valid += 1;
            sum += f64::from(depth);
            (min, max) = (min.min(depth), max.max(depth));
        })?;
        if valid == 0 {
            return Ok(None);
        }
        Ok(Some(DepthStats { valid, min, max, mean: sum / valid as f64 }))
    }

    /// Calls `f` for each pixel with a valid depth, with the pixel's row-major index and the depth.
    pub(crate) fn for_each_depth(&self, mut f: impl FnMut(usize, f32)) -> Result<()> {
        let map = self.tensor.map()?;
        let mut pixel = 0;
        let mut visit = |depth| {
            if let Some(depth) = metres(depth) {
                f(pixel, depth);
            }
            pixel += 1;
        };
        for run in map.runs() {
            if self.dtype() == DType::F32 {
                chunks(run).for_each(|bytes| visit(f32::from_ne_bytes(bytes)));
            } else {
                let depths = chunks(run).map(u16::from_ne_bytes).map(from_millimetres);
                depths.for_each(&mut visit);
            }
        }
        Ok(())
    }
}

/// A depth as an image stores it.
#[derive(Debug, Clone, Copy)]
enum Stored {
    Metres(f32),
    Millimetres(u16),
}

/// Converts a depth to what an image of this dtype stores. Fails if it could not be read back.
fn stored(depth: Option<f32>, dtype: DType) -> Result<Stored> {
    let refused = |metres: f32, rule| Error::DepthRange { metres, dtype: dtype.name(), rule };
    let invalid = "it must be finite and more than 0; `None` says that nothing was measured";
    let depth = match depth {
        Some(depth) => metres(depth).ok_or_else(|| refused(depth, invalid))?,
        None if dtype == DType::F32 => return Ok(Stored::Metres(0.0)),
        None => return Ok(Stored::Millimetres(0)),
    };
    if dtype == DType::F32 {
        return Ok(Stored::Metres(depth));
    }
    let millimetres = (f64::from(depth) * 1000.0).round();
    if !(1.0..=f64::from(u16::MAX)).contains(&millimetres) {
        return Err(refused(depth, "millimetres of 16 bits are from 0.001 to 65.535 m"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
    Ok(Stored::Millimetres(millimetres as u16))
}

/// Returns the depth if it is valid.
fn metres(depth: f32) -> Option<f32> {
    Some(depth).filter(|depth| depth.is_finite() && *depth > 0.0)
}

fn from_millimetres(millimetres: u16) -> f32 {
    f32::from(millimetres) / 1000.0
}

/// The elements of a run, of `N` bytes each. A run has only whole elements.
fn chunks<const N: usize>(run: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    run.chunks_exact(N).filter_map(|chunk| chunk.first_chunk().copied())
}

fn repeat<const N: usize>(run: &mut [u8], value: [u8; N]) {
    run.chunks_exact_mut(N).for_each(|chunk| chunk.copy_from_slice(&value));
}
