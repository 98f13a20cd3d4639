//! DMA-BUFs as textures, without a copy.

use std::num::NonZeroU32;
use std::sync::Arc;

use glow::{HasContext, NativeTexture};

use crate::error::{Error, GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::Core;
use crate::gl::driver::Driver;
use crate::gl::egl::DmaBufAttributes;
use crate::gl::imports::{Key, Of};
use crate::gl::objects::{Object, Owned, TextureName};
use crate::gl::state::Saved;
use crate::sync::Ordering;
use crate::sys::dmabuf::DmaBuf;
use crate::sys::memfd;
use crate::tensor::Tensor;
use crate::tensor::buffer::BufferIdentity;
use crate::tensor::planes::PlaneDescriptor;
use crate::texture::rows::Rows;
use crate::texture::texel::Texel;
use crate::texture::{GlTexture, Source, generate, set_parameters};
use crate::types::dtype::DType;
use crate::types::pixel_format::PixelFormat;
use crate::types::pixel_format::fourcc::FourCc;

/// Rows one after the other, and nothing else: what memory is unless a driver says otherwise.
const LINEAR: u64 = 0;

/// DRM's word for not knowing: the same as none.
const INVALID: u64 = 0x00ff_ffff_ffff_ffff;

/// The target of textures that only shaders can read.
const TEXTURE_EXTERNAL: u32 = 0x8d65;
const BINDING_EXTERNAL: u32 = 0x8d67;

/// An image in DMA-BUFs: what a camera, a video decoder or a dma-heap gave out.
///
/// ```no_run
/// use std::os::fd::OwnedFd;
/// use cenote::{DmaBufImage, FourCc, GlContext, GlTexture, PlaneDescriptor};
///
/// /// A frame of 1080p RGBA that somebody else has made.
/// fn texture(gl: &GlContext, fd: &OwnedFd) -> cenote::Result<GlTexture> {
///     let frame = DmaBufImage::new(1920, 1080, FourCc::new(b"AB24"))
///         .plane(PlaneDescriptor::new(fd)?.with_stride(1920 * 4));
///     gl.import(&frame)
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct DmaBufImage {
    width: usize,
    height: usize,
    fourcc: FourCc,
    modifier: Option<u64>,
    planes: Vec<PlaneDescriptor>,
}

impl DmaBufImage {
    /// An image without planes yet. `fourcc` is DRM's, as
    /// [`drm_fourcc`](PixelFormat::drm_fourcc) gives it.
    pub fn new(width: usize, height: usize, fourcc: FourCc) -> DmaBufImage {
        DmaBufImage { width, height, fourcc, modifier: None, planes: Vec::new() }
    }

    /// Adds the next plane. Its stride must be set.
    pub fn plane(mut self, plane: PlaneDescriptor) -> DmaBufImage {
        self.planes.push(plane);
        self
    }

    /// Says how the memory is tiled or compressed, with one of DRM's modifiers. `DRM_FORMAT_MOD_INVALID`
    /// says nothing: then it is taken to lie in rows, as without one.
    pub fn modifier(mut self, modifier: u64) -> DmaBufImage {
        self.modifier = Some(modifier).filter(|&modifier| modifier != INVALID);
        self
    }

    /// What EGL is told; an error for what no driver could be trusted to refuse.
    fn attributes(&self) -> Result<DmaBufAttributes> {
        let bad = |rule| Error::Gl(GlError::BadDmaBuf { rule });
        let fit = || bad("a number of it does not fit 31 bits");
        if self.width == 0 || self.height == 0 {
            return Err(bad("it has no pixels"));
        }
        if self.planes.is_empty() {
            return Err(bad("it has no plane"));
        }
        let fourcc = self.fourcc.to_u32();
        let mut attributes =
            DmaBufAttributes::new(self.width, self.height, fourcc).ok_or_else(fit)?;
        for (index, plane) in self.planes.iter().enumerate() {
            let offset = plane.offset().unwrap_or(0);
            let stride = plane.stride().ok_or_else(|| bad("a plane has no stride"))?;
            if offset as u64 >= size(plane)? {
                return Err(bad("a plane begins beyond the end of its buffer"));
            }
            if index > 2 {
                return Err(bad("it has more than three planes"));
            }
            let fd = plane.fd().try_clone_to_owned();
            let fd = fd.map_err(|source| Error::os("duplicating a file descriptor", source))?;
            attributes.plane(index, fd, (offset, stride), self.modifier).ok_or_else(fit)?;
        }
        self.check_bounds()?;
        Ok(attributes)
    }

    /// What of a buffer it is.
    fn key(&self) -> Box<[u64]> {
        let DmaBufImage { width, height, fourcc, modifier, .. } = *self;
        let number = |given: Option<usize>| given.map_or(u64::MAX, |given| given as u64);
        let place = |plane: &PlaneDescriptor| [0, number(plane.offset()), number(plane.stride())];
        key((width, height), fourcc, modifier, self.planes.iter().map(place))
    }

    /// A plane that overruns its buffer would be read all the same by some drivers. How a tiled one
    /// lies only its driver knows.
    fn check_bounds(&self) -> Result<()> {
        let bad = |rule| Error::Gl(GlError::BadDmaBuf { rule });
        if self.modifier.is_some_and(|modifier| modifier != LINEAR) {
            return Ok(());
        }
        let Some(format) = PixelFormat::from_drm(self.fourcc) else {
            return Err(bad("its format is none of those that are known to lie in rows"));
        };
        if format.plane_count() != self.planes.len() {
            let (expected, given) = (format.plane_count(), self.planes.len());
            return Err(Error::PlaneCount { format: format.name(), expected, given });
        }
        let tight = format.min_row_stride(self.width)?;
        let shapes = format.planes(self.width, self.height, tight)?;
        for (plane, shape) in self.planes.iter().zip(shapes.iter()) {
            let stride = plane.stride().unwrap_or(0);
            if stride < shape.row_bytes {
                return Err(bad("a stride is shorter than the row"));
            }
            let overrun = || bad("a plane reaches beyond the end of its buffer");
            let rows = stride.checked_mul(shape.rows - 1);
            let end = rows
                .and_then(|rows| rows.checked_add(shape.row_bytes))
                .and_then(|bytes| bytes.checked_add(plane.offset().unwrap_or(0)))
                .ok_or_else(overrun)?;
            if end as u64 > size(plane)? {
                return Err(overrun());
            }
        }
        Ok(())
    }
}

/// What of a buffer an image is; each plane with its buffer, if that is another, offset and stride.
fn key(
    (width, height): (usize, usize),
    fourcc: FourCc,
    modifier: Option<u64>,
    planes: impl Iterator<Item = [u64; 3]>,
) -> Box<[u64]> {
    let head = [width as u64, height as u64, fourcc.to_u32().into(), modifier.unwrap_or(u64::MAX)];
    head.into_iter().chain(planes.flatten()).collect()
}

/// The bytes of the DMA-BUF that a plane is in; an error if it is none.
fn size(plane: &PlaneDescriptor) -> Result<u64> {
    let facts = memfd::examine(plane.fd()).map_err(|source| Error::os("fstat", source))?;
    if facts.dma_buf {
        return Ok(facts.size);
    }
    Err(GlError::BadDmaBuf { rule: "its file descriptor is no DMA-BUF" }.into())
}

impl GlContext {
    /// Makes an image in DMA-BUFs a texture, without a copy: what is drawn to the one is in the
    /// other. The memory stays alive with the texture; that nobody uses it for something else
    /// meanwhile is up to the caller. ([`texture_of`](GlContext::texture_of) sees to that.)
    ///
    /// Shaders see red, green, blue and alpha, whatever their order in memory, and so does
    /// [`GlTexture::read`].
    ///
    /// A driver that cannot do it, or a plane that is not all there, is an error.
    pub fn import(&self, image: &DmaBufImage) -> Result<GlTexture> {
        let attributes = image.attributes()?;
        let name =
            self.core().run("import a DMA-BUF", move |core| Ok(import(core, &attributes)?))?;
        Ok(self.imported((image.width, image.height), Arc::new(name), None))
    }

    /// Like [`import`](GlContext::import), once for each buffer: the texture is kept, and given out
    /// again for the same buffer and image, until the last tensor of the buffer is dropped.
    pub fn import_once(&self, buffer: &BufferIdentity, image: &DmaBufImage) -> Result<GlTexture> {
        self.core().check()?;
        let (of, key) = (Of::Identity(buffer.id()), image.key());
        if let Some(name) = self.core().imports.find(of, &key) {
            return Ok(self.imported((image.width, image.height), name, None));
        }
        let texture = self.import(image)?;
        self.keep(of, key, &texture, |id, end| buffer.at_end(id, end));
        Ok(texture)
    }

    /// An image in DMA-BUF memory as a texture, without a copy, as [`import`](GlContext::import) does;
    /// imported once, and kept until nobody has the DMA-BUF any more: a pool or a camera has its own
    /// from one frame to the next.
    ///
    /// The texture holds the tensor, as a clone would: until it is dropped nobody writes the tensor
    /// ([`map_mut`](Tensor::map_mut)), and its memory does not go back to its pool or camera. Then the
    /// context holds it until the GPU has done what it was told so far, which is looked at whenever the
    /// context is used; [`finish`](GlContext::finish) waits for that.
    ///
    /// A tensor without a pixel format is `[height, width]` or `[height, width, channels]` of `u8`.
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
        let mut places = Vec::new();
        for index in 0..tensor.plane_count() {
            places.push(place_of(&tensor.plane(index)?)?);
        }
        let numbers = |&(buffer, offset, stride): &(u64, usize, usize)| {
            [buffer, offset as u64, stride as u64]
        };
        let key = key(size, fourcc, None, places.iter().map(numbers));
        let of = Of::DmaBuf(inode(dma)?);
        let source = Some(Source::new(self, tensor));
        if let Some(name) = self.core().imports.find(of, &key) {
            return Ok(self.imported(size, name, source));
        }
        let mut image = DmaBufImage::new(size.0, size.1, fourcc);
        for (index, (_, offset, stride)) in places.into_iter().enumerate() {
            let plane = tensor.plane(index)?;
            let plane = PlaneDescriptor::new(plane.dma_buf()?)?;
            image = image.plane(plane.with_offset(offset).with_stride(stride));
        }
        let texture = self.import(&image)?;
        self.keep(of, key, &texture, |id, end| dma.at_end(id, end));
        Ok(GlTexture { _source: source, ..texture })
    }

    /// Keeps a texture until the buffer ends, which `at_end` watches.
    fn keep(
        &self,
        of: Of,
        key: Key,
        texture: &GlTexture,
        at_end: impl FnOnce(u64, Box<dyn FnOnce() + Send>) -> bool,
    ) {
        let core = Arc::downgrade(self.core());
        let end = move || {
            if let Some(core) = core.upgrade() {
                core.imports.ended(of);
            }
        };
        if at_end(self.core().id, Box::new(end)) {
            self.core().imports.watch(of);
        }
        self.core().imports.keep(of, key, &texture.name);
    }

    fn imported(
        &self,
        (width, height): (usize, usize),
        name: Arc<TextureName>,
        source: Option<Arc<Source>>,
    ) -> GlTexture {
        let (texel, context) = (Texel::RGBA8, self.clone());
        GlTexture { name, width, height, texel, context, _source: source }
    }
}

