//! What retaining a block costs: bytes, and one of the blocks that the pool may keep.

/// An amount of both. Sums are safe: all credit there is was split off one cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Credit {
    pub(super) bytes: usize,
    pub(super) blocks: usize,
}

impl Credit {
    /// As much as there can be.
    pub(super) const UNBOUNDED: Credit = Credit { bytes: usize::MAX, blocks: usize::MAX };

    /// Whether this is enough for `price`.
    #[inline]
    pub(super) fn covers(self, price: Credit) -> bool {
        self.bytes >= price.bytes && self.blocks >= price.blocks
    }

    #[inline]
    pub(super) fn add(&mut self, more: Credit) {
        self.bytes += more.bytes;
        self.blocks += more.blocks;
    }

    /// Takes what `price` needs. The caller has checked that it is covered.
    #[inline]
    pub(super) fn spend(&mut self, price: Credit) {
        debug_assert!(self.covers(price));
        self.bytes -= price.bytes;
        self.blocks -= price.blocks;
    }

    /// What is left without `part`, which must be covered.
    #[inline]
    pub(super) fn minus(mut self, part: Credit) -> Credit {
        self.spend(part);
        self
    }

    /// What is left after as much of `other` as possible was taken.
    pub(super) fn less(self, other: Credit) -> Credit {
        Credit {
            bytes: self.bytes.saturating_sub(other.bytes),
            blocks: self.blocks.saturating_sub(other.blocks),
        }
    }

    /// The smaller of both, field by field.
    pub(super) fn at_most(self, other: Credit) -> Credit {
        Credit { bytes: self.bytes.min(other.bytes), blocks: self.blocks.min(other.blocks) }
    }
}
