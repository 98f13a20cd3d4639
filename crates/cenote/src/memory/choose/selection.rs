//! How the memory of a tensor was chosen: where it is, which kinds were passed over, which wishes were refused.

use std::{fmt, io};

use crate::error::Unavailable;
use crate::memory::choose::request::Advice;
use crate::memory::kind::TensorMemory;
#[cfg(target_os = "linux")]
use crate::sys::mapping::Map;

/// Why a tensor is in its memory. [`Display`](fmt::Display) says all of it in one line.
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
    /// The row alignment that the memory requires of an image.
    row_alignment: Option<usize>,
}

/// Where the memory comes from.
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

/// A kind of memory that was not used.
#[derive(Debug)]
#[non_exhaustive]
pub struct PassedOver {
    /// The memory.
    pub memory: TensorMemory,
    /// Why it was not used.
    pub why: Unavailable,
}

/// A wish that the system refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotGranted {
    /// The wish.
    pub wish: Wish,
    /// The error of the system.
    pub why: io::Error,
}

/// A property of memory that a tensor can ask for but does not depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wish {
    /// Huge pages.
    HugePages,
    /// Pages that are present before the first access.
    Prefault,
    /// Pages that are not swapped out.
    Lock,
}

/// The outcome of an allocation: refused wishes, and the device.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    refused: Vec<NotGranted>,
    /// The heap that allocated a DMA-BUF.
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
    /// A selection of allocated memory, after `passed_over` was tried.
    pub(crate) fn allocated(
        chosen: TensorMemory,
        passed_over: Vec<PassedOver>,
        grants: Grants,
    ) -> Self {
        let origin = Origin::Allocated;
        Selection { chosen, origin, passed_over, grants, row_alignment: None }
    }

    /// A selection of memory that exists already.
    pub(crate) fn given(chosen: TensorMemory, origin: Origin) -> Self {
        Selection {
            chosen,
            origin,
            passed_over: Vec::new(),
            grants: Grants::default(),
            row_alignment: None,
        }
    }

    /// Notes the row alignment that the memory requires of an image.
    pub(crate) fn set_row_alignment(&mut self, alignment: usize) {
        self.row_alignment = Some(alignment);
    }

    /// The heap that allocated a DMA-BUF, or `udmabuf`.
    pub fn dma_heap(&self) -> Option<&str> {
        self.grants.device.as_deref()
    }

    /// The row alignment that the memory requires of an image, in bytes: 64 in DMA-BUFs, unless another was requested.
    pub fn row_alignment(&self) -> Option<usize> {
        self.row_alignment
    }

    /// Whether the environment forced it to the heap.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_forced(&self) -> bool {
        self.passed_over.iter().any(|passed| matches!(passed.why, Unavailable::ForcedMem))
    }

    /// The kind of memory of the tensor.
    pub fn chosen(&self) -> TensorMemory {
        self.chosen
    }

    /// The kinds of memory that were preferred to it, and why they were not used.
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
