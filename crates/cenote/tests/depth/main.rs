//! Depth images: metres whatever is stored, points in space, and what another process sees of them.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use cenote::{
    DType, DepthImage, Error, Intrinsics, NotWritable, PixelFormat, Tensor, TensorMemory,
};
use proptest::prelude::*;

use support::domain::{self, cases, seen_elsewhere};
use support::pool;
use support::program::{Test, tests};

fn main() -> ExitCode {
    domain::run("depth", &[TESTS])
}

const TESTS: &[Test] = tests![
    the_first_example_works
    only_metres_and_millimetres
    depths_read_as_they_were_written
    invalid_depths_are_none
    depths_that_could_not_be_read_back_are_refused
    statistics_are_of_valid_depths
    points_project_back_to_their_pixels
    points_only_where_there_are_depths
    a_region_sees_the_same_points
    intrinsics_have_limits
    a_tensor_is_never_written_after_its_descriptor_was_taken
    another_process_sees_the_depths_without_a_copy
    a_depth_image_in_a_pool_of_ones_own
];

const CAMERA: Intrinsics = Intrinsics { fx: 525.0, fy: 500.0, cx: 3.5, cy: 2.5 };

fn heap(height: usize, width: usize, dtype: DType) -> DepthImage {
    let options = Tensor::options().memory(TensorMemory::Mem);
    DepthImage::from_tensor(options.create(&[height, width], dtype).unwrap()).unwrap()
}

fn of_metres(metres: &[f32], height: usize) -> DepthImage {
    let shape = [height, metres.len() / height];
    DepthImage::from_tensor(Tensor::from_vec(metres.to_vec(), &shape).unwrap()).unwrap()
}

fn the_first_example_works() {
    let depth = DepthImage::new(480, 640, DType::F32).unwrap();
    assert_eq!((depth.width(), depth.height(), depth.step()), (640, 480, 2560));
    assert_eq!(depth.tensor().shape(), [480, 640]);
    assert_eq!(depth.stats().unwrap(), None, "nothing was measured yet");
    let depth = DepthImage::new(480, 640, DType::U16).unwrap();
    assert_eq!((depth.dtype(), depth.step()), (DType::U16, 1280));
    assert_eq!(depth.tensor().format(), Some(PixelFormat::Depth16));
}

fn only_metres_and_millimetres() {
    for dtype in DType::all() {
        let possible = matches!(dtype, DType::F32 | DType::U16);
        let made = DepthImage::new(4, 4, dtype);
        assert_eq!(made.is_ok(), possible);
        assert!(possible || matches!(made, Err(Error::DepthDType { .. })));
    }
    let cube = Tensor::from_vec(vec![0_u16; 8], &[2, 2, 2]).unwrap();
    assert!(DepthImage::from_tensor(cube).is_err());
    let turned = Tensor::from_vec(vec![0_u16; 8], &[2, 4]).unwrap().transpose();
    assert!(DepthImage::from_tensor(turned).is_err());
    let channel = Tensor::from_vec(vec![1500_u16; 8], &[2, 4, 1]).unwrap();
    assert_eq!(DepthImage::from_tensor(channel).unwrap().depth_at(3, 1), Some(1.5));
    assert!(DepthImage::new(0, 4, DType::F32).is_err());
}

fn depths_read_as_they_were_written() {
    proptest!(cases(), |(metres in 0.001_f32..65.0, x in 0_usize..7, y in 0_usize..5)| {
        let mut depth = heap(5, 7, DType::F32);
        depth.set_depth(x, y, metres).unwrap();
        prop_assert_eq!(depth.depth_at(x, y), Some(metres));
        let mut depth = heap(5, 7, DType::U16);
        depth.set_depth(x, y, metres).unwrap();
        let read = depth.depth_at(x, y).unwrap();
        prop_assert!((read - metres).abs() <= 0.000_51, "{} {}", read, metres);
        prop_assert_eq!(depth.stats().unwrap().unwrap().valid, 1);
        depth.set_depth(x, y, None).unwrap();
        prop_assert_eq!(depth.depth_at(x, y), None);
    });
    // Every number of millimetres survives being read as metres.
    let all: Vec<u16> = (1..=u16::MAX).collect();
    let tensor = Tensor::from_vec(all.clone(), &[1, all.len()]).unwrap();
    let mut depth = DepthImage::from_tensor(tensor).unwrap();
    for x in 0..all.len() {
        let metres = depth.depth_at(x, 0).unwrap();
        depth.set_depth(x, 0, metres).unwrap();
    }
    assert_eq!(depth.tensor().to_vec::<u16>().unwrap(), all);
}

