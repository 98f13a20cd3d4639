//! Wrong uses, each of which is an error.

use std::process::{Command, ExitCode};
use std::sync::Arc;

use cenote::{
    DType, Error, GlContext, GlError, GlGone, NotWritable, PixelFormat, Tensor, UnifiedBuffer,
};

use super::{TASK, access, alone, context, dmabuf, gone, leaks, noise};

pub(super) fn closed_while_a_map_is_alive() {
    let gl = GlContext::headless().unwrap();
    let mut written = gl.tensor(&[100], DType::U8).unwrap();
    let read = gl.options().create_from_slice(&noise(100), &[100]).unwrap();
    let mut writing = written.map_mut().unwrap();
    let reading = read.map().unwrap();
    assert_eq!(gl.stats().maps, 2);
    let refused = gl.close();
    assert!(matches!(refused, Err(Error::Gl(GlError::MapsAlive { maps: 2 }))), "{refused:?}");
    assert!(gl.is_gone());

    // Existing maps keep their bytes; new maps fail.
    assert_eq!(reading.as_bytes().unwrap(), noise(100));
    writing.as_mut_bytes().unwrap().fill(9);
    assert!(writing.as_map().as_bytes().unwrap().iter().all(|&byte| byte == 9));
    assert_eq!(gone(read.map()), GlGone::Closed);
    assert_eq!(gone(gl.tensor(&[1], DType::U8)), GlGone::Closed);
    drop(writing);
    assert_eq!(gone(written.map_mut()), GlGone::Closed);
    assert_eq!(reading.as_bytes().unwrap(), noise(100));
    drop(reading);
    assert_eq!(gone(read.map()), GlGone::Closed);
    gl.close().unwrap();
    let stats = gl.stats();
    assert_eq!((stats.buffers, stats.maps), (0, 0), "{stats:?}");
}

pub(super) fn closed_for_all_holders() {
    let _alone = alone();
    let gl = GlContext::headless().unwrap();
    let mut tensor = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    let mut unified = UnifiedBuffer::new(&[4], DType::U8).unwrap();
    unified.set_device(Arc::new(gl.clone())).unwrap();
    unified.host_mut::<u8>().unwrap().fill(1);
    unified.device().unwrap();
    unified.host_mut::<u8>().unwrap().fill(2);
    gl.clone().close().unwrap();
    gl.close().unwrap();
    assert_eq!(gone(tensor.map()), GlGone::Closed);
    assert_eq!(gone(tensor.map_mut()), GlGone::Closed);
    assert_eq!(gone(tensor.to_vec::<u8>()), GlGone::Closed);
    assert_eq!(gone(tensor.clone().make_mut()), GlGone::Closed);
    assert_eq!(gone(tensor.to_contiguous()), GlGone::Closed);
    assert_eq!(gone(texture.write(&tensor)), GlGone::Closed);
    assert_eq!(gone(texture.read(&mut tensor)), GlGone::Closed);
    assert_eq!(gone(gl.upload(&tensor)), GlGone::Closed);
    assert_eq!(gone(gl.texture((4, 4), DType::U8, 4)), GlGone::Closed);
    assert_eq!(gone(gl.finish()), GlGone::Closed);
    assert_eq!(gone(unified.device()), GlGone::Closed);
    assert_eq!(unified.host::<u8>().unwrap(), [2; 4]);
    // Its description is still available.
    assert_eq!((tensor.shape(), tensor.gl_context().is_some()), (&[4, 4, 4][..], true));
    assert_eq!(gl.stats().buffers, 0);
}

