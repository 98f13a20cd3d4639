//! Scratch memory of one process: `BufferPool` beside allocators and another pool.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::thread;

use cenote::{Buffer, BufferPool};

use crate::Result;
#[cfg(feature = "allocators")]
use crate::allocators::Raw;
use crate::allocators::{MALLOC, Source};
use crate::networks::{self, Step};
use crate::pace::{Pace, Subject, interleave};
use crate::series::Series;

/// What it is called.
pub(crate) const GROUP: &str = "buffers";

const SIZES: [(&str, usize, bool); 5] = [
    ("4 KiB", 4 << 10, true),
    ("64 KiB", 64 << 10, false),
    ("1 MiB", 1 << 20, false),
    ("6 MB", crate::FRAME, true),
    ("64 MiB", 64 << 20, true),
];

/// All of it.
pub(crate) fn run(pace: Pace) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (name, bytes, quick) in SIZES {
        if quick || pace.full {
            let work = format!("acquire + release, {name}");
            all.extend(everybody(pace, &work, &Steady(bytes / 4))?);
        }
    }
    all.extend(everybody(pace, "random sizes, 8 in use", &Random::new())?);
    all.extend(everybody(pace, "shape churn, 4 of every batch size", &Churn)?);
    for (name, steps) in [
        ("ResNet-50", networks::resnet50()),
        ("YOLOv8n", networks::yolov8n()),
        ("BERT-base", networks::bert_base()),
    ] {
        all.extend(everybody(pace, &format!("inference of {name}"), &Replay(steps))?);
    }
    all.extend(two_threads(pace)?);
    all.extend(hand_over(pace)?);
    all.extend(zeroed(pace)?);
    Ok(all)
}

/// Something to do with a source of blocks, whichever that is.
trait Work {
    fn subject<'a, S: Source + 'a>(&'a self, who: &'static str, source: S) -> Subject<'a>;
}

/// What holds all that is retained.
fn pool() -> BufferPool {
    BufferPool::with_max_retained_bytes(1 << 30)
}

fn everybody(pace: Pace, name: &str, work: &impl Work) -> Result<Vec<Series>> {
    let pool = pool();
    let mut subjects = vec![work.subject("cenote", &pool), work.subject("malloc", MALLOC)];
    #[cfg(feature = "allocators")]
    subjects.push(work.subject("mimalloc", Raw(mimalloc::MiMalloc)));
    #[cfg(feature = "allocators")]
    subjects.push(work.subject("jemalloc", Raw(tikv_jemallocator::Jemalloc)));
    #[cfg(feature = "peers")]
    {
        let theirs = tenferro_cpu_basic::BufferPool::with_max_retained_capacity_bytes(1 << 30);
        subjects.push(work.subject("tenferro-cpu-basic, one thread", theirs));
    }
    interleave(pace, GROUP, name, subjects)
}

/// One size.
struct Steady(usize);

impl Work for Steady {
    fn subject<'a, S: Source + 'a>(&'a self, who: &'static str, mut source: S) -> Subject<'a> {
        Subject::new(who, move || {
            let block = source.take(black_box(self.0))?;
            source.give(black_box(block));
            Ok(())
        })
    }
}

/// Sizes from 64 floats to 4 million, small ones as often as large ones.
struct Random {
    floats: Vec<usize>,
}

impl Random {
    const IN_USE: usize = 8;

    fn new() -> Random {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            // xorshift64: the same numbers every time.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let shift = state % 16;
            let rest = usize::try_from(state >> 40).unwrap_or(0);
            (64 << shift) + rest % (64 << shift)
        };
        Random { floats: (0..4096).map(|_| next()).collect() }
    }
}

impl Work for Random {
    fn subject<'a, S: Source + 'a>(&'a self, who: &'static str, mut source: S) -> Subject<'a> {
        let mut in_use: [Option<S::Block>; Random::IN_USE] = Default::default();
        let mut turn = 0;
        Subject::new(who, move || {
            turn += 1;
            let place = &mut in_use[turn % Random::IN_USE];
            if let Some(block) = place.take() {
                source.give(block);
            }
            *place = Some(source.take(self.floats[turn % self.floats.len()])?);
            Ok(())
        })
    }
}

/// Batches of 1 to 64 by turns: four activations that grow with the batch.
struct Churn;

impl Work for Churn {
    fn subject<'a, S: Source + 'a>(&'a self, who: &'static str, mut source: S) -> Subject<'a> {
        let mut batch = 0;
        Subject::new(who, move || {
            batch = batch % 64 + 1;
            let blocks = [768, 3072, 768, 1000].map(|floats| source.take(batch * floats));
            blocks.into_iter().try_for_each(|block| {
                source.give(block?);
                Ok(())
            })
        })
    }
}

/// All blocks of one inference.
struct Replay(Vec<Step>);

