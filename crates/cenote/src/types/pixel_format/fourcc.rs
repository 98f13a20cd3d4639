//! The four-character codes by which the kernel names pixel formats.

use std::fmt;

/// A four-character code: four bytes of ASCII in a little-endian `u32`.
///
/// DRM and V4L2 both use them, but not the same ones for the same bytes: ask
/// [`PixelFormat`](crate::PixelFormat) for the code of one or the other.
///
/// ```
/// use cenote::FourCc;
///
/// let code = FourCc::new(b"NV12");
/// assert_eq!(code.to_u32(), 0x3231_564e);
/// assert_eq!(code.to_string(), "NV12");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FourCc(u32);

impl FourCc {
    /// The code of four characters.
    pub const fn new(characters: &[u8; 4]) -> Self {
        FourCc(u32::from_le_bytes(*characters))
    }

    /// The code in a number, as ioctls give it.
    pub const fn from_u32(code: u32) -> Self {
        FourCc(code)
    }

    /// The number that ioctls take.
    pub const fn to_u32(self) -> u32 {
        self.0
    }
}

impl From<u32> for FourCc {
    fn from(code: u32) -> Self {
        FourCc(code)
    }
}

impl From<FourCc> for u32 {
    fn from(code: FourCc) -> Self {
        code.0
    }
}

impl fmt::Display for FourCc {
    /// Always four characters; a byte that cannot be printed is a dot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printable = |byte: u8| if matches!(byte, b' '..=b'~') { char::from(byte) } else { '.' };
        self.0
            .to_le_bytes()
            .into_iter()
            .try_for_each(|byte| fmt::Write::write_char(f, printable(byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_four_characters_whatever_the_bytes() {
        assert_eq!(FourCc::new(b"R8  ").to_string(), "R8  ");
        assert_eq!(FourCc::from_u32(0).to_string(), "....");
        assert_eq!(FourCc::from(0x80ff_0a41).to_string(), "A...");
    }

    #[test]
    fn numbers_round_trip() {
        assert_eq!(u32::from(FourCc::from(0x3432_4742)), 0x3432_4742);
        assert_eq!(FourCc::new(b"BG24"), FourCc::from_u32(0x3432_4742));
    }
}
