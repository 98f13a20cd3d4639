//! Textures: what a tensor is to a GPU.
//!
//! Tensors in buffers of the context become textures, and textures tensors, without the CPU
//! touching a byte; other memory is copied, and counted. A DMA-BUF is a texture as it is.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};

use glow::{HasContext, NativeTexture};

use crate::error::{GlCode, GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::Core;
use crate::gl::driver::Driver;
use crate::gl::objects::{Object, Owned, TextureName};
use crate::gl::state::Saved;
use crate::tensor::Tensor;
use crate::texture::rows::Rows;
use crate::texture::texel::Texel;
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;

/// A two-dimensional texture of a [`GlContext`]. Cloning it is cheap; the last clone deletes it.
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
    pub(crate) name: Arc<TextureName>,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) texel: Texel,
    /// Before the context, which it is let go of by.
    pub(crate) _source: Option<Arc<Source>>,
    pub(crate) context: GlContext,
}

/// The tensor whose memory a texture is: while anybody can draw with it, and until the GPU has drawn,
/// that is nobody else's.
pub(crate) struct Source {
    /// None when it was let go of.
    tensor: Option<Tensor>,
    core: Weak<Core>,
}

impl Source {
    pub(crate) fn new(context: &GlContext, tensor: &Tensor) -> Arc<Source> {
        let core = Arc::downgrade(context.core());
        Arc::new(Source { tensor: Some(tensor.clone()), core })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let (Some(core), Some(tensor)) = (self.core.upgrade(), self.tensor.take()) {
            core.post(move |shared| shared.hold(Box::new(tensor)));
        }
    }
}

impl GlContext {
    /// A texture that holds anything, with `channels` (1 to 4) values of `dtype` for each texel:
    /// `u8`, `f16` or `f32`, or integers of 8 to 32 bits, which shaders see as integers.
    pub fn texture(
        &self,
        (width, height): (usize, usize),
        dtype: DType,
        channels: usize,
    ) -> Result<GlTexture> {
        self.new_texture((width, height), dtype, channels, None)
    }

    /// A new texture with the elements of a tensor of shape `[height, width]` or `[height, width,
    /// channels]`, whose rows may be padded. Of an image with several planes each
    /// [`plane`](Tensor::plane) is a texture.
    ///
    /// If the tensor is in a buffer of this context the driver copies it, now or later: the call
    /// does not wait for that, but whoever writes the tensor next does. Other memory is copied by the
    /// CPU first, which [`copies`](crate::copies) counts.
    pub fn upload(&self, tensor: &Tensor) -> Result<GlTexture> {
        let rows = Rows::of(tensor)?;
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
        let refused = GlError::Texture { op: "have", width, height, channels, dtype: dtype.name() };
        let texel = Texel::of(dtype, channels);
        let size = i32::try_from(width).ok().zip(i32::try_from(height).ok());
        let (Some(texel), Some(size)) = (texel, size) else { return Err(refused.into()) };
        let made = self.core().run("make a texture", move |core| {
            let driver = &core.shared().driver;
            // SAFETY: called on the context's thread, with a name that every context has.
            #[allow(unsafe_code, reason = "OpenGL is a C interface")]
            let most = unsafe { driver.gl.get_parameter_i32(glow::MAX_TEXTURE_SIZE) };
            if !(1..=most).contains(&size.0) || !(1..=most).contains(&size.1) {
                return Err(refused.into());
            }
            Ok(make(core, size, texel, format)?)
        })?;
        let (name, context) = (Arc::new(made), self.clone());
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

    /// What the values of a texel are.
    pub fn dtype(&self) -> DType {
        self.texel.dtype
    }

    /// The values of a texel.
    pub fn channels(&self) -> usize {
        self.texel.channels
    }

    /// OpenGL's name for it, for use in [`GlContext::with`] while this is alive.
    pub fn name(&self) -> NonZeroU32 {
        self.name.name
    }

    /// What OpenGL binds it to: `GL_TEXTURE_2D`, or `GL_TEXTURE_EXTERNAL_OES` for a DMA-BUF that
    /// only shaders can read, such as NV12.
    pub fn target(&self) -> u32 {
        self.name.target
    }

    /// Whether its memory is a DMA-BUF.
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

/// An empty texture, bound. Called on the context's thread.
#[allow(unsafe_code, reason = "OpenGL is a C interface")]
pub(crate) fn generate(core: &Arc<Core>, target: u32) -> Result<(Owned, NonZeroU32), GlError> {
    let gl = &core.shared().driver.gl;
    // SAFETY: called on the context's thread.
    let made = unsafe { gl.create_texture() };
    let Ok(NativeTexture(name)) = made else {
        return Err(GlError::Refused { op: "glGenTextures", code: GlCode(glow::OUT_OF_MEMORY) });
    };
    let owned = Owned::new(core, Object::Texture(name));
    // SAFETY: as above, with a texture that was just made.
    unsafe { gl.bind_texture(target, Some(NativeTexture(name))) };
    Ok((owned, name))
}

#[allow(unsafe_code, reason = "OpenGL is a C interface")]
fn make(
    core: &Arc<Core>,
    (width, height): (i32, i32),
    texel: Texel,
    format: Option<PixelFormat>,
) -> Result<TextureName, GlError> {
    let driver = &core.shared().driver;
    let _saved = Saved::new(driver);
    let target = glow::TEXTURE_2D;
    let (owned, name) = generate(core, target)?;
    // SAFETY: called on the context's thread, with a texture bound; what cannot be is refused.
    unsafe { driver.gl.tex_storage_2d(target, 1, texel.internal, width, height) };
    driver.check("glTexStorage2D")?;
    set_parameters(driver, target, texel.can_be_filtered());
    if let Some(PixelFormat::Bgr8 | PixelFormat::Bgra8) = format {
        set(driver, target, glow::TEXTURE_SWIZZLE_R, glow::BLUE);
        set(driver, target, glow::TEXTURE_SWIZZLE_B, glow::RED);
    }
    driver.check("glTexParameteri")?;
    Ok(TextureName { name, target, _texture: owned, image: None })
}

/// Makes the bound texture one that can be drawn with as it is: it has no smaller images.
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
