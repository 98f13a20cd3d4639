//! The choice of a memory: whether a kind is available, and in which kind a tensor is allocated.

use std::{env, io};

use crate::error::{Error, Result, Unavailable};
use crate::memory::choose::request::Request;
use crate::memory::choose::selection::{Grants, PassedOver, Selection};
#[cfg(target_os = "linux")]
use crate::memory::dma::dma;
use crate::memory::heap;
use crate::memory::kind::TensorMemory;
#[cfg(target_os = "linux")]
use crate::memory::shm;
use crate::memory::storage::Storage;

/// The environment variable that makes every allocation use the heap, even if another kind of memory was requested: `1`
/// or `true`. `0` and `false` have no effect.
pub const FORCE_MEM_ENV: &str = "CENOTE_FORCE_MEM";

impl TensorMemory {
    /// Whether tensors can be allocated in this memory on this machine at present.
    pub fn is_available(self) -> bool {
        self.availability().is_ok()
    }

    /// Like [`is_available`](TensorMemory::is_available), but returns the reason if not.
    ///
    /// ```
    /// use cenote::TensorMemory;
    /// if let Err(why) = TensorMemory::Pbo.availability() {
    ///     println!("pbo: not available: {why}");
    /// }
    /// ```
    pub fn availability(self) -> Result<(), Unavailable> {
        match self {
            TensorMemory::Mem => Ok(()),
            _ if force_mem().unwrap_or(false) => Err(Unavailable::ForcedMem),
            TensorMemory::Shm => shm_availability(),
            TensorMemory::Dma => dma_availability(),
            TensorMemory::Pbo => Err(Unavailable::NeedsContext),
        }
    }
}

#[cfg(target_os = "linux")]
fn shm_availability() -> Result<(), Unavailable> {
    shm::availability()
}

#[cfg(target_os = "linux")]
fn dma_availability() -> Result<(), Unavailable> {
    dma::availability()
}

#[cfg(not(target_os = "linux"))]
fn shm_availability() -> Result<(), Unavailable> {
    Err(Unavailable::Platform)
}

#[cfg(not(target_os = "linux"))]
fn dma_availability() -> Result<(), Unavailable> {
    Err(Unavailable::Platform)
}

/// Allocates in the requested kind of memory. Without one, it tries the preferred kinds in order.
pub(crate) fn allocate(request: &Request<'_>) -> Result<(Storage, Selection)> {
    if force_mem()? && request.memory != Some(TensorMemory::Mem) {
        return allocate_forced(request);
    }
    match request.memory {
        Some(memory) => allocate_in(memory, request, Vec::new()),
        None => allocate_preferred(request),
    }
}

fn allocate_forced(request: &Request<'_>) -> Result<(Storage, Selection)> {
    let wanted: &[TensorMemory] = match &request.memory {
        Some(memory) => std::slice::from_ref(memory),
        None => &TensorMemory::PREFERENCE[..2],
    };
    let forced = |&memory| PassedOver { memory, why: Unavailable::ForcedMem };
    allocate_in(TensorMemory::Mem, request, wanted.iter().map(forced).collect())
}

fn allocate_preferred(request: &Request<'_>) -> Result<(Storage, Selection)> {
    let mut passed_over = Vec::new();
    for memory in TensorMemory::PREFERENCE {
        if memory == TensorMemory::Mem {
            break;
        }
        let mut grants = Grants::default();
        match allocate_kind(memory, request, &mut grants) {
            Ok(storage) => return Ok((storage, Selection::allocated(memory, passed_over, grants))),
            Err(error) => passed_over.push(PassedOver { memory, why: reason(error) }),
        }
    }
    allocate_in(TensorMemory::Mem, request, passed_over)
}

fn allocate_in(
    memory: TensorMemory,
    request: &Request<'_>,
    passed_over: Vec<PassedOver>,
) -> Result<(Storage, Selection)> {
    let mut grants = Grants::default();
    let storage = allocate_kind(memory, request, &mut grants)?;
    Ok((storage, Selection::allocated(memory, passed_over, grants)))
}

fn allocate_kind(
    memory: TensorMemory,
    request: &Request<'_>,
    grants: &mut Grants,
) -> Result<Storage> {
    #[cfg(all(target_os = "linux", feature = "gl"))]
    if let (TensorMemory::Pbo, Some(context)) = (memory, request.gl) {
        let (pbo, reservation) = crate::memory::pbo::allocate(context, request, grants)?;
        return Ok(Storage::pbo(pbo, reservation));
    }
    memory.availability().map_err(|why| Error::Unavailable { memory: memory.name(), why })?;
    match memory {
        TensorMemory::Mem => heap::allocate(request, grants),
        #[cfg(target_os = "linux")]
        TensorMemory::Shm => shm::allocate(request, grants),
        #[cfg(target_os = "linux")]
        TensorMemory::Dma => dma::allocate(request, grants),
        // `availability` has refused every other kind.
        _ => Err(Error::Unavailable { memory: memory.name(), why: Unavailable::Platform }),
    }
}

/// Why a kind of memory was passed over, from its error.
fn reason(error: Error) -> Unavailable {
    match error {
        Error::Unavailable { why, .. } => why,
        Error::OutOfMemory { asked, available, limit } => {
            Unavailable::Full { asked, available, limit }
        }
        Error::Os { op, source } => Unavailable::Refused { op, source },
        other => Unavailable::Refused { op: "allocation", source: io::Error::other(other) },
    }
}

/// Whether [`FORCE_MEM_ENV`] is set. It is read each time, which costs little compared to an allocation.
pub(crate) fn force_mem() -> Result<bool> {
    let Some(value) = env::var_os(FORCE_MEM_ENV) else { return Ok(false) };
    match value.to_str() {
        Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        _ => Err(Error::BadEnv {
            name: FORCE_MEM_ENV,
            value: value.to_string_lossy().into(),
            expected: "1, true, 0 or false",
        }),
    }
}
