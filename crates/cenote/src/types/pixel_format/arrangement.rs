//! How the samples of an image are laid out: interleaved, plane after plane, or a mix.
//!
//! Many formats share one arrangement. All planes hang on one number, the row stride `S` of plane
//! 0: a plane with `channels` values for every `sub.0` pixels has the stride `S * channels / sub.0`
//! and starts where the one before it ends. So an image is always one rectangle of rows of `S`
//! bytes:
//!
//! ```text
//!   NV12 5x3, S = 6      I420 5x3, S = 6      NV24 2x2, S = 2
//!   Y Y Y Y Y .          Y Y Y Y Y .          Y Y
//!   Y Y Y Y Y .          Y Y Y Y Y .          Y Y
//!   Y Y Y Y Y .          Y Y Y Y Y .          U V   one row of chroma
//!   U V U V U V          U U U U U U          U V   is two rows of S
//!   U V U V U V          V V V V V V          U V
//!                                             U V
//! ```
//!
//! Nothing here checks for zero; [`geometry`](crate::types::pixel_format::geometry) does, once, before it asks.

/// One plane of an arrangement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Samples {
    /// Values that lie side by side in one sample.
    pub(crate) channels: usize,
    /// Pixels that share a sample, horizontally and vertically.
    pub(crate) sub: (usize, usize),
    /// Samples that only make sense together: a row holds a multiple of it.
    pub(crate) step: usize,
}

/// What the axes of the tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axes {
    /// `[height, width, channels]`, the last left out if there is only one.
    Pixels,
    /// `[channels, height, width]`: equal planes.
    Planes,
    /// `[rows, width]`: unequal planes, in rows as long as those of plane 0.
    Rows,
}

/// The planes of a format, and the tensor that holds them.
#[derive(Debug)]
pub(crate) struct Arrangement {
    pub(crate) axes: Axes,
    pub(crate) planes: &'static [Samples],
    /// The shape in words, for errors.
    pub(crate) expected: &'static str,
}

const fn samples(channels: usize, sub: (usize, usize)) -> Samples {
    Samples { channels, sub, step: 1 }
}

const FULL: Samples = samples(1, (1, 1));

/// One value for a pixel.
pub(crate) const SINGLE: Arrangement = Arrangement {
    axes: Axes::Pixels,
    planes: &[FULL],
    expected: "[height, width] or [height, width, 1]",
};

/// Three values for a pixel.
pub(crate) const TRIPLE: Arrangement = Arrangement {
    axes: Axes::Pixels,
    planes: &[samples(3, (1, 1))],
    expected: "[height, width, 3]",
};

/// Four values for a pixel.
pub(crate) const QUADRUPLE: Arrangement = Arrangement {
    axes: Axes::Pixels,
    planes: &[samples(4, (1, 1))],
    expected: "[height, width, 4]",
};

/// Two values for a pixel, of which one belongs to its neighbour too: packed 4:2:2.
pub(crate) const PACKED_422: Arrangement = Arrangement {
    axes: Axes::Pixels,
    planes: &[Samples { channels: 2, sub: (1, 1), step: 2 }],
    expected: "[height, width, 2]",
};

/// Luma, then pairs of chroma for every 2x2 pixels.
pub(crate) const SEMI_420: Arrangement = Arrangement {
    axes: Axes::Rows,
    planes: &[FULL, samples(2, (2, 2))],
    expected: "[rows, width] where rows = height + ceil(height / 2)",
};

/// Luma, then pairs of chroma for every 2x1 pixels.
pub(crate) const SEMI_422: Arrangement = Arrangement {
    axes: Axes::Rows,
    planes: &[FULL, samples(2, (2, 1))],
    expected: "[rows, width] where rows = 2 * height",
};

/// Luma, then a pair of chroma for every pixel.
pub(crate) const SEMI_444: Arrangement = Arrangement {
    axes: Axes::Rows,
    planes: &[FULL, samples(2, (1, 1))],
    expected: "[rows, width] where rows = 3 * height",
};

/// Luma, then two planes of chroma for every 2x2 pixels.
pub(crate) const PLANAR_420: Arrangement = Arrangement {
    axes: Axes::Rows,
    planes: &[FULL, samples(1, (2, 2)), samples(1, (2, 2))],
    expected: "[rows, width] where rows = height + ceil(height / 2)",
};

/// Three equal planes.
pub(crate) const PLANES_3: Arrangement =
    Arrangement { axes: Axes::Planes, planes: &[FULL, FULL, FULL], expected: "[3, height, width]" };

/// Four equal planes.
pub(crate) const PLANES_4: Arrangement = Arrangement {
    axes: Axes::Planes,
    planes: &[FULL, FULL, FULL, FULL],
    expected: "[4, height, width]",
};

