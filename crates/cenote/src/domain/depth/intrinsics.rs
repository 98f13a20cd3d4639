//! The pinhole camera that took a depth image.

use crate::error::{Error, Result};
use crate::types::metadata::{Room, Words};

/// A pinhole camera, in pixels.
///
/// ```
/// use cenote::Intrinsics;
///
/// let camera = Intrinsics { fx: 525.0, fy: 525.0, cx: 319.5, cy: 239.5 };
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intrinsics {
    /// Horizontal focal length, in widths of a pixel.
    pub fx: f64,
    /// Vertical focal length, in heights of a pixel.
    pub fy: f64,
    /// The column of the optical centre, where the first pixel is 0.
    pub cx: f64,
    /// The row of the optical centre.
    pub cy: f64,
}

impl Intrinsics {
    pub(crate) fn check(&self) -> Result<()> {
        let Intrinsics { fx, fy, cx, cy } = *self;
        if [fx, fy, cx, cy].iter().all(|number| number.is_finite()) && fx > 0.0 && fy > 0.0 {
            return Ok(());
        }
        Err(Error::BadIntrinsics { fx, fy, cx, cy })
    }

    pub(crate) fn write(&self, room: &mut Room<'_>) {
        for number in [self.fx, self.fy, self.cx, self.cy] {
            room.push(number.to_bits());
        }
    }

    pub(crate) fn read(words: &mut Words<'_>) -> Result<Intrinsics> {
        let mut next = || words.next().map(f64::from_bits);
        Ok(Intrinsics { fx: next()?, fy: next()?, cx: next()?, cy: next()? })
    }
}
