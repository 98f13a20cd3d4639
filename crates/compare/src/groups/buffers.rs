//! Scratch memory of one process: `BufferPool`, general allocators, and the pool of tenferro.

mod networks;

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::thread;

use cenote::{Buffer, BufferPool};

use crate::Result;
#[cfg(feature = "allocators")]
use crate::allocators::General;
use crate::allocators::{Allocator, MALLOC};
use crate::measure::rounds::{Schedule, Subject, interleave};
use crate::measure::series::Series;

use networks::Step;

/// The name of the group.
pub(crate) const GROUP: &str = "buffers";

/// Names, bytes, and whether the quick run includes the size.
const SIZES: [(&str, usize, bool); 5] = [
    ("4 KiB", 4 << 10, true),
    ("64 KiB", 64 << 10, false),
    ("1 MiB", 1 << 20, false),
    ("6 MB", crate::FRAME, true),
    ("64 MiB", 64 << 20, true),
];

/// Measures the group.
pub(crate) fn run(schedule: Schedule) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (name, bytes, quick) in SIZES {
        if quick || schedule.full {
            let work = format!("acquire + release, {name}");
            all.extend(every_allocator(schedule, &work, &OneSize(bytes / 4))?);
        }
    }
    all.extend(every_allocator(schedule, "random sizes, 8 in use", &RandomSizes::new())?);
    all.extend(every_allocator(schedule, "shape churn, 4 of every batch size", &GrowingBatches)?);
    for (name, steps) in [
        ("ResNet-50", networks::resnet50()),
        ("YOLOv8n", networks::yolov8n()),
        ("BERT-base", networks::bert_base()),
    ] {
        all.extend(every_allocator(schedule, &format!("inference of {name}"), &Inference(steps))?);
    }
    all.extend(two_threads(schedule)?);
    all.extend(hand_over(schedule)?);
    all.extend(zeroed(schedule)?);
    Ok(all)
}

/// A workload for any allocator.
trait Workload {
    fn subject<'a, A: Allocator + 'a>(&'a self, who: &'static str, allocator: A) -> Subject<'a>;
}

/// A pool that retains every buffer of these workloads.
fn pool() -> BufferPool {
    BufferPool::with_max_retained_bytes(1 << 30)
}

fn every_allocator(schedule: Schedule, name: &str, work: &impl Workload) -> Result<Vec<Series>> {
    let pool = pool();
    let mut subjects = vec![work.subject("cenote", &pool), work.subject("malloc", MALLOC)];
    #[cfg(feature = "allocators")]
    subjects.push(work.subject("mimalloc", General(mimalloc::MiMalloc)));
    #[cfg(feature = "allocators")]
    subjects.push(work.subject("jemalloc", General(tikv_jemallocator::Jemalloc)));
    #[cfg(feature = "peers")]
    {
        let tenferro = tenferro_cpu_basic::BufferPool::with_max_retained_capacity_bytes(1 << 30);
        subjects.push(work.subject("tenferro-cpu-basic, one thread", tenferro));
    }
    interleave(schedule, GROUP, name, subjects)
}

/// Blocks of one size, in floats.
struct OneSize(usize);

impl Workload for OneSize {
    fn subject<'a, A: Allocator + 'a>(
        &'a self,
        who: &'static str,
        mut allocator: A,
    ) -> Subject<'a> {
        Subject::new(who, move || {
            let block = allocator.alloc(black_box(self.0))?;
            allocator.free(black_box(block));
            Ok(())
        })
    }
}

/// Blocks of 64 to 4 million floats; small ones are as frequent as large ones.
struct RandomSizes {
    floats: Vec<usize>,
}

impl RandomSizes {
    const IN_USE: usize = 8;

    fn new() -> RandomSizes {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            // xorshift64: every run has the same numbers.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let shift = state % 16;
            let rest = usize::try_from(state >> 40).unwrap_or(0);
            (64 << shift) + rest % (64 << shift)
        };
        RandomSizes { floats: (0..4096).map(|_| next()).collect() }
    }
}

impl Workload for RandomSizes {
    fn subject<'a, A: Allocator + 'a>(
        &'a self,
        who: &'static str,
        mut allocator: A,
    ) -> Subject<'a> {
        let mut in_use: [Option<A::Block>; RandomSizes::IN_USE] = Default::default();
        let mut call = 0;
        Subject::new(who, move || {
            call += 1;
            let slot = &mut in_use[call % RandomSizes::IN_USE];
            if let Some(block) = slot.take() {
                allocator.free(block);
            }
            *slot = Some(allocator.alloc(self.floats[call % self.floats.len()])?);
            Ok(())
        })
    }
}

/// The activations of batches of 1 to 64: four blocks that grow with the batch.
struct GrowingBatches;

impl Workload for GrowingBatches {
    fn subject<'a, A: Allocator + 'a>(
        &'a self,
        who: &'static str,
        mut allocator: A,
    ) -> Subject<'a> {
        let mut batch = 0;
        Subject::new(who, move || {
            batch = batch % 64 + 1;
            let blocks = [768, 3072, 768, 1000].map(|floats| allocator.alloc(batch * floats));
            blocks.into_iter().try_for_each(|block| {
                allocator.free(block?);
                Ok(())
            })
        })
    }
}

