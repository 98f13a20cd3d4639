//! Images: pixels of every format, regions, copies, and what another process reads.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cenote::{
    CopyReason, Error, FORCE_MEM_ENV, Image, MAX_FRAME_ID, NotWritable, PixelFormat, PointCloud,
    Tensor, TensorMemory, TensorPool, TensorPoolConfig,
};
use proptest::prelude::*;

use support::domain::{self, cases, copied, copies_for, seen_elsewhere};
use support::peer::{Peer, command};
use support::program::{Test, tests};
use support::{pool, pools_dir, unique};

fn main() -> ExitCode {
    domain::run("image", &[TESTS, MORE_TESTS])
}

const TESTS: &[Test] = tests![
    the_first_example_works
    an_image_is_what_its_tensor_says
    every_pixel_of_every_format_reads_as_it_was_written
    filling_is_setting_every_pixel
    a_region_is_what_a_crop_would_be
    a_copy_is_equal_whatever_the_rows
    bytes_are_copied_row_by_row
    values_that_cannot_be_stored_are_refused
    pixels_outside_are_errors
    planes_of_nv12_and_i420
    typed_pixels
    a_tensor_is_never_written_after_its_descriptor_was_taken
    another_process_sees_pixels_and_header_without_a_copy
    a_region_is_seen_elsewhere_too
    a_descriptor_of_something_else_is_refused
    errors_of_impossible_images_and_regions_are_in_pixels
    a_new_image_is_black_even_where_memory_was_used
    an_image_in_a_pool_of_ones_own
    a_process_that_exits_leaves_nothing
    what_a_killed_process_left_is_removed_by_the_next
    a_forked_process_gets_a_separate_pool
    everything_is_on_the_heap_on_request
    frame_ids_have_a_limit
];

/// The tests of the feature `image`.
#[cfg(feature = "image")]
const MORE_TESTS: &[Test] = tests![
    a_png_reads_as_it_was_written
    every_format_can_be_looked_at
    pictures_of_every_kind_are_converted
    files_that_are_no_png
];
#[cfg(not(feature = "image"))]
const MORE_TESTS: &[Test] = &[];

/// An image of any format on the heap, with this row alignment.
fn heap(width: usize, height: usize, format: PixelFormat, align: usize) -> Image {
    let options = Tensor::options().memory(TensorMemory::Mem).row_alignment(align);
    Image::from_tensor(options.image(width, height, format).unwrap()).unwrap()
}

/// The `n`th value that the format can hold, so that nearby values differ.
fn value(format: PixelFormat, n: usize) -> f64 {
    match format.dtype().size() {
        1 => (n * 37 % 251) as f64,
        2 => (n * 7919 % 65_521) as f64,
        _ => n as f64 * 0.25 - 3.0,
    }
}

fn pixel_of(format: PixelFormat, n: usize) -> Vec<f64> {
    (0..format.pixel_len()).map(|channel| value(format, n * 4 + channel)).collect()
}

fn painted(width: usize, height: usize, format: PixelFormat, align: usize) -> Image {
    let mut image = heap(width, height, format, align);
    for (x, y) in positions(width, height) {
        image.set_pixel(x, y, &pixel_of(format, y * width + x)).unwrap();
    }
    image
}

fn positions(width: usize, height: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..height).flat_map(move |y| (0..width).map(move |x| (x, y)))
}

fn assert_same(a: &Image, b: &Image) {
    assert_eq!((a.format(), a.width(), a.height()), (b.format(), b.width(), b.height()));
    for (x, y) in positions(a.width(), a.height()) {
        assert_eq!(a.pixel(x, y).unwrap(), b.pixel(x, y).unwrap(), "{} ({x}, {y})", a.format());
    }
}

fn formats() -> impl Strategy<Value = PixelFormat> {
    (0..PixelFormat::all().len()).prop_map(|index| PixelFormat::all().nth(index).unwrap())
}

fn the_first_example_works() {
    let mut image = Image::new(640, 480, PixelFormat::Rgb8).unwrap();
    image.fill(&[255, 0, 0]).unwrap(); // red
    let before = copied();
    let descriptor = image.descriptor().unwrap();
    let answer = seen_elsewhere("image", &descriptor);
    let red = "[255.0, 0.0, 0.0]";
    assert_eq!(answer, format!("rgb8 640x480  0 0 [{red}, {red}] copies 0"));
    assert_eq!(image.pixel(0, 0).unwrap(), [255, 0, 0]);
    assert_eq!(copied(), before, "nothing was copied here either");
}

