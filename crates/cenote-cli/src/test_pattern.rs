//! A moving test pattern. Every byte follows from the frame number, so a subscriber can check all of them.

use std::str::FromStr;

use cenote::{Error, Image};

use crate::failure::Outcome;

/// The number of different offsets of the pattern. A prime, so that the pattern repeats late.
const STEPS: u64 = 251;

const CHANNELS: usize = 3;

/// Width and height of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// 640x480.
pub(crate) const VGA: Size = Size { width: 640, height: 480 };

impl FromStr for Size {
    type Err = String;

    fn from_str(given: &str) -> Result<Size, String> {
        let (width, height) = match given {
            "480p" => ("854", "480"),
            "720p" => ("1280", "720"),
            "1080p" => ("1920", "1080"),
            "4k" | "2160p" => ("3840", "2160"),
            _ => given.split_once('x').ok_or("use WIDTHxHEIGHT, 480p, 720p, 1080p or 4k")?,
        };
        let side = |text: &str| text.parse().ok().filter(|side| (16..=16_384).contains(side));
        let sides = side(width).zip(side(height)).ok_or("each side must be from 16 to 16384")?;
        Ok(Size { width: sides.0, height: sides.1 })
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// Draws frame `number` into an RGB image.
pub(crate) fn draw(image: &mut Image, number: u64) -> Outcome {
    let width = image.width() * CHANNELS;
    let line = line(image.width());
    let mut y = 0;
    image.map_mut()?.for_each_run(|run| {
        for row in run.chunks_exact_mut(width) {
            row.copy_from_slice(&line[start(y, number)..][..width]);
            y += 1;
        }
    });
    Ok(())
}

/// Whether every byte of an RGB image is as [`draw`] makes it for frame `number`.
pub(crate) fn is_intact(image: &Image, number: u64) -> Result<bool, Error> {
    let width = image.width() * CHANNELS;
    let line = line(image.width());
    let map = image.map()?;
    let rows = map.runs().flat_map(|run| run.chunks_exact(width));
    let mut rows = rows.zip(0..);
    Ok(rows.all(|(row, y)| *row == line[start(y, number)..][..width]))
}

/// A line of pixels that is longer than a row. Every row is a part of it.
fn line(width: usize) -> Vec<u8> {
    let steps = usize::try_from(STEPS).unwrap_or(0);
    let pixel = |x: usize| {
        let wave = |at: usize| u8::try_from((at % 510).min(510 - at % 510)).unwrap_or(u8::MAX);
        [wave(x * 2), wave(x * 3 + 170), wave(x * 5 + 340)]
    };
    (0..width + steps).flat_map(pixel).collect()
}

/// Where row `y` of frame `number` starts in the line.
fn start(y: u64, number: u64) -> usize {
    let pixel = (y + number % STEPS * 7) % STEPS;
    usize::try_from(pixel).unwrap_or(0) * CHANNELS
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::PixelFormat;

    #[test]
    fn sizes_parse() {
        assert_eq!("1080p".parse(), Ok(Size { width: 1920, height: 1080 }));
        assert_eq!("64x48".parse(), Ok(Size { width: 64, height: 48 }));
        for bad in ["", "x", "64", "0x0", "64x", "99999x64", "-1x64", "64x48x3"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_image_matches_its_number_only_and_a_changed_byte_is_noticed() {
        let mut image = Image::new(64, 48, PixelFormat::Rgb8).unwrap();
        for number in [0, 1, 1000, u64::MAX] {
            draw(&mut image, number).unwrap();
            assert!(is_intact(&image, number).unwrap());
            assert!(!is_intact(&image, number.wrapping_add(1)).unwrap());
        }
        draw(&mut image, 5).unwrap();
        let value = image.pixel_as::<[u8; 3]>(63, 47).unwrap();
        image.set_pixel(63, 47, &[value[0], value[1], value[2].wrapping_add(1)]).unwrap();
        assert!(!is_intact(&image, 5).unwrap());
    }
}
