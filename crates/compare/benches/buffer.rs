//! What a buffer costs, beside malloc, mimalloc and jemalloc in the same run.
//!
//!     cargo bench -p compare --bench buffer
//!
//! Rounds of all subjects are interleaved, so that a busy machine slows all of them alike. A figure
//! is the median round, with the best round in brackets. Nothing touches the memory: this is the
//! price of having it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use cenote::{Buffer, BufferPool};

const ROUNDS: usize = 21;

/// A name, and something that is done as often as it is told and says how long that took.
type Subject<'a> = (&'static str, Box<dyn Fn(u32) -> Duration + 'a>);

/// Nanoseconds of the median and of the best round.
type Figure = (f64, f64);

fn main() {
    // `cargo test --benches` only wants to know that this builds.
    if std::env::args().any(|arg| arg == "--bench") {
        warm_up();
        one_thread();
        two_threads();
        hand_over();
        zeroed();
    }
}

/// Processors take a while to reach their speed.
fn warm_up() {
    let pool = BufferPool::unbounded();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        reuse(&pool, 1 << 20, 1000);
    }
}

fn one_thread() {
    println!("acquire + release, one thread, ns");
    let pool = BufferPool::new().expect("the default cap");
    for size in sizes() {
        let alone = |work: Work<'static>| -> Box<dyn Fn(u32) -> Duration> {
            Box::new(move |times| timed(|| work(times)))
        };
        let pooled: Subject<'_> = ("pool", Box::new(|times| timed(|| reuse(&pool, size, times))));
        let others = allocators(size).into_iter().map(|(name, work)| (name, alone(work)));
        let subjects: Vec<Subject<'_>> = std::iter::once(pooled).chain(others).collect();
        print_row(size, &subjects, repeats(size));
    }
}

fn two_threads() {
    println!("\nacquire + release, two threads on one pool, ns for one operation of one thread");
    let pool = BufferPool::with_max_retained_bytes(1 << 30);
    for size in sizes() {
        let paired = |work: Work<'static>| -> Box<dyn Fn(u32) -> Duration> {
            Box::new(move |times| twice(&work, times))
        };
        let work = |times| reuse(&pool, size, times);
        let pooled: Subject<'_> = ("pool", Box::new(move |times| twice(&work, times)));
        let others = allocators(size).into_iter().map(|(name, work)| (name, paired(work)));
        let subjects: Vec<Subject<'_>> = std::iter::once(pooled).chain(others).collect();
        print_row(size, &subjects, repeats(size));
    }
}

fn hand_over() {
    println!("\nacquired by one thread, dropped by another, ns (most of it is the channel)");
    let pool = BufferPool::with_max_retained_bytes(1 << 30);
    for size in [4 << 10, 64 << 20] {
        let pooled = || pool.acquire::<u8>(size).expect("memory");
        let subjects: Vec<Subject<'_>> = vec![
            ("pool", Box::new(move |times| timed(|| send(pooled, times)))),
            ("nothing", Box::new(|times| timed(|| send(|| (), times)))),
        ];
        print_row(size, &subjects, 2_000);
    }
}

fn zeroed() {
    println!("\nzeroed, ns");
    let size = 16 << 20;
    let pool = BufferPool::with_max_retained_bytes(64 << 20);
    let clean = |times| {
        (0..times).for_each(|_| drop(black_box(pool.acquire_zeroed::<u8>(size))));
    };
    let memory = std::cell::RefCell::new(vec![1_u8; size]);
    let memset = |times| {
        (0..times).for_each(|_| black_box(&mut *memory.borrow_mut()).fill(0));
    };
    // A pool of its own, so that the other one stays clean.
    let soiled = BufferPool::with_max_retained_bytes(64 << 20);
    let used = |times| {
        (0..times).for_each(|_| {
            let mut buffer: Buffer<u8> = soiled.acquire_zeroed(size).expect("memory");
            black_box(&mut *buffer);
        });
    };
    let subjects: Vec<Subject<'_>> = vec![
        ("clean block", Box::new(move |times| timed(|| clean(times)))),
        ("used block", Box::new(move |times| timed(|| used(times)))),
        ("memset", Box::new(move |times| timed(|| memset(times)))),
    ];
    let figures = print_row(size, &subjects, 10);
    println!("  the clean block costs {:.3} % of memset", 100.0 * figures[0].0 / figures[2].0);
}

fn sizes() -> impl Iterator<Item = usize> {
    [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20].into_iter()
}

/// Large allocations are slow elsewhere: fewer of them.
fn repeats(size: usize) -> u32 {
    if size < 1 << 20 { 50_000 } else { 5_000 }
}

fn reuse(pool: &BufferPool, size: usize, times: u32) {
    for _ in 0..times {
        drop(black_box(pool.acquire::<u8>(black_box(size)).expect("memory")));
    }
}

type Work<'a> = Box<dyn Fn(u32) + Sync + 'a>;

fn allocators(size: usize) -> Vec<(&'static str, Work<'static>)> {
    vec![
        ("malloc", allocator(System, size)),
        #[cfg(all(target_os = "linux", not(loom)))]
        ("mimalloc", allocator(mimalloc::MiMalloc, size)),
        #[cfg(all(target_os = "linux", not(loom)))]
        ("jemalloc", allocator(tikv_jemallocator::Jemalloc, size)),
    ]
}

#[allow(unsafe_code, reason = "calls allocators directly")]
fn allocator<A: GlobalAlloc + Sync + 'static>(with: A, size: usize) -> Work<'static> {
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

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Runs on two threads at once; returns the mean of both, without the time to start them.
fn twice(work: &(dyn Fn(u32) + Sync), times: u32) -> Duration {
    let barrier = Barrier::new(2);
    let run = || {
        work(16);
        barrier.wait();
        timed(|| work(times))
    };
    thread::scope(|scope| {
        let (one, two) = (scope.spawn(run), scope.spawn(run));
        (one.join().expect("no panic") + two.join().expect("no panic")) / 2
    })
}

fn send<T: Send>(make: impl Fn() -> T, times: u32) {
    thread::scope(|scope| {
        let (send, recv) = sync_channel(16);
        scope.spawn(move || recv.into_iter().for_each(drop));
        (0..times).for_each(|_| send.send(make()).expect("the other thread"));
    });
}

/// Runs the rounds of all subjects interleaved, and prints and returns their figures.
fn print_row(size: usize, subjects: &[Subject<'_>], times: u32) -> Vec<Figure> {
    let mut rounds = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for ((_, run), round) in subjects.iter().zip(&mut rounds) {
            round.push(run(times).as_secs_f64() * 1e9 / f64::from(times));
        }
    }
    print!("  {:>6} KiB", size >> 10);
    let names = subjects.iter().map(|(name, _)| name);
    let figures = names.zip(rounds).map(|(name, mut round)| {
        round.sort_by(f64::total_cmp);
        let (median, best) = (round[round.len() / 2], round[0]);
        print!("  {name} {median:.1} ({best:.1})");
        (median, best)
    });
    let figures = figures.collect();
    println!();
    figures
}
