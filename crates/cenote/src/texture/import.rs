//! DMA-BUFs as textures, without a copy.

use crate::sync::Ordering;
use std::num::NonZeroU32;
use std::sync::Arc;

use glow::{HasContext, NativeTexture};

use crate::error::{Error, GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::{Core, OwnedObject, OwnedTexture};
use crate::gl::driver::driver::Driver;
use crate::gl::driver::egl::DmaBufAttributes;
use crate::gl::driver::saved_bindings::SavedBindings;
use crate::gl::objects::Object;
use crate::gl::texture_cache::{BufferKey, ViewKey};
use crate::sys::dmabuf::DmaBuf;
use crate::tensor::Tensor;
use crate::tensor::buffer::BufferIdentity;
use crate::tensor::image::plane_descriptor::PlaneDescriptor;
use crate::texture::dmabuf_image::{DmaBufImage, view_key};
use crate::texture::texel::Texel;
use crate::texture::texel_rows::TexelRows;
use crate::texture::texture::{GlTexture, SourceTensor, generate, set_parameters};
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::fourcc::FourCc;

/// The target of textures that only shaders can read.
const TEXTURE_EXTERNAL: u32 = 0x8d65;
const BINDING_EXTERNAL: u32 = 0x8d67;

impl GlContext {
    /// Makes a texture of an image in DMA-BUFs, without a copy: both share the same memory.
    ///
    /// The texture keeps the memory alive. The caller must make sure that the memory is not used for
    /// something else while the texture lives; [`texture_of`](GlContext::texture_of) does that for tensors.
    ///
    /// Shaders and [`GlTexture::read`] see red, green, blue and alpha, in whatever order they are in
    /// memory.
    ///
    /// Fails if the driver cannot import the image, or a plane exceeds its buffer.
    pub fn import(&self, image: &DmaBufImage) -> Result<GlTexture> {
        let attributes = image.attributes()?;
        let name =
            self.core().run("import a DMA-BUF", move |core| Ok(import(core, &attributes)?))?;
        Ok(self.imported((image.width, image.height), Arc::new(name), None))
    }

    /// Like [`import`](GlContext::import), once for each buffer. The context keeps the texture, and returns
    /// it again for the same buffer and image, until the last tensor of the buffer is dropped.
    pub fn import_once(&self, buffer: &BufferIdentity, image: &DmaBufImage) -> Result<GlTexture> {
        self.core().check()?;
        let (key, view) = (BufferKey::Identity(buffer.id()), image.view_key());
        if let Some(name) = self.core().imports.find(key, &view) {
            return Ok(self.imported((image.width, image.height), name, None));
        }
        let texture = self.import(image)?;
        self.keep(key, view, &texture, |id, end| buffer.on_drop(id, end));
        Ok(texture)
    }

    /// Makes a texture of an image in DMA-BUF memory, without a copy, as [`import`](GlContext::import)
    /// does. The context imports a DMA-BUF once, and keeps the texture until the DMA-BUF is closed. Pools
    /// and cameras keep theirs open from one frame to the next.
    ///
    /// The texture holds the tensor, as a clone would. Until it is dropped, [`map_mut`](Tensor::map_mut)
    /// refuses to write the tensor, and the memory does not return to its pool or camera. After that the
    /// context holds the memory until the GPU has executed the commands issued so far. The context checks
    /// that whenever it is used; [`finish`](GlContext::finish) waits for it.
    ///
    /// A tensor without a pixel format must be `[height, width]` or `[height, width, channels]` of `u8`.
    ///
    /// ```no_run
    /// use cenote::{GlContext, PixelFormat, Tensor, TensorMemory};
    ///
    /// let gl = GlContext::headless()?;
    /// let frame = Tensor::options().memory(TensorMemory::Dma).image(640, 480, PixelFormat::Rgba8)?;
    /// let texture = gl.texture_of(&frame)?;
    /// assert_eq!(texture.name(), gl.texture_of(&frame)?.name());
    /// # Ok::<(), cenote::Error>(())
    /// ```
    pub fn texture_of(&self, tensor: &Tensor) -> Result<GlTexture> {
        let dma = tensor.dma_buf()?;
        self.core().check()?;
        let (size, fourcc) = image_of(tensor)?;
        let mut planes = Vec::new();
        for index in 0..tensor.plane_count() {
            planes.push(PlaneLocation::of(&tensor.plane(index)?)?);
        }
        let numbers =
            |plane: &PlaneLocation| [plane.inode, plane.offset as u64, plane.stride as u64];
        let view = view_key(size, fourcc, None, planes.iter().map(numbers));
        let key = BufferKey::DmaBuf(inode(dma)?);
        let source = Some(SourceTensor::new(self, tensor));
        if let Some(name) = self.core().imports.find(key, &view) {
            return Ok(self.imported(size, name, source));
        }
        let mut image = DmaBufImage::new(size.0, size.1, fourcc);
        for (index, PlaneLocation { offset, stride, .. }) in planes.into_iter().enumerate() {
            let plane = tensor.plane(index)?;
            let plane = PlaneDescriptor::new(plane.dma_buf()?)?;
            image = image.plane(plane.with_offset(offset).with_stride(stride));
        }
        let texture = self.import(&image)?;
        self.keep(key, view, &texture, |id, end| dma.on_drop(id, end));
        Ok(GlTexture { _source: source, ..texture })
    }

    /// Keeps a texture until the buffer ends. `at_end` registers a callback for that, with the id of this
    /// context, and returns false if this context has registered one before.
    fn keep(
        &self,
        buffer: BufferKey,
        view: ViewKey,
        texture: &GlTexture,
        at_end: impl FnOnce(u64, Box<dyn FnOnce() + Send>) -> bool,
    ) {
        let core = Arc::downgrade(self.core());
        let end = move || {
            if let Some(core) = core.upgrade() {
                core.imports.buffer_ended(buffer);
            }
        };
        if at_end(self.core().id, Box::new(end)) {
            self.core().imports.watch(buffer);
        }
        self.core().imports.keep(buffer, view, &texture.name);
    }

    /// Makes the handle of an imported texture.
    fn imported(
        &self,
        (width, height): (usize, usize),
        name: Arc<OwnedTexture>,
        source: Option<Arc<SourceTensor>>,
    ) -> GlTexture {
        let (texel, context) = (Texel::RGBA8, self.clone());
        GlTexture { name, width, height, texel, context, _source: source }
    }
}

/// Returns the size of an image, and DRM's code for its pixels. Fails if DRM has none.
fn image_of(tensor: &Tensor) -> Result<((usize, usize), FourCc)> {
    let bad = |rule| Error::Gl(GlError::BadDmaBuf { rule });
    if let Some(format) = tensor.format() {
        let fourcc = format.drm_fourcc().ok_or_else(|| bad("DRM has no name for its format"))?;
        let size = tensor.image_size().ok_or(Error::NoFormat { op: "texture_of" })?;
        return Ok((size, fourcc));
    }
    let rows = TexelRows::of(tensor)?;
    let format = match (tensor.dtype(), rows.channels) {
        (DType::U8, 1) => PixelFormat::Grey,
        (DType::U8, 3) => PixelFormat::Rgb8,
        (DType::U8, 4) => PixelFormat::Rgba8,
        _ => return Err(bad("without a format it must be 1, 3 or 4 channels of u8")),
    };
    let fourcc = format.drm_fourcc().ok_or_else(|| bad("DRM has no name for its format"))?;
    Ok(((rows.width, rows.height), fourcc))
}

/// The DMA-BUF that a plane is in, and where the plane lies in it, in bytes.
struct PlaneLocation {
    inode: u64,
    offset: usize,
    stride: usize,
}

impl PlaneLocation {
    fn of(plane: &Tensor) -> Result<PlaneLocation> {
        let stride = TexelRows::of(plane)?.stride;
        let (inode, offset) = (inode(plane.dma_buf()?)?, plane.dmabuf_offset()?);
        Ok(PlaneLocation { inode, offset, stride })
    }
}

fn inode(dma: &DmaBuf) -> Result<u64> {
    dma.inode().map_err(|source| Error::os("fstat", source))
}

/// Creates an image of a DMA-BUF, and a texture that shows it. Called on the context's thread.
fn import(core: &Arc<Core>, attributes: &DmaBufAttributes) -> Result<OwnedTexture, GlError> {
    let driver = &core.resources().driver;
    let missing = || GlError::Missing {
        missing: "the driver has no EGL_EXT_image_dma_buf_import",
        source: None,
    };
    let image = driver.create_image(attributes).ok_or_else(missing)??;
    core.resources().imported.fetch_add(1, Ordering::Relaxed);
    let image_owned = OwnedObject::new(core, Object::Image(image));
    let _saved = SavedBindings::new(driver);
    let show = |target| {
        let (texture, name) = generate(core, target)?;
        driver.image_to_texture(target, image);
        driver.check("glEGLImageTargetTexture2DOES")?;
        set_parameters(driver, target, true);
        Ok::<_, GlError>((target, texture, name))
    };
    // The driver refuses the first target for an image that only shaders can read.
    let shown = show(glow::TEXTURE_2D).or_else(|refused| {
        let _external = SavedExternal::new(driver).ok_or(refused)?;
        show(TEXTURE_EXTERNAL)
    });
    let (target, texture, name) = shown?;
    Ok(OwnedTexture { name, target, _texture: texture, image: Some(image_owned) })
}

/// The texture bound to the external target. Dropping this binds it again.
struct SavedExternal<'a>(&'a Driver, Option<NativeTexture>);

#[allow(unsafe_code, reason = "OpenGL is a C interface")]
impl<'a> SavedExternal<'a> {
    /// `None` if the driver has no such target.
    fn new(driver: &'a Driver) -> Option<SavedExternal<'a>> {
        let extensions = driver.gl.supported_extensions();
        if !extensions.contains("GL_OES_EGL_image_external") {
            return None;
        }
        // SAFETY: called on the context's thread, with a name that the extension has.
        let bound = unsafe { driver.gl.get_parameter_i32(BINDING_EXTERNAL) };
        let bound = NonZeroU32::new(bound.cast_unsigned()).map(NativeTexture);
        Some(SavedExternal(driver, bound))
    }
}

#[allow(unsafe_code, reason = "OpenGL is a C interface")]
impl Drop for SavedExternal<'_> {
    fn drop(&mut self) {
        // SAFETY: called on the context's thread, with what was bound before.
        unsafe { self.0.gl.bind_texture(TEXTURE_EXTERNAL, self.1) };
    }
}