/// What kind of image a tensor is: its size, and DRM's name for its pixels.
fn image_of(tensor: &Tensor) -> Result<((usize, usize), FourCc)> {
    let bad = |rule| Error::Gl(GlError::BadDmaBuf { rule });
    if let Some(format) = tensor.format() {
        let fourcc = format.drm_fourcc().ok_or_else(|| bad("DRM has no name for its format"))?;
        let size = tensor.image_size().ok_or(Error::NoFormat { op: "texture_of" })?;
        return Ok((size, fourcc));
    }
    let rows = Rows::of(tensor)?;
    let format = match (tensor.dtype(), rows.channels) {
        (DType::U8, 1) => PixelFormat::Grey,
        (DType::U8, 3) => PixelFormat::Rgb8,
        (DType::U8, 4) => PixelFormat::Rgba8,
        _ => return Err(bad("without a format it must be 1, 3 or 4 channels of u8")),
    };
    let fourcc = format.drm_fourcc().ok_or_else(|| bad("DRM has no name for its format"))?;
    Ok(((rows.width, rows.height), fourcc))
}

/// The DMA-BUF of a plane, where in it that begins, and its stride.
fn place_of(plane: &Tensor) -> Result<(u64, usize, usize)> {
    let rows = Rows::of(plane)?;
    Ok((inode(plane.dma_buf()?)?, plane.dmabuf_offset()?, rows.stride))
}

