//! Memory of devices: `dma_heaps` finds the devices that DMA-BUFs come from, `dma` allocates and imports.

pub(crate) mod dma;
pub(crate) mod dma_heaps;
