//! What a caller asks of memory: to allocate it ([`Request`]), or to import it ([`Import`]).

use crate::memory::kind::TensorMemory;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Access;

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

/// Who may write imported memory.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Import {
    /// We only read, and the memory cannot be taken from under us.
    ReadOnly,
    /// The caller promises everything that the seals would.
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
