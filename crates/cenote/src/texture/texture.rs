//! The handle of a texture, and how textures are created.
//!
//! The driver copies between textures and tensors in buffers of the context, without the CPU. Other
//! memory is copied by the CPU, and counted. A DMA-BUF becomes a texture without a copy.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use glow::{HasContext, NativeTexture};

use crate::error::{GlCode, GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::{Core, OwnedObject, OwnedTexture};
use crate::gl::driver::driver::Driver;
use crate::gl::driver::saved_bindings::SavedBindings;
use crate::gl::objects::Object;
use crate::tensor::Tensor;
use crate::texture::texel::Texel;
use crate::texture::texel_rows::TexelRows;
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;

/// A two-dimensional texture of a [`GlContext`]. Cloning it is cheap; dropping the last clone deletes it.
///
/// ```no_run
/// use cenote::{GlContext, PixelFormat};
///
/// let gl = GlContext::headless()?;
/// let frame = gl.image(640, 480, PixelFormat::Rgba8)?;
/// let texture = gl.upload(&frame)?;
/// let name = texture.name(); // for drawing, in `gl.with`
///
/// let mut result = gl.image(640, 480, PixelFormat::Rgba8)?;
/// texture.read(&mut result)?;
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Clone)]
pub struct GlTexture {
    pub(crate) name: Arc<OwnedTexture>,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) texel: Texel,
    /// Declared before `context`, so that it is dropped while there is a context to post to.
    pub(crate) _source: Option<Arc<SourceTensor>>,
    pub(crate) context: GlContext,
}

/// The tensor whose memory a texture shows. It is held as long as the texture exists, and until the GPU
/// has executed the commands that use it.
pub(crate) struct SourceTensor {
    /// `None` once it was dropped.
    tensor: Option<Tensor>,
    core: Weak<Core>,
}

impl SourceTensor {
    pub(crate) fn new(context: &GlContext, tensor: &Tensor) -> Arc<SourceTensor> {
        let core = Arc::downgrade(context.core());
        Arc::new(SourceTensor { tensor: Some(tensor.clone()), core })
    }
}

impl Drop for SourceTensor {
    fn drop(&mut self) {
        if let (Some(core), Some(tensor)) = (self.core.upgrade(), self.tensor.take()) {
            core.post(move |resources| resources.drop_when_finished(Box::new(tensor)));
        }
    }
}

impl GlContext {
    /// Creates a texture with undefined contents and `channels` (1 to 4) values of `dtype` for each texel.
    /// The dtype is `u8`, `f16`, `f32`, or another integer of 8 to 32 bits, which shaders see as an integer.
    ///
    /// Fails for other dtypes, and for sizes that the driver does not support.
    pub fn texture(
        &self,
        (width, height): (usize, usize),
        dtype: DType,
        channels: usize,
    ) -> Result<GlTexture> {
        self.new_texture((width, height), dtype, channels, None)
    }

    /// Creates a texture with the elements of a tensor of shape `[height, width]` or `[height, width,
    /// channels]`, whose rows may be padded. Of an image with several planes, each
    /// [`plane`](Tensor::plane) makes a texture.
    ///
    /// If the tensor is in a buffer of this context, the driver copies it, perhaps later. This call does
    /// not wait for the copy; the next call that writes the tensor does. Other memory is copied by the CPU
    /// first, which [`copies`](crate::copies) counts.
    pub fn upload(&self, tensor: &Tensor) -> Result<GlTexture> {
        let rows = TexelRows::of(tensor)?;
        let texture = self.new_texture(
            (rows.width, rows.height),
            tensor.dtype(),
            rows.channels,
            tensor.format(),
        )?;
        texture.write(tensor)?;
        Ok(texture)
    }

    fn new_texture(
        &self,
        (width, height): (usize, usize),
        dtype: DType,
        channels: usize,
        format: Option<PixelFormat>,
    ) -> Result<GlTexture> {
        let refused =
            GlError::Texture { op: "create", width, height, channels, dtype: dtype.name() };
        let texel = Texel::of(dtype, channels);
        let size = i32::try_from(width).ok().zip(i32::try_from(height).ok());
        let (Some(texel), Some(size)) = (texel, size) else { return Err(refused.into()) };
        let created = self.core().run("make a texture", move |core| {
            let driver = &core.resources().driver;
            // SAFETY: called on the context's thread, with a name that every context has.
            #[allow(unsafe_code, reason = "OpenGL is a C interface")]
            let max = unsafe { driver.gl.get_parameter_i32(glow::MAX_TEXTURE_SIZE) };
            if !(1..=max).contains(&size.0) || !(1..=max).contains(&size.1) {
                return Err(refused.into());
            }
            Ok(create(core, size, texel, format)?)
        })?;
        let (name, context) = (Arc::new(created), self.clone());
        Ok(GlTexture { name, width, height, texel, context, _source: None })
    }
}