pub(super) fn textures_and_tensors_must_be_alike() {
    let gl = context();
    let texture = gl.texture((8, 4), DType::U8, 4).unwrap();
    for (shape, dtype) in [
        (&[4, 8, 3][..], DType::U8),
        (&[8, 4, 4], DType::U8),
        (&[4, 8], DType::U8),
        (&[4, 8, 4], DType::F32),
    ] {
        let mut tensor = gl.tensor(shape, dtype).unwrap();
        let unlike = |result| matches!(result, Err(Error::Gl(GlError::Unlike { .. })));
        assert!(unlike(texture.write(&tensor)), "{shape:?} {dtype}");
        assert!(unlike(texture.read(&mut tensor)), "{shape:?} {dtype}");
    }
    let mut right = gl.tensor(&[4, 8, 4], DType::U8).unwrap();
    assert!(matches!(texture.write(&right.transpose()), Err(Error::Gl(GlError::NotTexels { .. }))));
    assert!(matches!(
        gl.upload(&right.flip(0).unwrap()),
        Err(Error::Gl(GlError::NotTexels { .. }))
    ));
    texture.write(&right).unwrap();
    texture.read(&mut right).unwrap();
}

pub(super) fn tensors_of_another_context_are_refused() {
    let (gl, other) = (context(), GlContext::headless().unwrap());
    let mut tensor = other.tensor(&[4, 4, 4], DType::U8).unwrap();
    let texture = gl.texture((4, 4), DType::U8, 4).unwrap();
    let refused = |result| matches!(result, Err(Error::Gl(GlError::OtherContext)));
    assert!(refused(texture.write(&tensor)));
    assert!(refused(texture.read(&mut tensor)));
    assert!(refused(gl.read_framebuffer(0, (0, 0), &mut tensor)));
    assert!(refused(gl.upload(&tensor).map(drop)));
    other.upload(&tensor).unwrap();
}

pub(super) fn shared_tensors_are_not_written() {
    let gl = context();
    let mut tensor = gl.tensor(&[4, 4, 4], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    let other = tensor.clone();
    let refused = texture.read(&mut tensor);
    assert!(matches!(refused, Err(Error::NotWritable { why: NotWritable::Shared })));
    drop(other);
    texture.read(&mut tensor).unwrap();
    let mut foreign = Tensor::from_owner(vec![0u8; 64], &[4, 4, 4], DType::U8).unwrap();
    assert!(matches!(
        texture.read(&mut foreign),
        Err(Error::NotWritable { why: NotWritable::Foreign })
    ));
}

pub(super) fn sizes_that_cannot_be() {
    let gl = context();
    for size in [(0, 1), (1, 0), (1 << 20, 1), (1, 1 << 20), (usize::MAX, 1), (1 << 40, 1 << 40)] {
        let refused = gl.texture(size, DType::U8, 4);
        assert!(
            matches!(refused, Err(Error::Gl(GlError::Texture { .. }))),
            "{size:?}: {refused:?}"
        );
    }
    for channels in [0, 5, usize::MAX] {
        assert!(gl.texture((4, 4), DType::U8, channels).is_err());
    }
    assert!(gl.texture((4, 4), DType::F64, 1).is_err());
    let large = gl.tensor(&[i32::MAX as usize + 1], DType::U8);
    assert!(matches!(large, Err(Error::Gl(GlError::TooLarge { .. }) | Error::OutOfMemory { .. })));
    assert!(matches!(gl.tensor(&[1 << 50], DType::U8), Err(Error::OutOfMemory { .. })));
    gl.texture((1, 1), DType::U8, 1).unwrap();
}

/// Runs a child in a role, with these environment variables.
pub(super) fn child(task: &str, environment: &[(&str, &str)]) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.env(TASK, task).envs(environment.iter().copied());
    let status = child.status().unwrap();
    assert!(status.success(), "{task}: {status}");
}

pub(super) fn without_a_library_it_is_an_error() {
    // The variable by which glvnd finds drivers: there are none.
    child("no-driver", &[("__EGL_VENDOR_LIBRARY_FILENAMES", "/dev/null")]);
    child("no-library", &[]);
}

pub(super) fn a_driver_that_is_too_old_is_an_error() {
    child("too-old", &[("MESA_GL_VERSION_OVERRIDE", "2.1"), ("MESA_GLES_VERSION_OVERRIDE", "2.0")]);
}

