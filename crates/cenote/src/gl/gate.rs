//! Counts the maps of a context's memory, and keeps new ones out when it is closed.

use crate::sync::{AtomicUsize, Ordering};

/// The bit that says closed; the others count.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Open, with some inside; or closed, and to be left.
#[derive(Debug, Default)]
pub(crate) struct Gate(AtomicUsize);

impl Gate {
    /// Goes in, unless it is closed. Whoever is refused is not counted, not even for a moment: he
    /// would seem to keep the context alive, or be the last to leave it.
    pub(crate) fn enter(&self) -> bool {
        let more = |inside: usize| (inside & CLOSED == 0).then_some(inside + 1);
        // Acquire: whoever finds it closed sees what was done before.
        self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, more).is_ok()
    }

    /// Leaves, after [`enter`](Gate::enter). True for the last one to leave a closed gate.
    pub(crate) fn leave(&self) -> bool {
        // Release, so that the last one, which acquires, comes after all that the others did inside.
        self.0.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1
    }

    /// Closes it. How many are inside: they may stay as long as they want.
    pub(crate) fn close(&self) -> usize {
        self.0.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many are inside.
    pub(crate) fn inside(&self) -> usize {
        self.0.load(Ordering::Acquire) & !CLOSED
    }
}

/// Somebody who is inside the gate of a context, until dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a>(pub(crate) &'a crate::gl::core::Core);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_lets_nobody_in_and_the_last_one_out_knows() {
        let gate = Gate::default();
        assert!(gate.enter() && gate.enter());
        assert_eq!(gate.close(), 2);
        assert!(gate.is_closed() && !gate.enter());
        assert_eq!((gate.inside(), gate.close()), (2, 2), "whoever was refused is not inside");
        assert!(!gate.leave());
        assert_eq!(gate.inside(), 1);
        assert!(gate.leave());
        assert_eq!(gate.close(), 0);
        assert!(!gate.enter());
        assert_eq!(gate.close(), 0);
    }
}
