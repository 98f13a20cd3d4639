//! Between tensors and textures.
#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::num::NonZeroU32;
use std::sync::Arc;

use glow::{HasContext, NativeFramebuffer, NativeTexture, PixelPackData, PixelUnpackData};

use crate::copies;
use crate::copies::CopyReason;
use crate::error::{GlError, Result};
use crate::gl::context::GlContext;
use crate::gl::core::Core;
use crate::gl::driver::Driver;
use crate::gl::state::Saved;
use crate::memory::kind::TensorMemory;
use crate::memory::pbo;
use crate::memory::pbo::{State, Use};
use crate::tensor::Tensor;
use crate::texture::GlTexture;
use crate::texture::rows::{Pitch, Rows};
use crate::texture::texel::Texel;

/// Which way, in OpenGL's words: where buffers are bound, and how rows are told.
struct Way {
    buffer: u32,
    row_length: u32,
    alignment: u32,
}

const UNPACK: Way = Way {
    buffer: glow::PIXEL_UNPACK_BUFFER,
    row_length: glow::UNPACK_ROW_LENGTH,
    alignment: glow::UNPACK_ALIGNMENT,
};

const PACK: Way = Way {
    buffer: glow::PIXEL_PACK_BUFFER,
    row_length: glow::PACK_ROW_LENGTH,
    alignment: glow::PACK_ALIGNMENT,
};

/// What is read from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Texture(NonZeroU32),
    /// A framebuffer of the application's, 0 being the one that windows have, from this corner on.
    Framebuffer(u32, (i32, i32)),
}

/// A rectangle, in OpenGL's numbers.
#[derive(Debug, Clone, Copy)]
struct Area {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

impl GlTexture {
    /// Replaces what the texture holds by the elements of a tensor of its size and kind, as
    /// [`GlContext::upload`] does. An error for one that is somebody's DMA-BUF: others read it.
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
            Ok(upload_bytes(&core.shared().driver, name, texel, &rows, bytes)?)
        })
    }

    /// Reads the texture into a tensor of its size and kind, which must be writable as for
    /// [`map_mut`](Tensor::map_mut).
    ///
    /// If that is in a buffer of this context the driver writes it, now or later: the call does not
    /// wait for that, but whoever maps the tensor next does. Other memory is written by the CPU, which
    /// [`copies`](crate::copies) counts.
    ///
    /// Not every driver reads every kind: four channels of `u8` always work.
    pub fn read(&self, tensor: &mut Tensor) -> Result<()> {
        self.rows(tensor)?;
        if self.target() != glow::TEXTURE_2D {
            return Err(self.refused("read back").into());
        }
        read(self.context(), Source::Texture(self.name()), tensor)
    }

    /// The rows of a tensor that is like the texture.
    fn rows(&self, tensor: &Tensor) -> Result<Rows> {
        let rows = Rows::of(tensor)?;
        let same = (rows.width, rows.height, rows.channels, tensor.dtype())
            == (self.width, self.height, self.texel.channels, self.texel.dtype);
        if same {
            return Ok(rows);
        }
        let Rows { width, height, channels, .. } = rows;
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
    /// Reads a rectangle of a framebuffer that was drawn to, into a tensor of its size, without a copy
    /// by the CPU, as [`GlTexture::read`] does. `(x, y)` is its corner; the first row is the one
    /// with the smallest `y`, which for a window is the lowest. Framebuffer 0 is the window's.
    ///
    /// What lies outside the framebuffer is undefined, as it is for `glReadPixels`.
    pub fn read_framebuffer(
        &self,
        framebuffer: u32,
        (x, y): (i32, i32),
        tensor: &mut Tensor,
    ) -> Result<()> {
        read(self, Source::Framebuffer(framebuffer, (x, y)), tensor)
    }
}

