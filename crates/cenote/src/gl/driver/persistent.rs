//! Buffers that stay mapped while the GPU uses them.

#![allow(unsafe_code, reason = "OpenGL is a C interface")]

use glow::HasContext;

use crate::gl::driver::driver::Driver;
use crate::gl::driver::saved_bindings::SavedBindings;

/// The flags that a buffer which stays mapped is created and mapped with.
pub(crate) const PERSISTENT: u32 =
    glow::MAP_READ_BIT | glow::MAP_WRITE_BIT | glow::MAP_PERSISTENT_BIT | glow::MAP_COHERENT_BIT;

/// Returns whether the driver has persistent maps. Called on the context's thread.
pub(crate) fn is_supported(driver: &Driver) -> bool {
    driver.has_extension("GL_EXT_buffer_storage", "GL_ARB_buffer_storage") && try_persistent(driver)
}

/// Creates and maps a buffer: some drivers list the extension and do not implement it.
fn try_persistent(driver: &Driver) -> bool {
    const LEN: i32 = 64;
    let _saved = SavedBindings::new(driver);
    let gl = &driver.gl;
    // SAFETY: called on the context's thread.
    let Ok(buffer) = (unsafe { gl.create_buffer() }) else { return false };
    // SAFETY: as above; the buffer was just created.
    unsafe { gl.bind_buffer(glow::PIXEL_UNPACK_BUFFER, Some(buffer)) };
    // SAFETY: as above; there is no data to read.
    unsafe { gl.buffer_storage(glow::PIXEL_UNPACK_BUFFER, LEN, None, PERSISTENT) };
    // SAFETY: as above; the pointer is not used.
    let address = unsafe { gl.map_buffer_range(glow::PIXEL_UNPACK_BUFFER, 0, LEN, PERSISTENT) };
    let works = !address.is_null() && driver.check("glMapBufferRange").is_ok();
    // SAFETY: as above; deleting it unmaps it.
    unsafe { gl.delete_buffer(buffer) };
    driver.clear_errors();
    works
}