fn an_image_is_what_its_tensor_says() {
    let image = heap(100, 50, PixelFormat::Rgb8, 64);
    assert_eq!((image.width(), image.height(), image.channels()), (100, 50, 3));
    assert_eq!((image.step(), image.format()), (320, PixelFormat::Rgb8));
    let plain = Tensor::from_vec(vec![0_u8; 12], &[2, 2, 3]).unwrap();
    assert!(matches!(Image::from_tensor(plain), Err(Error::NoFormat { .. })));
    assert!(Image::new(0, 5, PixelFormat::Grey).is_err());
    assert!(Image::new(usize::MAX, usize::MAX, PixelFormat::Rgba8).is_err());
}

fn every_pixel_of_every_format_reads_as_it_was_written() {
    let case = (formats(), 1_usize..8, 1_usize..8, any::<prop::sample::Index>(), 0_usize..1000);
    proptest!(cases(), |((format, width, height, at, n) in case)| {
        let before = painted(width, height, format, 1);
        let mut image = painted(width, height, format, 1);
        let (x, y) = positions(width, height).nth(at.index(width * height)).unwrap();
        image.set_pixel(x, y, &pixel_of(format, n)).unwrap();
        prop_assert_eq!(&image.pixel(x, y).unwrap()[..], &pixel_of(format, n)[..]);

        // Only pixels of the same group may have changed, and never in their first value.
        let group = format.pixel_group();
        for (ox, oy) in positions(width, height).filter(|&other| other != (x, y)) {
            let (now, then) = (image.pixel(ox, oy).unwrap(), before.pixel(ox, oy).unwrap());
            prop_assert_eq!(now[0], then[0]);
            if (ox / group.0, oy / group.1) != (x / group.0, y / group.1) {
                prop_assert_eq!(now, then);
            }
        }
    });
}

fn filling_is_setting_every_pixel() {
    for format in PixelFormat::all() {
        for (width, height, align) in [(1, 1, 1), (5, 3, 1), (6, 4, 64), (33, 7, 16)] {
            let pixel = pixel_of(format, width);
            let mut filled = painted(width, height, format, align);
            filled.fill(&pixel).unwrap();
            let mut set = painted(width, height, format, align);
            for (x, y) in positions(width, height) {
                set.set_pixel(x, y, &pixel).unwrap();
            }
            assert_same(&filled, &set);
        }
    }
}

fn a_region_is_what_a_crop_would_be() {
    let case = (formats(), 1_usize..6, 1_usize..6, 0_usize..3, 0_usize..3, 0_usize..4, 0_usize..4);
    proptest!(cases(), |((format, width, height, left, top, right, bottom) in case)| {
        let group = format.pixel_group();
        let (x, y) = (left * group.0, top * group.1);
        let mut image = painted(x + width + right, y + height + bottom, format, 1);
        image.set_seq(5);
        let region = image.roi(x, y, width, height).unwrap();
        prop_assert_eq!((region.width(), region.height(), region.seq()), (width, height, 5));
        for (rx, ry) in positions(width, height) {
            prop_assert_eq!(region.pixel(rx, ry).unwrap(), image.pixel(x + rx, y + ry).unwrap());
        }
        assert_same(&region.to_contiguous().unwrap(), &region);
        prop_assert!(image.roi(x + 1, y, width + right, height).is_err());
    });
}

fn a_copy_is_equal_whatever_the_rows() {
    for format in PixelFormat::all() {
        let source = painted(7, 5, format, 64);
        let mut target = heap(7, 5, format, 1);
        target.copy_from(&source).unwrap();
        assert_same(&target, &source);
        let mut back = heap(7, 5, format, 128);
        back.copy_from(&target).unwrap();
        assert_same(&back, &source);
    }
    let mut grey = heap(7, 5, PixelFormat::Grey, 1);
    for other in [heap(5, 7, PixelFormat::Grey, 1), heap(7, 5, PixelFormat::BayerRggb8, 1)] {
        assert!(matches!(grey.copy_from(&other), Err(Error::OtherImage { .. })));
    }
    let same = Image::from_tensor(grey.tensor().clone()).unwrap();
    assert!(matches!(grey.copy_from(&same), Err(Error::NotWritable { .. })));
}

