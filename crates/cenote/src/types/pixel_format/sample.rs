//! Where the values of one pixel are stored, and which of them it shares with its neighbours.

use crate::types::pixel_format::arrangement::Axes;
use crate::types::pixel_format::{FormatKind, PixelFormat};

/// A value: in which plane, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) plane: usize,
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) channel: usize,
}

impl PixelFormat {
    /// Values that make up a pixel, including values that it shares with its neighbours: 3 for RGB
    /// and for every YUV format, where they are Y, U and V in this order.
    ///
    /// ```
    /// use cenote::PixelFormat;
    ///
    /// assert_eq!(PixelFormat::Nv12.pixel_len(), 3);
    /// assert_eq!(PixelFormat::Rgba8.pixel_len(), 4);
    /// ```
    pub fn pixel_len(self) -> usize {
        let yuv = self.arrangement().axes == Axes::Rows || self.is_packed_yuv();
        if yuv { 3 } else { self.channels() }
    }

    /// Two pixels share both values of chroma, which lie between their own.
    pub(crate) fn is_packed_yuv(self) -> bool {
        self.arrangement().planes[0].step == 2
    }

    /// Whether the tensor's axes are the rows, columns and channels of all samples.
    pub(crate) fn lies_as_shaped(self) -> bool {
        self.arrangement().axes == Axes::Pixels && !self.is_packed_yuv()
    }

    /// The values of a sample of one plane.
    pub(crate) fn plane_channels(self, plane: usize) -> usize {
        self.arrangement().planes[plane].channels
    }

    /// The axes of one plane.
    pub(crate) fn plane_ndim(self, plane: usize) -> usize {
        if self.plane_channels(plane) == 1 { 2 } else { 3 }
    }

    /// Where one value of the pixel at `x`, `y` lies. `value` counts to [`pixel_len`](Self::pixel_len).
    pub(crate) fn place(self, value: usize, x: usize, y: usize) -> Place {
        let own = Place { plane: 0, row: y, column: x, channel: 0 };
        match self.arrangement().axes {
            Axes::Pixels if self.is_packed_yuv() => self.place_in_pair(value, own),
            Axes::Pixels => Place { channel: value, ..own },
            Axes::Planes => Place { plane: value, ..own },
            Axes::Rows if value == 0 => own,
            Axes::Rows => self.place_of_chroma(value, x, y),
        }
    }

    /// Chroma in separate planes.
    fn place_of_chroma(self, value: usize, x: usize, y: usize) -> Place {
        let (plane, channel) = match self.kind() {
            FormatKind::Planar => (value, 0),
            _ => (1, (value - 1) ^ usize::from(self == PixelFormat::Nv21)),
        };
        let (across, down) = self.arrangement().planes[plane].sub;
        Place { plane, row: y / down, column: x / across, channel }
    }

    /// Packed 4:2:2: the left sample of a pair has one value of chroma, the right one the other.
    fn place_in_pair(self, value: usize, own: Place) -> Place {
        let luma = usize::from(self != PixelFormat::Yuyv);
        let u_is_right = usize::from(self == PixelFormat::Vyuy);
        let left = own.column - own.column % 2;
        match value {
            0 => Place { channel: luma, ..own },
            1 => Place { column: left + u_is_right, channel: 1 - luma, ..own },
            _ => Place { column: left + 1 - u_is_right, channel: 1 - luma, ..own },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plane, row, column and channel of every value.
    fn places(format: PixelFormat, x: usize, y: usize) -> Vec<[usize; 4]> {
        let place = |value| {
            let Place { plane, row, column, channel } = format.place(value, x, y);
            [plane, row, column, channel]
        };
        (0..format.pixel_len()).map(place).collect()
    }

    #[test]
    fn places_by_hand() {
        use PixelFormat::*;
        assert_eq!(places(Grey, 3, 2), [[0, 2, 3, 0]]);
        assert_eq!(places(Bgr8, 3, 2), [[0, 2, 3, 0], [0, 2, 3, 1], [0, 2, 3, 2]]);
        assert_eq!(places(PlanarRgb, 3, 2), [[0, 2, 3, 0], [1, 2, 3, 0], [2, 2, 3, 0]]);
        assert_eq!(places(Nv12, 3, 2), [[0, 2, 3, 0], [1, 1, 1, 0], [1, 1, 1, 1]]);
        assert_eq!(places(Nv21, 3, 2), [[0, 2, 3, 0], [1, 1, 1, 1], [1, 1, 1, 0]]);
        assert_eq!(places(Nv16, 3, 2), [[0, 2, 3, 0], [1, 2, 1, 0], [1, 2, 1, 1]]);
        assert_eq!(places(Nv24, 3, 2), [[0, 2, 3, 0], [1, 2, 3, 0], [1, 2, 3, 1]]);
        assert_eq!(places(I420, 3, 2), [[0, 2, 3, 0], [1, 1, 1, 0], [2, 1, 1, 0]]);
        assert_eq!(places(Yuyv, 3, 2), [[0, 2, 3, 0], [0, 2, 2, 1], [0, 2, 3, 1]]);
        assert_eq!(places(Uyvy, 2, 0), [[0, 0, 2, 1], [0, 0, 2, 0], [0, 0, 3, 0]]);
        assert_eq!(places(Vyuy, 2, 0), [[0, 0, 2, 1], [0, 0, 3, 0], [0, 0, 2, 0]]);
    }

    #[test]
    fn the_values_of_a_pixel_lie_in_its_planes_and_apart() {
        for format in PixelFormat::all() {
            let (width, height) = (5, 3);
            let planes = format.planes(width, height, 64 * format.dtype().size()).unwrap();
            for (x, y) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
                let places = places(format, x, y);
                for (index, &[plane, row, column, channel]) in places.iter().enumerate() {
                    let plane = &planes[plane];
                    assert!(row < plane.rows && column < plane.width && channel < plane.channels);
                    assert!(!places[..index].contains(&places[index]), "{format}");
                }
            }
        }
    }
}
