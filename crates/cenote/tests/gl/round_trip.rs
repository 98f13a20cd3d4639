//! Tensor to texture, texture to tensor.

use cenote::glow::{self, HasContext};
use cenote::{CopyReason, DType, Error, GlError, PixelFormat, Tensor, TensorMemory};

use super::{alone, context, copied, noise};

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.map().unwrap().runs().flatten().copied().collect()
}

fn fill(tensor: &mut Tensor, bytes: &[u8]) {
    let mut rest = bytes;
    tensor.map_mut().unwrap().for_each_run(|run| {
        let (head, tail) = rest.split_at(run.len());
        run.copy_from_slice(head);
        rest = tail;
    });
    assert!(rest.is_empty());
}

pub(super) fn a_1080p_frame_comes_back_byte_for_byte() {
    let _alone = alone();
    let gl = context();
    let mut frame = gl.image(1920, 1080, PixelFormat::Rgba8).unwrap();
    let expected = noise(frame.nbytes());
    fill(&mut frame, &expected);
    let mut back = gl.image(1920, 1080, PixelFormat::Rgba8).unwrap();
    let before = (copied(CopyReason::Upload), copied(CopyReason::Download));

    let texture = gl.upload(&frame).unwrap();
    assert_eq!((texture.width(), texture.height()), (1920, 1080));
    assert_eq!((texture.channels(), texture.dtype()), (4, DType::U8));
    texture.read(&mut back).unwrap();
    assert!(bytes(&back) == expected, "the frame changed on its way");
    assert!(bytes(&frame) == expected, "the frame changed by being looked at");
    assert_eq!((copied(CopyReason::Upload), copied(CopyReason::Download)), before, "copied");

    // Again, with other bytes in the same texture and tensors.
    let expected = noise(frame.nbytes() + 1)[1..].to_vec();
    fill(&mut frame, &expected);
    texture.write(&frame).unwrap();
    texture.read(&mut back).unwrap();
    assert!(bytes(&back) == expected, "the second frame changed on its way");
}

pub(super) fn every_kind_of_texel_comes_back_or_is_refused() {
    let gl = context();
    let (mut came_back, mut refused) = (Vec::new(), Vec::new());
    for dtype in DType::all() {
        for channels in 1..=4 {
            let tensor = gl.tensor(&[5, 7, channels], dtype).unwrap();
            let Ok(texture) = gl.upload(&tensor) else {
                refused.push((dtype, channels));
                continue;
            };
            drop(tensor);
            let mut tensor = gl.tensor(&[5, 7, channels], dtype).unwrap();
            // Every bit pattern that is no NaN, which a driver need not keep.
            let mut expected = noise(tensor.nbytes());
            let size = dtype.size();
            if matches!(dtype, DType::F16 | DType::F32) {
                expected.chunks_mut(size).for_each(|value| value[size - 1] = 0x3c);
            }
            fill(&mut tensor, &expected);
            texture.write(&tensor).unwrap();
            let mut back = gl.tensor(&[5, 7, channels], dtype).unwrap();
            match texture.read(&mut back) {
                Ok(()) => {
                    assert_eq!(bytes(&back), expected, "{channels} x {dtype}");
                    came_back.push((dtype, channels));
                }
                Err(Error::Gl(GlError::Texture { op: "read back", .. })) => {}
                Err(other) => panic!("{channels} x {dtype}: {other}"),
            }
        }
    }
    let textures = [
        DType::U8,
        DType::F16,
        DType::F32,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
    ];
    assert!(refused.iter().all(|(dtype, _)| !textures.contains(dtype)), "{refused:?}");
    assert_eq!(refused.len(), 4 * (DType::all().len() - textures.len()));
    for always in [(DType::U8, 4), (DType::U32, 4), (DType::I32, 4), (DType::U8, 1), (DType::U8, 2)]
    {
        assert!(came_back.contains(&always), "{always:?} did not come back; {came_back:?} did");
    }
}

pub(super) fn padded_rows_and_regions_come_back() {
    let gl = context();
    for format in [PixelFormat::Grey, PixelFormat::Rgba8, PixelFormat::Bgra8] {
        for align in [1, 2, 4, 8, 64, 256] {
            let options = gl.options().row_alignment(align);
            let mut image = options.image(37, 11, format).unwrap();
            let expected = noise(image.nbytes());
            fill(&mut image, &expected);
            let mut back = gl.options().row_alignment(128).image(37, 11, format).unwrap();
            gl.upload(&image).unwrap().read(&mut back).unwrap();
            assert_eq!(bytes(&back), expected, "{format}, rows at {align}");

            let region = image.roi(5, 3, 20, 7).unwrap();
            let mut back = gl.image(20, 7, format).unwrap();
            gl.upload(&region).unwrap().read(&mut back).unwrap();
            assert_eq!(bytes(&back), bytes(&region), "{format}, a region of rows at {align}");
        }
    }
    // OpenGL cannot express this stride: rows are copied one by one, in both directions.
    let odd = || {
        let room = gl.tensor(&[6, 21], DType::U8).unwrap();
        room.narrow(1, 0, 20).unwrap().reshape(&[6, 10, 2]).unwrap()
    };
    let (mut image, mut back) = (odd(), odd());
    assert_eq!(image.strides(), [21, 2, 1]);
    fill(&mut image, &noise(120));
    gl.upload(&image).unwrap().read(&mut back).unwrap();
    assert_eq!(bytes(&back), noise(120));
}

