//! Frames in the process that captures them.

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::time::Duration;

use cenote::{
    Camera, CameraConfig, Error, Image, NotWritable, PixelFormat, Protection, TensorMemory,
};

use super::{CAMERAS, LONG, Test, digest, frames, into, next, small, with_driver_buffers};

pub(super) const TESTS: &[Test] = &[
    ("frames_are_dmabufs_of_the_driver", frames_are_dmabufs_of_the_driver),
    ("frames_are_our_own_buffers", frames_are_our_own_buffers),
    ("both_ways_see_the_same_picture", both_ways_see_the_same_picture),
    ("formats_lie_as_they_should", formats_lie_as_they_should),
    ("planes_can_have_memory_of_their_own", planes_can_have_memory_of_their_own),
    ("a_camera_whose_buffers_are_all_held_says_so_and_goes_on", starved),
    ("a_camera_whose_pool_is_full_says_so_and_goes_on", full),
    ("frames_outlive_their_camera", frames_outlive_their_camera),
    ("a_forked_child_leaves_the_camera_to_its_parent", forked),
];

/// Asserts that numbers and stamps increase, and pictures differ.
fn check_series(frames: &[(u64, u64, u64)]) {
    for pair in frames.windows(2) {
        // A late driver may give two frames the same number, but never the same stamp.
        assert!(pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1, "{pair:?}");
    }
    let different: HashSet<u64> = frames.iter().map(|frame| frame.2).collect();
    assert!(different.len() > 1, "the picture has a clock in it");
}

fn about(frame: &Image) -> (u64, u64, u64) {
    (frame.seq(), frame.stamp_ns(), digest(frame))
}

fn frames_are_dmabufs_of_the_driver() {
    for path in CAMERAS {
        let mut camera = with_driver_buffers(path);
        let mut seen = Vec::new();
        for _ in 0..12 {
            let frame = next(&mut camera);
            let tensor = frame.tensor();
            assert_eq!(tensor.selection().to_string(), "dma (captured by a camera)");
            assert_eq!(tensor.protection(), Protection::Convention);
            assert_eq!(tensor.not_writable(), Some(NotWritable::Received));
            assert_eq!((tensor.dmabuf_offset().unwrap(), frame.step()), (0, 640));
            let clone = tensor.dmabuf_clone().unwrap();
            assert!(rustix::fs::fstat(&clone).unwrap().st_size >= 320 * 180 * 2);
            assert_eq!(
                flags(&clone) & libc::O_ACCMODE,
                libc::O_RDONLY,
                "the descriptor is read-only"
            );
            seen.push(about(&frame));
        }
        check_series(&seen);
    }
}

#[allow(unsafe_code, reason = "fcntl")]
fn flags(fd: &impl AsRawFd) -> i32 {
    // SAFETY: it only reads flags.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }
}

fn frames_are_our_own_buffers() {
    for (path, unprotected) in [(CAMERAS[0], true), (CAMERAS[1], true), (CAMERAS[0], false)] {
        let pool = frames(unprotected, 12);
        let mut camera = into(path, &pool);
        let mut seen = Vec::new();
        for _ in 0..12 {
            let mut frame = next(&mut camera);
            let expected = if unprotected { Protection::Convention } else { Protection::Kernel };
            assert_eq!(frame.tensor().memory(), TensorMemory::Dma);
            assert_eq!(frame.tensor().protection(), expected);
            seen.push(about(&frame));
            assert!(frame.map_mut().is_ok(), "it is ours");
            assert_eq!(frame.tensor().descriptor().unwrap().pool(), pool.uid());
        }
        check_series(&seen);
        drop(camera);
        assert_eq!(pool.stats().unwrap().slots_in_use, 0, "nothing stays with the driver");
    }
}

/// The bars of the test picture do not move, so its last rows are the same in every capture.
fn both_ways_see_the_same_picture() {
    let last_row = |frame: &Image| {
        let map = frame.tensor().map().unwrap();
        map.runs().last().unwrap()[..64].to_vec()
    };
    let pool = frames(true, 12);
    let driver_buffers = CAMERAS.map(|path| last_row(&next(&mut with_driver_buffers(path))));
    let given = CAMERAS.map(|path| last_row(&next(&mut into(path, &pool))));
    assert_eq!(driver_buffers, given);
    assert_eq!(driver_buffers[0].len(), 64);
}