impl GlTexture {
    /// The number of texels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The type of a texel's values.
    pub fn dtype(&self) -> DType {
        self.texel.dtype
    }

    /// The number of values in a texel.
    pub fn channels(&self) -> usize {
        self.texel.channels
    }

    /// OpenGL's name of the texture, for use in [`GlContext::with`] while this handle exists.
    pub fn name(&self) -> NonZeroU32 {
        self.name.name
    }

    /// The target to bind it to: `GL_TEXTURE_2D`, or `GL_TEXTURE_EXTERNAL_OES` for a DMA-BUF that
    /// only shaders can read, such as NV12.
    pub fn target(&self) -> u32 {
        self.name.target
    }

    /// Returns whether its memory is a DMA-BUF.
    pub(crate) fn is_imported(&self) -> bool {
        self.name.image.is_some()
    }

    /// The context it belongs to.
    pub fn context(&self) -> &GlContext {
        &self.context
    }
}

impl fmt::Debug for GlTexture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GlTexture { width, height, texel, .. } = self;
        write!(f, "GlTexture({width}x{height}, {texel}, name {})", self.name())
    }
}

/// Creates an empty texture and binds it. Called on the context's thread.
#[allow(unsafe_code, reason = "OpenGL is a C interface")]
pub(crate) fn generate(
    core: &Arc<Core>,
    target: u32,
) -> Result<(OwnedObject, NonZeroU32), GlError> {
    let gl = &core.resources().driver.gl;
    // SAFETY: called on the context's thread.
    let created = unsafe { gl.create_texture() };
    let Ok(NativeTexture(name)) = created else {
        return Err(GlError::Refused { op: "glGenTextures", code: GlCode(glow::OUT_OF_MEMORY) });
    };
    let owned = OwnedObject::new(core, Object::Texture(name));
    // SAFETY: as above, with a texture that was just created.
    unsafe { gl.bind_texture(target, Some(NativeTexture(name))) };
    Ok((owned, name))
}

/// Creates a texture with storage. Called on the context's thread.
#[allow(unsafe_code, reason = "OpenGL is a C interface")]
fn create(
    core: &Arc<Core>,
    (width, height): (i32, i32),
    texel: Texel,
    format: Option<PixelFormat>,
) -> Result<OwnedTexture, GlError> {
    let driver = &core.resources().driver;
    let _saved = SavedBindings::new(driver);
    let target = glow::TEXTURE_2D;
    let (owned, name) = generate(core, target)?;
    // SAFETY: called on the context's thread, with a texture bound; the driver refuses
    // sizes and formats that it does not have.
    unsafe { driver.gl.tex_storage_2d(target, 1, texel.internal, width, height) };
    driver.check("glTexStorage2D")?;
    set_parameters(driver, target, texel.can_be_filtered());
    if let Some(PixelFormat::Bgr8 | PixelFormat::Bgra8) = format {
        set(driver, target, glow::TEXTURE_SWIZZLE_R, glow::BLUE);
        set(driver, target, glow::TEXTURE_SWIZZLE_B, glow::RED);
    }
    driver.check("glTexParameteri")?;
    Ok(OwnedTexture { name, target, _texture: owned, image: None })
}

/// Sets filters and wrapping of the bound texture, so that it can be drawn with without mipmaps.
pub(crate) fn set_parameters(driver: &Driver, target: u32, can_be_filtered: bool) {
    let filter = if can_be_filtered { glow::LINEAR } else { glow::NEAREST };
    set(driver, target, glow::TEXTURE_MIN_FILTER, filter);
    set(driver, target, glow::TEXTURE_MAG_FILTER, filter);
    set(driver, target, glow::TEXTURE_WRAP_S, glow::CLAMP_TO_EDGE);
    set(driver, target, glow::TEXTURE_WRAP_T, glow::CLAMP_TO_EDGE);
}

#[allow(unsafe_code, reason = "OpenGL is a C interface")]
fn set(driver: &Driver, target: u32, parameter: u32, value: u32) {
    // SAFETY: called on the context's thread, with a texture bound.
    unsafe { driver.gl.tex_parameter_i32(target, parameter, value.cast_signed()) };
}
