//! Copies between tensors and textures or framebuffers.
#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::num::NonZeroU32;
use std::sync::Arc;

use glow::{HasContext, NativeFramebuffer, NativeTexture, PixelPackData, PixelUnpackData};

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::Core;
use crate::gl::driver::driver::Driver;
use crate::gl::driver::saved_bindings::SavedBindings;
use crate::memory::kind::TensorMemory;
use crate::memory::pbo;
use crate::memory::pbo::{PboState, Use};
use crate::tensor::Tensor;
use crate::texture::texel::Texel;
use crate::texture::texel_rows::{Pitch, TexelRows};
use crate::texture::texture::GlTexture;

/// The direction of a transfer, as OpenGL's names: the buffer target, and the settings for rows.
struct Direction {
    buffer: u32,
    row_length: u32,
    alignment: u32,
}

const UNPACK: Direction = Direction {
    buffer: glow::PIXEL_UNPACK_BUFFER,
    row_length: glow::UNPACK_ROW_LENGTH,
    alignment: glow::UNPACK_ALIGNMENT,
};

const PACK: Direction = Direction {
    buffer: glow::PIXEL_PACK_BUFFER,
    row_length: glow::PACK_ROW_LENGTH,
    alignment: glow::PACK_ALIGNMENT,
};

/// What texels are read from.
#[derive(Debug, Clone, Copy)]
enum ReadSource {
    Texture(NonZeroU32),
    /// A framebuffer of the application (0 is the window's), from this corner on.
    Framebuffer(u32, (i32, i32)),
}

/// A rectangle of texels.
#[derive(Debug, Clone, Copy)]
struct Area {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

impl GlTexture {
    /// Replaces the contents of the texture by the elements of a tensor of the same size, dtype and
    /// channels, as [`GlContext::upload`] does. Fails for the texture of a DMA-BUF, because others read
    /// that memory.
    pub fn write(&self, tensor: &Tensor) -> Result<()> {
        let rows = self.rows(tensor)?;
        if self.target() != glow::TEXTURE_2D || self.is_imported() {
            return Err(self.refused("write").into());
        }
        let (name, texel) = (self.name(), self.texel);
        if let Some(state) = tensor.pbo_of(self.context()) {
            let state = Arc::clone(state);
            return self.context().core().run("upload a texture", move |core| {
                Ok(upload_buffer(core, name, texel, &rows, &state)?)
            });
        }
        if tensor.memory() == TensorMemory::Pbo {
            return Err(GlError::OtherContext.into());
        }
        copies::count(CopyReason::Upload, tensor.nbytes());
        let tensor = tensor.clone();
        self.context().core().run("upload a texture", move |core| {
            let map = tensor.map()?;
            let bytes = map.at(tensor.layout().byte_range());
            Ok(upload_bytes(&core.resources().driver, name, texel, &rows, bytes)?)
        })
    }

    /// Reads the texture into a tensor of the same size, dtype and channels, which must be writable as for
    /// [`map_mut`](Tensor::map_mut).
    ///
    /// If the tensor is in a buffer of this context, the driver writes it, perhaps later. This call does
    /// not wait for that; the next call that maps the tensor does. Other memory is written by the CPU,
    /// which [`copies`](crate::copies) counts.
    ///
    /// Not every driver reads every format. Four channels of `u8` always work.
    pub fn read(&self, tensor: &mut Tensor) -> Result<()> {
        self.rows(tensor)?;
        if self.target() != glow::TEXTURE_2D {
            return Err(self.refused("read back").into());
        }
        read(self.context(), ReadSource::Texture(self.name()), tensor)
    }

    /// Returns the rows of a tensor. Fails unless its size, dtype and channels are those of the texture.
    fn rows(&self, tensor: &Tensor) -> Result<TexelRows> {
        let rows = TexelRows::of(tensor)?;
        let same = (rows.width, rows.height, rows.channels, tensor.dtype())
            == (self.width, self.height, self.texel.channels, self.texel.dtype);
        if same {
            return Ok(rows);
        }
        let TexelRows { width, height, channels, .. } = rows;
        Err(GlError::Unlike {
            texture: format!("{}x{} of {}", self.width, self.height, self.texel).into(),
            tensor: format!("{width}x{height} of {channels} x {}", tensor.dtype()).into(),
        }
        .into())
    }