fn read(context: &GlContext, source: Source, tensor: &mut Tensor) -> Result<()> {
    let rows = Rows::of(tensor)?;
    let nothing = || GlError::Texture {
        op: "read back",
        width: rows.width,
        height: rows.height,
        channels: rows.channels,
        dtype: tensor.dtype().name(),
    };
    let texel = Texel::of(tensor.dtype(), rows.channels).ok_or_else(nothing)?;
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
    rows: &Rows,
    state: &State,
) -> Result<(), GlError> {
    let driver = &core.shared().driver;
    state.check_unmapped()?;
    let _saved = Saved::new(driver);
    bind_texture(driver, name);
    pbo::bind(driver, UNPACK.buffer, state.name);
    for (area, offset) in areas(driver, &UNPACK, rows, texel)? {
        let offset = u32::try_from(offset).map_err(|_| too_far(offset))?;
        upload(driver, texel, area, PixelUnpackData::BufferOffset(offset));
    }
    let done = driver.check("glTexSubImage2D");
    // Whatever came of it: some of it may be under way.
    done.and(state.used(core, Use::Reads))
}

fn upload_bytes(
    driver: &Driver,
    name: NonZeroU32,
    texel: Texel,
    rows: &Rows,
    bytes: &[u8],
) -> Result<(), GlError> {
    let _saved = Saved::new(driver);
    bind_texture(driver, name);
    // SAFETY: called on the context's thread.
    unsafe { driver.gl.bind_buffer(UNPACK.buffer, None) };
    // `bytes` begin with the first texel.
    for (area, offset) in areas(driver, &UNPACK, &Rows { offset: 0, ..*rows }, texel)? {
        upload(driver, texel, area, PixelUnpackData::Slice(bytes.get(offset..)));
    }
    driver.check("glTexSubImage2D")
}

/// Uploads to the texture that is bound. (What lies in a slice is read before this returns.)
fn upload(driver: &Driver, texel: Texel, area: Area, pixels: PixelUnpackData<'_>) {
    let Area { y, width, height, .. } = area;
    let (format, kind) = (texel.format, texel.kind);
    // SAFETY: called on the context's thread. The rows lie in the tensor, which `Rows` was made from;
    // the driver checks buffers by itself.
    unsafe {
        driver.gl.tex_sub_image_2d(glow::TEXTURE_2D, 0, 0, y, width, height, format, kind, pixels);
    };
}

fn read_to_buffer(
    core: &Arc<Core>,
    source: Source,
    texel: Texel,
    rows: &Rows,
    state: &State,
) -> Result<(), GlError> {
    let driver = &core.shared().driver;
    state.check_unmapped()?;
    let _saved = Saved::new(driver);
    let attached = attach(core, source, texel, rows)?;
    pbo::bind(driver, PACK.buffer, state.name);
    for (area, offset) in areas(driver, &PACK, rows, texel)? {
        let offset = u32::try_from(offset).map_err(|_| too_far(offset))?;
        download(driver, texel, attached.corner, area, PixelPackData::BufferOffset(offset));
    }
    let done = driver.check("glReadPixels");
    // Whatever came of it: some of it may be under way.
    done.and(state.used(core, Use::Writes))
}

/// The texels without gaps between rows.
fn read_tight(
    core: &Arc<Core>,
    source: Source,
    texel: Texel,
    rows: &Rows,
) -> Result<Vec<u8>, GlError> {
    let driver = &core.shared().driver;
    let _saved = Saved::new(driver);
    let attached = attach(core, source, texel, rows)?;
    // SAFETY: called on the context's thread.
    unsafe { driver.gl.bind_buffer(PACK.buffer, None) };
    let stride = rows.width * texel.size();
    let mut bytes = vec![0; stride * rows.height];
    for (area, offset) in areas(driver, &PACK, &Rows { offset: 0, stride, ..*rows }, texel)? {
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
    // SAFETY: called on the context's thread. The rows lie in the tensor, or in the vector; the driver
    // checks buffers by itself.
    unsafe {
        driver.gl.read_pixels(x, y, area.width, area.height, texel.format, texel.kind, pixels);
    };
}

fn bind_texture(driver: &Driver, name: NonZeroU32) {
    // SAFETY: called on the context's thread, with a texture of the context.
    unsafe { driver.gl.bind_texture(glow::TEXTURE_2D, Some(NativeTexture(name))) };
}

/// What is read from, until dropped: an attached texture would not be deleted with its last handle.
struct Attached<'a> {
    driver: &'a Driver,
    source: Source,
    corner: (i32, i32),
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Source::Texture(_) = self.source {
            attach_texture(self.driver, None);
        }
    }
}

