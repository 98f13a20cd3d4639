//! Frames of a camera that can be checked: every page holds a word that depends on who sent the frame,
//! as which one, and on the page.

use cenote::{Image, PixelFormat, Topic};

const WIDTH: usize = 1920;
const HEIGHT: usize = 1080;
const PAGE: usize = 4096;

/// Which publisher, counted over all that ever were; and which of its frames.
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

/// Where the words are: one at the start of every page's worth, and the very last.
fn places(len: usize) -> impl Iterator<Item = usize> {
    (0..len / PAGE).map(|page| page * PAGE).chain([len - 8])
}

pub(crate) fn stamped(topic: &Topic<Image>, stamp: Stamp) -> cenote::Result<Image> {
    let mut image = topic.image(WIDTH, HEIGHT, PixelFormat::Rgb8)?;
    let mut map = image.map_mut()?;
    let bytes = map.as_mut_bytes()?;
    for (page, at) in places(bytes.len()).enumerate() {
        bytes[at..at + 8].copy_from_slice(&stamp.word(page));
    }
    drop(map);
    image.set_stamp_ns(stamp.publisher);
    image.set_seq(stamp.number);
    Ok(image)
}

/// What a frame says it is, after all of it was found to be that.
pub(crate) fn checked(image: &Image) -> Stamp {
    let stamp = Stamp { publisher: image.stamp_ns(), number: image.seq() };
    assert_eq!((image.width(), image.height()), (WIDTH, HEIGHT));
    let map = image.map().unwrap();
    let bytes = map.as_bytes().unwrap();
    for (page, at) in places(bytes.len()).enumerate() {
        assert_eq!(bytes[at..at + 8], stamp.word(page), "torn: page {page} of {stamp:?}");
    }
    stamp
}
