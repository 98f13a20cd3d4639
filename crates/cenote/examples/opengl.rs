//! Uploads a frame to the GPU, draws on it, and reads it back. The CPU copies no byte of it.
//!
//! `cargo run -p cenote --features gl --example opengl`

use cenote::glow::{self, HasContext};
use cenote::{GlContext, PixelFormat};

const SIZE: (usize, usize) = (1920, 1080);

fn main() -> cenote::Result<()> {
    let gl = GlContext::headless()?;
    let info = gl.info();
    println!("{} on {}; persistent maps: {}", info.version, info.renderer, info.persistent_maps);

    // The image is in an OpenGL buffer. The CPU writes it in place.
    let mut frame = gl.image(SIZE.0, SIZE.1, PixelFormat::Rgba8)?;
    for (index, pixel) in frame.map_mut()?.as_mut_slice::<u8>()?.chunks_exact_mut(4).enumerate() {
        let column = u8::try_from(index % SIZE.0 * 255 / SIZE.0).unwrap_or(255);
        pixel.copy_from_slice(&[column, 0, 255 - column, 255]);
    }
    let texture = gl.upload(&frame)?;

    // The application draws: here it clears the left half of the texture to white.
    let name = glow::NativeTexture(texture.name());
    #[allow(
        unsafe_code,
        clippy::multiple_unsafe_ops_per_block,
        reason = "OpenGL is a C interface"
    )]
    gl.with(move |gl| {
        // SAFETY: the context is current in this closure, and the texture belongs to it.
        unsafe {
            let framebuffer = gl.create_framebuffer()?;
            gl.bind_framebuffer(glow::FRAMEBUFFER, Some(framebuffer));
            let (target, attachment) = (glow::FRAMEBUFFER, glow::COLOR_ATTACHMENT0);
            gl.framebuffer_texture_2d(target, attachment, glow::TEXTURE_2D, Some(name), 0);
            gl.enable(glow::SCISSOR_TEST);
            gl.scissor(0, 0, 960, 1080);
            gl.clear_color(1.0, 1.0, 1.0, 1.0);
            gl.clear(glow::COLOR_BUFFER_BIT);
            gl.delete_framebuffer(framebuffer);
        }
        Ok::<(), String>(())
    })?
    .expect("a framebuffer");

    // `read` returns at once; mapping the result waits for the GPU.
    let mut result = gl.image(SIZE.0, SIZE.1, PixelFormat::Rgba8)?;
    texture.read(&mut result)?;
    let map = result.map()?;
    let (left, right) = (map.get::<u8>(&[540, 100, 0])?, map.get::<u8>(&[540, 1919, 0])?);
    println!("red is {left} on the left, {right} on the right");
    assert_eq!((left, right), (255, 254));
    Ok(())
}
