//! A place for one shared thing, exchanged without a lock, that can be shut.
//!
//! # Contract
//! The word is null (empty), [`SHUT`], or a pointer that `Arc::into_raw` gave, together with the
//! count that came with it. Whoever exchanges that pointer for something else has that count. That
//! holds whatever happened to the word between looking and exchanging, so a pointer that went and
//! came back (ABA) does no harm.
//!
//! The thing in it may be all that keeps the place itself alive. So [`Hot::put`] does not look at
//! the place again once it has given the thing away.
#![allow(unsafe_code, reason = "a counted reference becomes a word that is exchanged, and back")]

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;

use crate::sync::{AtomicPtr, Ordering};

/// Room for one thing that anybody may take.
pub(crate) struct Hot<T> {
    at: AtomicPtr<T>,
    owns: PhantomData<Arc<T>>,
}

/// Stands for a place that takes nothing. No thing has this address, for things are aligned.
fn shut<T>() -> *mut T {
    const { assert!(align_of::<T>() > 1) };
    ptr::without_provenance_mut(1)
}

fn is_thing<T>(found: *mut T) -> bool {
    !found.is_null() && found != shut()
}

impl<T> Hot<T> {
    pub(crate) fn new() -> Self {
        Hot { at: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Whether there is anything, at this moment.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        is_thing(self.at.load(Ordering::Relaxed))
    }

    /// Takes what is there.
    #[inline]
    pub(crate) fn take(&self) -> Option<Arc<T>> {
        let mut found = self.at.load(Ordering::Relaxed);
        while is_thing(found) {
            // Acquire, pairs with the Release of `put`: what was done to the thing before.
            match self.exchange(found, ptr::null_mut(), Ordering::Acquire) {
                // SAFETY: it is a pointer to a thing, and was exchanged.
                Ok(()) => return Some(unsafe { Arc::from_raw(found) }),
                Err(other) => found = other,
            }
        }
        None
    }

    /// Puts a thing in the place that `of` finds for it, and gives back the one that was there; or
    /// gives back the thing itself if there is no place, or it is shut.
    #[inline]
    pub(crate) fn put(
        thing: Arc<T>,
        of: impl FnOnce(&T) -> Option<&Hot<T>>,
    ) -> Result<Option<Arc<T>>, Arc<T>> {
        let raw = Arc::into_raw(thing).cast_mut();
        // SAFETY: the count that `thing` had is ours until it is exchanged, and what it leads to
        // lives as long. After the exchange `place` dangles; it is a reference to an atomic only,
        // which may do so while the call that exchanges returns, as in `Arc::drop`.
        let Some(place) = of(unsafe { &*raw }) else {
            // SAFETY: as it came from `into_raw`, and was not given away.
            return Err(unsafe { Arc::from_raw(raw) });
        };
        let mut found = place.at.load(Ordering::Relaxed);
        while found != shut() {
            // Release: see `take`. Acquire: for the thing that comes out, likewise.
            match place.exchange(found, raw, Ordering::AcqRel) {
                // SAFETY: not null, so a pointer to a thing, and it was exchanged.
                Ok(()) => return Ok((!found.is_null()).then(|| unsafe { Arc::from_raw(found) })),
                Err(other) => found = other,
            }
        }
        // SAFETY: as it came from `into_raw`, and was not given away.
        Err(unsafe { Arc::from_raw(raw) })
    }

    /// Puts a thing in this place if that is empty, or gives it back.
    #[inline]
    pub(crate) fn fill(&self, thing: Arc<T>) -> Result<(), Arc<T>> {
        let raw = Arc::into_raw(thing).cast_mut();
        // Release: see `take`.
        let filled = self.exchange(ptr::null_mut(), raw, Ordering::Release);
        // SAFETY: as it came from `into_raw`, and was not given away.
        filled.map_err(|_| unsafe { Arc::from_raw(raw) })
    }

    /// Takes what is there, and has the place refuse everything from here on.
    pub(crate) fn shut(&self) -> Option<Arc<T>> {
        let found = self.at.swap(shut(), Ordering::Acquire);
        // SAFETY: it is a pointer to a thing, and was exchanged.
        is_thing(found).then(|| unsafe { Arc::from_raw(found) })
    }

    /// Undoes [`Hot::shut`].
    pub(crate) fn open(&self) {
        let _ = self.exchange(shut(), ptr::null_mut(), Ordering::Relaxed);
    }

    #[inline]
    fn exchange(&self, from: *mut T, to: *mut T, ordering: Ordering) -> Result<(), *mut T> {
        self.at.compare_exchange(from, to, ordering, Ordering::Relaxed).map(drop)
    }
}

impl<T> Drop for Hot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> fmt::Debug for Hot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hot")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Thing(Arc<Hot<Thing>>);

    fn put(thing: &Arc<Thing>) -> Result<Option<Arc<Thing>>, Arc<Thing>> {
        Hot::put(thing.clone(), |thing| Some(&thing.0))
    }

    /// A place, and two things that go there.
    fn setting() -> (Arc<Hot<Thing>>, [Arc<Thing>; 2]) {
        let hot = Arc::new(Hot::new());
        (hot.clone(), [(); 2].map(|()| Arc::new(Thing(hot.clone()))))
    }

    fn is(found: Option<Arc<Thing>>, thing: &Arc<Thing>) -> bool {
        found.is_some_and(|found| Arc::ptr_eq(&found, thing))
    }

    #[test]
    fn the_last_thing_put_is_the_one_taken() {
        let (hot, [one, two]) = setting();
        assert!(put(&one).unwrap().is_none());
        assert!(is(put(&two).unwrap(), &one));
        assert!(is(hot.take(), &two));
        assert!(hot.take().is_none());
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (1, 1));
    }

    #[test]
    fn a_shut_place_keeps_nothing_until_it_is_opened() {
        let (hot, [one, _]) = setting();
        assert!(put(&one).unwrap().is_none());
        assert!(is(hot.shut(), &one));
        assert!(is(put(&one).err(), &one));
        assert!(hot.take().is_none() && hot.shut().is_none());
        hot.open();
        assert!(put(&one).unwrap().is_none());
        hot.open();
        assert!(is(hot.take(), &one));
        assert_eq!(Arc::strong_count(&one), 1);
    }

    #[test]
    fn only_an_empty_place_is_filled() {
        let (hot, [one, two]) = setting();
        assert!(hot.fill(one.clone()).is_ok());
        assert!(is(hot.fill(two.clone()).err(), &two));
        assert!(is(hot.shut(), &one));
        assert!(is(hot.fill(one.clone()).err(), &one));
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&two)), (1, 1));
    }

    #[test]
    fn what_has_no_place_comes_back_and_what_is_left_is_dropped() {
        let thing = Arc::new(1_u64);
        assert_eq!(Hot::put(thing.clone(), |_| None), Err(thing.clone()));
        assert_eq!(Arc::strong_count(&thing), 1);
        let hot = Hot::new();
        hot.at.store(Arc::into_raw(thing.clone()).cast_mut(), Ordering::Relaxed);
        drop(hot);
        assert_eq!(Arc::strong_count(&thing), 1);
    }
}
