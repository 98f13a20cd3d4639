//! What a caller asks of memory: to allocate it ([`Request`]), or to import it ([`Import`]).

use crate::memory::kind::TensorMemory;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Access;

/// The largest alignment that can be requested.
pub(crate) const MAX_ALIGN: usize = 1 << 30;

/// The least alignment of all memory: a cache line, and the widest vector.
pub(crate) const MIN_ALIGN: usize = 64;

/// The alignment of the rows of images in DMA-BUFs, unless another is requested. Devices that read and write images need
/// it.
pub(crate) const ROW_ALIGN: usize = 64;

/// The alignment of mappings with huge pages, which must start on one. (2 MiB on most machines. If they are larger, the
/// kernel is only less likely to use them.)
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;

/// A request to allocate bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    /// At least 1: a layout is never empty.
    pub(crate) len: usize,
    /// A power of two, at least [`MIN_ALIGN`].
    pub(crate) align: usize,
    pub(crate) memory: Option<TensorMemory>,
    /// Whether the user named the memory, and so accepts that other processes could write it.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "for DMA-BUFs"))]
    pub(crate) asked: bool,
    /// The context that makes an OpenGL buffer.
    #[cfg(all(target_os = "linux", feature = "gl"))]
    pub(crate) gl: Option<&'a crate::gl::context::GlContext>,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only shared memory is named"))]
    pub(crate) name: Option<&'a str>,
    pub(crate) advice: Advice,
}

/// Wishes that the system may refuse without harm.
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

/// What the caller of an import guarantees.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Import {
    /// Nothing: this process only reads, and the kernel must guarantee that the memory does not shrink.
    ReadOnly,
    /// Everything that seals would guarantee. This process may write.
    Trusted,
}

#[cfg(target_os = "linux")]
impl Import {
    pub(crate) fn access(self) -> Access {
        match self {
            Import::ReadOnly => Access::Read,
            Import::Trusted => Access::Write,
        }
    }
}
