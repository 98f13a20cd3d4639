//! A number of bytes together with a number of blocks.

/// What a cap allows, what a shard may retain, or what blocks take up. Sums cannot overflow: every
/// amount is part of one cap or of the memory of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: usize,
    pub(crate) blocks: usize,
}

impl Amount {
    pub(crate) const UNBOUNDED: Amount = Amount { bytes: usize::MAX, blocks: usize::MAX };

    /// Whether `part` fits, in bytes and in blocks.
    #[inline]
    pub(super) fn covers(self, part: Amount) -> bool {
        self.bytes >= part.bytes && self.blocks >= part.blocks
    }

    #[inline]
    pub(super) fn add(&mut self, more: Amount) {
        self.bytes += more.bytes;
        self.blocks += more.blocks;
    }

    /// Subtracts `part`. The caller has checked that it is covered.
    #[inline]
    pub(super) fn subtract(&mut self, part: Amount) {
        debug_assert!(self.covers(part));
        self.bytes -= part.bytes;
        self.blocks -= part.blocks;
    }

    /// The difference to `part`, which must be covered.
    #[inline]
    pub(super) fn minus(mut self, part: Amount) -> Amount {
        self.subtract(part);
        self
    }

    /// The difference field by field, 0 where `other` is larger.
    pub(super) fn saturating_minus(self, other: Amount) -> Amount {
        Amount {
            bytes: self.bytes.saturating_sub(other.bytes),
            blocks: self.blocks.saturating_sub(other.blocks),
        }
    }

    /// The smaller of both, field by field.
    pub(super) fn at_most(self, other: Amount) -> Amount {
        Amount { bytes: self.bytes.min(other.bytes), blocks: self.blocks.min(other.blocks) }
    }
}
