//! Cameras, on a kernel that has virtual ones: `scripts/test vm` runs this in a virtual machine with two
//! of vivid's, `/dev/video0` with the single-planar interface and `/dev/video1` with the multi-planar one.
//!
//! Tests run one after another, because one process at a time can use a camera. Child processes run this
//! same program in a role; the tests reap them by id.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod errors;
mod frame;
mod subscriber;
#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::Duration;

use cenote::{
    Camera, CameraConfig, DType, Image, PixelFormat, TensorMemory, TensorPool, TensorPoolConfig,
};

use support::program::{Role, Test, TestProgram};
use support::unique;

/// Both interfaces of V4L2.
const CAMERAS: [&str; 2] = ["/dev/video0", "/dev/video1"];

const LONG: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    TestProgram::new("camera").roles(subscriber::ROLES).prepare(|_| warm_up()).check_leaks().run(&[
        frame::TESTS,
        subscriber::TESTS,
        errors::TESTS,
    ])
}

/// Opens what a process opens once and keeps: the heaps, the limits of the process, the service thread.
fn warm_up() {
    drop(frames(true, 1).alloc(&[1], DType::U8).unwrap());
    drop(support::pool(1));
}

/// A pool with a DMA-BUF for each tensor.
fn frames(unprotected: bool, max_slots: usize) -> TensorPool {
    let config = TensorPoolConfig {
        memory: TensorMemory::Dma,
        unprotected,
        max_slots,
        ..TensorPoolConfig::small()
    };
    TensorPool::new(unique(), config).unwrap()
}

/// The smallest images that vivid makes, at its highest rate.
fn small() -> CameraConfig {
    CameraConfig { width: 320, height: 180, fps: Some(60), ..CameraConfig::default() }
}

/// Captures into buffers of the driver.
fn with_driver_buffers(path: &str) -> Camera {
    Camera::open(path, small()).unwrap()
}

/// Captures into buffers of a pool.
fn into(path: &str, pool: &TensorPool) -> Camera {
    let pool = pool.clone();
    Camera::open_into(path, small(), move |bytes| pool.alloc(&[bytes], DType::U8)).unwrap()
}

fn next(camera: &mut Camera) -> Image {
    camera.capture(LONG).unwrap().expect("a frame")
}

/// A checksum that depends on every pixel of an image and on its position.
fn digest(image: &Image) -> u64 {
    assert_eq!((image.width(), image.height(), image.format()), (320, 180, PixelFormat::Yuyv));
    let map = image.tensor().map().unwrap();
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for row in map.runs() {
        // Plain loops: this runs without optimisation, in an emulator, five times for each frame.
        let words: &[u64] = bytemuck::cast_slice(row);
        let mut at = 0;
        while at < words.len() {
            digest = (digest ^ words[at]).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
            at += 1;
        }
    }
    digest
}