fn bytes_are_copied_row_by_row() {
    for format in PixelFormat::all() {
        for (width, height, more) in [(1, 1, 0), (5, 3, 0), (6, 4, 24), (33, 2, 8)] {
            let step = format.min_row_stride(width).unwrap() + more;
            let planes = format.planes(width, height, step).unwrap();
            let len = format.image_bytes(width, height, step).unwrap();
            let bytes: Vec<u8> = (0..251_u8).cycle().take(len).collect();
            let mut image = heap(width, height, format, 64);
            image.copy_from_bytes(&bytes, step).unwrap();
            for (index, place) in planes.iter().enumerate() {
                let view = image.plane(index).unwrap();
                let map = view.map().unwrap();
                let rows: Vec<u8> = map.runs().flatten().copied().collect();
                // A packed row of an odd width shows less than its samples.
                let shown = rows.len() / place.rows;
                for (row, shown) in rows.chunks(shown).enumerate() {
                    let start = place.offset + row * place.stride;
                    assert_eq!(shown, &bytes[start..start + shown.len()], "{format} {width}");
                }
            }
            // The padding of the last row may be missing, but not one byte more.
            let last = planes.last().unwrap();
            let end = last.offset + (last.rows - 1) * last.stride + last.row_bytes;
            image.copy_from_bytes(&bytes[..end], step).unwrap();
            let refused = image.copy_from_bytes(&bytes[..end - 1], step);
            assert!(matches!(refused, Err(Error::ImageBytes { .. })));
        }
    }
    let mut image = heap(4, 4, PixelFormat::Rgb8, 1);
    assert!(image.copy_from_bytes(&[0; 100], 11).is_err());
    assert!(image.copy_from_bytes(&[0; 100], usize::MAX).is_err());
    assert!(matches!(image.copy_from_slice(&[0_u8; 47]), Err(Error::ImageBytes { .. })));
    assert!(matches!(image.copy_from_slice(&[0_u16; 48]), Err(Error::WrongDType { .. })));
}

fn values_that_cannot_be_stored_are_refused() {
    let mut image = heap(4, 4, PixelFormat::Rgb8, 1);
    image.fill(&[1, 2, 3]).unwrap();
    for wrong in [[256.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 0.5], [f64::NAN, 0.0, 0.0]] {
        assert!(matches!(image.set_pixel(0, 0, &wrong), Err(Error::ValueRange { .. })));
        assert!(matches!(image.fill(&wrong), Err(Error::ValueRange { .. })));
    }
    for wrong in [&[1][..], &[1, 2], &[1, 2, 3, 4], &[]] {
        assert!(matches!(image.fill(wrong), Err(Error::PixelLen { expected: 3, .. })));
        assert!(matches!(image.set_pixel(0, 0, wrong), Err(Error::PixelLen { .. })));
    }
    assert_eq!(image.pixel(0, 0).unwrap(), [1, 2, 3]);

    let mut deep = heap(4, 4, PixelFormat::Mono16, 1);
    deep.fill(&[65_535]).unwrap();
    assert!(deep.fill(&[65_536]).is_err());
    assert_eq!(deep.pixel(3, 3).unwrap(), [65_535]);
    let mut float = heap(4, 4, PixelFormat::Rgb32F, 1);
    float.fill(&[0.1, -1e9, f64::INFINITY]).unwrap();
    assert_eq!(float.pixel(3, 3).unwrap(), [0.1, -1e9, f64::INFINITY]);
}

fn pixels_outside_are_errors() {
    for format in PixelFormat::all() {
        let mut image = heap(5, 3, format, 64);
        let pixel = pixel_of(format, 1);
        for (x, y) in [(5, 0), (0, 3), (5, 3), (usize::MAX, 0), (0, usize::MAX)] {
            let outside = |error: Error| matches!(error, Error::NoSuchPixel { .. });
            assert!(outside(image.pixel(x, y).unwrap_err()));
            assert!(outside(image.set_pixel(x, y, &pixel).unwrap_err()));
        }
        assert!(image.roi(0, 0, 6, 1).is_err() && image.roi(0, 0, 0, 1).is_err());
        assert!(image.roi(usize::MAX - 1, 0, 2, 2).is_err());
        assert!(image.plane(format.plane_count()).is_err());
    }
}

