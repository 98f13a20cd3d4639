//! DMA-BUFs as textures. Tests that need a DMA-BUF run only in the virtual machine of `scripts/test vm`.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cenote::glow;
use cenote::{
    Camera, CameraConfig, DType, DmaBufImage, Error, FourCc, GlContext, GlError, NotWritable,
    PixelFormat, PlaneDescriptor, Tensor, TensorMemory, TensorPool, TensorPoolConfig,
};

use super::application_context::Application;
use super::leaks::{assert_as, quiet};
use super::lost_context::set;
use super::{Test, context, noise};

/// The tests that need DMA-BUFs, and a driver that imports them.
pub(super) const VM: &[(&str, Test)] = &[
    ("a_tensor_is_a_texture_without_a_copy", a_tensor_is_a_texture_without_a_copy),
    ("a_texture_is_imported_once_and_goes_with_its_buffer", imported_once),
    ("a_texture_keeps_its_slot", a_texture_keeps_its_slot),
    ("memory_is_held_until_the_gpu_is_done", memory_is_held_until_the_gpu_is_done),
    ("a_region_that_moves_has_few_textures", a_region_that_moves_has_few_textures),
    (
        "frames_of_a_pool_are_imported_once_for_each_buffer",
        frames_of_a_pool_are_imported_once_for_each_buffer,
    ),
    (
        "frames_of_a_camera_are_imported_once_for_each_buffer",
        frames_of_a_camera_are_imported_once_for_each_buffer,
    ),
    ("what_only_shaders_read_is_an_external_texture", external),
    ("planes_that_are_not_there_are_refused", planes_that_are_not_there_are_refused),
];

fn shared(len: usize) -> Tensor {
    Tensor::options().memory(TensorMemory::Shm).create(&[len], DType::U8).unwrap()
}

fn rgba(width: usize, height: usize, fd: impl AsFd) -> DmaBufImage {
    let plane = PlaneDescriptor::new(fd).unwrap().with_stride(width * 4);
    DmaBufImage::new(width, height, FourCc::new(b"AB24")).plane(plane)
}

fn bad(result: cenote::Result<cenote::GlTexture>) -> &'static str {
    match result {
        Err(Error::Gl(GlError::BadDmaBuf { rule })) => rule,
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) fn a_descriptor_that_is_no_dma_buf_is_refused() {
    let gl = context();
    let memfd = shared(64 * 64 * 4).clone_fd().unwrap();
    assert!(bad(gl.import(&rgba(64, 64, &memfd))).contains("no DMA-BUF"));
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(bad(gl.import(&rgba(64, 64, &file))).contains("no DMA-BUF"));
    assert!(bad(gl.import(&rgba(0, 64, &memfd))).contains("no pixels"));
    let none = DmaBufImage::new(64, 64, FourCc::new(b"AB24"));
    assert!(bad(gl.import(&none)).contains("no plane"));
    let strideless = none.plane(PlaneDescriptor::new(&memfd).unwrap());
    assert!(bad(gl.import(&strideless)).contains("no stride"));
    assert!(bad(gl.import(&rgba(usize::MAX / 8, 64, &memfd))).contains("31 bits"));
    let heap = Tensor::from_vec(vec![0u8; 64], &[4, 4, 4]).unwrap();
    assert!(matches!(gl.texture_of(&heap), Err(Error::NoFd { memory: "mem", .. })));
    let pbo = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    assert!(matches!(gl.texture_of(&pbo), Err(Error::NoFd { memory: "pbo", .. })));
}

pub(super) fn descriptors_are_not_leaked() {
    super::errors::child("dmabuf-errors", &[]);
}

pub(super) fn errors() {
    let gl = GlContext::headless().unwrap();
    let memfd = shared(64 * 64 * 4).clone_fd().unwrap();
    let before = quiet();
    for _ in 0..50 {
        assert!(gl.import(&rgba(64, 64, &memfd)).is_err());
    }
    assert_as(before, "fifty refusals later");
    assert_eq!(gl.stats().images, 0);
}

fn dma(width: usize, height: usize, format: PixelFormat) -> Tensor {
    Tensor::options().memory(TensorMemory::Dma).image(width, height, format).unwrap()
}

fn fill(tensor: &mut Tensor) -> Vec<u8> {
    let expected = noise(tensor.nbytes());
    let mut rest = &expected[..];
    tensor.map_mut().unwrap().for_each_run(|run| {
        let (head, tail) = rest.split_at(run.len());
        run.copy_from_slice(head);
        rest = tail;
    });
    expected
}

