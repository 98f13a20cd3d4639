//! Storage: a region together with what its kind of memory adds to it.

use std::marker::PhantomData;
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

use crate::error::{NotWritable, Result};
use crate::memory::TensorMemory;
use crate::memory::budget::Reservation;
#[cfg(all(target_os = "linux", feature = "gl"))]
use crate::memory::pbo::{Mapped, Pbo};
use crate::region::Region;

/// The bytes of one buffer and where they live.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) region: Region,
    pub(crate) memory: TensorMemory,
    /// The buffer of a device that has the bytes; the region has none then.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) pbo: Option<Pbo>,
    /// Nobody can change the bytes while they are shared: they are this process's own, or sealed.
    pub(crate) stable: bool,
    /// The file behind the bytes, where there is one.
    #[cfg(target_os = "linux")]
    pub(crate) fd: Option<OwnedFd>,
    /// Memory that the kernel gives out at first touch counts as taken from the start.
    /// Declared last, so that it is given back after the memory.
    pub(crate) _reservation: Option<Reservation>,
}

impl Storage {
    /// Why memory that may not be written here may not.
    pub(crate) fn foreign(&self) -> NotWritable {
        match self.memory {
            TensorMemory::Mem => NotWritable::Foreign,
            _ => NotWritable::Received,
        }
    }

    /// Storage of heap bytes without a file behind them.
    pub(crate) fn heap(region: Region, reservation: Option<Reservation>) -> Self {
        Storage {
            region,
            memory: TensorMemory::Mem,
            #[cfg(all(target_os = "linux", feature = "gl"))]
            pbo: None,
            stable: true,
            #[cfg(target_os = "linux")]
            fd: None,
            _reservation: reservation,
        }
    }

    /// Storage of shared bytes, with the file behind them unless others keep that.
    #[cfg(target_os = "linux")]
    pub(crate) fn shm(
        region: Region,
        stable: bool,
        fd: Option<OwnedFd>,
        reservation: Option<Reservation>,
    ) -> Self {
        Storage { memory: TensorMemory::Shm, stable, fd, ..Storage::heap(region, reservation) }
    }

    /// Storage of bytes in a buffer of a device.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) fn pbo(pbo: Pbo, reservation: Reservation) -> Self {
        let nothing = Region::vec(Vec::<u8>::new());
        let (memory, pbo) = (TensorMemory::Pbo, Some(pbo));
        Storage { memory, pbo, ..Storage::heap(nothing, Some(reservation)) }
    }

    /// The number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(pbo) = &self.pbo {
            return pbo.len();
        }
        self.region.len()
    }

    /// All bytes, to be looked at while the hold is kept.
    #[inline]
    pub(crate) fn read(&self) -> Result<(&[u8], Hold<'_>)> {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(pbo) = &self.pbo {
            return Hold::read(pbo.read()?);
        }
        Ok((self.region.bytes(), Hold::default()))
    }

    /// At least the bytes of `range`, to be written while the hold is kept, and where in the buffer
    /// they begin. None if the memory must not be written.
    #[inline]
    pub(crate) fn write(
        &mut self,
        #[cfg_attr(
            not(all(target_os = "linux", feature = "gl")),
            expect(unused_variables, reason = "only some memories are mapped in part")
        )]
        range: impl FnOnce() -> Range<usize>,
    ) -> Result<Option<(&mut [u8], usize, Hold<'_>)>> {
        #[cfg(all(target_os = "linux", feature = "gl"))]
        if let Some(pbo) = &mut self.pbo {
            return Hold::write(pbo.write(range())?).map(Some);
        }
        Ok(self.region.bytes_mut().map(|bytes| (bytes, 0, Hold::default())))
    }
}

/// Whatever makes bytes reachable, for as long as it is kept. Most memory always is.
#[derive(Debug, Default)]
pub(crate) struct Hold<'a> {
    #[cfg(all(target_os = "linux", feature = "gl"))]
    _mapped: Option<Mapped<'a>>,
    _lifetime: PhantomData<&'a ()>,
}

/// A guard ends where it is dropped, whatever features are on: else code that compiles without one
/// would not with it.
impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {}
}

#[cfg(all(target_os = "linux", feature = "gl"))]
#[allow(unsafe_code, reason = "bytes that are reachable only while something is kept")]
impl<'a> Hold<'a> {
    fn new(mapped: Mapped<'a>) -> Hold<'a> {
        Hold { _mapped: Some(mapped), _lifetime: PhantomData }
    }

    fn read(mapped: Mapped<'a>) -> Result<(&'a [u8], Hold<'a>)> {
        // SAFETY: nobody uses the bytes without the hold: the guards of `tensor/map.rs`, where both
        // go, keep them together.
        let bytes = unsafe { mapped.bytes() };
        Ok((bytes, Hold::new(mapped)))
    }

    fn write(mut mapped: Mapped<'a>) -> Result<(&'a mut [u8], usize, Hold<'a>)> {
        // SAFETY: as above; this is called once for what `Pbo::write` gives.
        let bytes = unsafe { mapped.bytes_mut() };
        Ok((bytes, mapped.start(), Hold::new(mapped)))
    }
}