fn planes_of_nv12_and_i420() {
    let mut frame = heap(8, 4, PixelFormat::Nv12, 1);
    frame.fill(&[10, 20, 30]).unwrap();
    assert_eq!(frame.plane_count(), 2);
    assert_eq!(frame.plane(0).unwrap().to_vec::<u8>().unwrap(), [10; 32]);
    assert_eq!(frame.plane(1).unwrap().to_vec::<u8>().unwrap(), [20, 30].repeat(8));
    frame.map_mut().unwrap().plane_mut(1).unwrap().set::<u8>(&[1, 3, 1], 99).unwrap();
    assert_eq!(frame.pixel(6, 2).unwrap(), [10, 20, 99]);
    assert_eq!(frame.pixel(7, 3).unwrap(), [10, 20, 99]);

    let mut frame = heap(8, 4, PixelFormat::I420, 1);
    frame.fill(&[10, 20, 30]).unwrap();
    let planes = [0, 1, 2].map(|plane| frame.plane(plane).unwrap().to_vec::<u8>().unwrap());
    assert_eq!(planes, [vec![10; 32], vec![20; 8], vec![30; 8]]);
}

fn typed_pixels() {
    let mut image = heap(4, 4, PixelFormat::Rgba8, 1);
    image.set_pixel(1, 2, &[1_u8, 2, 3, 4]).unwrap();
    assert_eq!(image.pixel_as::<[u8; 4]>(1, 2).unwrap(), [1, 2, 3, 4]);
    assert!(matches!(image.pixel_as::<[u8; 3]>(1, 2), Err(Error::PixelLen { .. })));
    assert!(matches!(image.pixel_as::<[u16; 4]>(1, 2), Err(Error::WrongDType { .. })));
    let mut float = heap(4, 4, PixelFormat::Mono32F, 1);
    float.set_pixel(0, 0, &[0.1_f32]).unwrap();
    assert_eq!(float.pixel_as::<f32>(0, 0).unwrap(), 0.1);
    // One pixel can be written to another image.
    let pixel = image.pixel(1, 2).unwrap();
    image.set_pixel(0, 0, &pixel).unwrap();
    assert_eq!(image.pixel(0, 0).unwrap(), pixel);
}

fn a_tensor_is_never_written_after_its_descriptor_was_taken() {
    let mut image = Image::new(64, 48, PixelFormat::Rgb8).unwrap();
    image.set_frame_id("front").unwrap();
    let clone = image.clone();
    let refused = image.fill(&[1, 2, 3]).unwrap_err();
    assert!(matches!(refused, Error::NotWritable { why: NotWritable::Shared }));
    drop(clone);
    image.fill(&[1, 2, 3]).unwrap();

    let descriptor = image.descriptor().unwrap();
    let refused = image.set_pixel(0, 0, &[9, 9, 9]).unwrap_err();
    assert!(matches!(refused, Error::NotWritable { why: NotWritable::Published }));
    assert!(refused.to_string().contains("make_mut"), "{refused}");
    assert_eq!(image.not_writable(), Some(NotWritable::Published));

    let received = Image::from_descriptor(&descriptor).unwrap();
    let before = copies_for(CopyReason::MakeMut);
    image.make_mut().unwrap();
    assert_eq!(copies_for(CopyReason::MakeMut), before + 1);
    image.fill(&[9, 9, 9]).unwrap();
    assert_eq!((image.pixel(0, 0).unwrap(), image.frame_id()), (received_as([9, 9, 9]), "front"));
    assert_eq!(received.pixel(0, 0).unwrap(), [1, 2, 3]);
    // The copy can be sent without another.
    assert_eq!(Image::from_descriptor(&image.descriptor().unwrap()).unwrap().frame_id(), "front");
}

fn received_as(pixel: [u8; 3]) -> cenote::Pixel {
    let mut image = heap(1, 1, PixelFormat::Rgb8, 1);
    image.fill(&pixel).unwrap();
    image.pixel(0, 0).unwrap()
}

