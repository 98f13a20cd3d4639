//! A naive model of an image: the position of every sample by plain arithmetic, and test images.

use cenote::{DType, PixelFormat, Tensor, TensorMemory};

use super::options_for;

pub(super) const SIZES: [(usize, usize); 6] = [(1, 1), (2, 2), (5, 3), (6, 5), (7, 4), (16, 9)];

/// A rectangle: x, y, width, height.
pub(super) type Rect = (usize, usize, usize, usize);

/// An image with padded rows, and all bytes of its buffer. The padding is not zero.
pub(super) fn padded(
    memory: TensorMemory,
    format: PixelFormat,
    (width, height): (usize, usize),
    padding: usize,
) -> (Tensor, Vec<u8>) {
    let wide = (width + padding).next_multiple_of(2);
    let shape = format.shape(wide, height).unwrap();
    let len = shape.iter().product::<usize>();
    let value = |i: usize| u16::try_from(i % 251 + 1).unwrap();
    let (tensor, bytes) = match format.dtype() {
        DType::U8 => {
            let data: Vec<u8> = (0..len).map(|i| value(i).to_ne_bytes()[0]).collect();
            (options_for(memory).create_from_slice(&data, &shape), data)
        }
        DType::U16 => {
            let data: Vec<u16> = (0..len).map(|i| value(i) * 257 - 1).collect();
            let bytes = data.iter().flat_map(|v| v.to_ne_bytes()).collect();
            (options_for(memory).create_from_slice(&data, &shape), bytes)
        }
        DType::F32 => {
            let data: Vec<f32> = (0..len).map(|i| f32::from(value(i)) / 3.0).collect();
            let bytes = data.iter().flat_map(|v| v.to_ne_bytes()).collect();
            (options_for(memory).create_from_slice(&data, &shape), bytes)
        }
        other => panic!("{format} has {other}"),
    };
    let columns = if is_planar(format) { 2 } else { 1 };
    let image = tensor.unwrap().narrow(columns, 0, width).unwrap().with_format(format).unwrap();
    (image, bytes)
}

fn is_planar(format: PixelFormat) -> bool {
    matches!(format, PixelFormat::PlanarRgb | PixelFormat::PlanarRgba)
}

/// The samples of a rectangle of an image, plane by plane, column by column, by plain arithmetic.
pub(super) fn naive_samples(
    format: PixelFormat,
    bytes: &[u8],
    size: (usize, usize),
    stride: usize,
    (x, y, width, height): Rect,
) -> Vec<Vec<u8>> {
    let whole = format.planes(size.0, size.1, stride).unwrap();
    let part = format.planes(width, height, format.min_row_stride(width).unwrap()).unwrap();
    let plane = |(index, (whole, part)): (usize, (cenote::Plane, cenote::Plane))| {
        let (h, v) = if index == 0 { (1, 1) } else { format.subsampling() };
        let sample = part.channels * format.dtype().size();
        let mut samples = Vec::new();
        for column in x / h..x / h + part.width {
            for row in y / v..y / v + part.rows {
                let at = whole.offset + row * whole.stride + column * sample;
                samples.extend_from_slice(&bytes[at..at + sample]);
            }
        }
        samples
    };
    whole.into_iter().zip(part).enumerate().map(plane).collect()
}

/// The same samples, read from the tensor. If a row of YUYV is odd, they include the half of its last
/// pair that the shape does not count.
pub(super) fn samples(image: &Tensor) -> Vec<Vec<u8>> {
    let format = image.format().unwrap();
    let (width, height) = image.image_size().unwrap();
    let planes = format.planes(width, height, format.min_row_stride(width).unwrap()).unwrap();
    let plane = |(index, plane): (usize, cenote::Plane)| {
        let view = image.plane(index).unwrap();
        let start = view.layout().offset();
        let sample = plane.channels * format.dtype().size();
        let first = view.narrow(1, 0, 1).unwrap();
        let column = |i: usize| {
            let column = first.clone().with_plane_offset(start + i * sample).unwrap();
            column.map().unwrap().runs().collect::<Vec<_>>().concat()
        };
        (0..plane.width).flat_map(column).collect()
    };
    planes.into_iter().enumerate().map(plane).collect()
}

/// Rectangles that start on a pixel group of the format, some of them of odd size.
pub(super) fn rects(format: PixelFormat, (width, height): (usize, usize)) -> Vec<Rect> {
    let (w, h) = format.pixel_group();
    let mut rects = vec![(0, 0, width, height), (0, 0, 1, 1)];
    let (x, y) = (width / 2 / w * w, height / 2 / h * h);
    rects.push((x, y, width - x, height - y));
    rects.push((x, y, (width - x).div_ceil(2), (height - y).div_ceil(2)));
    rects.push((0, y, width, 1));
    rects
}
