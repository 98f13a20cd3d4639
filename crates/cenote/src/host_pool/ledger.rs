//! The ledger of one pool: its cap, and the credit that no shard has.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::credit::Credit;
use super::gate::{self, Entry};
use crate::sync::{Mutex, MutexGuard};

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) cap: Credit,
    /// Credit that no shard has.
    pub(super) free: Credit,
    /// Whether the pool is on the rota of those that are looked at. If it should be and is not, no
    /// shard has credit, or there is no thread to look.
    pub(super) watched: bool,
}

impl Ledger {
    pub(super) fn new(cap: Credit) -> Mutex<Ledger> {
        Mutex::new(Ledger { cap, free: cap, watched: false })
    }

    /// Takes free credit, at most `wanted`.
    pub(super) fn draw(&mut self, wanted: Credit) -> Credit {
        let given = self.free.at_most(wanted);
        self.free.spend(given);
        given
    }
}

/// The ledger, as long as it is locked.
pub(super) struct Open<'a> {
    // Declared first: unlocked before the gate is left.
    ledger: MutexGuard<'a, Ledger>,
    pub(super) inside: Entry,
}

impl<'a> Open<'a> {
    /// Enters the gate and locks the ledger.
    pub(super) fn new(ledger: &'a Mutex<Ledger>) -> Open<'a> {
        let inside = gate::enter();
        Open { ledger: ledger.lock().unwrap_or_else(PoisonError::into_inner), inside }
    }
}

impl Deref for Open<'_> {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        &self.ledger
    }
}

impl DerefMut for Open<'_> {
    fn deref_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }
}
