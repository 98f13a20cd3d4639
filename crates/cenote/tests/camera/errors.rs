//! Paths that are no cameras, settings that a camera does not support, and memory that it cannot capture into.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use cenote::{Camera, CameraConfig, DType, Error, PixelFormat, Result, Tensor, TensorMemory};

use super::{CAMERAS, LONG, Test, frames, into, next, small, with_driver_buffers};

pub(super) const TESTS: &[Test] = &[
    ("what_is_no_camera_is_refused", what_is_no_camera_is_refused),
    ("what_a_camera_does_not_have_is_refused", what_a_camera_does_not_have_is_refused),
    ("senseless_configurations_are_refused", senseless_configurations_are_refused),
    ("a_camera_that_is_in_use_is_refused", a_camera_that_is_in_use_is_refused),
    ("buffers_that_cannot_be_filled_are_refused", buffers_that_cannot_be_filled_are_refused),
    ("an_allocation_that_fails_is_an_error", an_allocation_that_fails_is_an_error),
    ("no_time_is_no_error", no_time_is_no_error),
    ("damaged_frames_are_dropped_and_counted", damaged_frames_are_dropped_and_counted),
    (
        "a_buffer_that_the_driver_refuses_leaves_the_others",
        a_buffer_that_the_driver_refuses_leaves_the_others,
    ),
    (
        "a_driver_that_refuses_the_only_buffer_is_an_error",
        a_driver_that_refuses_the_only_buffer_is_an_error,
    ),
];

fn what_is_no_camera_is_refused() {
    for path in ["/dev/null", "/dev/udmabuf", "/proc/self/exe", "/dev/dma_heap/system"] {
        let error = Camera::open(path, small()).unwrap_err();
        assert!(
            matches!(error, Error::NotACamera { .. } | Error::Camera { .. }),
            "{path}: {error}"
        );
        assert!(error.to_string().contains(path), "{error}");
    }
    for path in ["/dev/video77", "/dev", ""] {
        let error = Camera::open(path, small()).unwrap_err();
        assert!(matches!(error, Error::Camera { op: "opening it", .. }), "{path}: {error}");
    }
}

fn what_a_camera_does_not_have_is_refused() {
    for path in CAMERAS {
        for config in [
            CameraConfig { width: 321, ..small() },
            CameraConfig { height: 4000, ..small() },
            CameraConfig { format: PixelFormat::Depth16, ..small() },
        ] {
            let error = Camera::open(path, config).unwrap_err();
            assert!(matches!(error, Error::CameraFormat { .. }), "{error}");
        }
        let unknown = CameraConfig { format: PixelFormat::PlanarRgb, ..small() };
        let error = Camera::open(path, unknown).unwrap_err();
        assert!(matches!(error, Error::BadConfig { field: "format", .. }), "{error}");
    }
}

fn senseless_configurations_are_refused() {
    for (expected, config) in [
        ("width", CameraConfig { width: 0, ..small() }),
        ("width", CameraConfig { width: 1 << 20, ..small() }),
        ("height", CameraConfig { height: 0, ..small() }),
        ("height", CameraConfig { height: usize::MAX, ..small() }),
        ("buffers", CameraConfig { buffers: 1, ..small() }),
        ("buffers", CameraConfig { buffers: 33, ..small() }),
    ] {
        let error = Camera::open(CAMERAS[0], config).unwrap_err();
        let expected_error = matches!(error, Error::BadConfig { field, .. } if field == expected);
        assert!(expected_error, "{expected}: {error}");
    }
    let huge = CameraConfig { width: usize::MAX, ..small() };
    assert!(Camera::open(CAMERAS[0], huge).is_err());
}

fn a_camera_that_is_in_use_is_refused() {
    let first = with_driver_buffers(CAMERAS[0]);
    let error = Camera::open(CAMERAS[0], small()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(CAMERAS[0]) && text.contains("busy"), "{error}");
    drop(first);
    drop(with_driver_buffers(CAMERAS[0]));
}

fn refusal(alloc: impl FnMut(usize) -> Result<Tensor> + Send + 'static) -> Error {
    Camera::open_into(CAMERAS[0], small(), alloc).unwrap_err()
}