/// The leftmost bar is white in every format.
fn formats_lie_as_they_should() {
    for path in CAMERAS {
        for (format, plane, luma) in [
            (PixelFormat::Rgb8, 0, 185),
            (PixelFormat::Grey, 0, 185),
            (PixelFormat::Nv12, 0, 185),
            (PixelFormat::I420, 0, 185),
            (PixelFormat::Nv12, 1, 128),
            (PixelFormat::I420, 2, 128),
        ] {
            let config = CameraConfig { format, ..small() };
            let frame = next(&mut Camera::open(path, config).unwrap());
            let plane = frame.tensor().plane(plane).unwrap();
            let map = plane.map().unwrap();
            // Below the text that the driver writes into the picture.
            let row = map.runs().last().unwrap();
            assert!(row[4].abs_diff(luma) < 24, "{path} {format}: {:?}", &row[..8]);
        }
    }
}

/// vivid puts padding before the first plane of NV16.
fn planes_can_have_memory_of_their_own() {
    let (single, multi) = (CAMERAS[0], CAMERAS[1]);
    let config = |format| CameraConfig { format, separate_planes: true, ..small() };
    for (format, chroma, offset) in
        [(PixelFormat::Nv12, 1, 0), (PixelFormat::I420, 2, 0), (PixelFormat::Nv16, 1, 128)]
    {
        let mut camera = Camera::open(multi, config(format)).unwrap();
        let held = next(&mut camera);
        let before = samples(&held);
        let mut files = HashSet::new();
        for index in 0..format.plane_count() {
            let plane = held.tensor().plane(index).unwrap();
            assert_eq!(plane.memory(), TensorMemory::Dma);
            files.insert(rustix::fs::fstat(plane.dmabuf().unwrap()).unwrap().st_ino);
        }
        assert_eq!(files.len(), format.plane_count(), "{format}");
        assert_eq!(held.tensor().plane(0).unwrap().dmabuf_offset().unwrap(), offset, "{format}");
        for (plane, expected) in [(0, 185), (chroma, 128)] {
            let found = before[plane][4];
            assert!(u8::abs_diff(found, expected) < 24, "{format} {plane}: {found}");
        }
        // All planes of a buffer return to the driver together, with the last one.
        for _ in 0..12 {
            next(&mut camera);
        }
        assert_eq!(samples(&held), before);
        assert_eq!(camera.stats().short, 0);
    }
    let refused = Camera::open(single, config(PixelFormat::Nv12)).unwrap_err();
    assert!(matches!(refused, Error::CameraFormat { .. }), "{refused}");
    let pool = frames(true, 8);
    let alloc = move |bytes| pool.alloc(&[bytes], cenote::DType::U8);
    for format in [PixelFormat::Nv12, PixelFormat::Yuyv] {
        let refused = Camera::open_into(multi, config(format), alloc.clone()).unwrap_err();
        assert!(matches!(refused, Error::BadConfig { field: "separate_planes", .. }), "{refused}");
    }
}

/// The last row of each plane.
fn samples(frame: &Image) -> Vec<Vec<u8>> {
    let last = |index| {
        let plane = frame.tensor().plane(index).unwrap();
        let map = plane.map().unwrap();
        map.runs().last().unwrap().to_vec()
    };
    (0..frame.format().plane_count()).map(last).collect()
}

fn starved() {
    let mut camera = with_driver_buffers(CAMERAS[0]);
    let mut held: Vec<Image> = (0..8).map(|_| next(&mut camera)).collect();
    let digests: Vec<u64> = held.iter().map(digest).collect();
    let error = camera.capture(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::CameraStarved { buffers: 8, .. }), "{error}");
    assert!(held.iter().map(digest).eq(digests), "what is held does not change");
    held.pop();
    let frame = next(&mut camera);
    drop((held, frame));
    for _ in 0..20 {
        next(&mut camera);
    }
}

fn full() {
    let pool = frames(true, 8);
    let mut camera = into(CAMERAS[0], &pool);
    let mut held: Vec<Image> = (0..8).map(|_| next(&mut camera)).collect();
    let error = camera.capture(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::PoolFull { .. }), "{error}");
    held.clear();
    assert!(camera.capture(LONG).unwrap().is_some());
}

fn frames_outlive_their_camera() {
    let mut camera = with_driver_buffers(CAMERAS[0]);
    let frame = next(&mut camera);
    let before = digest(&frame);
    drop(camera);
    let mut again = with_driver_buffers(CAMERAS[0]);
    for _ in 0..10 {
        next(&mut again);
    }
    assert_eq!(digest(&frame), before);
}

#[allow(unsafe_code, reason = "fork")]
fn forked() {
    let mut camera = with_driver_buffers(CAMERAS[0]);
    let frame = next(&mut camera);
    // SAFETY: the child uses nothing that another thread may have locked, and ends at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = camera.capture(LONG);
        let right = matches!(refused, Err(Error::CameraForked { .. }));
        drop((frame, camera));
        // SAFETY: the child must not clean up what belongs to the parent.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    drop(frame);
    for _ in 0..20 {
        next(&mut camera);
    }
}