fn another_process_sees_pixels_and_header_without_a_copy() {
    for format in PixelFormat::all() {
        let mut image = Image::new(7, 5, format).unwrap();
        image.set_pixel(0, 0, &pixel_of(format, 1)).unwrap();
        image.set_pixel(6, 4, &pixel_of(format, 2)).unwrap();
        image.set_frame_id("camera_front").unwrap();
        image.set_stamp_ns(u64::MAX);
        image.set_seq(7);
        let answer = seen_elsewhere("image", &image.descriptor().unwrap());
        let pixels = [image.pixel(0, 0).unwrap(), image.pixel(6, 4).unwrap()];
        let header = format!("camera_front {} 7", u64::MAX);
        assert_eq!(answer, format!("{format} 7x5 {header} {pixels:?} copies 0"));
    }
}

fn a_region_is_seen_elsewhere_too() {
    let mut image = Image::new(64, 48, PixelFormat::Bgr8).unwrap();
    image.set_pixel(10, 20, &[1, 2, 3]).unwrap();
    let region = image.roi(10, 20, 4, 4).unwrap();
    let answer = seen_elsewhere("image", &region.descriptor().unwrap());
    assert_eq!(answer, "bgr8 4x4  0 0 [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]] copies 0");
    // The planes of a region are not contiguous, so it has no descriptor; a copy has one.
    let frame = Image::new(64, 48, PixelFormat::Nv12).unwrap();
    let region = frame.roi(10, 20, 4, 4).unwrap();
    assert!(matches!(region.descriptor(), Err(Error::FarPlanes { .. })));
    region.to_contiguous().unwrap().descriptor().unwrap();
}

fn errors_of_impossible_images_and_regions_are_in_pixels() {
    for (width, height) in [(0, 4), (4, 0)] {
        let text = format!("an image of {width}x{height} has no pixels");
        assert_eq!(Image::new(width, height, PixelFormat::Rgb8).unwrap_err().to_string(), text);
        let depth = cenote::DepthImage::new(height, width, cenote::DType::F32).unwrap_err();
        assert_eq!(depth.to_string(), text);
    }
    for format in [PixelFormat::Rgb8, PixelFormat::Nv12] {
        let image = heap(8, 4, format, 1);
        for (x, y, width, height) in
            [(4, 0, 6, 2), (0, 2, 2, 4), (8, 0, 2, 2), (usize::MAX, 0, 2, 2)]
        {
            let error = image.roi(x, y, width, height).unwrap_err();
            assert!(matches!(error, Error::NoSuchRoi { image: (8, 4), .. }), "{error}");
        }
        assert!(matches!(image.roi(0, 0, 0, 2), Err(Error::EmptyImage { .. })));
    }
    let text = heap(8, 4, PixelFormat::Rgb8, 1).roi(4, 0, 6, 2).unwrap_err().to_string();
    assert_eq!(text, "the 6x2 pixels from (4, 0) on are not all in an image of 8x4");
}

fn a_descriptor_of_something_else_is_refused() {
    let image = Image::new(8, 8, PixelFormat::Grey).unwrap();
    let described = image.descriptor().unwrap();
    let refused = PointCloud::from_descriptor(&described).unwrap_err();
    assert!(matches!(refused, Error::WrongKind { asked: "PointCloud", found: "Image" }));
    assert_eq!(refused.to_string(), "`PointCloud` was requested, but the descriptor is for Image");
    let tensor = Tensor::from_descriptor(&described).unwrap();
    assert_eq!(tensor.format(), Some(PixelFormat::Grey));
    let described = tensor.descriptor().unwrap();
    let refused = Image::from_descriptor(&described).unwrap_err();
    assert!(matches!(refused, Error::WrongKind { asked: "Image", found: "Tensor" }));
    let heap = heap(8, 8, PixelFormat::Grey, 1);
    assert!(matches!(heap.descriptor(), Err(Error::NoDescriptor)));
}

fn a_new_image_is_black_even_where_memory_was_used() {
    for _ in 0..4 {
        let mut image = Image::new(33, 7, PixelFormat::I420).unwrap();
        assert!(positions(33, 7).all(|(x, y)| image.pixel(x, y).unwrap() == [0, 0, 0]));
        image.fill(&[255, 255, 255]).unwrap();
    }
}

