//! The table of texel formats: OpenGL's names for 1 to 4 values of a dtype.

use std::fmt;

use crate::types::dtype::DType;

/// The format of a texel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Texel {
    pub(crate) dtype: DType,
    pub(crate) channels: usize,
    /// The format in the GPU.
    pub(crate) internal: u32,
    /// The format in memory: the order of the values, and the type of each.
    pub(crate) format: u32,
    pub(crate) kind: u32,
}

const PLAIN: [u32; 4] = [glow::RED, glow::RG, glow::RGB, glow::RGBA];
const INTEGER: [u32; 4] =
    [glow::RED_INTEGER, glow::RG_INTEGER, glow::RGB_INTEGER, glow::RGBA_INTEGER];

type TexelRow = (DType, u32, [u32; 4], [u32; 4]);

/// dtype, its type in memory, formats in memory, formats in the GPU; for one to four channels.
const TABLE: [TexelRow; 8] = [
    (DType::U8, glow::UNSIGNED_BYTE, PLAIN, [glow::R8, glow::RG8, glow::RGB8, glow::RGBA8]),
    (DType::F16, glow::HALF_FLOAT, PLAIN, [glow::R16F, glow::RG16F, glow::RGB16F, glow::RGBA16F]),
    (DType::F32, glow::FLOAT, PLAIN, [glow::R32F, glow::RG32F, glow::RGB32F, glow::RGBA32F]),
    (DType::I8, glow::BYTE, INTEGER, [glow::R8I, glow::RG8I, glow::RGB8I, glow::RGBA8I]),
    (
        DType::U16,
        glow::UNSIGNED_SHORT,
        INTEGER,
        [glow::R16UI, glow::RG16UI, glow::RGB16UI, glow::RGBA16UI],
    ),
    (DType::I16, glow::SHORT, INTEGER, [glow::R16I, glow::RG16I, glow::RGB16I, glow::RGBA16I]),
    (
        DType::U32,
        glow::UNSIGNED_INT,
        INTEGER,
        [glow::R32UI, glow::RG32UI, glow::RGB32UI, glow::RGBA32UI],
    ),
    (DType::I32, glow::INT, INTEGER, [glow::R32I, glow::RG32I, glow::RGB32I, glow::RGBA32I]),
];

impl Texel {
    /// The format that shaders see of an imported image, whatever its format in memory.
    pub(crate) const RGBA8: Texel = Texel {
        dtype: DType::U8,
        channels: 4,
        internal: glow::RGBA8,
        format: glow::RGBA,
        kind: glow::UNSIGNED_BYTE,
    };

    /// `None` if OpenGL has no such format.
    pub(crate) fn of(dtype: DType, channels: usize) -> Option<Texel> {
        let (_, kind, formats, internal) = TABLE.iter().find(|row| row.0 == dtype)?;
        let at = channels.checked_sub(1)?;
        let (format, internal) = (*formats.get(at)?, *internal.get(at)?);
        Some(Texel { dtype, channels, internal, format, kind: *kind })
    }

    /// Bytes of a texel in memory.
    pub(crate) fn size(&self) -> usize {
        self.channels * self.dtype.size()
    }

    /// Returns whether every driver can filter linearly. (32-bit floats need an extension.)
    pub(crate) fn can_be_filtered(&self) -> bool {
        matches!(self.dtype, DType::U8 | DType::F16)
    }

    /// Returns whether every driver of OpenGL ES reads framebuffers in this format: all four channels,
    /// as normalized bytes or in the widest type.
    pub(crate) fn is_always_readable(&self) -> bool {
        self.channels == 4 && matches!(self.dtype, DType::U8 | DType::F32 | DType::U32 | DType::I32)
    }
}

impl fmt::Display for Texel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.channels, self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_four_formats_that_occur_once() {
        let mut seen = Vec::new();
        for dtype in DType::all() {
            assert!(Texel::of(dtype, 0).is_none() && Texel::of(dtype, 5).is_none());
            for channels in 1..=4 {
                let Some(texel) = Texel::of(dtype, channels) else { continue };
                assert_eq!(texel.size(), channels * dtype.size());
                seen.push(texel.internal);
            }
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len(), all), (4 * TABLE.len(), 4 * TABLE.len()));
    }
}