fn inode(dma: &DmaBuf) -> Result<u64> {
    dma.inode().map_err(|source| Error::os("fstat", source))
}

fn import(core: &Arc<Core>, attributes: &DmaBufAttributes) -> Result<TextureName, GlError> {
    let driver = &core.shared().driver;
    let missing = || GlError::Missing {
        missing: "the driver has no EGL_EXT_image_dma_buf_import",
        source: None,
    };
    let image = driver.create_image(attributes).ok_or_else(missing)??;
    core.shared().imported.fetch_add(1, Ordering::Relaxed);
    let image_owned = Owned::new(core, Object::Image(image));
    let _saved = Saved::new(driver);
    let show = |target| {
        let (texture, name) = generate(core, target)?;
        driver.image_to_texture(target, image);
        driver.check("glEGLImageTargetTexture2DOES")?;
        set_parameters(driver, target, true);
        Ok::<_, GlError>((target, texture, name))
    };
    // What only shaders can read is refused by the first target.
    let shown = show(glow::TEXTURE_2D).or_else(|refused| {
        let _external = SavedExternal::new(driver).ok_or(refused)?;
        show(TEXTURE_EXTERNAL)
    });
    let (target, texture, name) = shown?;
    Ok(TextureName { name, target, _texture: texture, image: Some(image_owned) })
}

/// What was bound to the other target, put back when this is dropped.
struct SavedExternal<'a>(&'a Driver, Option<NativeTexture>);

#[allow(unsafe_code, reason = "OpenGL is a C interface")]
impl<'a> SavedExternal<'a> {
    /// None if the driver has no such target.
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