fn an_image_in_a_pool_of_ones_own() {
    let pool = pool(4);
    for format in PixelFormat::all() {
        let mut image = Image::new_in(&pool, 33, 7, format).unwrap();
        image.fill(&pixel_of(format, 3)).unwrap();
        let received = Image::from_descriptor(&image.descriptor().unwrap()).unwrap();
        assert_same(&received, &image);
        assert_eq!(pool.stats().unwrap().slots_in_use, 1, "it is in this pool");
    }
    let attached = TensorPool::open(pool.name()).unwrap();
    let refused = Image::new_in(&attached, 8, 8, PixelFormat::Grey);
    assert!(matches!(refused, Err(Error::NotOwner { .. })));
    let tiny = TensorPoolConfig { max_slots: 1, ..TensorPoolConfig::small() };
    let tiny = TensorPool::new(unique(), tiny).unwrap();
    let first = Image::new_in(&tiny, 8, 8, PixelFormat::Grey).unwrap();
    let full = Image::new_in(&tiny, 8, 8, PixelFormat::Grey);
    assert!(matches!(full, Err(Error::PoolFull { .. })));
    drop(first);
}

/// The pool of a process removes what dead processes left when it starts, so these tests run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    TensorPool::of_process().unwrap();
    one
}

/// How many sockets of pools have names that start with this.
fn sockets(name: &str) -> usize {
    let names = std::fs::read_dir(pools_dir()).unwrap();
    names
        .filter(|item| item.as_ref().unwrap().file_name().to_string_lossy().starts_with(name))
        .count()
}

fn a_process_that_exits_leaves_nothing() {
    let _alone = alone();
    let mut maker = Peer::start("pool_maker");
    let name = maker.request("make");
    assert!(name.starts_with(&format!("process-{}-", maker.pid())), "{name}");
    assert_eq!(sockets(&name), 1);
    assert!(maker.finish().success());
    assert_eq!(sockets(&name), 0);
}

fn what_a_killed_process_left_is_removed_by_the_next() {
    let _alone = alone();
    let mut killed = Peer::start("pool_maker");
    let name = killed.request("make");
    killed.kill();
    assert_eq!(sockets(&name), 1);
    let mut next = Peer::start("pool_maker");
    assert!(next.request("make").starts_with("process-"));
    assert_eq!(sockets(&name), 0);
    next.finish();
}

#[allow(unsafe_code, reason = "fork")]
fn a_forked_process_gets_a_separate_pool() {
    let _alone = alone();
    let image = Image::new(64, 48, PixelFormat::Grey).unwrap();
    let ours = TensorPool::of_process().unwrap().uid();
    // SAFETY: the child only calls cenote, which supports forks, and then `_exit`. (It allocates, which
    // glibc supports in a forked child.)
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fine = TensorPool::of_process().is_ok_and(|pool| pool.uid() != ours)
            && image.descriptor().is_err()
            && Image::new(64, 48, PixelFormat::Grey).is_ok_and(|image| image.descriptor().is_ok());
        TensorPool::close_of_process();
        // SAFETY: `_exit` may be called anywhere.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a pointer to a live variable for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    assert_eq!(TensorPool::of_process().unwrap().uid(), ours);
    image.descriptor().unwrap();
}

fn everything_is_on_the_heap_on_request() {
    let _alone = alone();
    for (value, kinds) in [("1", "[Mem, Mem, Mem]"), ("0", "[Shm, Shm, Shm]")] {
        let mut child = Peer::run(command("memory_kinds").env(FORCE_MEM_ENV, value));
        assert_eq!(child.request("where"), kinds);
        child.finish();
    }
}

fn frame_ids_have_a_limit() {
    let mut image = heap(4, 4, PixelFormat::Grey, 1);
    image.set_frame_id(&"x".repeat(MAX_FRAME_ID)).unwrap();
    assert!(matches!(image.set_frame_id(&"x".repeat(49)), Err(Error::TextTooLong { .. })));
    assert_eq!(image.frame_id().len(), MAX_FRAME_ID);
    let mut other = heap(4, 4, PixelFormat::Grey, 1);
    other.set_header(*image.header());
    assert_eq!(other.frame_id(), image.frame_id());
}

#[cfg(feature = "image")]
fn png(name: &str) -> std::path::PathBuf {
    std::path::Path::new(&std::env::var_os("CENOTE_DIR").unwrap()).join(name)
}