    fn refused(&self, op: &'static str) -> GlError {
        let (width, height, channels) = (self.width, self.height, self.texel.channels);
        GlError::Texture { op, width, height, channels, dtype: self.texel.dtype.name() }
    }
}

impl GlContext {
    /// Reads a rectangle of a framebuffer into a tensor, as [`GlTexture::read`] does. The tensor's shape is
    /// the size of the rectangle. `(x, y)` is its corner; the first row is the one with the smallest `y`,
    /// which for a window is the lowest. Framebuffer 0 is the window's.
    ///
    /// Texels outside the framebuffer are undefined, as for `glReadPixels`.
    pub fn read_framebuffer(
        &self,
        framebuffer: u32,
        (x, y): (i32, i32),
        tensor: &mut Tensor,
    ) -> Result<()> {
        read(self, ReadSource::Framebuffer(framebuffer, (x, y)), tensor)
    }
}

fn read(context: &GlContext, source: ReadSource, tensor: &mut Tensor) -> Result<()> {
    let rows = TexelRows::of(tensor)?;
    let unsupported = || GlError::Texture {
        op: "read back",
        width: rows.width,
        height: rows.height,
        channels: rows.channels,
        dtype: tensor.dtype().name(),
    };
    let texel = Texel::of(tensor.dtype(), rows.channels).ok_or_else(unsupported)?;
    if let Some(state) = tensor.pbo_mut(context)? {
        let state = Arc::clone(state);
        return context.core().run("read a framebuffer", move |core| {
            Ok(read_to_buffer(core, source, texel, &rows, &state)?)
        });
    }
    if tensor.memory() == TensorMemory::Pbo {
        return Err(GlError::OtherContext.into());
    }
    let bytes = context
        .core()
        .run("read a framebuffer", move |core| Ok(read_tight(core, source, texel, &rows)?))?;
    copies::count(CopyReason::Download, bytes.len());
    let mut rest = &bytes[..];
    tensor.map_mut()?.for_each_run(|run| {
        let (head, tail) = rest.split_at(run.len());
        run.copy_from_slice(head);
        rest = tail;
    });
    Ok(())
}

fn upload_buffer(
    core: &Arc<Core>,
    name: NonZeroU32,
    texel: Texel,
    rows: &TexelRows,
    state: &PboState,
) -> Result<(), GlError> {
    let driver = &core.resources().driver;
    state.check_unmapped()?;
    let _saved = SavedBindings::new(driver);
    bind_texture(driver, name);
    pbo::bind(driver, UNPACK.buffer, state.name);
    for (area, offset) in areas(driver, &UNPACK, rows, texel)? {
        let offset = u32::try_from(offset).map_err(|_| too_far(offset))?;
        upload(driver, texel, area, PixelUnpackData::BufferOffset(offset));
    }
    let done = driver.check("glTexSubImage2D");
    // Even after an error: some of the transfers may have started.
    done.and(state.note_use(core, Use::Reads))
}

fn upload_bytes(
    driver: &Driver,
    name: NonZeroU32,
    texel: Texel,
    rows: &TexelRows,
    bytes: &[u8],
) -> Result<(), GlError> {
    let _saved = SavedBindings::new(driver);
    bind_texture(driver, name);
    // SAFETY: called on the context's thread.
    unsafe { driver.gl.bind_buffer(UNPACK.buffer, None) };
    // `bytes` starts with the first texel.
    for (area, offset) in areas(driver, &UNPACK, &TexelRows { offset: 0, ..*rows }, texel)? {
        upload(driver, texel, area, PixelUnpackData::Slice(bytes.get(offset..)));
    }
    driver.check("glTexSubImage2D")
}

/// Uploads to the bound texture. (A slice is read before this returns.)
fn upload(driver: &Driver, texel: Texel, area: Area, pixels: PixelUnpackData<'_>) {
    let Area { y, width, height, .. } = area;
    let (format, kind) = (texel.format, texel.kind);
    // SAFETY: called on the context's thread. The rows lie in the tensor that `TexelRows` was computed
    // from. The driver checks the bounds of buffers.
    unsafe {
        driver.gl.tex_sub_image_2d(glow::TEXTURE_2D, 0, 0, y, width, height, format, kind, pixels);
    };
}

fn read_to_buffer(
    core: &Arc<Core>,
    source: ReadSource,
    texel: Texel,
    rows: &TexelRows,
    state: &PboState,
) -> Result<(), GlError> {
    let driver = &core.resources().driver;
    state.check_unmapped()?;
    let _saved = SavedBindings::new(driver);
    let attached = attach(core, source, texel, rows)?;
    pbo::bind(driver, PACK.buffer, state.name);
    for (area, offset) in areas(driver, &PACK, rows, texel)? {
        let offset = u32::try_from(offset).map_err(|_| too_far(offset))?;
        download(driver, texel, attached.corner, area, PixelPackData::BufferOffset(offset));
    }
    let done = driver.check("glReadPixels");
    // Even after an error: some of the transfers may have started.
    done.and(state.note_use(core, Use::Writes))
}

/// Reads texels into a vector, without gaps between rows.
fn read_tight(
    core: &Arc<Core>,
    source: ReadSource,
    texel: Texel,
    rows: &TexelRows,
) -> Result<Vec<u8>, GlError> {
    let driver = &core.resources().driver;
    let _saved = SavedBindings::new(driver);
    let attached = attach(core, source, texel, rows)?;
    // SAFETY: called on the context's thread.
    unsafe { driver.gl.bind_buffer(PACK.buffer, None) };
    let stride = rows.width * texel.size();
    let mut bytes = vec![0; stride * rows.height];
    for (area, offset) in areas(driver, &PACK, &TexelRows { offset: 0, stride, ..*rows }, texel)? {
        let pixels = PixelPackData::Slice(bytes.get_mut(offset..));
        download(driver, texel, attached.corner, area, pixels);
    }
    driver.check("glReadPixels")?;
    Ok(bytes)
}

fn download(
    driver: &Driver,
    texel: Texel,
    (x, y): (i32, i32),
    area: Area,
    pixels: PixelPackData<'_>,
) {
    let (x, y) = (x.saturating_add(area.x), y.saturating_add(area.y));
    // SAFETY: called on the context's thread. The rows lie in the tensor, or in the vector. The driver
    // checks the bounds of buffers.
    unsafe {
        driver.gl.read_pixels(x, y, area.width, area.height, texel.format, texel.kind, pixels);
    };
}

fn bind_texture(driver: &Driver, name: NonZeroU32) {
    // SAFETY: called on the context's thread, with a texture of the context.
    unsafe { driver.gl.bind_texture(glow::TEXTURE_2D, Some(NativeTexture(name))) };
}

/// The source that is bound for reading. Dropping this detaches a texture: OpenGL keeps an attached
/// texture alive after its last handle was deleted.
struct Attached<'a> {
    driver: &'a Driver,
    source: ReadSource,
    corner: (i32, i32),
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let ReadSource::Texture(_) = self.source {
            attach_texture(self.driver, None);
        }
    }
}

