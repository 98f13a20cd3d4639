//! Shards that no pool and no buffer uses, for the next pool.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shard::Shard;

static SPARE: Mutex<Vec<&'static Shard>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<&'static Shard>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a shard. (Not in loom, whose locks must not be kept from one run to the next.)
pub(super) fn put(shard: &'static Shard) {
    if !cfg!(all(test, loom)) {
        spare().push(shard);
    }
}

pub(super) fn take() -> Option<&'static Shard> {
    spare().pop()
}

#[cfg(test)]
pub(super) fn all() -> Vec<&'static Shard> {
    spare().clone()
}
