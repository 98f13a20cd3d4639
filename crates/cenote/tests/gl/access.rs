//! Maps, threads and tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

use cenote::{
    DType, Error, FORCE_MEM_ENV, GlContext, GlError, Image, PixelFormat, StagedBecause, Tensor,
    TensorMemory, Topic,
};

use super::errors::child;
use super::{context, is_fallback, noise};

pub(super) fn the_driver_is_the_requested_one() {
    let info = context().info();
    assert_eq!(info.persistent_maps, !is_fallback(), "{info:?}");
    assert!(!info.version.is_empty() && !info.renderer.is_empty(), "{info:?}");
}

pub(super) fn a_map_of_a_part_is_that_part() {
    let gl = context();
    let mut tensor = gl.tensor(&[100, 64], DType::U8).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().copy_from_slice(&noise(6400));
    let mut part = tensor.narrow(0, 40, 20).unwrap();
    drop(tensor);
    let mut map = part.map_mut().unwrap();
    assert_eq!(map.as_map().as_bytes().unwrap(), &noise(6400)[40 * 64..60 * 64]);
    map.as_mut_bytes().unwrap().fill(7);
    map.set(&[19, 63], 9u8).unwrap();
    assert_eq!(map.as_map().get::<u8>(&[19, 63]).unwrap(), 9);
    drop(map);
    let mut expected = noise(6400);
    expected[40 * 64..60 * 64].fill(7);
    expected[60 * 64 - 1] = 9;
    let whole = part.with_plane_offset(0).unwrap();
    for (index, row) in expected.chunks(20 * 64).enumerate() {
        let piece = whole.clone().with_plane_offset(index * 20 * 64).unwrap();
        assert_eq!(piece.map().unwrap().as_bytes().unwrap(), row);
    }
}

pub(super) fn readers_share_a_map() {
    let gl = context();
    let mut tensor = gl.tensor(&[1000], DType::U8).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(3);
    let other = tensor.clone();
    let (first, second) = (tensor.map().unwrap(), other.map().unwrap());
    drop(first);
    assert!(second.as_bytes().unwrap().iter().all(|&byte| byte == 3));
    let third = tensor.map().unwrap();
    drop(second);
    assert!(third.as_bytes().unwrap().iter().all(|&byte| byte == 3));

    // A driver that cannot use a mapped buffer refuses; others use it.
    let image = tensor.narrow(0, 0, 64).unwrap().reshape(&[4, 4, 4]).unwrap();
    match gl.upload(&image) {
        Ok(_) => assert!(!is_fallback()),
        Err(Error::Gl(GlError::Mapped)) => assert!(is_fallback()),
        Err(other) => panic!("{other}"),
    }
    drop(third);
    gl.upload(&image).unwrap();
}

pub(super) fn tensors_are_used_from_many_threads() {
    const THREADS: u8 = 4;
    let gl = context();
    let shared = gl.options().create_from_slice(&noise(4096), &[32, 32, 4]).unwrap();
    let barrier = Barrier::new(THREADS.into());
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (shared, barrier) = (shared.clone(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..20 {
                    let mut own = gl.image(32, 32, PixelFormat::Rgba8).unwrap();
                    own.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(id * 20 + round);
                    let texture = gl.upload(&own).unwrap();
                    texture.read(&mut own).unwrap();
                    assert!(
                        own.to_vec::<u8>().unwrap().iter().all(|&byte| byte == id * 20 + round)
                    );
                    assert_eq!(shared.to_vec::<u8>().unwrap(), noise(4096));
                }
            });
        }
    });
}

pub(super) fn async_tasks_use_tensors() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let gl = context();
        let tasks: Vec<_> = (0..8u8)
            .map(|id| {
                tokio::spawn(async move {
                    let mut image = gl.image(16, 16, PixelFormat::Rgba8).unwrap();
                    image.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(id);
                    let texture = gl.upload(&image).unwrap();
                    tokio::task::yield_now().await;
                    texture.read(&mut image).unwrap();
                    tokio::task::yield_now().await;
                    image.to_vec::<u8>().unwrap() == [id; 1024]
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await.unwrap());
        }
    });
}