fn read(texture: &cenote::GlTexture) -> Vec<u8> {
    let gl = texture.context();
    let mut back = gl.image(texture.width(), texture.height(), PixelFormat::Rgba8).unwrap();
    texture.read(&mut back).unwrap();
    back.to_vec::<u8>().unwrap()
}

fn a_tensor_is_a_texture_without_a_copy() {
    let gl = context();
    assert!(gl.info().dma_buf_import, "{:?}", gl.info());
    let before = cenote::copies();
    // A width whose rows are padded.
    let mut frame = dma(100, 60, PixelFormat::Rgba8);
    let expected = fill(&mut frame);
    let texture = gl.texture_of(&frame).unwrap();
    assert_eq!((texture.width(), texture.height()), (100, 60));
    assert!(read(&texture) == expected, "the texture shows something else");
    let uploads = |copies: &[cenote::Copies]| {
        let moved = [cenote::CopyReason::Upload, cenote::CopyReason::Staged];
        copies
            .iter()
            .filter(|copies| moved.contains(&copies.reason))
            .map(|copies| copies.count)
            .sum::<u64>()
    };
    assert_eq!(uploads(&cenote::copies()), uploads(&before));

    // A region, too: it begins at another offset.
    let region = frame.roi(16, 8, 32, 16).unwrap();
    let part = gl.texture_of(&region).unwrap();
    assert_eq!(read(&part), region.to_vec::<u8>().unwrap());
    // The colours are the same, whatever their order in memory.
    let mut blue = dma(16, 16, PixelFormat::Bgra8);
    blue.map_mut().unwrap().for_each_run(|run| {
        run.chunks_mut(4).for_each(|pixel| pixel.copy_from_slice(&[255, 0, 0, 255]));
    });
    assert_eq!(read(&gl.texture_of(&blue).unwrap())[..4], [0, 0, 255, 255]);
}

fn imported_once() {
    let gl = GlContext::headless().unwrap();
    let mut frame = dma(64, 64, PixelFormat::Rgba8);
    let first = fill(&mut frame);
    let texture = gl.texture_of(&frame).unwrap();
    let name = texture.name();
    drop(texture);
    for _ in 0..10 {
        assert_eq!(gl.texture_of(&frame).unwrap().name(), name);
        assert_eq!(gl.texture_of(&frame.clone()).unwrap().name(), name);
    }
    assert_eq!((gl.stats().images, gl.stats().textures), (1, 1));
    assert_eq!(read(&gl.texture_of(&frame).unwrap()), first);
    // It is the same memory: later writes are visible without another import.
    gl.finish().unwrap();
    frame.map_mut().unwrap().for_each_run(|run| run.fill(77));
    assert!(read(&gl.texture_of(&frame).unwrap()).iter().all(|&byte| byte == 77));
    let region = frame.roi(0, 0, 32, 32).unwrap();
    assert_ne!(gl.texture_of(&region).unwrap().name(), name);
    assert_eq!(gl.stats().images, 2);
    let other = dma(64, 64, PixelFormat::Rgba8);
    gl.texture_of(&other).unwrap();
    assert_eq!(gl.stats().images, 3);

    drop(frame);
    gl.finish().unwrap();
    assert_eq!(gl.stats().images, 3, "a view is alive");
    drop(region);
    gl.finish().unwrap();
    assert_eq!((gl.stats().images, gl.stats().textures), (1, 1), "the buffer is gone");
    // A texture keeps its tensor alive.
    let kept = gl.texture_of(&other).unwrap();
    let alive = other.buffer_identity().weak();
    drop(other);
    gl.finish().unwrap();
    assert_eq!((gl.stats().images, read(&kept)), (1, vec![0; 64 * 64 * 4]));
    assert!(alive.upgrade().is_some());
    drop(kept);
    gl.finish().unwrap();
    assert!(alive.upgrade().is_none());
    assert_eq!((gl.stats().images, gl.stats().textures), (0, 0));
}

