//! Copies of tensors and images: their layout, their bytes, and how they are counted.

use cenote::{CopyReason, DType, PixelFormat, TensorMemory};

use super::image_model::{SIZES, naive_samples, padded, rects, samples};
use super::{Case, cases, copies_made, counting, lock_copy_counters, options_for};

pub(super) const CASES: &[Case] = cases![
    make_mut_keeps_the_row_stride
    contiguous_images_equal_a_naive_copy
    contiguous_copies_keep_the_shape
    copies_are_counted_byte_for_byte
];

fn make_mut_keeps_the_row_stride(memory: TensorMemory) {
    let options = options_for(memory).row_alignment(64);
    let mut image = options.image(100, 10, PixelFormat::Rgb8).unwrap();
    let before = image.clone();
    image.make_mut().unwrap();
    assert_eq!((image.row_stride(), before.row_stride()), (Some(320), Some(320)));
    assert_eq!(image.to_contiguous().unwrap().row_stride(), None);
}

fn contiguous_images_equal_a_naive_copy(memory: TensorMemory) {
    let _lock = lock_copy_counters();
    for format in PixelFormat::all() {
        for size in SIZES {
            let (image, bytes) = padded(memory, format, size, 3);
            let stride = image.effective_row_stride().unwrap();
            for rect in rects(format, size) {
                let (x, y, width, height) = rect;
                let copy = image.roi(x, y, width, height).unwrap().to_contiguous().unwrap();
                let about = format!("{format} {size:?} {rect:?}");
                assert_eq!(
                    (copy.format(), copy.image_size()),
                    (Some(format), Some((width, height)))
                );
                assert_eq!(copy.effective_row_stride(), format.min_row_stride(width).ok());
                assert_eq!(copy.memory(), memory);
                assert_ne!(copy.buffer_identity().id(), image.buffer_identity().id());
                assert_eq!(
                    samples(&copy),
                    naive_samples(format, &bytes, size, stride, rect),
                    "{about}"
                );
            }
        }
    }
}

fn contiguous_copies_keep_the_shape(memory: TensorMemory) {
    let _lock = lock_copy_counters();
    let grey = options_for(memory).create(&[3, 5, 1], DType::U8).unwrap();
    let mut grey = grey.with_format(PixelFormat::Grey).unwrap();
    assert_eq!(grey.to_contiguous().unwrap().shape(), [3, 5, 1]);
    let shared = grey.clone();
    grey.make_mut().unwrap().set(&[2, 4, 0], 1u8).unwrap();
    assert_eq!(
        (grey.format(), shared.format()),
        (Some(PixelFormat::Grey), Some(PixelFormat::Grey))
    );
    let strided = counting(memory, &[3, 4]).transpose();
    let copy = strided.to_contiguous().unwrap();
    assert_eq!(copy.strides(), [6, 2]);
    assert_eq!(copy.to_vec::<u16>().unwrap(), strided.to_vec::<u16>().unwrap());
}

fn copies_are_counted_byte_for_byte(memory: TensorMemory) {
    let _lock = lock_copy_counters();
    let image = options_for(memory).image(8, 4, PixelFormat::Nv12).unwrap();
    let before = copies_made(CopyReason::ToContiguous);
    image.to_contiguous().unwrap();
    assert_eq!(copies_made(CopyReason::ToContiguous), (before.0 + 1, before.1 + 48));
    image.roi(0, 0, 4, 4).unwrap().to_contiguous().unwrap();
    assert_eq!(copies_made(CopyReason::ToContiguous), (before.0 + 2, before.1 + 48 + 24));
    let before = copies_made(CopyReason::MakeMut);
    image.roi(2, 2, 2, 2).unwrap().make_mut().unwrap();
    assert_eq!(copies_made(CopyReason::MakeMut), (before.0 + 1, before.1 + 6));
}
