//! The bindings and pixel-store settings of a context, which our jobs restore when they end.

#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use std::num::NonZeroU32;

use glow::{HasContext, NativeBuffer, NativeFramebuffer, NativeTexture};

use crate::gl::driver::driver::Driver;

const UNPACK_SWAP_BYTES: u32 = 0x0cf0;
const UNPACK_LSB_FIRST: u32 = 0x0cf1;
const PACK_SWAP_BYTES: u32 = 0x0d00;
const PACK_LSB_FIRST: u32 = 0x0d01;

/// The pixel-store settings that our transfers set and restore: how rows lie in memory.
const PIXEL_STORE: [u32; 12] = [
    glow::UNPACK_ALIGNMENT,
    glow::UNPACK_ROW_LENGTH,
    glow::UNPACK_SKIP_ROWS,
    glow::UNPACK_SKIP_PIXELS,
    glow::PACK_ALIGNMENT,
    glow::PACK_ROW_LENGTH,
    glow::PACK_SKIP_ROWS,
    glow::PACK_SKIP_PIXELS,
    // OpenGL ES does not have the ones below.
    UNPACK_SWAP_BYTES,
    UNPACK_LSB_FIRST,
    PACK_SWAP_BYTES,
    PACK_LSB_FIRST,
];

/// How many of them OpenGL ES has.
const EMBEDDED_COUNT: usize = 8;

/// OpenGL's defaults, except that the alignments are 1: rows without padding.
const TIGHT: [i32; PIXEL_STORE.len()] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// The bindings that our jobs change. Dropping this restores them.
pub(crate) struct SavedBindings<'a> {
    driver: &'a Driver,
    pack: Option<NativeBuffer>,
    unpack: Option<NativeBuffer>,
    texture: Option<NativeTexture>,
    read_framebuffer: Option<NativeFramebuffer>,
    pixel_store: [i32; PIXEL_STORE.len()],
}

impl<'a> SavedBindings<'a> {
    /// Saves the bindings, and sets tight rows. Also clears the errors of earlier commands. Called on the
    /// context's thread.
    pub(crate) fn new(driver: &'a Driver) -> SavedBindings<'a> {
        driver.clear_errors();
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
        let saved = SavedBindings {
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

/// The settings that this driver has.
fn pixel_store_of(driver: &Driver) -> impl Iterator<Item = &'static u32> {
    PIXEL_STORE.iter().take(if driver.is_desktop { PIXEL_STORE.len() } else { EMBEDDED_COUNT })
}

fn set_pixel_store(driver: &Driver, values: &[i32; PIXEL_STORE.len()]) {
    for (&name, &value) in pixel_store_of(driver).zip(values) {
        // SAFETY: called on the context's thread; the values are valid for these names.
        unsafe { driver.gl.pixel_store_i32(name, value) };
    }
}

impl Drop for SavedBindings<'_> {
    fn drop(&mut self) {
        let gl = &self.driver.gl;
        set_pixel_store(self.driver, &self.pixel_store);
        // SAFETY: called on the context's thread, with what was bound before. Binding an object that was
        // deleted since is an error that OpenGL reports.
        unsafe { gl.bind_buffer(glow::PIXEL_PACK_BUFFER, self.pack) };
        // SAFETY: as above.
        unsafe { gl.bind_buffer(glow::PIXEL_UNPACK_BUFFER, self.unpack) };
        // SAFETY: as above.
        unsafe { gl.bind_texture(glow::TEXTURE_2D, self.texture) };
        // SAFETY: as above.
        unsafe { gl.bind_framebuffer(glow::READ_FRAMEBUFFER, self.read_framebuffer) };
    }
}