fn invalid_depths_are_none() {
    let none = [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let depth = of_metres(&none, 2);
    for (x, y) in [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)] {
        assert_eq!(depth.depth_at(x, y), None);
    }
    for (x, y) in [(3, 0), (0, 2), (usize::MAX, 0), (0, usize::MAX)] {
        assert_eq!(depth.depth_at(x, y), None);
    }
    assert_eq!(depth.stats().unwrap(), None);
}

fn depths_that_could_not_be_read_back_are_refused() {
    let refused = |error| matches!(error, Error::DepthRange { .. });
    for dtype in [DType::F32, DType::U16] {
        let mut depth = heap(2, 2, dtype);
        for wrong in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(refused(depth.set_depth(0, 0, wrong).unwrap_err()));
            assert!(refused(depth.fill(wrong).unwrap_err()));
        }
        assert!(matches!(depth.set_depth(2, 0, 1.0), Err(Error::NoSuchPixel { .. })));
        assert!(matches!(depth.set_depth(0, usize::MAX, 1.0), Err(Error::NoSuchPixel { .. })));
    }
    let mut depth = heap(2, 2, DType::U16);
    assert!(refused(depth.set_depth(0, 0, 65.536).unwrap_err()));
    assert!(refused(depth.set_depth(0, 0, 0.0004).unwrap_err()));
    let text = depth.set_depth(0, 0, 70.0).unwrap_err().to_string();
    assert!(text.contains("70 m") && text.contains("0.001 to 65.535 m"), "{text}");
    depth.set_depth(0, 0, 65.535).unwrap();
    heap(2, 2, DType::F32).set_depth(0, 0, 1e6).unwrap();
}

fn statistics_are_of_valid_depths() {
    proptest!(cases(), |(metres in prop::collection::vec(prop_oneof![0.1_f32..9.0, Just(0.0), Just(f32::NAN)], 1..40))| {
        let depth = of_metres(&metres, 1);
        let valid: Vec<f32> = metres.iter().copied().filter(|depth| *depth > 0.0).collect();
        match depth.stats().unwrap() {
            None => prop_assert!(valid.is_empty()),
            Some(stats) => {
                let mean = valid.iter().copied().map(f64::from).sum::<f64>() / valid.len() as f64;
                prop_assert_eq!(stats.valid, valid.len());
                prop_assert_eq!(stats.min, valid.iter().copied().fold(f32::INFINITY, f32::min));
                prop_assert_eq!(stats.max, valid.iter().copied().fold(0.0, f32::max));
                prop_assert!((stats.mean - mean).abs() < 1e-9);
            }
        }
    });
    let mut depth = heap(480, 640, DType::U16);
    depth.fill(2.0).unwrap();
    depth.set_depth(1, 1, 3.0).unwrap();
    depth.set_depth(2, 2, None).unwrap();
    let stats = depth.stats().unwrap().unwrap();
    assert_eq!((stats.valid, stats.min, stats.max), (480 * 640 - 1, 2.0, 3.0));
}

/// The pixel at which the camera sees a point.
fn seen_at(camera: Intrinsics, [x, y, z]: [f64; 3]) -> (f64, f64) {
    (x / z * camera.fx + camera.cx, y / z * camera.fy + camera.cy)
}

fn points_project_back_to_their_pixels() {
    for dtype in [DType::F32, DType::U16] {
        let mut depth = heap(6, 8, dtype);
        depth.set_intrinsics(CAMERA).unwrap();
        depth.set_frame_id("depth_optical").unwrap();
        for (x, y) in (0..6).flat_map(|y| (0..8).map(move |x| (x, y))) {
            depth.set_depth(x, y, 1.0 + (y * 8 + x) as f32 / 8.0).unwrap();
        }
        let cloud = depth.to_point_cloud().unwrap();
        assert_eq!((cloud.len(), cloud.frame_id()), (48, "depth_optical"));
        for (index, point) in cloud.points().enumerate() {
            let point = point.xyz().unwrap();
            let (x, y) = seen_at(CAMERA, point);
            assert!((x - (index % 8) as f64).abs() < 1e-4 && (y - (index / 8) as f64).abs() < 1e-4);
            assert_eq!(Some(point[2]), depth.depth_at(index % 8, index / 8).map(f64::from));
        }
    }
}