/// The blocks of one inference.
struct Inference(Vec<Step>);

impl Workload for Inference {
    fn subject<'a, A: Allocator + 'a>(
        &'a self,
        who: &'static str,
        mut allocator: A,
    ) -> Subject<'a> {
        let mut blocks: Vec<Option<A::Block>> = Vec::new();
        blocks.resize_with(self.0.len(), || None);
        Subject::new(who, move || {
            for step in &self.0 {
                match *step {
                    Step::Alloc(block, floats) => blocks[block] = Some(allocator.alloc(floats)?),
                    Step::Free(block) => {
                        if let Some(block) = blocks[block].take() {
                            allocator.free(block);
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

/// The operations of each of two threads. Starting the threads takes a small share of the time of this many.
const OPERATIONS: u32 = 50_000;

/// The blocks that go from one thread to another, for the same reason.
const BLOCKS: u32 = 1_000;

/// Two threads that use one pool at the same time.
fn two_threads(schedule: Schedule) -> Result<Vec<Series>> {
    let pool = pool();
    let mut subjects =
        vec![in_two_threads("cenote", || &pool), in_two_threads("malloc", || MALLOC)];
    #[cfg(feature = "allocators")]
    subjects.push(in_two_threads("mimalloc", || General(mimalloc::MiMalloc)));
    #[cfg(feature = "allocators")]
    subjects.push(in_two_threads("jemalloc", || General(tikv_jemallocator::Jemalloc)));
    let work = "acquire + release, 6 MB, two threads";
    interleave(schedule, GROUP, work, subjects)
}

fn in_two_threads<'a, A: Allocator + 'a>(
    who: &'static str,
    allocator: impl Fn() -> A + Sync + 'a,
) -> Subject<'a> {
    Subject::new(who, move || {
        let barrier = Barrier::new(2);
        let work = || -> Result<()> {
            let mut allocator = allocator();
            barrier.wait();
            for _ in 0..OPERATIONS {
                let block = allocator.alloc(black_box(crate::FRAME / 4))?;
                allocator.free(black_box(block));
            }
            Ok(())
        };
        run_both(&work, &work)
    })
    .operations(OPERATIONS)
}

fn run_both(
    one: &(dyn Fn() -> Result<()> + Sync),
    two: &(dyn Fn() -> Result<()> + Sync),
) -> Result<()> {
    thread::scope(|scope| {
        let second = scope.spawn(two);
        let first = one();
        first.and(second.join().unwrap_or(Err("a thread panicked".into())))
    })
}

/// One thread acquires blocks, another drops them.
fn hand_over(schedule: Schedule) -> Result<Vec<Series>> {
    let pool = pool();
    let mut subjects = vec![
        Subject::new("cenote", || through_channel(|| &pool)).operations(BLOCKS),
        Subject::new("malloc", || through_channel(|| MALLOC)).operations(BLOCKS),
        Subject::new("the channel alone", || through_channel(|| NoMemory)).operations(BLOCKS),
    ];
    #[cfg(feature = "allocators")]
    subjects.push(
        Subject::new("mimalloc", || through_channel(|| General(mimalloc::MiMalloc)))
            .operations(BLOCKS),
    );
    #[cfg(feature = "allocators")]
    subjects.push(
        Subject::new("jemalloc", || through_channel(|| General(tikv_jemallocator::Jemalloc)))
            .operations(BLOCKS),
    );
    let work = "6 MB from one thread to another";
    interleave(schedule, GROUP, work, subjects)
}

fn through_channel<A: Allocator + Send>(allocator: impl Fn() -> A) -> Result<()>
where
    A::Block: Send,
{
    thread::scope(|scope| {
        let (send, recv) = sync_channel(16);
        let (mut here, mut there) = (allocator(), allocator());
        scope.spawn(move || recv.into_iter().for_each(|block| there.free(block)));
        for _ in 0..BLOCKS {
            send.send(here.alloc(crate::FRAME / 4)?).map_err(|_| "the other thread ended")?;
        }
        Ok(())
    })
}

/// Allocates nothing.
struct NoMemory;

impl Allocator for NoMemory {
    type Block = [std::mem::MaybeUninit<u8>; 0];

    fn alloc(&mut self, _: usize) -> Result<Self::Block> {
        Ok([])
    }

    fn free(&mut self, _: Self::Block) {}

    fn bytes(block: &mut Self::Block) -> &mut [std::mem::MaybeUninit<u8>] {
        block
    }
}

/// Blocks of zeros.
fn zeroed(schedule: Schedule) -> Result<Vec<Series>> {
    const FLOATS: usize = 4 << 20;
    let (clean, used) = (pool(), pool());
    let written = || {
        let mut buffer: Buffer<f32> = used.acquire_zeroed(FLOATS)?;
        black_box(&mut *buffer);
        Ok(())
    };
    let mut memory = vec![1_f32; FLOATS];
    let mut subjects = vec![
        Subject::new("cenote, never written", || Ok(clean.acquire_zeroed::<f32>(FLOATS)?)),
        Subject::new("cenote, written", written),
        Subject::new("calloc", || {
            let mut allocator = MALLOC;
            let block = allocator.alloc_zeroed(FLOATS)?;
            allocator.free(black_box(block));
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
    interleave(schedule, GROUP, "zeroed, 16 MiB", subjects)
}
