//! Clouds whose points are in rows and columns, like the pixels of an image.

use crate::domain::cloud::PointCloud;
use crate::domain::cloud::field::Field;
use crate::domain::cloud::points::Point;
use crate::error::{Error, Result};

impl PointCloud {
    /// Allocates points of zeros in `height` rows of `width` columns, with these fields, as
    /// [`with_fields`](PointCloud::with_fields) does. The points of a row are contiguous.
    ///
    /// ```
    /// use cenote::PointCloud;
    /// # unsafe { std::env::set_var("CENOTE_FORCE_MEM", "1") };
    ///
    /// let mut cloud = PointCloud::organized(640, 480, &PointCloud::xyz_fields())?;
    /// assert_eq!((cloud.width(), cloud.height(), cloud.len()), (640, 480, 640 * 480));
    /// cloud.set(cloud.index_of(639, 2)?, "z", 1.5f32)?;
    /// assert_eq!(cloud.at(639, 2)?.xyz()?, [0.0, 0.0, 1.5]);
    /// assert!(cloud.at(640, 2).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn organized(width: usize, height: usize, fields: &[Field]) -> Result<PointCloud> {
        let overflow = || Error::SizeOverflow { shape: [height, width].into(), item_size: 1 };
        let points = width.checked_mul(height).ok_or_else(overflow)?;
        PointCloud::with_fields(points, fields)?.with_columns(width, height)
    }

    /// Arranges the points in `height` rows of `width` columns. Fails unless the numbers match, or if there are
    /// no points.
    ///
    /// ```
    /// use cenote::{PointCloud, Tensor};
    ///
    /// let cloud = PointCloud::from_tensor(Tensor::from_vec(vec![0.0f32; 18], &[6, 3])?)?;
    /// assert_eq!((cloud.width(), cloud.height()), (6, 1));
    /// assert!(cloud.clone().with_columns(4, 2).is_err());
    /// assert_eq!(cloud.with_columns(3, 2)?.at(2, 1)?.index(), 5);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn with_columns(self, width: usize, height: usize) -> Result<PointCloud> {
        match width.checked_mul(height) {
            Some(points) if points == self.len && points > 0 => {
                Ok(PointCloud { columns: width, ..self })
            }
            _ => Err(Error::NotOrganized { width, height, len: self.len }),
        }
    }

    /// Returns whether the points are in rows and columns.
    pub fn is_organized(&self) -> bool {
        self.columns > 0
    }

    /// The columns of an organized cloud; otherwise the number of points, which form one row.
    pub fn width(&self) -> usize {
        if self.is_organized() { self.columns } else { self.len }
    }

    /// The rows of an organized cloud; otherwise 1.
    pub fn height(&self) -> usize {
        self.len.checked_div(self.columns).unwrap_or(1)
    }

    /// Returns the index of the point in column `x` of row `y`. Fails if there is none.
    pub fn index_of(&self, x: usize, y: usize) -> Result<usize> {
        let (width, height) = (self.width(), self.height());
        if x < width && y < height {
            return Ok(y * width + x);
        }
        Err(Error::NoSuchPixel { x, y, width, height })
    }

    /// Returns the point in column `x` of row `y`. Fails if there is none.
    pub fn at(&self, x: usize, y: usize) -> Result<Point<'_>> {
        self.point_at(self.index_of(x, y)?)
    }
}
