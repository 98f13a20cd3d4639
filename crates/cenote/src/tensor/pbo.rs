//! Tensors in the buffers of an OpenGL context.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gl::context::GlContext;
use crate::memory::pbo::{Pbo, PboState};
use crate::sys::dmabuf::DmaBuf;
use crate::tensor::options::TensorOptions;
use crate::tensor::tensor::Tensor;
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;

impl GlContext {
    /// Allocates a tensor of zeros in a buffer of this context.
    ///
    /// ```no_run
    /// use cenote::{DType, GlContext, TensorMemory};
    ///
    /// let gl = GlContext::headless()?;
    /// let tensor = gl.tensor(&[480, 640], DType::F32)?;
    /// assert_eq!(tensor.memory(), TensorMemory::Pbo);
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn tensor(&self, shape: &[usize], dtype: DType) -> Result<Tensor> {
        self.options().create(shape, dtype)
    }

    /// Allocates a black image in a buffer of this context.
    pub fn image(&self, width: usize, height: usize, format: PixelFormat) -> Result<Tensor> {
        self.options().image(width, height, format)
    }

    /// Returns options for tensors in buffers of this context, for example to set the row alignment or to copy a
    /// slice. An alignment above 64 fails, because the driver chooses the address.
    pub fn options(&self) -> TensorOptions {
        TensorOptions::new().gl(self)
    }
}

impl Tensor {
    /// Returns the OpenGL context whose buffer the tensor is in, if it is in one.
    pub fn gl_context(&self) -> Option<GlContext> {
        self.pbo().map(|pbo| GlContext::of(pbo.core()))
    }

    /// Returns the DMA-BUF of the buffer, for a context of this process. The tensor stays writable. Fails for
    /// other memory.
    pub(crate) fn dma_buf(&self) -> Result<&DmaBuf> {
        self.buffer.dmabuf("DMA-BUF")
    }

    fn pbo(&self) -> Option<&Pbo> {
        self.buffer.storage().pbo.as_ref()
    }

    /// Returns the buffer, if it is one of this context: for the context to read from.
    pub(crate) fn pbo_of(&self, context: &GlContext) -> Option<&Arc<PboState>> {
        self.pbo().filter(|pbo| Arc::ptr_eq(pbo.core(), context.core())).map(Pbo::state)
    }

    /// Returns the buffer, if it is one of this context: for the context to write to. Fails as
    /// [`map_mut`](Tensor::map_mut) does.
    pub(crate) fn pbo_mut(&mut self, context: &GlContext) -> Result<Option<&Arc<PboState>>> {
        let refused = |why| Error::NotWritable { why };
        let storage = self.buffer.storage_mut().map_err(refused)?;
        let ours = storage.pbo.as_ref().filter(|pbo| Arc::ptr_eq(pbo.core(), context.core()));
        Ok(ours.map(Pbo::state))
    }
}
