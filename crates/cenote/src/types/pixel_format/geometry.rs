//! Where the bytes of an image are: shapes, row strides and planes.
//!
//! Sizes come from callers and peers, so all of it is checked: what does not fit is an error.

use crate::error::{Error, Result};
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::arrangement::{Axes, Samples};
use crate::types::pixel_format::few::Few;

/// One plane of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Plane {
    /// Where it starts, in bytes from the start of the image.
    pub offset: usize,
    /// Bytes from one row to the next.
    pub stride: usize,
    /// Bytes of a row that hold samples: `width * channels` values. The rest is padding.
    pub row_bytes: usize,
    /// Rows of samples.
    pub rows: usize,
    /// Samples in a row. Packed 4:2:2 counts whole pairs, so an odd width is rounded up.
    pub width: usize,
    /// Values in a sample: 2 where chroma is interleaved.
    pub channels: usize,
}

/// The planes of an image, in the order they have in memory.
pub type Planes = Few<Plane, 4>;

/// The shape of an image's tensor.
pub type ImageShape = Few<usize, 3>;

impl PixelFormat {
    /// The shape of the tensor that holds an image of this size.
    ///
    /// - packed: `[height, width, channels]`, and `[height, width]` if there is one channel
    /// - planar RGB: `[channels, height, width]`
    /// - luma and chroma in planes: `[rows, width]`, where `rows` counts the rows of all planes in
    ///   units of plane 0's stride
    ///
    /// ```
    /// use cenote::PixelFormat;
    ///
    /// assert_eq!(PixelFormat::Rgb8.shape(1920, 1080)?[..], [1080, 1920, 3]);
    /// assert_eq!(PixelFormat::Grey.shape(1920, 1080)?[..], [1080, 1920]);
    /// assert_eq!(PixelFormat::Nv12.shape(1920, 1080)?[..], [1620, 1920]);
    /// assert_eq!(PixelFormat::PlanarRgb.shape(1920, 1080)?[..], [3, 1080, 1920]);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn shape(self, width: usize, height: usize) -> Result<ImageShape> {
        nonzero(&[height, width])?;
        Ok(match (self.arrangement().axes, self.channels()) {
            (Axes::Pixels, 1) => Few::new([height, width]),
            (Axes::Pixels, channels) => Few::new([height, width, channels]),
            (Axes::Planes, channels) => Few::new([channels, height, width]),
            (Axes::Rows, _) => {
                let rows = self.arrangement().rows(height);
                Few::new([self.fits(rows, &[height, width])?, width])
            }
        })
    }

    /// The width and height of the image that a tensor of this shape holds.
    ///
    /// The inverse of [`shape`](Self::shape); one channel may also be written `[height, width, 1]`.
    ///
    /// ```
    /// use cenote::PixelFormat;
    ///
    /// assert_eq!(PixelFormat::Nv12.size_of(&[1620, 1920])?, (1920, 1080));
    /// assert!(PixelFormat::Nv12.size_of(&[1621, 1920]).is_err());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn size_of(self, shape: &[usize]) -> Result<(usize, usize)> {
        nonzero(shape)?;
        self.read_shape(shape).ok_or_else(|| Error::FormatShape {
            format: self.name(),
            shape: shape.into(),
            expected: self.arrangement().expected,
        })
    }

    fn read_shape(self, shape: &[usize]) -> Option<(usize, usize)> {
        match (self.arrangement().axes, shape) {
            (Axes::Pixels, &[height, width]) if self.channels() == 1 => Some((width, height)),
            (Axes::Pixels, &[height, width, channels])
            | (Axes::Planes, &[channels, height, width])
                if channels == self.channels() =>
            {
                Some((width, height))
            }
            (Axes::Rows, &[rows, width]) => Some((width, self.arrangement().height(rows)?)),
            _ => None,
        }
    }

    /// The smallest row stride of plane 0, in bytes, with which the rows of every plane fit.
    ///
    /// Chroma that two pixels share needs room for both: a format that has such chroma pads odd
    /// widths by one pixel.
    ///
    /// ```
    /// use cenote::PixelFormat;
    ///
    /// assert_eq!(PixelFormat::Rgb8.min_row_stride(5)?, 15);
    /// assert_eq!(PixelFormat::Nv12.min_row_stride(5)?, 6);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn min_row_stride(self, width: usize) -> Result<usize> {
        nonzero(&[width])?;
        let bytes = self.arrangement().min_stride(width).and_then(|values| {
            values
                .checked_mul(self.dtype().size())?
                .checked_next_multiple_of(self.stride_multiple())
        });
        self.fits(bytes, &[width])
    }

    /// What every row stride must be a multiple of, in bytes.
    fn stride_multiple(self) -> usize {
        self.arrangement().stride_multiple() * self.dtype().size()
    }

    /// Whether an image of this width can have this row stride.
    ///
    /// It must be at least [`min_row_stride`](Self::min_row_stride), and a multiple of the size of
    /// a value, for [`I420`](Self::I420) of 2.
    pub fn check_row_stride(self, width: usize, row_stride: usize) -> Result<()> {
        let (min, multiple) = (self.min_row_stride(width)?, self.stride_multiple());
        if row_stride >= min && row_stride.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(Error::BadRowStride { given: row_stride, min, multiple, width, format: self.name() })
    }

    /// The bytes of an image: the end of its last plane, with the padding of its last row.
    ///
    /// ```
    /// use cenote::PixelFormat;
    ///
    /// assert_eq!(PixelFormat::Nv12.image_bytes(1920, 1080, 1920)?, 3_110_400);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn image_bytes(self, width: usize, height: usize, row_stride: usize) -> Result<usize> {
        nonzero(&[height, width])?;
        self.check_row_stride(width, row_stride)?;
        self.fits(self.arrangement().bytes(height, row_stride), &[height, width])
    }

    /// The planes of an image. They follow each other without a gap.
    ///
    /// ```
    /// use cenote::PixelFormat;
    ///
    /// let planes = PixelFormat::Nv12.planes(1920, 1080, 2048)?;
    /// assert_eq!(planes.len(), 2);
    /// assert_eq!(planes[1].offset, 2048 * 1080);
    /// assert_eq!((planes[1].width, planes[1].rows, planes[1].channels), (960, 540, 2));
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn planes(self, width: usize, height: usize, row_stride: usize) -> Result<Planes> {
        nonzero(&[height, width])?;
        self.check_row_stride(width, row_stride)?;
        self.fits(self.lay_planes(width, height, row_stride), &[height, width])
    }

    fn lay_planes(self, width: usize, height: usize, row_stride: usize) -> Option<Planes> {
        let mut planes = Planes::new([]);
        let mut offset = 0_usize;
        for samples in self.arrangement().planes {
            let plane = Plane { offset, ..self.plane(samples, width, height, row_stride)? };
            offset = offset.checked_add(plane.stride.checked_mul(plane.rows)?)?;
            planes.push(plane);
        }
        Some(planes)
    }

    /// A plane, wherever it starts.
    fn plane(self, samples: &Samples, width: usize, height: usize, stride: usize) -> Option<Plane> {
        let across = samples.across(width)?;
        let channels = samples.channels;
        Some(Plane {
            offset: 0,
            stride: self.arrangement().stride(samples, stride)?,
            row_bytes: across.checked_mul(channels)?.checked_mul(self.dtype().size())?,
            rows: samples.down(height),
            width: across,
            channels,
        })
    }

    /// What was computed for an image of these dimensions, unless it overflowed.
    fn fits<T>(self, computed: Option<T>, dims: &[usize]) -> Result<T> {
        let item_size = self.dtype().size();
        computed.ok_or_else(|| Error::SizeOverflow { shape: dims.into(), item_size })
    }
}