impl Work for Replay {
    fn subject<'a, S: Source + 'a>(&'a self, who: &'static str, mut source: S) -> Subject<'a> {
        let mut blocks: Vec<Option<S::Block>> = Vec::new();
        blocks.resize_with(self.0.len(), || None);
        Subject::new(who, move || {
            for step in &self.0 {
                match *step {
                    Step::Take(block, floats) => blocks[block] = Some(source.take(floats)?),
                    Step::Give(block) => {
                        if let Some(block) = blocks[block].take() {
                            source.give(block);
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

/// What each of two threads does, so that starting them is little of it.
const TURNS: u32 = 50_000;

/// Blocks that go from one thread to another, likewise.
const BLOCKS: u32 = 1_000;

/// Two threads at once, on one pool.
fn two_threads(pace: Pace) -> Result<Vec<Series>> {
    let pool = pool();
    let mut subjects = vec![twice("cenote", || &pool), twice("malloc", || MALLOC)];
    #[cfg(feature = "allocators")]
    subjects.push(twice("mimalloc", || Raw(mimalloc::MiMalloc)));
    #[cfg(feature = "allocators")]
    subjects.push(twice("jemalloc", || Raw(tikv_jemallocator::Jemalloc)));
    let work = "acquire + release, 6 MB, two threads";
    interleave(pace, GROUP, work, subjects)
}

fn twice<'a, S: Source + 'a>(who: &'static str, source: impl Fn() -> S + Sync + 'a) -> Subject<'a> {
    Subject::new(who, move || {
        let barrier = Barrier::new(2);
        let work = || -> Result<()> {
            let mut source = source();
            barrier.wait();
            for _ in 0..TURNS {
                let block = source.take(black_box(crate::FRAME / 4))?;
                source.give(black_box(block));
            }
            Ok(())
        };
        both(&work, &work)
    })
    .of(TURNS)
}

fn both(
    one: &(dyn Fn() -> Result<()> + Sync),
    two: &(dyn Fn() -> Result<()> + Sync),
) -> Result<()> {
    thread::scope(|scope| {
        let second = scope.spawn(two);
        let first = one();
        first.and(second.join().unwrap_or(Err("a thread panicked".into())))
    })
}

/// Acquired by one thread, dropped by another.
fn hand_over(pace: Pace) -> Result<Vec<Series>> {
    let pool = pool();
    let mut subjects = vec![
        Subject::new("cenote", || sent(|| &pool)).of(BLOCKS),
        Subject::new("malloc", || sent(|| MALLOC)).of(BLOCKS),
        Subject::new("the channel alone", || sent(|| Nothing)).of(BLOCKS),
    ];
    #[cfg(feature = "allocators")]
    subjects.push(Subject::new("mimalloc", || sent(|| Raw(mimalloc::MiMalloc))).of(BLOCKS));
    #[cfg(feature = "allocators")]
    subjects
        .push(Subject::new("jemalloc", || sent(|| Raw(tikv_jemallocator::Jemalloc))).of(BLOCKS));
    let work = "6 MB from one thread to another";
    interleave(pace, GROUP, work, subjects)
}

fn sent<S: Source + Send>(source: impl Fn() -> S) -> Result<()>
where
    S::Block: Send,
{
    thread::scope(|scope| {
        let (send, recv) = sync_channel(16);
        let (mut source, mut giver) = (source(), source());
        scope.spawn(move || recv.into_iter().for_each(|block| giver.give(block)));
        for _ in 0..BLOCKS {
            send.send(source.take(crate::FRAME / 4)?).map_err(|_| "the other thread ended")?;
        }
        Ok(())
    })
}

/// Gives nothing.
struct Nothing;

impl Source for Nothing {
    type Block = [std::mem::MaybeUninit<u8>; 0];

    fn take(&mut self, _: usize) -> Result<Self::Block> {
        Ok([])
    }

    fn give(&mut self, _: Self::Block) {}

    fn bytes(block: &mut Self::Block) -> &mut [std::mem::MaybeUninit<u8>] {
        block
    }
}

/// Blocks that are all zeros.
fn zeroed(pace: Pace) -> Result<Vec<Series>> {
    const FLOATS: usize = 4 << 20;
    let (clean, used) = (pool(), pool());
    let written = || {
        let mut buffer: Buffer<f32> = used.acquire_zeroed(FLOATS)?;
        black_box(&mut *buffer);
        Ok(())
    };
    let mut memory = vec![1_f32; FLOATS];
    let mut subjects = vec![
        Subject::new("cenote, nobody wrote", || Ok(clean.acquire_zeroed::<f32>(FLOATS)?)),
        Subject::new("cenote, written", written),
        Subject::new("calloc", || {
            let mut source = MALLOC;
            let block = source.take_zeroed(FLOATS)?;
            source.give(black_box(block));
            Ok(())
        }),
        Subject::new("memset alone", || {
            black_box(&mut memory).fill(0.0);
            Ok(())
        }),
    ];
    #[cfg(feature = "peers")]
    {
        use tenferro_cpu_basic::PoolScalar;

        let mut pool = tenferro_cpu_basic::BufferPool::with_max_retained_capacity_bytes(1 << 30);
        subjects.push(Subject::new("tenferro-cpu-basic, one thread", move || {
            let block = pool.acquire_zeroed::<f32>(FLOATS);
            f32::pool_release(&mut pool, block);
            Ok(())
        }));
    }
    interleave(pace, GROUP, "zeroed, 16 MiB", subjects)
}
