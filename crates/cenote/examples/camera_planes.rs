//! Makes an image tensor of the planes of a camera driver: NV12 with padded rows, first with luma and chroma in two
//! buffers, then with both in one.

use std::os::fd::OwnedFd;

use cenote::{DType, PixelFormat, PlaneDescriptor, Tensor, TensorMemory};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
/// The bytes from one row to the next: the driver pads its rows.
const STRIDE: usize = 2048;

fn main() -> cenote::Result<()> {
    let luma = driver_buffer(HEIGHT, &[70])?;
    let chroma = driver_buffer(HEIGHT / 2, &[110, 150])?;
    let planes = [
        PlaneDescriptor::new(luma)?.with_stride(STRIDE),
        PlaneDescriptor::new(chroma)?.with_stride(STRIDE),
    ];
    check("two buffers", &Tensor::from_planes(WIDTH, HEIGHT, PixelFormat::Nv12, planes)?)?;

    // If chroma follows luma in one buffer, one descriptor is enough. This buffer starts with a header of one row.
    let rows = HEIGHT + HEIGHT / 2;
    let both = PlaneDescriptor::new(driver_buffer(1 + rows, &[70])?)?;
    let plane = both.with_stride(STRIDE).with_offset(STRIDE);
    let frame = Tensor::from_planes(WIDTH, HEIGHT, PixelFormat::Nv12, [plane])?;
    assert_eq!(frame.shape(), [rows, WIDTH]); // both planes
    assert_eq!(frame.plane_offset(), Some(STRIDE));
    println!("one buffer: {:?} {:?}, row stride {STRIDE}", frame.shape(), frame.image_size());

    // A stride that is shorter than a row is refused.
    let plane = PlaneDescriptor::new(driver_buffer(rows, &[0])?)?.with_stride(WIDTH - 2);
    let refused = Tensor::from_planes(WIDTH, HEIGHT, PixelFormat::Nv12, [plane]);
    println!("refused: {}", refused.expect_err("rows would overlap"));
    Ok(())
}

fn check(name: &str, frame: &Tensor) -> cenote::Result<()> {
    let (y, uv) = (frame.plane(0)?, frame.plane(1)?);
    println!("{name}: luma {:?}, chroma {:?}, row stride {STRIDE}", y.shape(), uv.shape());
    assert_eq!((frame.format(), frame.row_stride()), (Some(PixelFormat::Nv12), Some(STRIDE)));
    assert_eq!((y.shape(), uv.shape()), (&[HEIGHT, WIDTH][..], &[HEIGHT / 2, WIDTH / 2, 2][..]));
    assert_eq!(y.map()?.get::<u8>(&[HEIGHT - 1, WIDTH - 1])?, 70);

    let face = frame.roi(600, 200, 256, 256)?; // a view of both planes
    let chroma = face.plane(1)?;
    assert_eq!(chroma.shape(), [128, 128, 2]);
    assert_eq!(chroma.map()?.get::<u8>(&[127, 127, 1])?, 150);
    Ok(())
}

/// Stands for a buffer of a driver: rows of `STRIDE` bytes that repeat `values`.
fn driver_buffer(rows: usize, values: &[u8]) -> cenote::Result<OwnedFd> {
    let options = Tensor::options().memory(TensorMemory::Shm);
    let mut buffer = options.create(&[rows, STRIDE], DType::U8)?;
    for (byte, value) in buffer.map_mut()?.as_mut_slice()?.iter_mut().zip(values.iter().cycle()) {
        *byte = *value;
    }
    buffer.clone_fd()
}
