//! Pixel formats: one table for packed, semi-planar and planar images.
//!
//! A row of the table says all there is to say about a format: its code, its names, its samples and
//! their arrangement, and what the kernel calls it. Everything else here and in `geometry` follows
//! from the row. To add a format, add a row at the end; codes travel between processes and stay.

use std::fmt;
use std::str::FromStr;

use crate::types::pixel_format::arrangement::Arrangement;
use crate::types::pixel_format::fourcc::FourCc;

use crate::error::{Error, Result};
use crate::types::dtype::DType;

/// What is known about a format.
struct Row {
    name: &'static str,
    /// Other names, lower case.
    aliases: &'static [&'static str],
    dtype: DType,
    arrangement: &'static Arrangement,
    /// Pixels that belong together for another reason than shared chroma.
    mosaic: (usize, usize),
    drm: Option<FourCc>,
    v4l2: Option<FourCc>,
}

impl Row {
    const fn new(
        name: &'static str,
        aliases: &'static [&'static str],
        dtype: DType,
        arrangement: &'static Arrangement,
    ) -> Self {
        Row { name, aliases, dtype, arrangement, mosaic: (1, 1), drm: None, v4l2: None }
    }

    const fn mosaic(self, width: usize, height: usize) -> Self {
        Row { mosaic: (width, height), ..self }
    }

    const fn drm(self, code: &[u8; 4]) -> Self {
        Row { drm: Some(FourCc::new(code)), ..self }
    }

    const fn v4l2(self, code: &[u8; 4]) -> Self {
        Row { v4l2: Some(FourCc::new(code)), ..self }
    }
}