impl Samples {
    /// Samples in a row of `width` pixels.
    pub(crate) fn across(&self, width: usize) -> Option<usize> {
        width.div_ceil(self.sub.0).checked_next_multiple_of(self.step)
    }

    /// Rows of samples for `height` rows of pixels.
    pub(crate) fn down(&self, height: usize) -> usize {
        height.div_ceil(self.sub.1)
    }
}

impl Arrangement {
    /// Values for one pixel along the tensor's axis of channels.
    pub(crate) fn channels(&self) -> usize {
        match self.axes {
            Axes::Pixels => self.planes[0].channels,
            Axes::Planes => self.planes.len(),
            Axes::Rows => 1,
        }
    }

    /// The most pixels that share anything, horizontally and vertically.
    pub(crate) fn subsampling(&self) -> (usize, usize) {
        self.planes.iter().fold((1, 1), |(across, down), plane| {
            (across.max(plane.sub.0 * plane.step), down.max(plane.sub.1))
        })
    }

    /// The values of plane 0 in the width of one sample of `plane`.
    fn first_values(&self, plane: &Samples) -> usize {
        plane.sub.0 * self.planes[0].channels
    }

    /// What the row stride must be a multiple of, in values, so that no plane has half a value.
    ///
    /// Rounding up is for planes wider than plane 0; otherwise the division is exact in every row.
    pub(crate) fn stride_multiple(&self) -> usize {
        let multiple = |plane: &Samples| self.first_values(plane).div_ceil(plane.channels);
        self.planes.iter().map(multiple).max().unwrap_or(1)
    }

    /// The fewest values between two rows of plane 0 that leave room for the rows of every plane.
    pub(crate) fn min_stride(&self, width: usize) -> Option<usize> {
        self.planes.iter().try_fold(0, |least: usize, plane| {
            let values = plane.across(width)?.checked_mul(self.first_values(plane))?;
            Some(least.max(values))
        })
    }

    /// The stride of `plane` where plane 0 has `row_stride`.
    pub(crate) fn stride(&self, plane: &Samples, row_stride: usize) -> Option<usize> {
        let values = self.first_values(plane);
        if let Some(product) = row_stride.checked_mul(plane.channels) {
            return Some(product / values);
        }
        // Wide, because the product may not fit where the quotient does.
        (row_stride as u128 * plane.channels as u128 / values as u128).try_into().ok()
    }

    /// The end of the last plane.
    pub(crate) fn bytes(&self, height: usize, row_stride: usize) -> Option<usize> {
        self.planes.iter().try_fold(0, |end: usize, plane| {
            let bytes = self.stride(plane, row_stride)?.checked_mul(plane.down(height))?;
            end.checked_add(bytes)
        })
    }

    /// The height of all planes together, in rows of plane 0.
    pub(crate) fn rows(&self, height: usize) -> Option<usize> {
        // The same for every stride, so take the smallest that all planes divide evenly.
        let stride = self.stride_multiple();
        Some(self.bytes(height, stride)? / stride)
    }

    /// The height of an image with this many rows, if there is one.
    pub(crate) fn height(&self, rows: usize) -> Option<usize> {
        let group = self.subsampling().1;
        let per_group = self.rows(group)?;
        let rest = (0..group).find(|&rest| self.rows(rest) == Some(rows % per_group))?;
        Some(rows / per_group * group + rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_numbers_of_rows_are_an_image() {
        let heights: Vec<_> = (1..=9).map(|rows| SEMI_420.height(rows)).collect();
        let none = None;
        assert_eq!(
            heights,
            [none, Some(1), Some(2), none, Some(3), Some(4), none, Some(5), Some(6)]
        );
        assert_eq!((SEMI_422.height(6), SEMI_422.height(7)), (Some(3), None));
        assert_eq!((SEMI_444.height(6), SEMI_444.height(7)), (Some(2), None));
    }

    #[test]
    fn strides_follow_plane_0() {
        let strides = |arrangement: &Arrangement| -> Vec<_> {
            arrangement.planes.iter().map(|plane| arrangement.stride(plane, 12).unwrap()).collect()
        };
        assert_eq!(strides(&TRIPLE), [12]);
        assert_eq!(strides(&PACKED_422), [12]);
        assert_eq!(strides(&SEMI_420), [12, 12]);
        assert_eq!(strides(&SEMI_422), [12, 12]);
        assert_eq!(strides(&SEMI_444), [12, 24]);
        assert_eq!(strides(&PLANAR_420), [12, 6, 6]);
        assert_eq!(strides(&PLANES_4), [12; 4]);
    }
}