fn nonzero(dims: &[usize]) -> Result<()> {
    match dims.iter().position(|&dim| dim == 0) {
        Some(axis) => Err(Error::ZeroDim { axis, shape: dims.into() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Offset, stride, row bytes, rows, width, channels of every plane.
    fn planes_of(
        format: PixelFormat,
        width: usize,
        height: usize,
        stride: usize,
    ) -> Vec<[usize; 6]> {
        let planes = format.planes(width, height, stride).unwrap();
        planes
            .iter()
            .map(|p| [p.offset, p.stride, p.row_bytes, p.rows, p.width, p.channels])
            .collect()
    }

    /// Everything that must hold for an image, whatever its format.
    fn check_image(format: PixelFormat, width: usize, height: usize, extra: usize) {
        let about = format!("{format} {width}x{height} +{extra}");
        let shape = format.shape(width, height).unwrap();
        assert_eq!(format.size_of(&shape).unwrap(), (width, height), "{about}");

        let stride = format.min_row_stride(width).unwrap() + extra * format.stride_multiple();
        let bytes = format.image_bytes(width, height, stride).unwrap();
        let rows = format.arrangement().rows(height).unwrap();
        assert_eq!(bytes, stride * rows, "{about}");

        let mut end = 0;
        for plane in format.planes(width, height, stride).unwrap() {
            assert_eq!(plane.offset, end, "{about}");
            assert!(plane.stride >= plane.row_bytes && plane.rows > 0, "{about}");
            assert_eq!(plane.row_bytes, plane.width * plane.channels * format.dtype().size());
            end += plane.stride * plane.rows;
        }
        assert_eq!(end, bytes, "{about}");
    }

    #[test]
    fn every_format_holds_together_at_small_sizes() {
        for format in PixelFormat::all() {
            for width in 1..=9 {
                for height in 1..=9 {
                    (0..3).for_each(|extra| check_image(format, width, height, extra));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_format_holds_together_at_any_size(
            index in 0..PixelFormat::all().len(),
            (width, height) in (1_usize..5_000, 1_usize..5_000),
            extra in 0_usize..500,
        ) {
            check_image(PixelFormat::all().nth(index).unwrap(), width, height, extra);
        }
    }

    #[test]
    fn no_smaller_stride_than_the_smallest_has_room() {
        for format in PixelFormat::all() {
            for width in 1..=9 {
                let min = format.min_row_stride(width).unwrap();
                format.check_row_stride(width, min).unwrap();
                for stride in 0..min {
                    assert!(format.check_row_stride(width, stride).is_err());
                    let cramped = stride % format.stride_multiple() != 0
                        || format
                            .lay_planes(width, 4, stride)
                            .unwrap()
                            .iter()
                            .any(|p| p.stride < p.row_bytes);
                    assert!(cramped, "{format} {width} wide fits in {stride}, not only in {min}");
                }
            }
        }
    }

    #[test]
    fn packed_images_by_hand() {
        assert_eq!(PixelFormat::Rgb8.min_row_stride(1920).unwrap(), 5760);
        assert_eq!(PixelFormat::Rgb8.image_bytes(1920, 1080, 5760).unwrap(), 6_220_800);
        assert_eq!(
            planes_of(PixelFormat::Rgb8, 1920, 1080, 6144),
            [[0, 6144, 5760, 1080, 1920, 3]]
        );
        assert_eq!(PixelFormat::Rgb32F.min_row_stride(5).unwrap(), 60);
        assert_eq!(PixelFormat::Depth16.image_bytes(640, 480, 1280).unwrap(), 614_400);
        // An odd row of YUYV ends with half a pair: it needs the bytes of the whole one.
        assert_eq!(PixelFormat::Yuyv.shape(5, 3).unwrap()[..], [3, 5, 2]);
        assert_eq!(PixelFormat::Yuyv.min_row_stride(5).unwrap(), 12);
        assert_eq!(planes_of(PixelFormat::Yuyv, 5, 3, 12), [[0, 12, 12, 3, 6, 2]]);
    }

    #[test]
    fn semi_planar_images_by_hand() {
        assert_eq!(PixelFormat::Nv12.image_bytes(1920, 1080, 1920).unwrap(), 3_110_400);
        assert_eq!(PixelFormat::Nv12.shape(5, 3).unwrap()[..], [5, 5]);
        assert_eq!(PixelFormat::Nv12.min_row_stride(5).unwrap(), 6);
        assert_eq!(PixelFormat::Nv12.image_bytes(5, 3, 6).unwrap(), 30);
        assert_eq!(
            planes_of(PixelFormat::Nv12, 5, 3, 6),
            [[0, 6, 5, 3, 5, 1], [18, 6, 6, 2, 3, 2]]
        );
        assert_eq!(
            planes_of(PixelFormat::Nv16, 5, 3, 6),
            [[0, 6, 5, 3, 5, 1], [18, 6, 6, 3, 3, 2]]
        );
        assert_eq!(PixelFormat::Nv24.min_row_stride(5).unwrap(), 5);
        assert_eq!(
            planes_of(PixelFormat::Nv24, 5, 3, 5),
            [[0, 5, 5, 3, 5, 1], [15, 10, 10, 3, 5, 2]]
        );
        assert_eq!(PixelFormat::Nv24.image_bytes(5, 3, 5).unwrap(), 45);
    }

    #[test]
    fn planar_images_by_hand() {
        assert_eq!(PixelFormat::I420.shape(5, 3).unwrap()[..], [5, 5]);
        assert_eq!(PixelFormat::I420.min_row_stride(5).unwrap(), 6);
        assert_eq!(
            planes_of(PixelFormat::I420, 5, 3, 6),
            [[0, 6, 5, 3, 5, 1], [18, 3, 3, 2, 3, 1], [24, 3, 3, 2, 3, 1]]
        );
        assert_eq!(PixelFormat::I420.image_bytes(5, 3, 6).unwrap(), 30);
        assert_eq!(PixelFormat::I420.image_bytes(1, 1, 2).unwrap(), 4);
        assert_eq!(
            planes_of(PixelFormat::PlanarRgb, 5, 3, 8),
            [[0, 8, 5, 3, 5, 1], [24, 8, 5, 3, 5, 1], [48, 8, 5, 3, 5, 1]]
        );
        assert_eq!(PixelFormat::PlanarRgba.image_bytes(1920, 1080, 1920).unwrap(), 8_294_400);
    }

    #[test]
    fn one_channel_may_be_an_axis() {
        assert_eq!(PixelFormat::Grey.size_of(&[3, 5, 1]).unwrap(), (5, 3));
        assert_eq!(PixelFormat::Grey.size_of(&[3, 5]).unwrap(), (5, 3));
        assert!(PixelFormat::Rgb8.size_of(&[3, 5]).is_err());
    }

    #[test]
    fn other_shapes_are_refused_with_the_right_one() {
        let refused =
            |format: PixelFormat, shape: &[usize]| format.size_of(shape).unwrap_err().to_string();
        assert!(
            refused(PixelFormat::Rgb8, &[3, 5, 4]).contains("rgb8, which needs [height, width, 3]")
        );
        assert!(refused(PixelFormat::Nv12, &[7, 5]).contains("height + ceil(height / 2)"));
        assert!(refused(PixelFormat::PlanarRgb, &[5, 5, 3]).contains("[3, height, width]"));
        assert!(refused(PixelFormat::Grey, &[]).contains("[height, width]"));
        assert!(refused(PixelFormat::Grey, &[1, 5, 5, 1]).contains("[height, width]"));
    }

    #[test]
    fn bad_strides_are_refused_with_what_would_do() {
        let refused = PixelFormat::I420.check_row_stride(5, 7).unwrap_err();
        assert!(matches!(
            refused,
            Error::BadRowStride { given: 7, min: 6, multiple: 2, width: 5, .. }
        ));
        let refused = PixelFormat::Rgb32F.planes(5, 3, 62).unwrap_err();
        assert!(matches!(refused, Error::BadRowStride { min: 60, multiple: 4, .. }));
        assert!(PixelFormat::Nv12.check_row_stride(5, 7).is_ok());
    }

    #[test]
    fn nothing_is_no_image() {
        for format in PixelFormat::all() {
            assert!(matches!(format.shape(0, 3), Err(Error::ZeroDim { axis: 1, .. })));
            assert!(matches!(format.size_of(&[3, 0]), Err(Error::ZeroDim { axis: 1, .. })));
            assert!(matches!(format.min_row_stride(0), Err(Error::ZeroDim { .. })));
            assert!(matches!(format.image_bytes(5, 0, 64), Err(Error::ZeroDim { axis: 0, .. })));
            assert!(matches!(format.planes(0, 0, 0), Err(Error::ZeroDim { .. })));
        }
    }

    #[test]
    fn hostile_sizes_are_errors() {
        let edges = [0, 1, 2, 3, usize::MAX / 3, usize::MAX / 2, usize::MAX - 1, usize::MAX];
        for format in PixelFormat::all() {
            for a in edges {
                let _ = format.min_row_stride(a);
                for b in edges {
                    let _ = (
                        format.shape(a, b),
                        format.size_of(&[a, b]),
                        format.check_row_stride(a, b),
                    );
                    for c in edges {
                        let _ = format.size_of(&[a, b, c]);
                        let bytes = format.image_bytes(a, b, c).ok();
                        let planes = format.planes(a, b, c).ok();
                        assert_eq!(bytes.is_some(), planes.is_some(), "{format} {a}x{b} in {c}");
                    }
                }
            }
            let huge = format.image_bytes(2, usize::MAX, usize::MAX & !7);
            assert!(matches!(huge, Err(Error::SizeOverflow { .. })));
        }
    }
}
