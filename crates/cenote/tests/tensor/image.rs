//! Tensors with a pixel format: shapes, row strides, planes, regions of interest.

use cenote::{DType, Error, PixelFormat, Tensor, TensorMemory};

use super::image_model::{SIZES, naive_samples, padded, rects, samples};
use super::{Case, cases, counting, options_for};

pub(super) const CASES: &[Case] = cases![
    images_have_the_shape_of_their_format
    a_format_refuses_a_wrong_shape_or_dtype
    a_format_needs_rows_of_pixels
    row_stride_needs_a_format_and_room
    the_requested_row_alignment_is_kept
    a_plane_offset_stays_inside_the_buffer
    planes_cover_the_image
    planes_can_be_written_one_by_one
    the_format_of_a_region_can_change
    roi_keeps_the_format
    a_roi_of_a_roi_is_a_roi_of_the_image
    setting_a_format_again_changes_nothing
    an_image_of_one_row_may_have_any_row_stride
];

fn images_have_the_shape_of_their_format(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for (width, height) in SIZES {
            let image = options_for(memory).image(width, height, format).unwrap();
            assert_eq!(*image.shape(), *format.shape(width, height).unwrap());
            assert_eq!((image.dtype(), image.format()), (format.dtype(), Some(format)));
            assert_eq!(image.image_size(), Some((width, height)));
            let smallest = format.min_row_stride(width).unwrap();
            let (alignment, noted) = match memory {
                TensorMemory::Dma => (64, Some(64)),
                _ => (1, None),
            };
            let stride = smallest.next_multiple_of(alignment);
            assert_eq!(image.effective_row_stride(), Some(stride));
            assert_eq!(image.selection().row_alignment(), noted);
            assert_eq!(image.plane_offset(), None);
            assert!(samples(&image).concat().iter().all(|&byte| byte == 0));

            let shape = format.shape(width, height).unwrap();
            let bare = options_for(memory).create(&shape, format.dtype()).unwrap();
            // Chroma of odd widths needs padding that a bare tensor does not have.
            if width.is_multiple_of(2) {
                assert_eq!(bare.with_format(format).unwrap().row_stride(), None);
            } else {
                let subsampled = format.subsampling().0 > 1;
                assert_eq!(bare.with_format(format).is_err(), subsampled, "{format} {width}");
            }
        }
    }
}

fn a_format_refuses_a_wrong_shape_or_dtype(memory: TensorMemory) {
    use PixelFormat::{Grey, I420, Mono16, Nv12, PlanarRgb, Rgb8, Rgba8};
    let refused = |shape: &[usize], dtype, format| {
        let mut tensor = options_for(memory).create(shape, dtype).unwrap();
        let error = tensor.set_format(format).unwrap_err();
        assert_eq!(tensor.format(), None, "a refused format must not stick");
        error
    };
    assert!(matches!(refused(&[4, 6, 3], DType::U8, Rgba8), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4, 6], DType::U8, Rgb8), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4, 6, 3], DType::U8, PlanarRgb), Error::FormatShape { .. }));
    assert!(matches!(refused(&[7, 6], DType::U8, Nv12), Error::FormatShape { .. }));
    assert!(matches!(refused(&[7, 6], DType::U8, I420), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4], DType::U8, Grey), Error::FormatShape { .. }));
    assert!(matches!(refused(&[], DType::U8, Grey), Error::FormatShape { .. }));
    assert!(matches!(refused(&[4, 6], DType::U8, Mono16), Error::FormatDType { .. }));
    assert!(matches!(refused(&[4, 6], DType::I8, Grey), Error::FormatDType { .. }));
    assert!(matches!(refused(&[3, 5], DType::U8, Nv12), Error::BadRowStride { min: 6, .. }));

    let mut grey = options_for(memory).image(6, 4, Grey).unwrap();
    grey.set_format(PixelFormat::BayerRggb8).unwrap();
    assert!(grey.set_format(Rgb8).is_err());
    assert_eq!(grey.format(), Some(PixelFormat::BayerRggb8));
}

fn a_format_needs_rows_of_pixels(memory: TensorMemory) {
    let tensor = options_for(memory).create(&[8, 8, 3], DType::U8).unwrap();
    let refused = |view: cenote::Result<Tensor>| {
        let error = view.unwrap().with_format(PixelFormat::Rgb8).unwrap_err();
        matches!(error, Error::FormatLayout { .. } | Error::BadRowStride { .. })
    };
    assert!(refused(tensor.flip(0)));
    assert!(refused(tensor.flip(1)));
    assert!(refused(tensor.flip(2)));
    assert!(refused(tensor.permute(&[1, 0, 2])));
    assert!(refused(tensor.slice(1, 0..8, 2)));
    // Every other row is only another stride.
    let half = tensor.slice(0, 0..8, 2).unwrap().with_format(PixelFormat::Rgb8).unwrap();
    assert_eq!(half.row_stride(), Some(48));
    // A view has no format; only a region of interest keeps it.
    let image = tensor.with_format(PixelFormat::Rgb8).unwrap();
    assert_eq!(image.clone().format(), Some(PixelFormat::Rgb8));
    assert_eq!(image.narrow(0, 0, 2).unwrap().format(), None);
}