#[cfg(feature = "image")]
fn a_png_reads_as_it_was_written() {
    use PixelFormat::{Grey, Mono16, Rgb8, Rgba8};
    for format in [Grey, Mono16, Rgb8, Rgba8] {
        for align in [1, 64] {
            let image = painted(33, 7, format, align);
            let path = png(&format!("{format}-{align}.png"));
            image.save_png(&path).unwrap();
            assert_same(&Image::load_png(&path).unwrap(), &image);
        }
    }
    // As a view, too.
    let image = painted(33, 7, Rgb8, 1);
    let region = image.roi(3, 2, 9, 4).unwrap();
    region.save_png(png("region.png")).unwrap();
    assert_same(&Image::load_png(png("region.png")).unwrap(), &region);
}

#[cfg(feature = "image")]
fn every_format_can_be_looked_at() {
    for format in PixelFormat::all() {
        let path = png(&format!("look-{format}.png"));
        painted(9, 5, format, 64).save_png(&path).unwrap();
        let seen = Image::load_png(&path).unwrap();
        assert_eq!((seen.width(), seen.height()), (9, 5));
    }
    let rgb = |format: PixelFormat, pixel: &[i32]| {
        let mut image = heap(5, 3, format, 1);
        image.fill(pixel).unwrap();
        image.to_dynamic().unwrap().into_rgb8().get_pixel(4, 2).0
    };
    assert_eq!(rgb(PixelFormat::Bgr8, &[1, 2, 3]), [3, 2, 1]);
    assert_eq!(rgb(PixelFormat::Bgra8, &[1, 2, 3, 255]), [3, 2, 1]);
    assert_eq!(rgb(PixelFormat::PlanarRgb, &[1, 2, 3]), [1, 2, 3]);
    assert_eq!(rgb(PixelFormat::Mono32F, &[1]), [255, 255, 255]);
    use PixelFormat::{I420, Nv12, Nv16, Nv21, Nv24, Uyvy, Vyuy, Yuyv};
    for format in [I420, Nv12, Nv16, Nv21, Nv24, Uyvy, Vyuy, Yuyv] {
        assert_eq!(rgb(format, &[82, 90, 240]), [255, 1, 0], "{format}: red");
    }
}

#[cfg(feature = "image")]
fn pictures_of_every_kind_are_converted() {
    use image::DynamicImage;
    for (picture, format) in [
        (DynamicImage::new_luma8(5, 3), PixelFormat::Grey),
        (DynamicImage::new_luma16(5, 3), PixelFormat::Mono16),
        (DynamicImage::new_rgb8(5, 3), PixelFormat::Rgb8),
        (DynamicImage::new_rgba8(5, 3), PixelFormat::Rgba8),
        (DynamicImage::new_rgb32f(5, 3), PixelFormat::Rgb32F),
        (DynamicImage::new_luma_a8(5, 3), PixelFormat::Rgba8),
        (DynamicImage::new_rgb16(5, 3), PixelFormat::Rgba8),
        (DynamicImage::new_rgba32f(5, 3), PixelFormat::Rgba8),
    ] {
        let image = Image::from_dynamic(&picture).unwrap();
        assert_eq!((image.format(), image.width(), image.height()), (format, 5, 3));
        let same = picture.color() == image.to_dynamic().unwrap().color();
        assert!(same || format == PixelFormat::Rgba8);
    }
    let float = painted(5, 3, PixelFormat::Rgb32F, 1);
    assert_same(&Image::from_dynamic(&float.to_dynamic().unwrap()).unwrap(), &float);
    assert!(Image::from_dynamic(&DynamicImage::new_luma8(0, 3)).is_err());
}

#[cfg(feature = "image")]
fn files_that_are_no_png() {
    let path = png("not.png");
    for bytes in [&b""[..], b"hello", b"\x89PNG\r\n\x1a\n\0\0\0\0"] {
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(Image::load_png(&path), Err(Error::ImageFile { op: "reading", .. })));
    }
    let missing = Image::load_png(png("missing.png")).unwrap_err().to_string();
    assert!(missing.contains("missing.png"), "{missing}");
    let image = heap(4, 4, PixelFormat::Grey, 1);
    assert!(matches!(image.save_png(png("no/such.png")), Err(Error::ImageFile { .. })));
}
