//! PNG: images unchanged, depth images in millimetres.

use std::fs::File;
use std::path::Path;

use cenote::{DepthImage, Image, PixelFormat};

use crate::failure::{Failure, Outcome};
use crate::files::atomic_write;

/// Reads an image.
pub(crate) fn load(path: &Path) -> Outcome<Image> {
    // Opened first for a clear error text: the decoder would wrap the error of the kernel.
    File::open(path).map_err(|error| Failure::of_file("reading", path, &error))?;
    Ok(Image::load_png(path)?)
}

/// Writes an image.
pub(crate) fn save(image: &Image, path: &Path) -> Outcome {
    let png = image.to_png().map_err(|error| Failure::from(error).about(path))?;
    atomic_write::write(path, &png)
}

/// Writes a depth image as 16-bit grey: millimetres, 0 where the depth is unknown.
pub(crate) fn save_depth(depth: &DepthImage, path: &Path) -> Outcome {
    save(&millimetres(depth)?, path)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn millimetres(depth: &DepthImage) -> Outcome<Image> {
    let (width, height) = (depth.width(), depth.height());
    let mut image = Image::new(width, height, PixelFormat::Mono16)?;
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let metres = pixels.map(|(x, y)| depth.depth_at(x, y).unwrap_or(0.0));
    let values: Vec<u16> =
        metres.map(|metres| (metres * 1000.0).round().clamp(0.0, 65_535.0) as u16).collect();
    image.copy_from_slice(&values)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::DType;

    #[test]
    fn depth_is_saved_in_millimetres_clamped_to_16_bits() {
        let mut depth = DepthImage::new(1, 3, DType::F32).unwrap();
        depth.set_depth(0, 0, 1.234).unwrap();
        depth.set_depth(1, 0, None).unwrap();
        depth.set_depth(2, 0, 500.0).unwrap();
        let image = millimetres(&depth).unwrap();
        let values: Vec<u16> =
            (0..3).map(|x| image.pixel_as::<[u16; 1]>(x, 0).unwrap()[0]).collect();
        assert_eq!(values, [1234, 0, 65_535]);
    }
}
