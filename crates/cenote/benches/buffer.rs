//! What a buffer costs, beside malloc, mimalloc and jemalloc in the same run.
//!
//!     cargo bench -p cenote --bench buffer
//!
//! Rounds of all subjects are interleaved, so that a busy machine slows all of them alike; the
//! figure is the median round. Nothing touches the memory: this is the price of having it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use cenote::BufferPool;

const ROUNDS: usize = 21;

/// Something that is done `times` times in one round.
type Subject<'a> = (&'static str, Box<dyn Fn(u32) + Sync + 'a>);

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    one_thread();
    two_threads();
    hand_over();
    zeroed();
}

fn one_thread() {
    println!("acquire + release, one thread, ns");
    let pool = BufferPool::new().expect("the default cap");
    for size in sizes() {
        let subjects = subjects(&pool, size);
        print_row(size, &compare(&subjects, repeats(size), |subject, times| subject(times)));
    }
}

fn two_threads() {
    println!("\nacquire + release, two threads on one pool, ns an operation of each");
    let pool = BufferPool::with_max_retained_bytes(1 << 30);
    for size in sizes() {
        let subjects = subjects(&pool, size);
        print_row(size, &compare(&subjects, repeats(size), twice));
    }
}

fn hand_over() {
    println!("\nacquired by one thread, dropped by another, ns");
    let pool = BufferPool::with_max_retained_bytes(1 << 30);
    for size in [4 << 10, 64 << 20] {
        let times = 100_000;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let (send, recv) = std::sync::mpsc::sync_channel(16);
            scope.spawn(move || recv.into_iter().for_each(drop));
            for _ in 0..times {
                send.send(pool.acquire::<u8>(size).expect("memory")).expect("the other thread");
            }
        });
        print_row(size, &[("pool, through a channel", nanos(start, times))]);
    }
}

fn zeroed() {
    println!("\nzeroed, 16 MiB, us");
    let size = 16 << 20;
    let pool = BufferPool::with_max_retained_bytes(64 << 20);
    let memory = std::cell::RefCell::new(vec![1_u8; size]);
    let clean: Subject<'_> = (
        "clean block",
        Box::new(|times| {
            (0..times).for_each(|_| drop(black_box(pool.acquire_zeroed::<u8>(size))));
        }),
    );
    let memory = std::sync::Mutex::new(memory);
    let memset: Subject<'_> = (
        "memset",
        Box::new(|times| {
            let memory = memory.lock().expect("one thread");
            (0..times).for_each(|_| black_box(&mut *memory.borrow_mut()).fill(0));
        }),
    );
    let rows = compare(&[clean, memset], 10, |subject, times| subject(times));
    print_row(size, &rows.map_to_micros());
    println!("  clean is {:.3} % of memset", 100.0 * rows[0].1 / rows[1].1);
}

trait Micros {
    fn map_to_micros(&self) -> Vec<(&'static str, f64)>;
}

impl Micros for Vec<(&'static str, f64)> {
    fn map_to_micros(&self) -> Vec<(&'static str, f64)> {
        self.iter().map(|&(name, nanos)| (name, nanos / 1000.0)).collect()
    }
}

fn sizes() -> impl Iterator<Item = usize> {
    [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20].into_iter()
}

/// Large allocations are slow elsewhere: fewer of them.
fn repeats(size: usize) -> u32 {
    if size < 1 << 20 { 100_000 } else { 20_000 }
}

fn subjects(pool: &BufferPool, size: usize) -> Vec<Subject<'_>> {
    let mut subjects: Vec<Subject<'_>> = vec![(
        "pool",
        Box::new(move |times| {
            (0..times).for_each(|_| drop(black_box(pool.acquire::<u8>(black_box(size)))));
        }),
    )];
    subjects.push(("malloc", allocator(System, size)));
    #[cfg(target_os = "linux")]
    {
        subjects.push(("mimalloc", allocator(mimalloc::MiMalloc, size)));
        subjects.push(("jemalloc", allocator(tikv_jemallocator::Jemalloc, size)));
    }
    subjects
}

#[allow(unsafe_code, reason = "calls allocators directly")]
fn allocator<A: GlobalAlloc + Sync + 'static>(with: A, size: usize) -> Box<dyn Fn(u32) + Sync> {
    let layout = Layout::from_size_align(size, 64).expect("a valid layout");
    Box::new(move |times| {
        for _ in 0..times {
            // SAFETY: the size is not zero.
            let start = black_box(unsafe { with.alloc(layout) });
            // SAFETY: it was just allocated with this layout.
            unsafe { with.dealloc(start, layout) };
        }
    })
}

/// Runs a subject on two threads at once.
fn twice(subject: &(dyn Fn(u32) + Sync), times: u32) {
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                barrier.wait();
                subject(times);
            });
        }
    });
}

/// The median nanoseconds of each subject, rounds interleaved.
fn compare(
    subjects: &[Subject<'_>],
    times: u32,
    run: impl Fn(&(dyn Fn(u32) + Sync), u32),
) -> Vec<(&'static str, f64)> {
    let mut rounds = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for (index, (_, subject)) in subjects.iter().enumerate() {
            let start = Instant::now();
            run(subject, times);
            rounds[index].push(nanos(start, times));
        }
    }
    let median = |round: &mut Vec<f64>| {
        round.sort_by(f64::total_cmp);
        round[round.len() / 2]
    };
    subjects.iter().zip(&mut rounds).map(|((name, _), round)| (*name, median(round))).collect()
}

#[allow(clippy::cast_precision_loss, reason = "a benchmark")]
fn nanos(start: Instant, times: u32) -> f64 {
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

fn print_row(size: usize, row: &[(&'static str, f64)]) {
    print!("  {:>6} KiB", size >> 10);
    for (name, value) in row {
        print!("  {name} {value:>9.1}");
    }
    println!();
}
