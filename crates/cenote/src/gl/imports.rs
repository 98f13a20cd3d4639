//! The textures of DMA-BUFs, kept for as long as the buffers live.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::gl::objects::TextureName;
use crate::sys::process_lock::ProcessLock;

/// How many textures a buffer has at most, whatever is asked for: a part of it that moves is another
/// with each step.
const MOST: usize = 8;

/// What of a buffer a texture shows: size, format, and where each plane lies.
pub(crate) type Key = Box<[u64]>;

/// The buffer that textures are kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    /// By the number of its identity.
    Identity(u64),
    /// By the number of its DMA-BUF. A texture keeps that, so no other has the number meanwhile.
    DmaBuf(u64),
}

#[derive(Debug, Default)]
struct Kept {
    /// Those whose end was not seen yet: a DMA-BUF may have been opened more than once.
    watched: usize,
    /// Those first that nobody has asked for the longest.
    textures: VecDeque<(Key, Arc<TextureName>)>,
}

/// By buffer.
#[derive(Debug, Default)]
pub(crate) struct Imports(ProcessLock<HashMap<Of, Kept>>);

impl Imports {
    pub(crate) fn find(&self, of: Of, key: &[u64]) -> Option<Arc<TextureName>> {
        let mut all = self.0.lock()?;
        let textures = &mut all.get_mut(&of)?.textures;
        let at = textures.iter().position(|(other, _)| **other == *key)?;
        let found = textures.remove(at)?;
        let texture = Arc::clone(&found.1);
        textures.push_back(found);
        Some(texture)
    }

    /// Notes that the end of a buffer is watched, which is told by [`Imports::ended`].
    pub(crate) fn watch(&self, of: Of) {
        self.0.lock().into_iter().for_each(|mut all| all.entry(of).or_default().watched += 1);
    }

    /// Keeps a texture of a buffer that is watched, and one less that nobody has asked for if there are many.
    pub(crate) fn keep(&self, of: Of, key: Key, texture: &Arc<TextureName>) {
        let Some(mut all) = self.0.lock() else { return };
        let Some(kept) = all.get_mut(&of) else { return };
        kept.textures.push_back((key, Arc::clone(texture)));
        let gone = if kept.textures.len() > MOST { kept.textures.pop_front() } else { None };
        // Dropped without the lock, as below.
        drop(all);
        drop(gone);
    }

    /// Lets go of what a buffer has, if this was the last that was watched.
    pub(crate) fn ended(&self, of: Of) {
        let Some(mut all) = self.0.lock() else { return };
        let Some(kept) = all.get_mut(&of) else { return };
        kept.watched = kept.watched.saturating_sub(1);
        let gone = if kept.watched == 0 { all.remove(&of) } else { None };
        // Dropped without the lock: deleting is work for the context's thread.
        drop(all);
        drop(gone);
    }

    /// Lets go of everything.
    pub(crate) fn forget_all(&self) {
        let Some(mut all) = self.0.lock() else { return };
        let gone = std::mem::take(&mut *all);
        drop(all);
        drop(gone);
    }
}
