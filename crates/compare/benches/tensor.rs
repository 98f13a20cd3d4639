//! What tensors cost, beside the floor that the operating system sets.
//!
//! `cargo bench -p compare --bench tensor` runs all of it in about 30 seconds. "Cold" allocations come fresh
//! from the kernel every time; nothing is pooled.
#![allow(unsafe_code, reason = "the floors call mmap(2) directly")]
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

use cenote::{DType, Tensor, TensorMemory, TensorOptions};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A 1080p RGB image.
const SHAPE: [usize; 3] = [1080, 1920, 3];
const BYTES: usize = 1080 * 1920 * 3;

fn options(memory: TensorMemory) -> TensorOptions {
    Tensor::options().memory(memory)
}

fn frame(memory: TensorMemory) -> Tensor {
    let mut frame = options(memory).create(&SHAPE, DType::U8).unwrap();
    frame.map_mut().unwrap().as_mut_bytes().unwrap().fill(1);
    frame
}

fn access(c: &mut Criterion) {
    let mut group = c.benchmark_group("access");
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        let mut tensor = frame(memory);
        group.bench_function(format!("map/{memory}"), |b| {
            b.iter(|| _ = black_box(black_box(&tensor).map().unwrap()));
        });
        group.bench_function(format!("map_mut/{memory}"), |b| {
            b.iter(|| _ = black_box(black_box(&mut tensor).map_mut().unwrap()));
        });
        group.bench_function(format!("map_as_slice/{memory}"), |b| {
            b.iter(|| black_box(black_box(&tensor).map().unwrap().as_slice::<u8>().unwrap()).len());
        });
    }
    group.finish();
}

fn handles(c: &mut Criterion) {
    let tensor = frame(TensorMemory::Shm);
    let mut group = c.benchmark_group("handle");
    group.bench_function("clone", |b| b.iter(|| black_box(&tensor).clone()));
    group.bench_function("roi", |b| b.iter(|| black_box(&tensor).roi(600, 200, 64, 64).unwrap()));
    group.finish();
}

fn allocation(c: &mut Criterion) {
    let mut group = c.benchmark_group("new_1080p");
    for memory in [TensorMemory::Mem, TensorMemory::Shm] {
        let options = options(memory);
        group.bench_function(format!("{memory}/tensor"), |b| {
            b.iter(|| options.create(black_box(&SHAPE), DType::U8).unwrap());
        });
    }
    group.bench_function("mem/floor_mmap_munmap", |b| b.iter(|| anonymous(black_box(BYTES))));
    group.bench_function("mem/vec", |b| b.iter(|| black_box(vec![0u8; black_box(BYTES)])));
    group.bench_function("shm/floor_memfd_fallocate_mmap", |b| b.iter(|| memfd(black_box(BYTES))));
    group.finish();
}

/// Private zero pages, never touched, and given back.
fn anonymous(len: usize) {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: with a null address the kernel chooses a place that nobody uses.
    let at = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE) }.unwrap();
    // SAFETY: mapped just now, and nobody has a reference to it.
    unsafe { munmap(black_box(at), len) }.unwrap();
}

/// Shared memory with every page reserved, mapped, and given back.
fn memfd(len: usize) {
    let fd = memfd_create("floor", MemfdFlags::CLOEXEC).unwrap();
    fallocate(&fd, FallocateFlags::empty(), 0, len as u64).unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: with a null address the kernel chooses a place that nobody uses.
    let at = unsafe { mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, &fd, 0) }.unwrap();
    // SAFETY: mapped just now, and nobody has a reference to it.
    unsafe { munmap(black_box(at), len) }.unwrap();
}

fn sharing(c: &mut Criterion) {
    let tensor = frame(TensorMemory::Shm);
    let (here, there) = UnixStream::pair().unwrap();
    let mut group = c.benchmark_group("share_1080p");
    group.bench_function("clone_fd", |b| b.iter(|| black_box(&tensor).clone_fd().unwrap()));
    group.bench_function("from_fd", |b| {
        // Few at a time: a batch holds that many file descriptors open.
        let batch = BatchSize::NumIterations(64);
        let import = |fd| drop(black_box(Tensor::from_fd(fd, &SHAPE, DType::U8).unwrap()));
        b.iter_batched(|| tensor.clone_fd().unwrap(), import, batch);
    });
    group.bench_function("send_recv", |b| {
        b.iter(|| {
            black_box(&tensor).send(&here).unwrap();
            Tensor::recv(&there).unwrap()
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(50);
    targets = access, handles, allocation, sharing
}
criterion_main!(benches);