pub(super) fn a_forked_child_gets_an_error() {
    child("fork", &[]);
}

/// What a child of this program does.
pub(super) fn task(name: &str) -> ExitCode {
    match name {
        "forced" => access::forced(),
        "topic" => access::topic(),
        "no-driver" => no_driver(),
        "no-library" => no_library(),
        "too-old" => too_old(),
        "fork" => fork(),
        "residue-objects" => leaks::objects_and_closed_contexts(),
        "residue-holders" => leaks::holders(),
        "dmabuf-errors" => dmabuf::errors(),
        "residue-errors" => leaks::errors(),
        other => panic!("no task {other}"),
    }
    ExitCode::SUCCESS
}

fn no_driver() {
    let refused = GlContext::headless();
    assert!(
        matches!(refused, Err(Error::Gl(GlError::Missing { .. } | GlError::Refused { .. }))),
        "{refused:?}"
    );
    assert!(Tensor::new(&[4], DType::U8).is_ok());
}

/// Runs where the loader finds no library.
fn no_library() {
    let hidden = std::fs::read_dir("/proc/self/fd").unwrap().count();
    #[allow(unsafe_code, reason = "a new mount namespace for this process")]
    // SAFETY: this child has one thread.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) } == 0;
    assert!(unshared, "no new namespace: {}", std::io::Error::last_os_error());
    hide_libraries();
    let refused = GlContext::headless().unwrap_err();
    let Error::Gl(GlError::Missing { missing, source: Some(source) }) = &refused else {
        panic!("{refused:?}")
    };
    assert!(missing.contains("libEGL"), "{missing}");
    assert!(source.to_string().contains("libEGL"), "{source}");
    assert_eq!(std::fs::read_dir("/proc/self/fd").unwrap().count(), hidden);
}

/// Puts an empty file over every libEGL, in this namespace.
#[allow(unsafe_code, reason = "mount(2)")]
fn hide_libraries() {
    use std::ffi::CString;
    let maps = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
    let text = String::from_utf8_lossy(&maps.stdout).into_owned();
    let found = text.lines().filter(|line| line.trim_start().starts_with("libEGL.so"));
    let paths: Vec<String> =
        found.filter_map(|line| Some(line.split("=> ").nth(1)?.trim().to_owned())).collect();
    assert!(!paths.is_empty(), "this machine has no libEGL");
    for path in paths {
        let path = CString::new(path).unwrap();
        let (from, none) = (c"/dev/null", std::ptr::null());
        // SAFETY: the strings end with NUL, and the mount is of this process's namespace.
        let done = unsafe {
            libc::mount(from.as_ptr(), path.as_ptr(), none, libc::MS_BIND, std::ptr::null())
        };
        assert_eq!(done, 0, "{path:?}: {}", std::io::Error::last_os_error());
    }
}

fn too_old() {
    let refused = GlContext::headless();
    let Err(Error::Gl(GlError::TooOld { found })) = refused else { panic!("{refused:?}") };
    assert!(found.starts_with("2.1"), "{found}");
}

/// A forked child has neither the thread nor, on a real GPU, the memory.
#[allow(unsafe_code, reason = "fork(2)")]
fn fork() {
    let gl = GlContext::headless().unwrap();
    let mut tensor = gl.tensor(&[16, 16], DType::U8).unwrap();
    let texture = gl.upload(&tensor).unwrap();
    // SAFETY: the child takes no lock that another thread could hold, and ends with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = gone(tensor.map()) == GlGone::Forked
            && gone(tensor.map_mut()) == GlGone::Forked
            && gone(texture.write(&tensor)) == GlGone::Forked
            && gone(gl.tensor(&[4], DType::U8)) == GlGone::Forked
            && gone(gl.close()) == GlGone::Forked;
        drop((tensor, texture, gl));
        // SAFETY: it ends the child.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the pointer good for a status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    // The parent continues to work.
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(1);
    gl.image(4, 4, PixelFormat::Rgba8).unwrap();
    gl.close().unwrap();
}