/// While a texture exists, its slot is not reused.
fn a_texture_keeps_its_slot() {
    let gl = GlContext::headless().unwrap();
    let pool = pool(1);
    let alloc = || pool.alloc(&[64, 64, 4], DType::U8);
    let mut frame = alloc().unwrap();
    let expected = fill(&mut frame);
    let texture = gl.texture_of(&frame).unwrap();
    assert!(matches!(frame.map_mut(), Err(Error::NotWritable { why: NotWritable::Shared })));
    drop(frame);
    let refused = alloc();
    assert!(matches!(refused, Err(Error::PoolFull { .. })), "{refused:?}");
    assert!(read(&texture) == expected, "the texture shows something else");
    drop(texture);
    gl.finish().unwrap();
    let mut again = alloc().unwrap();
    again.map_mut().unwrap().for_each_run(|run| run.fill(3));
}

thread_local! {
    /// The driver reports that the GPU is still busy.
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static WAIT: Cell<*const c_void> = const { Cell::new(std::ptr::null()) };
}

type Wait = unsafe extern "system" fn(*const c_void, u32, u64) -> u32;

#[allow(unsafe_code, reason = "a C interface")]
extern "system" fn wait(fence: *const c_void, flags: u32, timeout: u64) -> u32 {
    if BUSY.get() {
        return glow::TIMEOUT_EXPIRED;
    }
    // SAFETY: what was looked up under this function's name.
    let wait = unsafe { std::mem::transmute::<*const c_void, Wait>(WAIT.get()) };
    // SAFETY: called as this function was.
    unsafe { wait(fence, flags, timeout) }
}

fn slow(name: &CStr, found: *const c_void) -> *const c_void {
    if name.to_bytes() != b"glClientWaitSync" {
        return found;
    }
    WAIT.set(found);
    wait as *const c_void
}

/// The last handle of the texture is dropped, but the GPU may still draw with it.
fn memory_is_held_until_the_gpu_is_done() {
    let application = Application::with(slow);
    let gl = application.context().unwrap();
    let pool = pool(1);
    let drawn = || {
        let frame = pool.alloc(&[64, 64, 4], DType::U8).unwrap();
        let texture = gl.texture_of(&frame).unwrap();
        set(&application, || BUSY.set(true));
        drop((frame, texture.clone()));
        drop(texture);
        // Work runs in the order in which it was submitted.
        gl.with(|_| ()).unwrap();
        let refused = pool.alloc(&[64, 64, 4], DType::U8);
        assert!(matches!(refused, Err(Error::PoolFull { .. })), "{refused:?}");
        assert_eq!(gl.stats().fences, 1);
    };
    drawn();
    set(&application, || BUSY.set(false));
    gl.with(|_| ()).unwrap();
    gl.finish().unwrap();
    assert_eq!(gl.stats().fences, 0);
    drawn();
    gl.close().unwrap();
    assert_eq!(gl.stats().fences, 0);
    pool.alloc(&[64, 64, 4], DType::U8).unwrap();
}

fn a_region_that_moves_has_few_textures() {
    let gl = GlContext::headless().unwrap();
    let mut frame = dma(128, 128, PixelFormat::Rgba8);
    fill(&mut frame);
    let whole = gl.texture_of(&frame).unwrap().name();
    for step in 0..100 {
        let region = frame.roi(16, step, 16, 16).unwrap();
        assert_eq!(read(&gl.texture_of(&region).unwrap()), region.to_vec::<u8>().unwrap());
        assert_eq!(gl.texture_of(&frame).unwrap().name(), whole, "it is asked for all the time");
    }
    gl.finish().unwrap();
    assert_eq!((gl.stats().images, gl.stats().imports), (8, 101));
}

/// Each frame of a pool is a new tensor over one of the same few DMA-BUFs.
fn frames_of_a_pool_are_imported_once_for_each_buffer() {
    let gl = GlContext::headless().unwrap();
    let pool = pool(2);
    for round in 0..6 {
        let mut pair = [0, 1].map(|_| pool.alloc(&[64, 64, 4], DType::U8).unwrap());
        for frame in &mut pair {
            frame.map_mut().unwrap().for_each_run(|run| run.fill(round));
            let texture = gl.texture_of(frame).unwrap();
            assert!(read(&texture).iter().all(|&byte| byte == round));
        }
        gl.finish().unwrap();
    }
    assert_eq!((gl.stats().imports, gl.stats().images), (2, 2));
    // The same DMA-BUF by another descriptor is the same import, which ends with its last holder.
    let frame = pool.alloc(&[64, 64, 4], DType::U8).unwrap();
    let fd = frame.dmabuf_clone().unwrap();
    let other = Tensor::from_fd(fd, &[64, 64, 4], DType::U8).unwrap();
    gl.texture_of(&other).unwrap();
    assert_eq!(gl.stats().imports, 2);
    drop((other, frame));
    gl.finish().unwrap();
    pool.trim().unwrap();
    gl.finish().unwrap();
    assert_eq!((gl.stats().images, gl.stats().textures), (0, 0));
}

