//! The choice of a memory: what was asked for, what was tried, what was passed over and why.

use std::{env, fmt, io};

use crate::error::{Error, Result, Unavailable};
use crate::memory::heap;
use crate::memory::kind::TensorMemory;
use crate::memory::storage::Storage;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Map;

/// The environment variable that sends every allocation to the heap, also where another memory was
/// asked for: `1` or `true`; `0` and `false` are as if it were not set.
pub const FORCE_MEM_ENV: &str = "CENOTE_FORCE_MEM";

/// The largest alignment that can be asked for.
pub(crate) const MAX_ALIGN: usize = 1 << 30;

/// The alignment of everything that does not ask for more: a cache line, and the widest vector.
pub(crate) const MIN_ALIGN: usize = 64;

/// The alignment of the rows of images in DMA-BUFs, unless another is asked for: what hardware that
/// reads and writes images wants of them.
pub(crate) const ROW_ALIGN: usize = 64;

/// Huge pages are of use only to mappings that start on one. (2 MiB on most machines; where they
/// are larger the advice is merely less likely to be followed.)
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// Bytes that are wanted, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// At least 1: a layout is never empty.
    pub(crate) len: usize,
    /// A power of two, at least [`MIN_ALIGN`].
    pub(crate) align: usize,
    pub(crate) memory: Option<TensorMemory>,
    /// The user named the memory, and so knows what others could do to it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "for DMA-BUFs"))]
    pub(crate) asked: bool,
    /// The context that is asked, where the memory is an OpenGL buffer.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) gl: Option<&'a crate::gl::context::GlContext>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only shared memory is named"))]
    pub(crate) name: Option<&'a str>,
    pub(crate) advice: Advice,
}

/// Wishes that may be refused without harm.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) huge_pages: bool,
    pub(crate) prefault: bool,
}

impl Advice {
    #[cfg(target_os = "linux")]
    pub(crate) fn is_empty(self) -> bool {
        self == Advice::default()
    }
}

impl Request<'_> {
    #[cfg(target_os = "linux")]
    pub(crate) fn map_align(&self) -> usize {
        if self.advice.huge_pages { self.align.max(HUGE_PAGE) } else { self.align }
    }
}

/// How a tensor came to live where it does. [`Display`](fmt::Display) says all of it in one line.
///
/// ```
/// use cenote::{DType, Tensor};
///
/// let tensor = Tensor::new(&[480, 640], DType::U8)?;
/// println!("{}", tensor.selection());
/// for passed in tensor.selection().passed_over() {
///     println!("not {}: {}", passed.memory, passed.why);
/// }
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug)]
pub struct Selection {
    chosen: TensorMemory,
    origin: Origin,
    passed_over: Vec<PassedOver>,
    grants: Grants,
    /// What the rows of the image were aligned to for the sake of the memory.
    row_alignment: Option<usize>,
}

/// How the memory came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Allocated,
    Adopted,
    #[cfg(target_os = "linux")]
    Imported,
    #[cfg(target_os = "linux")]
    Pooled,
    #[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
    Captured,
}

/// A memory that was not used.
#[derive(Debug)]
#[non_exhaustive]
pub struct PassedOver {
    /// The memory.
    pub memory: TensorMemory,
    /// Why it was not used.
    pub why: Unavailable,
}

/// A wish that was not granted.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotGranted {
    /// What was wished for.
    pub wish: Wish,
    /// What the system said.
    pub why: io::Error,
}

/// Something a tensor can ask of its memory without insisting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wish {
    /// Huge pages.
    HugePages,
    /// Pages present before the first touch.
    Prefault,
    /// Pages kept in memory.
    Lock,
}

/// The wishes that were refused.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    refused: Vec<NotGranted>,
    /// The heap that a DMA-BUF came from.
    device: Option<String>,
}

impl Grants {
    #[cfg(target_os = "linux")]
    pub(crate) fn advise(&mut self, advice: Advice, map: &Map) {
        if advice.huge_pages {
            self.note(Wish::HugePages, map.advise_huge());
        }
        if advice.prefault {
            self.note(Wish::Prefault, map.populate());
        }
    }