pub(super) fn planes_are_textures_of_their_own() {
    let gl = context();
    let mut image = gl.image(64, 48, PixelFormat::Nv12).unwrap();
    let expected = noise(image.nbytes());
    fill(&mut image, &expected);
    assert!(matches!(gl.upload(&image), Err(Error::Gl(GlError::NotTexels { .. }))));
    let (luma, chroma) = (image.plane(0).unwrap(), image.plane(1).unwrap());
    let mut back = gl.tensor(luma.shape(), DType::U8).unwrap();
    gl.upload(&luma).unwrap().read(&mut back).unwrap();
    assert_eq!(bytes(&back), expected[..64 * 48]);
    let mut back = gl.tensor(chroma.shape(), DType::U8).unwrap();
    gl.upload(&chroma).unwrap().read(&mut back).unwrap();
    assert_eq!(bytes(&back), expected[64 * 48..]);
}

pub(super) fn other_memory_is_copied_and_counted() {
    let _alone = alone();
    let gl = context();
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        let options = Tensor::options().memory(memory).row_alignment(64);
        let mut image = options.image(30, 20, PixelFormat::Rgba8).unwrap();
        let expected = noise(image.nbytes());
        fill(&mut image, &expected);
        let mut back = options.image(30, 20, PixelFormat::Rgba8).unwrap();
        let (up, down) = (copied(CopyReason::Upload), copied(CopyReason::Download));
        gl.upload(&image).unwrap().read(&mut back).unwrap();
        assert_eq!(bytes(&back), expected, "{memory}");
        assert_eq!(copied(CopyReason::Upload), (up.0 + 1, up.1 + 2400));
        assert_eq!(copied(CopyReason::Download), (down.0 + 1, down.1 + 2400));
        image.map_mut().unwrap(); // no other handle exists
    }
}

pub(super) fn a_drawn_image_is_read_from_its_framebuffer() {
    let gl = context();
    let texture = gl.texture((8, 4), DType::U8, 4).unwrap();
    let name = glow::NativeTexture(texture.name());
    let framebuffer = gl.with(move |gl| draw(gl, name)).unwrap();
    let mut part = gl.image(4, 2, PixelFormat::Rgba8).unwrap();
    gl.read_framebuffer(framebuffer.0.get(), (2, 1), &mut part).unwrap();
    // The left half is red, the right half green.
    let row = [[255, 0, 0, 255], [255, 0, 0, 255], [0, 255, 0, 255], [0, 255, 0, 255]].concat();
    assert_eq!(bytes(&part), [row.clone(), row].concat());

    let missing = gl.read_framebuffer(u32::MAX, (0, 0), &mut part);
    assert!(matches!(missing, Err(Error::Gl(GlError::Refused { .. } | GlError::Texture { .. }))));
    let window = gl.read_framebuffer(0, (0, 0), &mut part);
    assert!(window.is_err(), "there is no window");
    #[allow(
        unsafe_code,
        clippy::multiple_unsafe_ops_per_block,
        reason = "OpenGL is a C interface"
    )]
    // SAFETY: the framebuffer was made above.
    gl.with(move |gl| unsafe { gl.delete_framebuffer(framebuffer) }).unwrap();
}

#[allow(unsafe_code, clippy::multiple_unsafe_ops_per_block, reason = "OpenGL is a C interface")]
fn draw(gl: &glow::Context, texture: glow::NativeTexture) -> glow::NativeFramebuffer {
    // SAFETY: called where the context is current, with a texture of it.
    unsafe {
        let framebuffer = gl.create_framebuffer().unwrap();
        gl.bind_framebuffer(glow::FRAMEBUFFER, Some(framebuffer));
        let (target, place) = (glow::FRAMEBUFFER, glow::COLOR_ATTACHMENT0);
        gl.framebuffer_texture_2d(target, place, glow::TEXTURE_2D, Some(texture), 0);
        assert_eq!(gl.check_framebuffer_status(target), glow::FRAMEBUFFER_COMPLETE);
        gl.enable(glow::SCISSOR_TEST);
        for (x, colour) in [(0, [1.0, 0.0, 0.0, 1.0]), (4, [0.0, 1.0, 0.0, 1.0])] {
            gl.scissor(x, 0, 4, 4);
            gl.clear_color(colour[0], colour[1], colour[2], colour[3]);
            gl.clear(glow::COLOR_BUFFER_BIT);
        }
        gl.disable(glow::SCISSOR_TEST);
        gl.bind_framebuffer(glow::FRAMEBUFFER, None);
        framebuffer
    }
}

pub(super) fn code_that_needs_the_bytes_waits_for_fences() {
    let gl = cenote::GlContext::headless().unwrap();
    let waited = || gl.stats().fences_waited;
    let mut frame = gl.image(64, 64, PixelFormat::Rgba8).unwrap();
    assert_eq!(waited(), 0);
    let texture = gl.upload(&frame).unwrap();
    assert_eq!((gl.stats().fences, waited()), (1, 0), "the GPU may still read the frame");
    frame.map().unwrap();
    assert_eq!(waited(), 0, "readers do not mind");
    frame.map_mut().unwrap();
    assert_eq!((gl.stats().fences, waited()), (0, 1), "a writer waits");
    frame.map_mut().unwrap();
    assert_eq!(waited(), 1, "once");

    texture.read(&mut frame).unwrap();
    texture.read(&mut frame).unwrap();
    assert_eq!((gl.stats().fences, waited()), (1, 1), "the second stands for the first");
    frame.map().unwrap();
    assert_eq!((gl.stats().fences, waited()), (0, 2), "a reader waits for what writes");
    texture.read(&mut frame).unwrap();
    gl.upload(&frame).unwrap();
    frame.map().unwrap();
    assert_eq!((gl.stats().fences, waited()), (1, 3));
    frame.map_mut().unwrap();
    assert_eq!((gl.stats().fences, waited()), (0, 4));
    gl.upload(&frame).unwrap();
    drop(frame);
    gl.finish().unwrap();
    assert_eq!(gl.stats().fences, 0, "a buffer's fences go with it");
}