fn frames_of_a_camera_are_imported_once_for_each_buffer() {
    let gl = GlContext::headless().unwrap();
    let config = CameraConfig {
        width: 320,
        height: 180,
        format: PixelFormat::Grey,
        buffers: 3,
        fps: Some(60),
        ..CameraConfig::default()
    };
    let mut camera = Camera::open("/dev/video0", config).unwrap();
    for _ in 0..12 {
        let frame = camera.capture(Duration::from_secs(30)).unwrap().expect("a frame");
        gl.texture_of(frame.tensor()).unwrap();
    }
    let stats = gl.stats();
    assert!((1..=3).contains(&stats.imports), "{stats:?}");
    drop(camera);
    gl.finish().unwrap();
    assert_eq!((gl.stats().images, gl.stats().textures), (0, 0));
}

fn pool(max_slots: usize) -> TensorPool {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("gl-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let config =
        TensorPoolConfig { memory: TensorMemory::Dma, max_slots, ..TensorPoolConfig::small() };
    TensorPool::new(name, config).unwrap()
}

/// A texture of two planes cannot be read back; a shader samples its colours.
fn external() {
    const BAD_ALLOC: u32 = 0x3003;
    let gl = GlContext::headless().unwrap();
    let frame = dma(64, 64, PixelFormat::Nv12);
    match gl.texture_of(&frame) {
        Ok(texture) => {
            assert_eq!((texture.target(), gl.stats().images), (0x8d65, 1));
            let mut back = gl.image(64, 64, PixelFormat::Rgba8).unwrap();
            let refused = texture.read(&mut back);
            assert!(matches!(refused, Err(Error::Gl(GlError::Texture { op: "read back", .. }))));
        }
        // Mesa's software driver does not support images of several planes, and fails with this text.
        Err(Error::Gl(GlError::Refused { op: "eglCreateImageKHR", code })) => {
            assert!(gl.info().renderer.contains("llvmpipe") && code.0 == BAD_ALLOC, "{code:?}");
        }
        Err(other) => panic!("{other}"),
    }
    drop(frame);
    gl.finish().unwrap();
    let stats = gl.stats();
    assert_eq!((stats.images, stats.textures), (0, 0), "{stats:?}");
}

fn planes_that_are_not_there_are_refused() {
    let gl = context();
    let frame = dma(64, 64, PixelFormat::Rgba8);
    let fd = frame.dmabuf_clone().unwrap();
    let plane = || PlaneDescriptor::new(&fd).unwrap();
    let image =
        |width, height, fourcc: &[u8; 4]| DmaBufImage::new(width, height, FourCc::new(fourcc));
    gl.import(&rgba(64, 64, &fd)).unwrap();
    assert!(bad(gl.import(&rgba(64, 4096, &fd))).contains("beyond the end"));
    let late = image(64, 64, b"AB24").plane(plane().with_stride(256).with_offset(4096));
    assert!(bad(gl.import(&late)).contains("beyond the end"));
    let narrow = image(64, 64, b"AB24").plane(plane().with_stride(252));
    assert!(bad(gl.import(&narrow)).contains("shorter than the row"));
    let unknown = image(64, 64, b"ZZZZ").plane(plane().with_stride(256));
    assert!(bad(gl.import(&unknown)).contains("format"));
    let half = image(64, 64, b"NV12").plane(plane().with_stride(64));
    assert!(matches!(gl.import(&half), Err(Error::PlaneCount { expected: 2, given: 1, .. })));
    let tiled = rgba(64, 64, &fd).modifier(0x0100_0000_0000_0001);
    assert!(gl.import(&tiled).is_err(), "llvmpipe has no tiles");
    let beyond = image(64, 64, b"AB24").plane(plane().with_stride(256).with_offset(1 << 20));
    assert!(bad(gl.import(&beyond.modifier(0x0100_0000_0000_0001))).contains("begins beyond"));
    // An unknown modifier does not bypass these checks.
    const INVALID: u64 = 0x00ff_ffff_ffff_ffff;
    assert!(bad(gl.import(&rgba(64, 4096, &fd).modifier(INVALID))).contains("beyond the end"));
    gl.import(&rgba(64, 64, &fd).modifier(INVALID)).unwrap();
}