fn row_stride_needs_a_format_and_room(memory: TensorMemory) {
    let mut bare = options_for(memory).create(&[4 * 64], DType::U8).unwrap();
    assert!(matches!(bare.set_row_stride(64), Err(Error::NoFormat { .. })));
    assert_eq!((bare.row_stride(), bare.effective_row_stride()), (None, None));

    let rows = bare.reshape(&[4, 64]).unwrap();
    drop(bare);
    let mut grey = rows.narrow(1, 0, 10).unwrap().with_format(PixelFormat::Grey).unwrap();
    drop(rows);
    assert_eq!((grey.row_stride(), grey.effective_row_stride()), (Some(64), Some(64)));
    assert!(matches!(grey.set_row_stride(9), Err(Error::BadRowStride { min: 10, .. })));
    assert!(matches!(grey.set_row_stride(0), Err(Error::BadRowStride { .. })));
    assert!(matches!(grey.set_row_stride(83), Err(Error::OutOfBuffer { .. })));
    assert!(grey.set_row_stride(usize::MAX).is_err());
    assert_eq!(grey.row_stride(), Some(64), "a refused stride must not stick");
    grey.set_row_stride(82).unwrap();
    assert_eq!(grey.strides(), [82, 1]);
    let grey = grey.with_row_stride(10).unwrap();
    assert_eq!((grey.row_stride(), grey.effective_row_stride()), (None, Some(10)));

    for format in PixelFormat::all() {
        let mut image = options_for(memory).row_alignment(256).image(7, 5, format).unwrap();
        let min = format.min_row_stride(7).unwrap();
        assert!(image.set_row_stride(min - 1).is_err());
        image.set_row_stride(min).unwrap();
        assert_eq!(image.effective_row_stride(), Some(min));
        image.set_row_stride(256).unwrap();
        assert!(image.set_row_stride(1 << 20).is_err(), "{format}: no room for that");
        assert_eq!(image.effective_row_stride(), Some(256));
    }
}

fn the_requested_row_alignment_is_kept(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for (width, height) in SIZES {
            let image = options_for(memory).row_alignment(64).image(width, height, format).unwrap();
            let stride = image.effective_row_stride().unwrap();
            assert!(stride.is_multiple_of(64), "{format} {stride}");
            let first = image.plane(0).unwrap();
            assert!(first.layout().offset().is_multiple_of(64));
        }
    }
}

fn a_plane_offset_stays_inside_the_buffer(memory: TensorMemory) {
    let mut tensor = counting(memory, &[4, 4]).narrow(0, 0, 2).unwrap();
    assert_eq!(tensor.plane_offset(), None);
    tensor.set_plane_offset(16).unwrap();
    assert_eq!(tensor.plane_offset(), Some(16));
    assert!(tensor.to_vec::<u16>().unwrap().into_iter().eq(8..16));
    assert!(matches!(tensor.set_plane_offset(17), Err(Error::OutOfBuffer { .. })));
    assert!(tensor.set_plane_offset(usize::MAX).is_err());
    assert_eq!(tensor.plane_offset(), Some(16), "a refused offset must not stick");
    let back = tensor.with_plane_offset(0).unwrap();
    assert!(back.to_vec::<u16>().unwrap().into_iter().eq(0..8));

    // All planes of an image must have room, not only the first.
    let tensor = options_for(memory).create(&[6 * 4 + 10], DType::U8).unwrap();
    let image = tensor.narrow(0, 0, 24).unwrap().reshape(&[6, 4]).unwrap();
    let image = image.with_format(PixelFormat::Nv12).unwrap();
    assert_eq!(
        image.clone().with_plane_offset(10).unwrap().plane(1).unwrap().plane_offset(),
        Some(26)
    );
    assert!(image.with_plane_offset(11).is_err());
}

fn planes_can_be_written_one_by_one(memory: TensorMemory) {
    for format in PixelFormat::all() {
        let options = options_for(memory).row_alignment(64);
        let mut image = options.image(7, 5, format).unwrap();
        for plane in 0..format.plane_count() {
            let value = u8::try_from(plane + 1).unwrap();
            image.map_mut().unwrap().plane_mut(plane).unwrap().for_each_run(|row| row.fill(value));
        }
        for plane in 0..format.plane_count() {
            let value = u8::try_from(plane + 1).unwrap();
            let samples = image.plane(plane).unwrap();
            let map = samples.map().unwrap();
            assert!(map.runs().flatten().all(|&byte| byte == value), "{format} plane {plane}");
        }
        let beyond = image.map_mut().unwrap().plane_mut(format.plane_count()).map(drop);
        assert!(matches!(beyond, Err(Error::NoSuchPlane { .. })), "{format}");
    }
}

