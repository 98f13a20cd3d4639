//! Layouts of foreign memory, which can have negative strides.

use cenote::Layout;

use crate::runtime::error::Result;

/// A layout that starts at the lowest byte of the elements, and the distance from that byte to the first
/// element.
pub(crate) fn anchored(
    shape: &[usize],
    strides: &[isize],
    item_size: usize,
) -> Result<(usize, Layout)> {
    let mut below = 0_usize;
    for (&len, &stride) in shape.iter().zip(strides).filter(|&(_, &stride)| stride < 0) {
        let reach = stride.unsigned_abs().saturating_mul(len.saturating_sub(1));
        below = below.saturating_add(reach);
    }
    Ok((below, Layout::strided(shape, strides, below, item_size)?))
}
