//! The textures of DMA-BUFs, kept as long as the buffers live.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::sys::process_lock::ProcessLock;

/// The most textures that are kept for one buffer. A view that moves through a buffer makes another
/// texture with each step.
const MAX_TEXTURES: usize = 8;

/// Which part of a buffer a texture shows: size, format, and the layout of each plane.
pub(crate) type ViewKey = Box<[u64]>;

/// The buffer that textures are kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BufferKey {
    /// The number of its [`BufferIdentity`](crate::BufferIdentity).
    Identity(u64),
    /// The inode of its DMA-BUF. A texture keeps the DMA-BUF open, so the number is not used again
    /// while the texture is kept.
    DmaBuf(u64),
}

#[derive(Debug)]
struct CachedTextures<T> {
    /// How many open files of the buffer have not ended: a DMA-BUF may have been opened more than once.
    watched: usize,
    /// The least recently used is first.
    textures: VecDeque<(ViewKey, Arc<T>)>,
}

/// The textures, by buffer.
#[derive(Debug)]
pub(crate) struct TextureCache<T>(ProcessLock<HashMap<BufferKey, CachedTextures<T>>>);

impl<T> Default for TextureCache<T> {
    fn default() -> Self {
        TextureCache(ProcessLock::default())
    }
}

impl<T> TextureCache<T> {
    pub(crate) fn find(&self, buffer: BufferKey, view: &[u64]) -> Option<Arc<T>> {
        let mut buffers = self.0.lock()?;
        let textures = &mut buffers.get_mut(&buffer)?.textures;
        let index = textures.iter().position(|(other, _)| **other == *view)?;
        let found = textures.remove(index)?;
        let texture = Arc::clone(&found.1);
        textures.push_back(found);
        Some(texture)
    }

    /// Notes that the end of a buffer is watched. The watcher calls [`TextureCache::buffer_ended`].
    pub(crate) fn watch(&self, buffer: BufferKey) {
        if let Some(mut buffers) = self.0.lock() {
            let empty = || CachedTextures { watched: 0, textures: VecDeque::new() };
            buffers.entry(buffer).or_insert_with(empty).watched += 1;
        }
    }

    /// Keeps a texture of a watched buffer. Drops the least recently used one if there are too many.
    pub(crate) fn keep(&self, buffer: BufferKey, view: ViewKey, texture: &Arc<T>) {
        let Some(mut buffers) = self.0.lock() else { return };
        let Some(cached) = buffers.get_mut(&buffer) else { return };
        cached.textures.push_back((view, Arc::clone(texture)));
        let is_full = cached.textures.len() > MAX_TEXTURES;
        let oldest = if is_full { cached.textures.pop_front() } else { None };
        // Dropped outside the lock, as below.
        drop(buffers);
        drop(oldest);
    }

    /// Drops the textures of a buffer, if this was the last watched file of it.
    pub(crate) fn buffer_ended(&self, buffer: BufferKey) {
        let Some(mut buffers) = self.0.lock() else { return };
        let Some(cached) = buffers.get_mut(&buffer) else { return };
        cached.watched = cached.watched.saturating_sub(1);
        let ended = if cached.watched == 0 { buffers.remove(&buffer) } else { None };
        // Dropped outside the lock: that deletes textures, which is a job for the context's thread.
        drop(buffers);
        drop(ended);
    }

    /// Drops all textures.
    pub(crate) fn clear(&self) {
        let Some(mut buffers) = self.0.lock() else { return };
        let cleared = std::mem::take(&mut *buffers);
        drop(buffers);
        drop(cleared);
    }
}
