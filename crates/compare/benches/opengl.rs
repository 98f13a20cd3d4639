//! Measures mapping a tensor in an OpenGL buffer, in shared memory and on the heap.
//!
//! `cargo bench -p compare --features gl --bench opengl` takes about 10 seconds. If the driver cannot keep buffers mapped,
//! the thread of the OpenGL context maps the buffer each time. `MESA_EXTENSION_OVERRIDE` makes Mesa such a driver.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::time::Duration;

use cenote::{DType, GlContext, Tensor, TensorMemory, TensorOptions};
use criterion::{Criterion, criterion_group, criterion_main};

/// A 1080p RGBA image.
const SHAPE: [usize; 3] = [1080, 1920, 4];

fn map(c: &mut Criterion) {
    let gl = GlContext::headless().unwrap();
    let info = gl.info();
    let kept = if info.persistent_maps { "stay mapped" } else { "are mapped each time" };
    println!("{}, {}: buffers {kept}", info.renderer, info.version);
    let on = |memory| Tensor::options().memory(memory);
    let memories =
        [("pbo", gl.options()), ("shm", on(TensorMemory::Shm)), ("mem", on(TensorMemory::Mem))];
    let mut group = c.benchmark_group("map_1080p");
    for (name, options) in memories {
        let mut tensor = frame(&options);
        group.bench_function(format!("map/{name}"), |b| {
            b.iter(|| _ = black_box(black_box(&tensor).map().unwrap()));
        });
        group.bench_function(format!("map_mut/{name}"), |b| {
            b.iter(|| _ = black_box(black_box(&mut tensor).map_mut().unwrap()));
        });
    }
    group.finish();
}

/// An image whose every page was written.
fn frame(options: &TensorOptions) -> Tensor {
    let mut frame = options.create(&SHAPE, DType::U8).unwrap();
    frame.map_mut().unwrap().as_mut_bytes().unwrap().fill(1);
    frame
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(50);
    targets = map
}
criterion_main!(benches);
