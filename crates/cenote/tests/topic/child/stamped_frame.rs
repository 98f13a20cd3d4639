//! Frames that a viewer can check: every page holds a word that depends on the publisher, the number of
//! the frame and the page.

use cenote::{Image, PixelFormat, Topic};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
const PAGE: usize = 4096;

/// The number of the publisher, counted over the whole test, and the number of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) publisher: u64,
    pub(crate) number: u64,
}

impl Stamp {
    fn word(self, page: usize) -> [u8; 8] {
        // The finalizer of MurmurHash3 (Appleby).
        let mut word = self.publisher << 48 ^ self.number << 16 ^ page as u64;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
            word = (word ^ word >> 33).wrapping_mul(factor);
        }
        (word ^ word >> 33).to_ne_bytes()
    }
}

/// The offsets of the words: the start of each page, and the last word.
fn word_offsets(len: usize) -> impl Iterator<Item = usize> {
    (0..len / PAGE).map(|page| page * PAGE).chain([len - 8])
}

pub(crate) fn stamped(topic: &Topic<Image>, stamp: Stamp) -> cenote::Result<Image> {
    let mut image = topic.image(WIDTH, HEIGHT, PixelFormat::Rgb8)?;
    let mut map = image.map_mut()?;
    let bytes = map.as_mut_bytes()?;
    for (page, at) in word_offsets(bytes.len()).enumerate() {
        bytes[at..at + 8].copy_from_slice(&stamp.word(page));
    }
    drop(map);
    image.set_stamp_ns(stamp.publisher);
    image.set_seq(stamp.number);
    Ok(image)
}

/// The stamp of a frame. Panics if any page holds another word.
pub(crate) fn checked(image: &Image) -> Stamp {
    let stamp = Stamp { publisher: image.stamp_ns(), number: image.seq() };
    assert_eq!((image.width(), image.height()), (WIDTH, HEIGHT));
    let map = image.map().unwrap();
    let bytes = map.as_bytes().unwrap();
    for (page, at) in word_offsets(bytes.len()).enumerate() {
        assert_eq!(bytes[at..at + 8], stamp.word(page), "torn: page {page} of {stamp:?}");
    }
    stamp
}