fn points_only_where_there_are_depths() {
    let mut depth = of_metres(&[0.0, 1.0, f32::NAN, -1.0, 2.0, 0.0], 2);
    assert!(matches!(depth.to_point_cloud(), Err(Error::NoIntrinsics)));
    depth.set_intrinsics(CAMERA).unwrap();
    let cloud = depth.to_point_cloud().unwrap();
    let depths: Vec<f64> = cloud.points().map(|point| point.xyz().unwrap()[2]).collect();
    assert_eq!(depths, [1.0, 2.0]);
    let mut nothing = heap(4, 4, DType::U16);
    nothing.set_intrinsics(CAMERA).unwrap();
    assert!(nothing.to_point_cloud().unwrap().is_empty());
}

fn a_region_sees_the_same_points() {
    let mut depth = heap(6, 8, DType::F32);
    depth.fill(2.0).unwrap();
    depth.set_intrinsics(CAMERA).unwrap();
    depth.set_seq(3);
    let whole = depth.to_point_cloud().unwrap();
    let region = depth.roi(2, 1, 4, 3).unwrap();
    assert_eq!((region.seq(), region.depth_at(4, 0)), (3, None));
    let cloud = region.to_point_cloud().unwrap();
    for (index, point) in cloud.points().enumerate() {
        let there = whole.point_at((1 + index / 4) * 8 + 2 + index % 4).unwrap();
        assert_eq!(point.xyz().unwrap(), there.xyz().unwrap());
    }
    assert!(depth.roi(7, 0, 2, 1).is_err());
}

fn intrinsics_have_limits() {
    let mut depth = heap(2, 2, DType::F32);
    for wrong in [
        Intrinsics { fx: 0.0, ..CAMERA },
        Intrinsics { fy: -1.0, ..CAMERA },
        Intrinsics { cx: f64::NAN, ..CAMERA },
        Intrinsics { cy: f64::INFINITY, ..CAMERA },
    ] {
        assert!(matches!(depth.set_intrinsics(wrong), Err(Error::BadIntrinsics { .. })));
    }
    depth.set_intrinsics(CAMERA).unwrap();
    assert_eq!(depth.intrinsics(), Some(CAMERA));
    depth.set_intrinsics(None).unwrap();
    assert_eq!(depth.intrinsics(), None);
}

fn a_tensor_is_never_written_after_its_descriptor_was_taken() {
    let mut depth = DepthImage::new(4, 4, DType::F32).unwrap();
    depth.fill(1.5).unwrap();
    depth.set_intrinsics(CAMERA).unwrap();
    let received = DepthImage::from_descriptor(&depth.descriptor().unwrap()).unwrap();
    let refused = depth.set_depth(0, 0, 9.0).unwrap_err();
    assert!(matches!(refused, Error::NotWritable { why: NotWritable::Published }));
    depth.make_mut().unwrap();
    depth.set_depth(0, 0, 9.0).unwrap();
    assert_eq!((depth.depth_at(0, 0), depth.intrinsics()), (Some(9.0), Some(CAMERA)));
    assert_eq!((received.depth_at(0, 0), received.intrinsics()), (Some(1.5), Some(CAMERA)));
}

fn another_process_sees_the_depths_without_a_copy() {
    let mut depth = DepthImage::new(4, 4, DType::U16).unwrap();
    depth.set_depth(1, 0, 1.25).unwrap();
    depth.set_frame_id("depth").unwrap();
    depth.set_stamp_ns(9);
    let answer = seen_elsewhere("depth", &depth.descriptor().unwrap());
    assert_eq!(answer, "depth 9 0 None Some(1.25) copies 0");
    depth.set_intrinsics(CAMERA).unwrap();
    let answer = seen_elsewhere("depth", &depth.descriptor().unwrap());
    assert_eq!(answer, "depth 9 0 Some([525.0, 500.0, 3.5, 2.5]) Some(1.25) copies 0");
}

fn a_depth_image_in_a_pool_of_ones_own() {
    let pool = pool(2);
    let mut depth = DepthImage::new_in(&pool, 48, 64, DType::F32).unwrap();
    depth.fill(3.0).unwrap();
    assert_eq!(pool.stats().unwrap().slots_in_use, 1);
    let received = DepthImage::from_descriptor(&depth.descriptor().unwrap()).unwrap();
    assert_eq!(received.stats().unwrap().unwrap().mean, 3.0);
}