pub(super) fn work_may_request_more_work() {
    let gl = context();
    let outer = gl.clone();
    let sum = gl.with(move |_| {
        // On the thread of the context, everything runs at once.
        let tensor = outer.options().create_from_slice(&[1u8, 2, 3, 4], &[1, 1, 4]).unwrap();
        let mut back = outer.tensor(&[1, 1, 4], DType::U8).unwrap();
        outer.upload(&tensor).unwrap().read(&mut back).unwrap();
        outer.with(move |_| {
            back.to_vec::<u8>().unwrap().iter().map(|&byte| u32::from(byte)).sum::<u32>()
        })
    });
    assert_eq!(sum.unwrap().unwrap(), 10);
}

pub(super) fn a_panic_is_passed_on_and_leaves_the_thread_alive() {
    let gl = GlContext::headless().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| gl.with(|_| panic!("as planned"))));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "as planned");
    assert_eq!(gl.with(|_| 7).unwrap(), 7);
    gl.tensor(&[4], DType::U8).unwrap().map().unwrap();
}

/// In a separate process, which has another environment.
pub(super) fn forced_to_the_heap_everything_still_works() {
    child("forced", &[(FORCE_MEM_ENV, "1")]);
}

pub(super) fn forced() {
    let gl = GlContext::headless().unwrap();
    let mut image = gl.image(16, 16, PixelFormat::Rgba8).unwrap();
    assert_eq!(image.memory(), TensorMemory::Mem);
    let text = image.selection().to_string();
    assert!(text.contains("not pbo: CENOTE_FORCE_MEM"), "{text}");
    image.map_mut().unwrap().as_mut_slice::<u8>().unwrap().copy_from_slice(&noise(1024));
    let mut back = gl.image(16, 16, PixelFormat::Rgba8).unwrap();
    gl.upload(&image).unwrap().read(&mut back).unwrap();
    assert_eq!(back.to_vec::<u8>().unwrap(), noise(1024));
    assert_eq!(gl.stats().buffers, 0);
}

/// In a separate process, which has another socket directory.
pub(super) fn a_topic_stages_it_once() {
    let dir = std::env::temp_dir().join(format!("cenote-gl-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let staged = catch_unwind(|| child("topic", &[(cenote::DIR_ENV, dir.to_str().unwrap())]));
    std::fs::remove_dir_all(&dir).unwrap();
    staged.unwrap();
}

pub(super) fn topic() {
    let gl = GlContext::headless().unwrap();
    let topic: Topic<Tensor> = Topic::new("gl.frames").unwrap();
    assert!(topic.recv().is_none());
    let mut tensor = gl.tensor(&[4, 5], DType::U16).unwrap();
    tensor.map_mut().unwrap().as_mut_slice::<u16>().unwrap().fill(513);
    topic.send(&tensor).unwrap();
    let received = topic.recv().unwrap();
    assert_eq!(received.to_vec::<u16>().unwrap(), [513; 20]);
    assert_ne!(received.memory(), TensorMemory::Pbo);
    let copies = topic.stats().copies;
    let [staged] = &copies[..] else { panic!("{copies:?}") };
    assert_eq!((staged.reason, staged.count, staged.bytes), (StagedBecause::Pbo, 1, 40));
    // The topic sent a copy, so the buffer itself can be written again.
    tensor.map_mut().unwrap().as_mut_slice::<u16>().unwrap().fill(1);
    assert_eq!(received.to_vec::<u16>().unwrap(), [513; 20]);
    assert!(tensor.clone_fd().is_err());

    let images: Topic<Image> = Topic::new("gl.images").unwrap();
    assert!(images.recv().is_none());
    let image = gl.image(8, 8, PixelFormat::Nv12).unwrap();
    images.send(&Image::from_tensor(image).unwrap()).unwrap();
    let received = images.recv().unwrap();
    assert_eq!((received.width(), received.format()), (8, PixelFormat::Nv12));
}
