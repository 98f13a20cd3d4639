//! Adopting memory that a pool did not make, so that it can be sent without a copy.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ipc::pool::owner::owner::Owner;
use crate::ipc::pool::owner::segment::Segment;
use crate::ipc::shared::fd_checks;
use crate::memory::slot::Slot;
use crate::sys::mapping::Map;
use crate::tensor::buffer::Buffer;

/// The file behind a buffer and a mapping of it to read, once the bytes can never change again.
///
/// Returns `None` if that is impossible: another process may have mapped memory from elsewhere for writing, and no
/// seal can undo that. DMA-BUFs from heaps stay unchanged by convention, which the caller accepted with them.
pub(crate) fn shareable(buffer: &Buffer) -> Result<Option<(Arc<OwnedFd>, Arc<Map>)>> {
    let storage = buffer.storage();
    let by_convention = storage.stays_shared_after_fork();
    if !by_convention && !buffer.is_stable() {
        return Ok(None);
    }
    let Ok(fd) = buffer.publish("adoption") else { return Ok(None) };
    let error = |source| Error::os("sharing memory", source);
    let fd = fd.try_clone_to_owned().map_err(error)?;
    let Ok(map) = fd_checks::open_segment(&fd, storage.region.len() as u64) else {
        return Ok(None);
    };
    let map = match &storage.dma {
        Some(dma) if !by_convention => map.with_dmabuf(dma.clone()),
        _ => map,
    };
    Ok(Some((Arc::new(fd), Arc::new(map.keeping(storage.kept.clone())))))
}

impl Owner {
    /// Adopts memory that is sealed against writing and fully reserved. `map` maps it for reading. Returns `None` if too much
    /// memory is adopted already.
    pub(crate) fn adopt(&self, fd: Arc<OwnedFd>, map: Arc<Map>) -> Result<Option<Slot>> {
        self.check_process()?;
        let mut state = self.swept(usize::MAX);
        let Some((index, segment)) = state.adopted.take() else { return Ok(None) };
        let slot = Slot { index, segment, offset: 0, capacity: map.len() };
        self.publish_location(slot);
        let len = map.len();
        let shared = Segment { map, fd, len };
        state.connections.send_segment(segment, &shared);
        state.segments.insert(segment, shared);
        Ok(Some(slot))
    }
}

#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ipc::discovery::socket_dir::Endpoint;
    use crate::ipc::pool::config::TensorPoolConfig;
    use crate::ipc::pool::owner::state::LeaseRow;
    use crate::ipc::shared::fd_checks;
    use crate::ipc::shared::wire::{MAX_ADOPTED, MAX_SEGMENTS, row};
    use crate::ipc::shared::words::Words;
    use crate::sys::memfd;

    const PAGE: usize = 4096;

    /// A pool of `slots` pages without an endpoint.
    fn pool(slots: usize) -> Owner {
        let endpoint = Endpoint { name: "adopting".into(), uid: 1 };
        let config = TensorPoolConfig {
            pool_size: slots * PAGE,
            max_slots: slots,
            growth: PAGE,
            ..TensorPoolConfig::small()
        };
        let max_slots = config.check().unwrap();
        Owner::new(endpoint, config, max_slots).unwrap()
    }

    fn adopt(pool: &Owner) -> Option<Slot> {
        let fd = memfd::create("adopted", PAGE as u64).unwrap();
        memfd::forbid_writing(&fd).unwrap();
        let map = fd_checks::open_segment(&fd, PAGE as u64).unwrap();
        pool.adopt(Arc::new(fd), Arc::new(map)).unwrap()
    }

    #[test]
    fn an_adopted_slot_can_be_leased_until_its_owner_retires_it() {
        let pool = pool(2);
        let slot = adopt(&pool).unwrap();
        assert!(slot.index >= 2, "{slot:?}");
        let serial = pool.publish(slot.index);
        let (found, map) = pool.lease(slot.index, serial).unwrap();
        assert_eq!((found, map.len()), (slot, PAGE));

        pool.return_slot(slot.index, None, true);
        assert_eq!(pool.stats().retired, 1, "it is leased");
        pool.release(slot.index);
        let stats = pool.stats();
        assert_eq!((stats.retired, stats.slots_in_use, stats.segments), (0, 0, 0));
        assert!(pool.state().segments.is_empty());
        assert_eq!(Arc::strong_count(&map), 1, "the pool has removed it");

        let next = adopt(&pool).unwrap();
        assert_eq!(next.index, slot.index);
        assert_ne!(next.segment, slot.segment);
        let stale = pool.lease(slot.index, serial).unwrap_err();
        assert!(matches!(stale, Error::Stale { .. }), "{stale}");
    }

    #[test]
    fn the_number_of_adopted_slots_is_limited() {
        let pool = pool(2);
        let slots: Vec<Slot> = (0..MAX_ADOPTED).map(|_| adopt(&pool).unwrap()).collect();
        assert!(adopt(&pool).is_none());
        assert_eq!(pool.stats().slots_in_use, MAX_ADOPTED as usize);
        pool.return_slot(slots[7].index, None, true);
        assert_eq!(adopt(&pool).unwrap().index, slots[7].index);
    }

    #[test]
    fn a_pool_reaches_its_size_whatever_it_adopts() {
        let pool = pool(MAX_SEGMENTS);
        let alloc = |slots| (0..slots).for_each(|_| drop(pool.alloc(PAGE, || false).unwrap()));
        alloc(MAX_SEGMENTS - 10);
        assert_eq!((0..MAX_ADOPTED).filter_map(|_| adopt(&pool)).count(), MAX_ADOPTED as usize);
        alloc(10);
        let stats = pool.stats();
        assert_eq!((stats.bytes_reserved, stats.bytes_in_use), (stats.pool_size, stats.pool_size));
        assert_eq!(stats.slots_in_use, MAX_SEGMENTS + MAX_ADOPTED as usize);
    }

    #[test]
    fn a_reader_of_adopted_memory_is_counted_and_its_end_removes_the_segment() {
        let pool = pool(2);
        let slot = adopt(&pool).unwrap();
        let words = row::words(pool.max_slots);
        let (theirs, fd) = Words::create_for_peer("row", words).unwrap();
        let mut lease = vec![0_u8; words * 8];
        lease[(row::LEASES + slot.index as usize) * 8] = 1;
        std::fs::File::from(fd).write_all(&lease).unwrap();
        let id = pool.state().rows.insert(LeaseRow::Reader(theirs));

        pool.return_slot(slot.index, None, true);
        let holders = pool.holders();
        assert_eq!(holders.len(), 1, "{holders:?}");
        assert_eq!((holders[0].slots, holders[0].retired_slots), (1, 1));

        let mut state = pool.state();
        state.rows.remove(id);
        state.sweep_all(pool.serials());
        assert!(state.segments.is_empty(), "at once, without an allocation");
        assert_eq!(state.take_unused_segments().len(), 1);
    }
}