/// Makes the enum and the table from the same rows, so that they cannot disagree.
macro_rules! formats {
    (
        $(#[$about:meta])*
        pub enum PixelFormat { $($(#[$doc:meta])* $name:ident = $code:literal => $row:expr;)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum PixelFormat {
            $($(#[$doc])* $name = $code,)*
        }

        /// Every format with its row, in the order of their codes, the first of which is 1.
        static TABLE: &[(PixelFormat, Row)] = {
            use crate::types::pixel_format::arrangement::*;
            use crate::types::dtype::DType::{F32, U8, U16};
            &[$((PixelFormat::$name, $row),)*]
        };
    };
}

formats! {
    /// How pixels are stored.
    ///
    /// Orders of channels are orders in memory. DRM names its formats by the order in a
    /// little-endian word instead, so memory order R, G, B is DRM's `BGR888`.
    ///
    /// ```
    /// use cenote::{DType, PixelFormat};
    ///
    /// let format: PixelFormat = "nv12".parse()?;
    /// assert_eq!(format, PixelFormat::Nv12);
    /// assert_eq!((format.dtype(), format.plane_count()), (DType::U8, 2));
    /// assert_eq!(PixelFormat::Rgb8.drm_fourcc().unwrap().to_string(), "BG24");
    /// assert_eq!(PixelFormat::Rgb8.v4l2_fourcc().unwrap().to_string(), "RGB3");
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub enum PixelFormat {
        /// Brightness, 8 bits.
        Grey = 1 => Row::new("grey", &["gray", "grey8", "gray8", "mono8"], U8, &SINGLE)
            .drm(b"R8  ").v4l2(b"GREY");
        /// Brightness, 16 bits.
        Mono16 = 2 => Row::new("mono16", &["grey16", "gray16", "y16"], U16, &SINGLE)
            .drm(b"R16 ").v4l2(b"Y16 ");
        /// Brightness, or anything else, as `f32`.
        Mono32F = 3 => Row::new("mono32f", &["grey32f", "gray32f"], F32, &SINGLE);
        /// Red, green, blue.
        Rgb8 = 4 => Row::new("rgb8", &["rgb", "rgb24", "rgb888"], U8, &TRIPLE)
            .drm(b"BG24").v4l2(b"RGB3");
        /// Blue, green, red.
        Bgr8 = 5 => Row::new("bgr8", &["bgr", "bgr24", "bgr888"], U8, &TRIPLE)
            .drm(b"RG24").v4l2(b"BGR3");
        /// Red, green, blue, alpha.
        Rgba8 = 6 => Row::new("rgba8", &["rgba", "rgba32", "rgba8888"], U8, &QUADRUPLE)
            .drm(b"AB24").v4l2(b"AB24");
        /// Blue, green, red, alpha.
        Bgra8 = 7 => Row::new("bgra8", &["bgra", "bgra32", "bgra8888"], U8, &QUADRUPLE)
            .drm(b"AR24").v4l2(b"AR24");
        /// Red, green, blue as `f32`.
        Rgb32F = 8 => Row::new("rgb32f", &[], F32, &TRIPLE);
        /// 4:2:2 in one plane: Y, U, Y, V for two pixels.
        Yuyv = 9 => Row::new("yuyv", &["yuy2"], U8, &PACKED_422).drm(b"YUYV").v4l2(b"YUYV");
        /// 4:2:2 in one plane: U, Y, V, Y for two pixels.
        Uyvy = 10 => Row::new("uyvy", &[], U8, &PACKED_422).drm(b"UYVY").v4l2(b"UYVY");
        /// 4:2:2 in one plane: V, Y, U, Y for two pixels.
        Vyuy = 11 => Row::new("vyuy", &[], U8, &PACKED_422).drm(b"VYUY").v4l2(b"VYUY");
        /// 4:2:0: luma, then interleaved U and V.
        Nv12 = 12 => Row::new("nv12", &[], U8, &SEMI_420).drm(b"NV12").v4l2(b"NV12");
        /// 4:2:0: luma, then interleaved V and U.
        Nv21 = 13 => Row::new("nv21", &[], U8, &SEMI_420).drm(b"NV21").v4l2(b"NV21");
        /// 4:2:2: luma, then interleaved U and V.
        Nv16 = 14 => Row::new("nv16", &[], U8, &SEMI_422).drm(b"NV16").v4l2(b"NV16");
        /// 4:4:4: luma, then interleaved U and V.
        Nv24 = 15 => Row::new("nv24", &[], U8, &SEMI_444).drm(b"NV24").v4l2(b"NV24");
        /// 4:2:0: luma, then U, then V.
        I420 = 16 => Row::new("i420", &["yu12", "yuv420", "yuv420p"], U8, &PLANAR_420)
            .drm(b"YU12").v4l2(b"YU12");
        /// A plane of red, one of green, one of blue.
        PlanarRgb = 17 => Row::new("planar_rgb", &["planarrgb", "rgbp"], U8, &PLANES_3);
        /// A plane of red, one of green, one of blue, one of alpha.
        PlanarRgba = 18 => Row::new("planar_rgba", &["planarrgba", "rgbap"], U8, &PLANES_4);
        /// One colour for a pixel: red and green in even rows, green and blue in odd ones.
        BayerRggb8 = 19 => Row::new("bayer_rggb8", &["rggb", "rggb8", "srggb8"], U8, &SINGLE)
            .mosaic(2, 2).v4l2(b"RGGB");
        /// One colour for a pixel: blue and green in even rows, green and red in odd ones.
        BayerBggr8 = 20 => Row::new("bayer_bggr8", &["bggr", "bggr8", "sbggr8"], U8, &SINGLE)
            .mosaic(2, 2).v4l2(b"BA81");
        /// One colour for a pixel: green and blue in even rows, red and green in odd ones.
        BayerGbrg8 = 21 => Row::new("bayer_gbrg8", &["gbrg", "gbrg8", "sgbrg8"], U8, &SINGLE)
            .mosaic(2, 2).v4l2(b"GBRG");
        /// One colour for a pixel: green and red in even rows, blue and green in odd ones.
        BayerGrbg8 = 22 => Row::new("bayer_grbg8", &["grbg", "grbg8", "sgrbg8"], U8, &SINGLE)
            .mosaic(2, 2).v4l2(b"GRBG");
        /// Distance, 16 bits.
        Depth16 = 23 => Row::new("depth16", &["z16"], U16, &SINGLE).drm(b"R16 ").v4l2(b"Z16 ");
    }
}

/// How a format spreads its channels over planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormatKind {
    /// One plane, channels interleaved.
    Packed,
    /// Luma in one plane, both chroma channels interleaved in another.
    SemiPlanar,
    /// A plane for every channel.
    Planar,
}

impl PixelFormat {
    /// Every format, in the order of their codes.
    pub fn all() -> impl ExactSizeIterator<Item = PixelFormat> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static Row {
        // Codes count from 1 without a gap; the tests hold the table to it.
        &TABLE[usize::from(self.code()) - 1].1
    }

    pub(crate) fn arrangement(self) -> &'static Arrangement {
        self.row().arrangement
    }

    fn find(wanted: impl Fn(&Row) -> bool) -> Option<PixelFormat> {
        TABLE.iter().find(|(_, row)| wanted(row)).map(|row| row.0)
    }

    /// The code that stands for it between processes. It never changes, and is never 0.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The format of a code, if there is one. 0 means "no format" wherever codes are stored.
    ///
    /// ```
    /// use cenote::PixelFormat;
    /// assert_eq!(PixelFormat::from_code(12), Some(PixelFormat::Nv12));
    /// assert_eq!(PixelFormat::from_code(0), None);
    /// ```
    pub fn from_code(code: u8) -> Option<PixelFormat> {
        TABLE.get(usize::from(code).checked_sub(1)?).map(|row| row.0)
    }

    /// The name, in lower case: `rgb8`, `nv12`, `bayer_rggb8`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The type of its values.
    pub fn dtype(self) -> DType {
        self.row().dtype
    }

    /// Values for one pixel along the tensor's axis of channels: 3 for RGB, 2 for YUYV, and 1 where
    /// the tensor has no such axis.
    pub fn channels(self) -> usize {
        self.arrangement().channels()
    }

    /// How its channels are spread over planes.
    pub fn kind(self) -> FormatKind {
        match self.plane_count() {
            1 => FormatKind::Packed,
            2 => FormatKind::SemiPlanar,
            _ => FormatKind::Planar,
        }
    }

    /// How many planes it has.
    pub fn plane_count(self) -> usize {
        self.arrangement().planes.len()
    }

    /// Pixels that share one value of chroma, horizontally and vertically: (2, 2) for 4:2:0, (2, 1)
    /// for 4:2:2, (1, 1) where nothing is shared.
    pub fn subsampling(self) -> (usize, usize) {
        self.arrangement().subsampling()
    }

    /// The smallest group of pixels, as width and height, that a region may start on.
    ///
    /// ```
    /// use cenote::PixelFormat;
    /// assert_eq!(PixelFormat::Yuyv.pixel_group(), (2, 1));
    /// assert_eq!(PixelFormat::BayerRggb8.pixel_group(), (2, 2));
    /// ```
    pub fn pixel_group(self) -> (usize, usize) {
        let (shared, mosaic) = (self.subsampling(), self.row().mosaic);
        (shared.0.max(mosaic.0), shared.1.max(mosaic.1))
    }

    /// What DRM calls it (`drm_fourcc.h`), if it does.
    pub fn drm_fourcc(self) -> Option<FourCc> {
        self.row().drm
    }

    /// What V4L2 calls it (`videodev2.h`), if it does.
    pub fn v4l2_fourcc(self) -> Option<FourCc> {
        self.row().v4l2
    }

    /// The format that DRM means by a code: the first in the table, so `R16` is
    /// [`Mono16`](Self::Mono16) and not [`Depth16`](Self::Depth16).
    pub fn from_drm(code: FourCc) -> Option<PixelFormat> {
        Self::find(|row| row.drm == Some(code))
    }

    /// The format that V4L2 means by a code.
    pub fn from_v4l2(code: FourCc) -> Option<PixelFormat> {
        Self::find(|row| row.v4l2 == Some(code))
    }
}

impl fmt::Display for PixelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PixelFormat {
    type Err = Error;

    /// Accepts the name and the usual other ones (`mono8`, `rgb24`, `yuy2`), in any case.
    fn from_str(name: &str) -> Result<Self> {
        let same = |known: &&str| known.eq_ignore_ascii_case(name);
        Self::find(|row| same(&row.name) || row.aliases.iter().any(same))
            .ok_or_else(|| Error::UnknownFormat { given: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_count_from_one() {
        for (index, format) in PixelFormat::all().enumerate() {
            assert_eq!(usize::from(format.code()), index + 1);
            assert_eq!(PixelFormat::from_code(format.code()), Some(format));
        }
        assert_eq!(PixelFormat::from_code(0), None);
        assert_eq!(PixelFormat::from_code(u8::MAX), None);
    }

    #[test]
    fn codes_are_the_ones_that_were_shipped() {
        // A change here breaks every process that runs an older cenote.
        let names: Vec<_> = PixelFormat::all().take(23).map(PixelFormat::name).collect();
        assert_eq!(
            names.join(" "),
            "grey mono16 mono32f rgb8 bgr8 rgba8 bgra8 rgb32f yuyv uyvy vyuy nv12 nv21 nv16 nv24 \
             i420 planar_rgb planar_rgba bayer_rggb8 bayer_bggr8 bayer_gbrg8 bayer_grbg8 depth16"
        );
    }

    #[test]
    fn names_round_trip_and_no_two_formats_share_one() {
        let mut seen = HashSet::new();
        for (format, row) in TABLE {
            assert_eq!(format.to_string(), row.name);
            for name in row.aliases.iter().chain([&row.name]) {
                assert!(seen.insert(*name), "{name} twice");
                assert_eq!(name.parse::<PixelFormat>().unwrap(), *format);
                assert_eq!(name.to_uppercase().parse::<PixelFormat>().unwrap(), *format);
            }
        }
        assert_eq!("Mono8".parse::<PixelFormat>().unwrap(), PixelFormat::Grey);
        assert!(matches!("nv13".parse::<PixelFormat>(), Err(Error::UnknownFormat { .. })));
        assert!("".parse::<PixelFormat>().is_err());
    }

    #[test]
    fn fourccs_round_trip() {
        for format in PixelFormat::all() {
            if let Some(code) = format.v4l2_fourcc() {
                assert_eq!(PixelFormat::from_v4l2(code), Some(format));
            }
            if let Some(code) = format.drm_fourcc().filter(|_| format != PixelFormat::Depth16) {
                assert_eq!(PixelFormat::from_drm(code), Some(format));
            }
        }
        assert_eq!(PixelFormat::from_drm(FourCc::new(b"R16 ")), Some(PixelFormat::Mono16));
        assert_eq!(PixelFormat::from_v4l2(FourCc::new(b"Z16 ")), Some(PixelFormat::Depth16));
        assert_eq!(PixelFormat::from_drm(FourCc::from_u32(0)), None);
    }

    #[test]
    fn drm_and_v4l2_disagree_where_they_should() {
        // DRM's BGR888 and V4L2's RGB24 are both R, G, B in memory.
        assert_eq!(PixelFormat::from_drm(FourCc::new(b"BG24")), Some(PixelFormat::Rgb8));
        assert_eq!(PixelFormat::from_v4l2(FourCc::new(b"RGB3")), Some(PixelFormat::Rgb8));
        assert_eq!(PixelFormat::from_drm(FourCc::new(b"AR24")), Some(PixelFormat::Bgra8));
        assert_eq!(PixelFormat::BayerBggr8.drm_fourcc(), None);
    }

    #[test]
    fn traits_by_hand() {
        let about = |f: PixelFormat| (f.kind(), f.channels(), f.subsampling(), f.pixel_group());
        let (packed, semi) = (FormatKind::Packed, FormatKind::SemiPlanar);
        let planar = FormatKind::Planar;
        assert_eq!(about(PixelFormat::Grey), (packed, 1, (1, 1), (1, 1)));
        assert_eq!(about(PixelFormat::Rgb8), (packed, 3, (1, 1), (1, 1)));
        assert_eq!(about(PixelFormat::Bgra8), (packed, 4, (1, 1), (1, 1)));
        assert_eq!(about(PixelFormat::Yuyv), (packed, 2, (2, 1), (2, 1)));
        assert_eq!(about(PixelFormat::BayerGrbg8), (packed, 1, (1, 1), (2, 2)));
        assert_eq!(about(PixelFormat::Nv12), (semi, 1, (2, 2), (2, 2)));
        assert_eq!(about(PixelFormat::Nv16), (semi, 1, (2, 1), (2, 1)));
        assert_eq!(about(PixelFormat::Nv24), (semi, 1, (1, 1), (1, 1)));
        assert_eq!(about(PixelFormat::I420), (planar, 1, (2, 2), (2, 2)));
        assert_eq!(about(PixelFormat::PlanarRgba), (planar, 4, (1, 1), (1, 1)));
    }

    #[test]
    fn every_row_has_planes_and_room_for_them() {
        for format in PixelFormat::all() {
            let planes = format.planes(8, 8, 8 * 12).unwrap();
            assert_eq!(planes.len(), format.plane_count());
            assert!(!planes.is_empty());
        }
    }
}