    #[cfg(any(not(target_os = "linux"), feature = "gl"))]
    pub(crate) fn refuse_all(&mut self, advice: Advice) {
        let refused = || Err(io::ErrorKind::Unsupported.into());
        if advice.huge_pages {
            self.note(Wish::HugePages, refused());
        }
        if advice.prefault {
            self.note(Wish::Prefault, refused());
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn note_device(&mut self, name: String) {
        self.device = Some(name);
    }

    fn note(&mut self, wish: Wish, result: io::Result<()>) {
        if let Err(why) = result {
            self.refused.push(NotGranted { wish, why });
        }
    }
}

impl Selection {
    pub(crate) fn given(chosen: TensorMemory, origin: Origin) -> Self {
        Selection {
            chosen,
            origin,
            passed_over: Vec::new(),
            grants: Grants::default(),
            row_alignment: None,
        }
    }

    /// Notes what the rows of the image were aligned to for the sake of the memory.
    pub(crate) fn set_row_alignment(&mut self, alignment: usize) {
        self.row_alignment = Some(alignment);
    }

    /// The heap that a DMA-BUF was allocated from, or `udmabuf`.
    pub fn dma_heap(&self) -> Option<&str> {
        self.grants.device.as_deref()
    }

    /// What the rows of an image were aligned to for the sake of its memory, in bytes: 64 in DMA-BUFs,
    /// unless another alignment was asked for.
    pub fn row_alignment(&self) -> Option<usize> {
        self.row_alignment
    }

    /// Whether the environment sent it to the heap.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_forced(&self) -> bool {
        self.passed_over.iter().any(|passed| matches!(passed.why, Unavailable::ForcedMem))
    }

    /// The memory the tensor lives in.
    pub fn chosen(&self) -> TensorMemory {
        self.chosen
    }

    /// The memories that were preferred to it, and why they were not used.
    pub fn passed_over(&self) -> &[PassedOver] {
        &self.passed_over
    }

    /// The wishes (huge pages, prefaulting) that were refused.
    pub fn not_granted(&self) -> &[NotGranted] {
        &self.grants.refused
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Allocated => "allocated",
            Origin::Adopted => "adopted from its owner",
            #[cfg(target_os = "linux")]
            Origin::Imported => "imported from a file descriptor",
            #[cfg(target_os = "linux")]
            Origin::Pooled => "in a pool",
            #[cfg(all(feature = "camera", target_os = "linux", target_pointer_width = "64"))]
            Origin::Captured => "captured by a camera",
        };
        write!(f, "{} ({origin}", self.chosen)?;
        if let Some(heap) = self.dma_heap() {
            write!(f, " from {heap}")?;
        }
        if let Some(alignment) = self.row_alignment {
            write!(f, ", rows at multiples of {alignment} bytes")?;
        }
        write!(f, ")")?;
        for PassedOver { memory, why } in &self.passed_over {
            write!(f, "; not {memory}: {why}")?;
        }
        for NotGranted { wish, why } in &self.grants.refused {
            write!(f, "; {wish:?} not granted: {why}")?;
        }
        Ok(())
    }
}

/// Allocates in the memory asked for, or in the first of the preferred ones that can be had.
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
            Ok(storage) => return Ok((storage, selected(memory, passed_over, grants))),
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
    Ok((storage, selected(memory, passed_over, grants)))
}

fn selected(chosen: TensorMemory, passed_over: Vec<PassedOver>, grants: Grants) -> Selection {
    Selection { chosen, origin: Origin::Allocated, passed_over, grants, row_alignment: None }
}

fn allocate_kind(
    memory: TensorMemory,
    request: &Request<'_>,
    grants: &mut Grants,
) -> Result<Storage> {
    #[cfg(all(target_os = "linux", feature = "gl"))]
    if let (TensorMemory::Pbo, Some(context)) = (memory, request.gl) {
        return crate::memory::pbo::allocate(context, request, grants);
    }
    memory.availability().map_err(|why| Error::Unavailable { memory: memory.name(), why })?;
    match memory {
        TensorMemory::Mem => heap::allocate(request, grants),
        #[cfg(target_os = "linux")]
        TensorMemory::Shm => crate::memory::shm::allocate(request, grants),
        #[cfg(target_os = "linux")]
        TensorMemory::Dma => crate::memory::dma::allocate(request, grants),
        // `availability` has said no to every other kind.
        _ => Err(Error::Unavailable { memory: memory.name(), why: Unavailable::Platform }),
    }
}

/// Why a memory was passed over, from the error it gave.
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

/// Reads the environment each time: it costs little beside an allocation.
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