/// Binds the source for reading. Fails if the driver cannot read it in this format.
fn attach<'a>(
    core: &'a Arc<Core>,
    source: ReadSource,
    texel: Texel,
    rows: &TexelRows,
) -> Result<Attached<'a>, GlError> {
    let driver = &core.resources().driver;
    let gl = &driver.gl;
    let (framebuffer, corner) = match source {
        ReadSource::Texture(_) => (Some(core.resources().framebuffer()?), (0, 0)),
        ReadSource::Framebuffer(name, corner) => (NonZeroU32::new(name), corner),
    };
    let target = glow::READ_FRAMEBUFFER;
    // SAFETY: called on the context's thread; the driver refuses a name that is no
    // framebuffer.
    unsafe { gl.bind_framebuffer(target, framebuffer.map(NativeFramebuffer)) };
    driver.check("glBindFramebuffer")?;
    let attached = Attached { driver, source, corner };
    if let ReadSource::Texture(name) = source {
        attach_texture(driver, Some(NativeTexture(name)));
    }
    // SAFETY: called on the context's thread.
    let complete = unsafe { gl.check_framebuffer_status(target) } == glow::FRAMEBUFFER_COMPLETE;
    if complete && (driver.is_desktop || texel.is_always_readable() || is_native(driver, texel)) {
        driver.clear_errors();
        return Ok(attached);
    }
    let (width, height, channels) = (rows.width, rows.height, rows.channels);
    Err(GlError::Texture { op: "read back", width, height, channels, dtype: texel.dtype.name() })
}

/// Returns whether this format is the driver's own for the bound framebuffer.
fn is_native(driver: &Driver, texel: Texel) -> bool {
    // SAFETY: called on the context's thread, with a complete framebuffer bound.
    let query = |name| unsafe { driver.gl.get_parameter_i32(name) }.cast_unsigned();
    query(glow::IMPLEMENTATION_COLOR_READ_FORMAT) == texel.format
        && query(glow::IMPLEMENTATION_COLOR_READ_TYPE) == texel.kind
}

fn attach_texture(driver: &Driver, texture: Option<NativeTexture>) {
    let (target, attachment) = (glow::READ_FRAMEBUFFER, glow::COLOR_ATTACHMENT0);
    // SAFETY: called on the context's thread, with a framebuffer of ours bound.
    unsafe { driver.gl.framebuffer_texture_2d(target, attachment, glow::TEXTURE_2D, texture, 0) };
}

fn too_far(len: usize) -> GlError {
    GlError::TooLarge { len, max: i32::MAX }
}

/// Returns the transfers that are needed, each with the offset of its first texel. One is enough unless
/// OpenGL's settings cannot express the gaps between rows. Sets those settings.
fn areas(
    driver: &Driver,
    direction: &Direction,
    rows: &TexelRows,
    texel: Texel,
) -> Result<Vec<(Area, usize)>, GlError> {
    let fits = |number: usize| i32::try_from(number).map_err(|_| too_far(number));
    let (width, height) = (fits(rows.width)?, fits(rows.height)?);
    let whole = vec![(Area { x: 0, y: 0, width, height }, rows.offset)];
    // SAFETY: called on the context's thread, with values that these names can have.
    let set = |name, value| unsafe { driver.gl.pixel_store_i32(name, value) };
    match rows.pitch(texel.size()) {
        Pitch::Texels(texels) => set(direction.row_length, texels),
        Pitch::Alignment(align) => set(direction.alignment, align),
        Pitch::RowByRow => {
            let row = |y: i32| Area { x: 0, y, width, height: 1 };
            let offset = |y: usize| rows.offset + y * rows.stride;
            return Ok((0..height).map(row).zip((0..rows.height).map(offset)).collect());
        }
    }
    Ok(whole)
}