fn buffers_that_cannot_be_filled_are_refused() {
    let on = |memory| Tensor::options().memory(memory);
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        let error = refusal(move |bytes| on(memory).create(&[bytes], DType::U8));
        assert!(matches!(error, Error::NoFd { .. }), "{error}");
    }
    let dma = move |len: usize| on(TensorMemory::Dma).create(&[len], DType::U8);
    let rule = |error: Error| match error {
        Error::CameraBuffer { path, rule } if path == Path::new(CAMERAS[0]) => rule,
        other => panic!("{other}"),
    };
    let mut others = Vec::new();
    assert!(rule(refusal(move |bytes| dma(bytes - 1))).contains("room"));
    assert!(rule(refusal(move |bytes| dma(bytes + 64)?.narrow(0, 64, bytes))).contains("start"));
    let shared = move |bytes| {
        let tensor = dma(bytes)?;
        others.push(tensor.clone());
        Ok(tensor)
    };
    assert!(rule(refusal(shared)).contains("no other holder"));
}

fn an_allocation_that_fails_is_an_error() {
    let pool = frames(true, 4);
    let mut left = 3;
    let error = refusal(move |bytes| match left {
        0 => Err(Error::Released),
        _ => {
            left -= 1;
            pool.alloc(&[bytes], DType::U8)
        }
    });
    assert!(matches!(error, Error::Released), "{error}");
}

fn no_time_is_no_error() {
    let mut camera = with_driver_buffers(CAMERAS[0]);
    // Frames arrive more slowly than this loop takes them.
    let taken = (0..1000).take_while(|_| camera.capture(Duration::ZERO).unwrap().is_some()).count();
    assert!(taken < 1000);
}

/// Controls of vivid: they make the next frame, or the next queued buffer, fail.
const DQBUF_ERROR: u32 = 0x00f0_f042;
const BUF_PREPARE_ERROR: u32 = 0x00f0_f044;

#[allow(unsafe_code, reason = "an ioctl")]
fn press(path: &str, control: u32) {
    const S_CTRL: u64 = 0xc008_561c;
    let device = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut words = [control, 1];
    // SAFETY: this number takes two words, which the call reads and writes.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), S_CTRL, words.as_mut_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn damaged_frames_are_dropped_and_counted() {
    let pool = frames(true, 12);
    for mut camera in [with_driver_buffers(CAMERAS[0]), with_driver_buffers(CAMERAS[1])] {
        check_damage(&mut camera);
    }
    check_damage(&mut into(CAMERAS[0], &pool));
}

fn check_damage(camera: &mut Camera) {
    next(camera);
    press(camera.path().to_str().unwrap(), DQBUF_ERROR);
    // Frames that are ready already are not affected.
    for _ in 0..10 {
        next(camera);
    }
    let stats = camera.stats();
    assert_eq!((stats.captured, stats.damaged, stats.short), (11, 1, 0), "{camera:?}");
}

fn a_buffer_that_the_driver_refuses_leaves_the_others() {
    let pool = frames(true, 12);
    let cameras: [&dyn Fn() -> Camera; 2] =
        [&|| with_driver_buffers(CAMERAS[0]), &|| into(CAMERAS[0], &pool)];
    for open in cameras {
        let mut camera = open();
        drop(next(&mut camera));
        press(CAMERAS[0], BUF_PREPARE_ERROR);
        next(&mut camera);
        // The buffer is not lost.
        drop((0..small().buffers).map(|_| next(&mut camera)).collect::<Vec<_>>());
        next(&mut camera);
    }
}

fn a_driver_that_refuses_the_only_buffer_is_an_error() {
    let mut camera = with_driver_buffers(CAMERAS[1]);
    let mut held: Vec<_> = (0..small().buffers).map(|_| next(&mut camera)).collect();
    held.pop();
    press(CAMERAS[1], BUF_PREPARE_ERROR);
    let error = camera.capture(LONG).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("camera {}: queuing a buffer", CAMERAS[1])), "{text}");
    next(&mut camera);
}
