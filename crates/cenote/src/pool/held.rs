//! The slots of a pool that an attached process holds: how many, and what it kept of each.

/// Slots, by number.
#[derive(Debug)]
pub(crate) struct HeldSlots<S> {
    /// Grows to the highest slot that was ever leased.
    slots: Vec<Held<S>>,
    /// Slots with a handle.
    count: u32,
}

#[derive(Debug)]
struct Held<S> {
    /// Handles made of leases, each of which is counted in the row.
    handles: u64,
    /// What the layer above needs to make a handle of the slot, kept from the last time.
    spare: Option<S>,
}

/// Slot numbers are below the number of slots of the pool: the caller has checked that.
impl<S> HeldSlots<S> {
    pub(crate) fn new() -> Self {
        HeldSlots { slots: Vec::new(), count: 0 }
    }

    fn slot(&mut self, slot: u32) -> &mut Held<S> {
        let slot = slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize_with(slot + 1, || Held { handles: 0, spare: None });
        }
        &mut self.slots[slot]
    }

    /// Counts a handle of a slot; false if the slot would be one more than `max`. However many
    /// handles a slot has, it is held once.
    pub(crate) fn count(&mut self, slot: u32, max: u32) -> bool {
        let new = self.slot(slot).handles == 0;
        if new && self.count >= max {
            return false;
        }
        self.count += u32::from(new);
        self.slot(slot).handles += 1;
        true
    }

    /// Undoes one [`HeldSlots::count`].
    pub(crate) fn uncount(&mut self, slot: u32) {
        let held = self.slot(slot);
        held.handles -= 1;
        let last = held.handles == 0;
        self.count -= u32::from(last);
    }

    /// Keeps a spare for a slot; gives back the one it replaces, to be dropped without the lock.
    pub(crate) fn keep(&mut self, slot: u32, spare: Option<S>) -> Option<S> {
        std::mem::replace(&mut self.slot(slot).spare, spare)
    }

    pub(crate) fn take_spare(&mut self, slot: u32) -> Option<S> {
        self.slot(slot).spare.take()
    }

    pub(crate) fn take_spares(&mut self) -> Vec<S> {
        self.slots.iter_mut().filter_map(|held| held.spare.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_counts_once_however_many_handles_it_has() {
        let mut held = HeldSlots::<()>::new();
        assert!(held.count(3, 2) && held.count(3, 2) && held.count(0, 2));
        assert!(!held.count(1, 2), "a third slot");
        assert!(held.count(3, 2), "one that is held already");
        for _ in 0..2 {
            held.uncount(3);
            assert!(!held.count(1, 2));
        }
        held.uncount(3);
        assert!(held.count(1, 2));
    }

    #[test]
    fn none_may_be_held_where_the_limit_is_none() {
        assert!(!HeldSlots::<()>::new().count(0, 0));
    }
}
