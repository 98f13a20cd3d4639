//! Where and when something was recorded.

use crate::error::{Error, Result};
use crate::types::metadata::text::Text;
use crate::types::metadata::{Room, Words};

/// The longest frame id, in bytes.
pub const MAX_FRAME_ID: usize = 48;

/// Where and when something was recorded: what every [`Image`](crate::Image),
/// [`PointCloud`](crate::PointCloud) and [`DepthImage`](crate::DepthImage) carries.
///
/// ```
/// use cenote::Header;
///
/// let mut header = Header::default();
/// header.set_frame_id("camera_front")?;
/// header.stamp_ns = 1_700_000_000_000_000_000;
/// header.seq = 7;
/// assert_eq!(header.frame_id(), "camera_front");
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Header {
    frame_id: Text<MAX_FRAME_ID>,
    /// When it was recorded, in nanoseconds. The recorder chooses the clock.
    pub stamp_ns: u64,
    /// Counts what a sensor recorded.
    pub seq: u64,
}

impl Header {
    /// The words of the longest header.
    pub(crate) const MAX_WORDS: usize = 3 + Text::<MAX_FRAME_ID>::WORDS;

    /// The name of the coordinate frame, as in `camera_front`. Empty unless set.
    pub fn frame_id(&self) -> &str {
        self.frame_id.as_str()
    }

    /// Names the coordinate frame. Fails if that takes more than [`MAX_FRAME_ID`] bytes.
    pub fn set_frame_id(&mut self, frame_id: &str) -> Result<()> {
        let too_long = || Error::TextTooLong {
            what: "frame id",
            given: frame_id.into(),
            len: frame_id.len(),
            max: MAX_FRAME_ID,
        };
        self.frame_id = Text::new(frame_id).ok_or_else(too_long)?;
        Ok(())
    }

    #[inline]
    pub(crate) fn write(&self, room: &mut Room<'_>) {
        room.push(self.stamp_ns);
        room.push(self.seq);
        room.push(self.frame_id.len() as u64);
        self.frame_id.write(room);
    }

    #[inline]
    pub(crate) fn read(words: &mut Words<'_>) -> Result<Header> {
        let (stamp_ns, seq, len) = (words.next()?, words.next()?, words.next()?);
        Ok(Header { frame_id: Text::read(len, words)?, stamp_ns, seq })
    }

    /// Of words that hold nothing else.
    #[inline]
    pub(crate) fn read_all(mut words: Words<'_>) -> Result<Header> {
        let header = Header::read(&mut words)?;
        words.end()?;
        Ok(header)
    }
}

/// The parts of a field `header`, as methods of the type that has it.
macro_rules! header_accessors {
    ($type:ty) => {
        impl $type {
            /// Where and when it was recorded.
            pub fn header(&self) -> &$crate::Header {
                &self.header
            }

            /// Says where and when it was recorded.
            pub fn set_header(&mut self, header: $crate::Header) {
                self.header = header;
            }

            /// The name of the coordinate frame. Empty unless set.
            pub fn frame_id(&self) -> &str {
                self.header.frame_id()
            }

            /// Names the coordinate frame. Fails if that takes more than
            /// [`MAX_FRAME_ID`]($crate::MAX_FRAME_ID) bytes.
            pub fn set_frame_id(&mut self, frame_id: &str) -> $crate::Result<()> {
                self.header.set_frame_id(frame_id)
            }

            /// When it was recorded, in nanoseconds. 0 unless set.
            pub fn stamp_ns(&self) -> u64 {
                self.header.stamp_ns
            }

            /// Says when it was recorded.
            pub fn set_stamp_ns(&mut self, stamp_ns: u64) {
                self.header.stamp_ns = stamp_ns;
            }

            /// Its number in a sequence. 0 unless set.
            pub fn seq(&self) -> u64 {
                self.header.seq
            }

            /// Numbers it.
            pub fn set_seq(&mut self, seq: u64) {
                self.header.seq = seq;
            }
        }
    };
}
pub(crate) use header_accessors;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::metadata::Meta;

    #[test]
    fn a_header_round_trips() {
        for frame_id in ["", "map", &"ä".repeat(24)] {
            let mut header = Header { stamp_ns: u64::MAX, seq: 1 << 63, ..Header::default() };
            header.set_frame_id(frame_id).unwrap();
            let meta = Meta::of(|room| header.write(room));
            assert!(meta.as_words().len() <= Header::MAX_WORDS);
            assert_eq!(Header::read(&mut meta.reader()).unwrap(), header);
        }
    }

    #[test]
    fn too_long_a_frame_id_is_refused_and_changes_nothing() {
        let mut header = Header::default();
        header.set_frame_id("base").unwrap();
        let message = header.set_frame_id(&"x".repeat(49)).unwrap_err().to_string();
        assert!(message.contains("49") && message.contains("48"), "{message}");
        assert_eq!(header.frame_id(), "base");
    }
}
