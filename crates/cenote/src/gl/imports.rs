//! The textures of DMA-BUFs, kept for as long as the buffers live.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gl::objects::TextureName;

/// What of a buffer a texture shows: size, format, and where each plane lies.
pub(crate) type Key = Box<[u64]>;

type Kept = Vec<(Key, Arc<TextureName>)>;

/// By the number of the buffer's identity.
#[derive(Debug, Default)]
pub(crate) struct Imports(Mutex<HashMap<u64, Kept>>);

impl Imports {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, buffer: u64, key: &[u64]) -> Option<Arc<TextureName>> {
        let all = self.all();
        let found = all.get(&buffer)?.iter().find(|(other, _)| **other == *key)?;
        Some(Arc::clone(&found.1))
    }

    /// Keeps a texture. Whether it is the first of its buffer, which is then to be watched.
    pub(crate) fn keep(&self, buffer: u64, key: Key, texture: &Arc<TextureName>) -> bool {
        let mut all = self.all();
        let kept = all.entry(buffer).or_default();
        kept.push((key, Arc::clone(texture)));
        kept.len() == 1
    }

    /// Lets go of what a buffer has; of everything, without a buffer.
    pub(crate) fn forget(&self, buffer: Option<u64>) {
        let mut all = self.all();
        let gone = match buffer {
            Some(buffer) => all.remove(&buffer).into_iter().flatten().collect(),
            None => all.drain().flat_map(|(_, kept)| kept).collect::<Kept>(),
        };
        // Dropped without the lock: deleting is work for the context's thread.
        drop(all);
        drop(gone);
    }
}
