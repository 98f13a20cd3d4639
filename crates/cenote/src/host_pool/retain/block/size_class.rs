//! Size classes: eight to an octave, so that rounding up wastes at most an eighth of a request.
//!
//! Class `8·e + k` holds `(8 + k) · 2^(e+3)` bytes: 64, 72, 80 … 120, 128, 144 … . Both directions
//! are a shift and a mask.

/// The smallest class holds this many bytes.
const SMALLEST: usize = 64;

/// Octaves up to 64 TiB, or to the size of the address space.
const OCTAVES: usize = if usize::BITS < 47 { usize::BITS as usize - 7 } else { 40 };

/// Number of classes.
pub(crate) const COUNT: usize = 8 * OCTAVES;

/// A request accepts blocks that are larger by an eighth of it and by this.
const SLACK: usize = 64 << 10;

/// Bytes in a block of this class.
pub(crate) const fn size(class: usize) -> usize {
    (8 + class % 8) << (class / 8 + 3)
}

/// The largest class of at most `bytes` bytes.
#[inline]
pub(crate) fn floor(bytes: usize) -> Option<usize> {
    let octave = (bytes.checked_ilog2()? as usize).checked_sub(6)?;
    let class = 8 * octave + ((bytes >> (octave + 3)) & 7);
    (class < COUNT).then_some(class)
}

/// A request: accepts blocks from its class on, up to a bound on waste.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    /// The requested bytes; never 0.
    pub(crate) bytes: usize,
    /// The class of a new block for the request.
    pub(crate) class: usize,
}

impl Fit {
    /// The smallest class that holds `bytes`; none if no block can be that large.
    #[inline]
    pub(crate) fn new(bytes: usize) -> Option<Fit> {
        let class = match bytes {
            0..=SMALLEST => 0,
            _ => floor(bytes - 1)? + 1,
        };
        (class < COUNT).then_some(Fit { bytes, class })
    }

    /// Whether a block of `size` bytes in all is not too large.
    #[inline]
    pub(crate) fn accepts(&self, size: usize) -> bool {
        size - self.bytes <= self.bytes / 8 + SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_and_round_trip() {
        for class in 0..COUNT {
            assert_eq!(floor(size(class)), Some(class));
            assert_eq!(Fit::new(size(class)).unwrap().class, class);
            if class > 0 {
                assert!(size(class) > size(class - 1));
                assert_eq!(Fit::new(size(class - 1) + 1).unwrap().class, class);
                assert_eq!(floor(size(class) - 1), Some(class - 1));
            }
        }
    }

    #[test]
    fn rounding_up_wastes_an_eighth_at_most() {
        for bytes in (65..4096).chain((1 << 30)..(1 << 30) + 4096) {
            let rounded = size(Fit::new(bytes).unwrap().class);
            assert!(rounded >= bytes && rounded - bytes <= bytes / 8, "{bytes} -> {rounded}");
        }
    }

    #[test]
    fn sizes_beyond_the_largest_block_have_no_class() {
        assert!(Fit::new(usize::MAX).is_none());
        assert!(Fit::new(size(COUNT - 1) + 1).is_none());
        assert_eq!(floor(63), None);
    }
}