/// Makes the source the one that is read, and looks whether it can be.
fn attach<'a>(
    core: &'a Arc<Core>,
    source: Source,
    texel: Texel,
    rows: &Rows,
) -> Result<Attached<'a>, GlError> {
    let driver = &core.shared().driver;
    let gl = &driver.gl;
    let (framebuffer, corner) = match source {
        Source::Texture(_) => (Some(core.shared().framebuffer()?), (0, 0)),
        Source::Framebuffer(name, corner) => (NonZeroU32::new(name), corner),
    };
    let target = glow::READ_FRAMEBUFFER;
    // SAFETY: called on the context's thread; what is no framebuffer is refused.
    unsafe { gl.bind_framebuffer(target, framebuffer.map(NativeFramebuffer)) };
    driver.check("glBindFramebuffer")?;
    let attached = Attached { driver, source, corner };
    if let Source::Texture(name) = source {
        attach_texture(driver, Some(NativeTexture(name)));
    }
    // SAFETY: called on the context's thread.
    let complete = unsafe { gl.check_framebuffer_status(target) } == glow::FRAMEBUFFER_COMPLETE;
    if complete && (driver.is_desktop || texel.is_always_readable() || is_native(driver, texel)) {
        driver.forget_errors();
        return Ok(attached);
    }
    let (width, height, channels) = (rows.width, rows.height, rows.channels);
    Err(GlError::Texture { op: "read back", width, height, channels, dtype: texel.dtype.name() })
}

/// Whether the driver itself would read what is bound in this form.
fn is_native(driver: &Driver, texel: Texel) -> bool {
    // SAFETY: called on the context's thread, with a complete framebuffer bound.
    let ask = |name| unsafe { driver.gl.get_parameter_i32(name) }.cast_unsigned();
    ask(glow::IMPLEMENTATION_COLOR_READ_FORMAT) == texel.format
        && ask(glow::IMPLEMENTATION_COLOR_READ_TYPE) == texel.kind
}

fn attach_texture(driver: &Driver, texture: Option<NativeTexture>) {
    let (target, place) = (glow::READ_FRAMEBUFFER, glow::COLOR_ATTACHMENT0);
    // SAFETY: called on the context's thread, with a framebuffer of ours bound.
    unsafe { driver.gl.framebuffer_texture_2d(target, place, glow::TEXTURE_2D, texture, 0) };
}

fn too_far(len: usize) -> GlError {
    GlError::TooLarge { len, max: i32::MAX }
}

/// The transfers that it takes, each with the offset of its first texel: one, unless OpenGL cannot be
/// told of the gaps between rows.
fn areas(
    driver: &Driver,
    way: &Way,
    rows: &Rows,
    texel: Texel,
) -> Result<Vec<(Area, usize)>, GlError> {
    let fits = |number: usize| i32::try_from(number).map_err(|_| too_far(number));
    let (width, height) = (fits(rows.width)?, fits(rows.height)?);
    let whole = vec![(Area { x: 0, y: 0, width, height }, rows.offset)];
    // SAFETY: called on the context's thread, with values that these names can have.
    let set = |name, value| unsafe { driver.gl.pixel_store_i32(name, value) };
    match rows.pitch(texel.size()) {
        Pitch::Texels(texels) => set(way.row_length, texels),
        Pitch::Alignment(align) => set(way.alignment, align),
        Pitch::Odd => {
            let row = |y: i32| Area { x: 0, y, width, height: 1 };
            let offset = |y: usize| rows.offset + y * rows.stride;
            return Ok((0..height).map(row).zip((0..rows.height).map(offset)).collect());
        }
    }
    Ok(whole)
}
