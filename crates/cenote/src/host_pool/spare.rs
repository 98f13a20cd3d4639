//! All shards there are, and those that no pool and no buffer uses, for the next pool.

use super::gate::Entry;
use super::shard::Shard;
use crate::sync::Lock;

#[cfg(not(all(test, loom)))]
mod lists {
    use super::{Lock, Shard};

    /// Taken after the lock of a shard, where that is taken.
    pub(super) static SPARE: Lock<Vec<&'static Shard>> = Lock::new(Vec::new());

    /// Looked at inside the gate only, or by whoever has closed it.
    pub(super) static ALL: Lock<Vec<&'static Shard>> = Lock::new(Vec::new());
}

/// loom's locks must not be kept from one run to the next: each has lists of its own.
#[cfg(all(test, loom))]
mod lists {
    use super::{Lock, Shard};

    loom::lazy_static! {
        pub(super) static ref SPARE: Lock<Vec<&'static Shard>> = Lock::new(Vec::new());
        pub(super) static ref ALL: Lock<Vec<&'static Shard>> = Lock::new(Vec::new());
    }
}

use lists::{ALL, SPARE};

/// Keeps a shard for the next pool.
pub(super) fn put(shard: &'static Shard) {
    SPARE.lock().push(shard);
}

pub(super) fn take(_inside: &Entry) -> Option<&'static Shard> {
    SPARE.lock().pop()
}

/// Notes a new shard.
pub(super) fn enlist(shard: &'static Shard, _inside: &Entry) {
    ALL.lock().push(shard);
}

/// For whoever has closed the gate.
#[cfg(all(target_os = "linux", not(all(test, loom))))]
pub(super) fn every_shard(act: impl Fn(&'static Shard)) {
    ALL.lock().iter().for_each(|shard| act(shard));
}

/// The spares, and the number of all shards.
#[cfg(test)]
pub(super) fn census(_inside: &Entry) -> (Vec<&'static Shard>, usize) {
    (SPARE.lock().clone(), ALL.lock().len())
}