fn the_format_of_a_region_can_change(memory: TensorMemory) {
    let frame = options_for(memory).image(64, 64, PixelFormat::Nv12).unwrap();
    let mut region = frame.roi(16, 16, 32, 32).unwrap();
    let chroma = region.plane(1).unwrap().plane_offset();
    region.set_format(PixelFormat::Nv21).unwrap();
    assert_eq!(region.image_size(), Some((32, 32)));
    assert_eq!(region.plane(1).unwrap().plane_offset(), chroma);
    assert!(region.set_format(PixelFormat::I420).is_err());
    region.set_format(PixelFormat::Grey).unwrap();
    assert_eq!((region.image_size(), region.plane_count()), (Some((32, 32)), 1));
}

fn planes_cover_the_image(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for size in SIZES {
            let (image, bytes) = padded(memory, format, size, 3);
            let stride = image.effective_row_stride().unwrap();
            assert_eq!(image.plane_count(), format.plane_count());
            let planes = format.planes(size.0, size.1, stride).unwrap();
            for (index, plane) in planes.iter().enumerate() {
                let view = image.plane(index).unwrap();
                assert_eq!(view.format(), None);
                assert_eq!(view.layout().offset(), plane.offset);
                assert_eq!(view.shape()[0], plane.rows);
            }
            let whole = (0, 0, size.0, size.1);
            assert_eq!(
                samples(&image),
                naive_samples(format, &bytes, size, stride, whole),
                "{format} {size:?}"
            );
            let missing = image.plane(format.plane_count()).unwrap_err();
            assert!(matches!(missing, Error::NoSuchPlane { .. }));
        }
    }
    let bare = counting(memory, &[4]);
    assert_eq!(bare.plane(0).unwrap().to_vec::<u16>().unwrap(), [0, 1, 2, 3]);
    assert!(matches!(bare.plane(1), Err(Error::NoSuchPlane { planes: 1, index: 1, .. })));
}

fn roi_keeps_the_format(memory: TensorMemory) {
    for format in PixelFormat::all() {
        for size in SIZES {
            let (image, bytes) = padded(memory, format, size, 2);
            let stride = image.effective_row_stride().unwrap();
            for rect in rects(format, size) {
                let (x, y, width, height) = rect;
                let roi = image.roi(x, y, width, height).unwrap();
                let about = format!("{format} {size:?} {rect:?}");
                assert_eq!((roi.format(), roi.image_size()), (Some(format), Some((width, height))));
                assert_eq!(roi.effective_row_stride(), Some(stride), "{about}");
                assert_eq!(
                    samples(&roi),
                    naive_samples(format, &bytes, size, stride, rect),
                    "{about}"
                );
                assert_eq!(roi.buffer_identity().id(), image.buffer_identity().id());
            }
            let (width, height) = size;
            assert!(image.roi(0, 0, width + 2, height).is_err());
            assert!(image.roi(0, 0, width, height + 2).is_err());
            assert!(image.roi(usize::MAX - 1, 0, 2, 1).is_err());
            assert!(matches!(image.roi(0, 0, 0, 1), Err(Error::EmptyView { .. })));
            if format.pixel_group().0 > 1 {
                assert!(matches!(image.roi(1, 0, 1, 1), Err(Error::UnalignedRoi { x: 1, .. })));
            }
        }
    }
}

fn a_roi_of_a_roi_is_a_roi_of_the_image(memory: TensorMemory) {
    for format in PixelFormat::all() {
        let size = (16, 12);
        let (image, bytes) = padded(memory, format, size, 0);
        let inner = image.roi(4, 2, 11, 9).unwrap().roi(2, 4, 5, 3).unwrap();
        let stride = image.effective_row_stride().unwrap();
        assert_eq!(
            samples(&inner),
            naive_samples(format, &bytes, size, stride, (6, 6, 5, 3)),
            "{format}"
        );
        assert_eq!(inner.clone().image_size(), Some((5, 3)));
        if format.plane_count() > 1 {
            let mut inner = inner;
            assert!(matches!(inner.set_row_stride(64), Err(Error::FarPlanes { .. })));
            assert!(matches!(inner.set_plane_offset(0), Err(Error::FarPlanes { .. })));
        }
    }
}

fn setting_a_format_again_changes_nothing(memory: TensorMemory) {
    for format in PixelFormat::all() {
        let (image, bytes) = padded(memory, format, (12, 12), 0);
        let stride = image.effective_row_stride().unwrap();
        let roi = image.roi(0, 0, 6, 6).unwrap().with_format(format).unwrap();
        assert_eq!(roi.image_size(), Some((6, 6)), "{format}");
        assert_eq!(samples(&roi), naive_samples(format, &bytes, (12, 12), stride, (0, 0, 6, 6)));
    }
}

fn an_image_of_one_row_may_have_any_row_stride(memory: TensorMemory) {
    // The stride of an axis of length 1 may be anything, as in numpy.
    let row = options_for(memory).create(&[8, 1], DType::U8).unwrap().transpose();
    assert_eq!((row.shape(), row.strides()), (&[1, 8][..], &[1, 1][..]));
    let row = row.with_format(PixelFormat::Grey).unwrap();
    assert_eq!(row.image_size(), Some((8, 1)));
    assert_eq!((row.row_stride(), row.effective_row_stride()), (None, Some(8)));
}
