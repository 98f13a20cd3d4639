//! The elements of a tensor as rows of texels.

use crate::error::{Error, GlError, Result};
use crate::tensor::Tensor;
use crate::texture::texel::Texel;

/// The size of a texture, and where its texels lie in a tensor's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TexelRows {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) channels: usize,
    /// Bytes from one row to the next.
    pub(crate) stride: usize,
    /// Bytes before the first texel.
    pub(crate) offset: usize,
}

/// How OpenGL's pixel-store settings express the distance between rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pitch {
    /// As a row length, in texels.
    Texels(i32),
    /// As an alignment of rows, in bytes.
    Alignment(i32),
    /// They cannot: each row is a transfer.
    RowByRow,
}

impl TexelRows {
    /// Fails unless the tensor is rows of texels that OpenGL has a format for.
    pub(crate) fn of(tensor: &Tensor) -> Result<TexelRows> {
        let refuse = |rule| {
            let (shape, strides) = (tensor.shape().into(), tensor.strides().into());
            Error::Gl(GlError::NotTexels { dtype: tensor.dtype().name(), shape, strides, rule })
        };
        if tensor.plane_count() > 1 {
            return Err(refuse("it has several planes, each of which can be one (`plane`)"));
        }
        let (height, width, channels) = match *tensor.shape() {
            [height, width] => (height, width, 1),
            [height, width, channels] => (height, width, channels),
            _ => {
                return Err(refuse(
                    "its shape must be [height, width] or [height, width, channels]",
                ));
            }
        };
        if Texel::of(tensor.dtype(), channels).is_none() {
            return Err(refuse("1 to 4 channels of u8, f16, f32, or integers of 8 to 32 bits"));
        }
        let item = tensor.dtype().size();
        let texel = channels * item;
        // The stride of an axis of length 1 may be anything.
        let stride_of = |axis: usize, expected: usize| match tensor.shape().get(axis) {
            None | Some(1) => Some(expected),
            Some(_) => usize::try_from(tensor.strides()[axis]).ok(),
        };
        let stride = stride_of(0, width * texel).filter(|&stride| stride >= width * texel);
        let tight = stride_of(1, texel) == Some(texel) && stride_of(2, item) == Some(item);
        let stride = stride.filter(|_| tight);
        let stride =
            stride.ok_or_else(|| refuse("it must be rows of texels that lie side by side"))?;
        let offset = tensor.layout().offset();
        if !offset.is_multiple_of(item) || !stride.is_multiple_of(item) {
            return Err(refuse("its rows must begin at multiples of the size of an element"));
        }
        Ok(TexelRows { width, height, channels, stride, offset })
    }

    /// Returns how to express the stride to OpenGL, for texels of this many bytes.
    pub(crate) fn pitch(&self, texel: usize) -> Pitch {
        let row = self.width * texel;
        if self.stride.is_multiple_of(texel)
            && let Ok(texels) = i32::try_from(self.stride / texel)
        {
            return Pitch::Texels(texels);
        }
        let aligned =
            [2, 4, 8].into_iter().find(|&align| row.next_multiple_of(align) == self.stride);
        aligned
            .and_then(|align| i32::try_from(align).ok())
            .map_or(Pitch::RowByRow, Pitch::Alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::dtype::DType;
    use crate::types::pixel_format::PixelFormat;

    fn heap(shape: &[usize], dtype: DType) -> Tensor {
        Tensor::options()
            .memory(crate::memory::kind::TensorMemory::Mem)
            .create(shape, dtype)
            .unwrap()
    }

    #[test]
    fn rows_are_found_in_views_and_planes() {
        let image = heap(&[6, 8, 4], DType::U8);
        let rows = TexelRows::of(&image.roi(2, 1, 3, 4).unwrap()).unwrap();
        assert_eq!(rows, TexelRows { width: 3, height: 4, channels: 4, stride: 32, offset: 40 });
        let grey = heap(&[6, 8], DType::F32);
        let rows = TexelRows::of(&grey).unwrap();
        assert_eq!((rows.channels, rows.stride), (1, 32));
        assert_eq!(TexelRows::of(&grey.narrow(0, 5, 1).unwrap().transpose()).unwrap().width, 1);
        let planar = Tensor::image(8, 8, PixelFormat::Nv12).unwrap();
        assert!(TexelRows::of(&planar).is_err());
        assert_eq!(TexelRows::of(&planar.plane(1).unwrap()).unwrap().channels, 2);
    }

    #[test]
    fn tensors_that_are_not_rows_of_texels_are_refused() {
        let image = heap(&[6, 8, 4], DType::U8);
        let bad = [
            image.transpose(),
            image.flip(0).unwrap(),
            image.flip(1).unwrap(),
            image.slice(1, 0..8, 2).unwrap(),
            image.index(0, 0).unwrap().index(0, 0).unwrap(),
            heap(&[2, 2, 5], DType::U8),
            heap(&[2, 2], DType::F64),
            heap(&[2, 2], DType::Bool),
            heap(&[2, 2, 2, 2], DType::U8),
            heap(&[9], DType::U16)
                .narrow(0, 0, 4)
                .unwrap()
                .with_plane_offset(1)
                .unwrap()
                .reshape(&[2, 2])
                .unwrap(),
        ];
        for tensor in bad {
            let refused = TexelRows::of(&tensor);
            assert!(matches!(refused, Err(Error::Gl(GlError::NotTexels { .. }))), "{tensor:?}");
        }
    }

    #[test]
    fn a_pitch_is_texels_or_alignment_or_row_by_row() {
        let rows = |width, stride| TexelRows { width, height: 2, channels: 3, stride, offset: 0 };
        assert_eq!(rows(5, 15).pitch(3), Pitch::Texels(5));
        assert_eq!(rows(5, 18).pitch(3), Pitch::Texels(6));
        assert_eq!(rows(5, 16).pitch(3), Pitch::Alignment(2));
        assert_eq!(rows(6, 20).pitch(3), Pitch::Alignment(4));
        assert_eq!(rows(5, 17).pitch(3), Pitch::RowByRow);
        assert_eq!(rows(5, 64).pitch(3), Pitch::RowByRow);
    }
}
