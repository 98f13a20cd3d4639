//! Counts copies. cenote copies tensor bytes only in calls that say so, and counts every such copy with its reason.

use crate::sync::{Ordering, StaticU64};

/// Why tensor bytes were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyReason {
    /// [`make_mut`](crate::Tensor::make_mut) was called on a tensor that must not change.
    MakeMut,
    /// [`to_contiguous`](crate::Tensor::to_contiguous) was called.
    ToContiguous,
    /// A tensor was made with the elements of a slice or an array.
    CopiedIn,
    /// The elements were copied out into a vector or an array.
    CopiedOut,
    /// A tensor was copied into a pool.
    Staged,
    /// The device side of a `UnifiedBuffer` was updated, or a tensor outside OpenGL memory became a texture.
    Upload,
    /// The host side of a `UnifiedBuffer` was updated, or a texture was read into a tensor outside OpenGL memory.
    Download,
}

/// How often, and how much, was copied in this process for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copies {
    /// The reason.
    pub reason: CopyReason,
    /// The number of copies.
    pub count: u64,
    /// The number of bytes.
    pub bytes: u64,
}

/// All reasons, in the order of their discriminants.
pub(crate) const REASONS: [CopyReason; 7] = [
    CopyReason::MakeMut,
    CopyReason::ToContiguous,
    CopyReason::CopiedIn,
    CopyReason::CopiedOut,
    CopyReason::Staged,
    CopyReason::Upload,
    CopyReason::Download,
];

static COUNTS: [(StaticU64, StaticU64); REASONS.len()] =
    [const { (StaticU64::new(0), StaticU64::new(0)) }; REASONS.len()];

pub(crate) fn count(reason: CopyReason, bytes: usize) {
    let (count, total) = &COUNTS[reason as usize];
    count.fetch_add(1, Ordering::Relaxed);
    total.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// All copies of tensor bytes in this process so far, by reason.
///
/// ```
/// let copied: u64 = cenote::copies().iter().map(|copies| copies.bytes).sum();
/// println!("{copied} bytes were copied");
/// ```
pub fn copies() -> Vec<Copies> {
    let counted = |(&reason, (count, bytes)): (&CopyReason, &(StaticU64, StaticU64))| Copies {
        reason,
        count: count.load(Ordering::Relaxed),
        bytes: bytes.load(Ordering::Relaxed),
    };
    REASONS.iter().zip(&COUNTS).map(counted).collect()
}
