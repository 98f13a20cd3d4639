//! What is bound in a context, which work leaves as it found it.

#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::num::NonZeroU32;

use glow::{HasContext, NativeBuffer, NativeFramebuffer, NativeTexture};

use crate::gl::driver::Driver;

const UNPACK_SWAP_BYTES: u32 = 0x0cf0;
const UNPACK_LSB_FIRST: u32 = 0x0cf1;
const PACK_SWAP_BYTES: u32 = 0x0d00;
const PACK_LSB_FIRST: u32 = 0x0d01;

/// How rows lie in memory: what is set for our own transfers, and put back.
const PIXEL_STORE: [u32; 12] = [
    glow::UNPACK_ALIGNMENT,
    glow::UNPACK_ROW_LENGTH,
    glow::UNPACK_SKIP_ROWS,
    glow::UNPACK_SKIP_PIXELS,
    glow::PACK_ALIGNMENT,
    glow::PACK_ROW_LENGTH,
    glow::PACK_SKIP_ROWS,
    glow::PACK_SKIP_PIXELS,
    // OpenGL ES has all but these.
    UNPACK_SWAP_BYTES,
    UNPACK_LSB_FIRST,
    PACK_SWAP_BYTES,
    PACK_LSB_FIRST,
];

/// How many of them OpenGL ES has.
const EMBEDDED: usize = 8;

/// What they are unless somebody says otherwise, but for the alignments, which are to be 1.
const TIGHT: [i32; PIXEL_STORE.len()] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// The bindings that our work changes, put back when this is dropped.
pub(crate) struct Saved<'a> {
    driver: &'a Driver,
    pack: Option<NativeBuffer>,
    unpack: Option<NativeBuffer>,
    texture: Option<NativeTexture>,
    read_framebuffer: Option<NativeFramebuffer>,
    pixel_store: [i32; PIXEL_STORE.len()],
}

impl<'a> Saved<'a> {
    /// Called on the context's thread. Rows are tight from here on.
    pub(crate) fn new(driver: &'a Driver) -> Saved<'a> {
        driver.forget_errors();
        let bound = |name| {
            // SAFETY: called on the context's thread, with names that every context has.
            let value = unsafe { driver.gl.get_parameter_i32(name) };
            NonZeroU32::new(value.cast_unsigned())
        };
        let mut pixel_store = TIGHT;
        for (&name, value) in pixel_store_of(driver).zip(&mut pixel_store) {
            // SAFETY: as above.
            *value = unsafe { driver.gl.get_parameter_i32(name) };
        }
        let saved = Saved {
            driver,
            pack: bound(glow::PIXEL_PACK_BUFFER_BINDING).map(NativeBuffer),
            unpack: bound(glow::PIXEL_UNPACK_BUFFER_BINDING).map(NativeBuffer),
            texture: bound(glow::TEXTURE_BINDING_2D).map(NativeTexture),
            read_framebuffer: bound(glow::READ_FRAMEBUFFER_BINDING).map(NativeFramebuffer),
            pixel_store,
        };
        set_pixel_store(driver, &TIGHT);
        saved
    }
}

/// Those that there are.
fn pixel_store_of(driver: &Driver) -> impl Iterator<Item = &'static u32> {
    PIXEL_STORE.iter().take(if driver.is_desktop { PIXEL_STORE.len() } else { EMBEDDED })
}

fn set_pixel_store(driver: &Driver, values: &[i32; PIXEL_STORE.len()]) {
    for (&name, &value) in pixel_store_of(driver).zip(values) {
        // SAFETY: called on the context's thread; the values are valid for these names.
        unsafe { driver.gl.pixel_store_i32(name, value) };
    }
}

impl Drop for Saved<'_> {
    fn drop(&mut self) {
        let gl = &self.driver.gl;
        set_pixel_store(self.driver, &self.pixel_store);
        // SAFETY: called on the context's thread, with what was bound before. What was deleted
        // meanwhile is an error of OpenGL's.
        unsafe { gl.bind_buffer(glow::PIXEL_PACK_BUFFER, self.pack) };
        // SAFETY: as above.
        unsafe { gl.bind_buffer(glow::PIXEL_UNPACK_BUFFER, self.unpack) };
        // SAFETY: as above.
        unsafe { gl.bind_texture(glow::TEXTURE_2D, self.texture) };
        // SAFETY: as above.
        unsafe { gl.bind_framebuffer(glow::READ_FRAMEBUFFER, self.read_framebuffer) };
    }
}

/// What a buffer that stays mapped is made with, and mapped with.
pub(crate) const PERSISTENT: u32 =
    glow::MAP_READ_BIT | glow::MAP_WRITE_BIT | glow::MAP_PERSISTENT_BIT | glow::MAP_COHERENT_BIT;

/// Whether a buffer really stays mapped: some drivers have the name and not the thing.
pub(crate) fn try_persistent(driver: &Driver) -> bool {
    const LEN: i32 = 64;
    let _saved = Saved::new(driver);
    let gl = &driver.gl;
    // SAFETY: called on the context's thread.
    let Ok(buffer) = (unsafe { gl.create_buffer() }) else { return false };
    // SAFETY: as above; the buffer was just made.
    unsafe { gl.bind_buffer(glow::PIXEL_UNPACK_BUFFER, Some(buffer)) };
    // SAFETY: as above; there is no data to read.
    unsafe { gl.buffer_storage(glow::PIXEL_UNPACK_BUFFER, LEN, None, PERSISTENT) };
    // SAFETY: as above; the pointer is not used.
    let place = unsafe { gl.map_buffer_range(glow::PIXEL_UNPACK_BUFFER, 0, LEN, PERSISTENT) };
    let works = !place.is_null() && driver.check("glMapBufferRange").is_ok();
    // SAFETY: as above; deleting it unmaps it.
    unsafe { gl.delete_buffer(buffer) };
    driver.forget_errors();
    works
}
